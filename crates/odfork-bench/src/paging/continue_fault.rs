//! The bare continue fault: what simulating one reference bit costs at least. The yardstick beside
//! the pager's reclaims.
//!
//! Shared memory that is complete but not mapped; one thread touches it page by page, one answers
//! every minor fault by UFFDIO_CONTINUE and does nothing else. No policy, no lists, no store. Minor
//! faults of shared memory need Linux 5.14.

use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use odfork_sys::abi::userfaultfd::{self, Api, Fill, Message, Range, Register};
use rustix::fs::{memfd_create, MemfdFlags};

use super::page::PAGE;
use super::workload::Done;
use crate::mapping::Mapping;

const DEVICE: &str = "/dev/userfaultfd";
/// 16 MB: more than the processor's second cache holds, as the pager's memory is.
const PAGES: usize = 4096;
/// One more page ends the other thread.
const LENGTH: u64 = (PAGES as u64 + 1) * PAGE;

fn failed(what: &str, error: &Error) -> String {
    format!(
        "{what}: {error}; the bare fault needs userfaultfd with minor faults of shared memory \
         (Linux 5.14, root or {DEVICE})"
    )
}

fn open() -> Result<OwnedFd, Error> {
    // SAFETY: flags only.
    let mut called = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) } as i32;
    if called < 0 {
        let refused = Error::last_os_error();
        let device = File::options().read(true).write(true).open(DEVICE).map_err(|_| refused)?;
        // SAFETY: the device's one request, with flags.
        called = unsafe { libc::ioctl(device.as_raw_fd(), userfaultfd::NEW, libc::O_CLOEXEC) };
    }
    if called < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: just made by the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(called) })
}

fn request<T>(uffd: &OwnedFd, number: u64, argument: &mut T) -> Result<(), Error> {
    // SAFETY: every caller passes the structure that belongs to the number.
    match unsafe { libc::ioctl(uffd.as_raw_fd(), number, std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Memory that is there but not mapped. Both threads only read it.
struct Unmapped {
    memory: Mapping,
    uffd: OwnedFd,
}

impl Unmapped {
    fn new() -> Result<Unmapped, String> {
        let uffd = open().map_err(|error| failed("userfaultfd", &error))?;
        let features = userfaultfd::FEATURE_MINOR_SHMEM;
        let mut api = Api { api: userfaultfd::VERSION, features, ioctls: 0 };
        request(&uffd, userfaultfd::API, &mut api).map_err(|e| failed("UFFDIO_API", &e))?;
        let mut memory = shared_memory().map_err(|error| failed("memfd_create", &error))?;
        memory.words().fill(0x5a5a_5a5a_5a5a_5a5a);
        let range = Range { start: memory.base() as u64, len: LENGTH };
        let made = Unmapped { memory, uffd };
        made.unmap(PAGES, 1);
        let mut register = Register { range, mode: userfaultfd::REGISTER_MODE_MINOR, ioctls: 0 };
        request(&made.uffd, userfaultfd::REGISTER, &mut register)
            .map_err(|error| failed("UFFDIO_REGISTER", &error))?;
        Ok(made)
    }

    fn page(&self, number: usize) -> *mut u8 {
        // SAFETY: inside the mapping: the callers count to `PAGES`.
        unsafe { self.memory.base().cast::<u8>().add(number * PAGE as usize) }
    }

    fn unmap(&self, first: usize, pages: usize) {
        // SAFETY: our own shared mapping: the pages stay in the file.
        unsafe {
            libc::madvise(self.page(first).cast(), pages * PAGE as usize, libc::MADV_DONTNEED)
        };
    }

    fn touch(&self, number: usize) {
        // SAFETY: inside the mapping; a fault is answered by the other thread.
        unsafe { self.page(number).read_volatile() };
    }

    /// Answers faults until the one at the page behind the last; a flag could come too late.
    fn serve(&self) {
        loop {
            let mut message = Message::default();
            // SAFETY: room for one message of 32 bytes.
            let got = unsafe { libc::read(self.uffd.as_raw_fd(), (&raw mut message).cast(), 32) };
            if got != 32 {
                continue;
            }
            let start = message.address & !(PAGE - 1);
            let mut fill = Fill { range: Range { start, len: PAGE }, mode: 0, done: 0 };
            // A failure would leave the other thread waiting: nothing but ending helps.
            if request(&self.uffd, userfaultfd::CONTINUE, &mut fill).is_err() {
                std::process::abort();
            }
            if start == self.page(PAGES) as u64 {
                return;
            }
        }
    }
}

fn shared_memory() -> Result<Mapping, Error> {
    let file = File::from(memfd_create("odfork-bare", MemfdFlags::CLOEXEC)?);
    file.set_len(LENGTH)?;
    Mapping::of_file(&file, LENGTH)
}

/// Faults in order for `limit`; the latencies are of single faults.
pub fn bare_continue(limit: Duration) -> Result<Done, String> {
    let memory = Unmapped::new()?;
    let mut done = Done::default();
    std::thread::scope(|scope| {
        scope.spawn(|| memory.serve());
        let begin = Instant::now();
        // At least one pass.
        while done.accesses == 0 || begin.elapsed() < limit {
            memory.unmap(0, PAGES);
            for page in 0..PAGES {
                let before = Instant::now();
                memory.touch(page);
                let time = before.elapsed();
                done.count(time);
                done.ns += time.as_nanos() as u64;
            }
        }
        memory.touch(PAGES);
    });
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_touch_is_one_fault() {
        match bare_continue(Duration::from_millis(1)) {
            Ok(done) => {
                assert_eq!(done.accesses, done.latencies.count());
                assert!(done.accesses >= PAGES as u64);
                // A minor fault answered by another thread cannot be as quick as a read.
                assert!(done.latencies.quantile(0.5) > 500.0, "{}", done.latencies.quantile(0.5));
            }
            Err(why) => println!("SKIPPED: {why}"),
        }
    }
}
