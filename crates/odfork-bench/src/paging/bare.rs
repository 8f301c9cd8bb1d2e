//! The bare continue fault: what simulating one reference bit costs at least. The yardstick beside the pager's reclaims.
//!
//! Shared memory that is complete but not mapped, one thread that touches it page by page, one that answers every minor
//! fault by UFFDIO_CONTINUE and does nothing else. No policy, no lists, no store. Minor faults
//! of shared memory need Linux 5.14.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use odfork_sys::abi::userfaultfd::{self, Api, Fill, Message, Range, Register};

use super::acts::Done;
use super::pattern::PAGE;

const DEVICE: &str = "/dev/userfaultfd";
/// 16 MB: more than the processor's second cache holds, as the pager's memory is.
const PAGES: usize = 4096;
/// One more page ends the other thread.
const LENGTH: usize = (PAGES + 1) * PAGE as usize;

fn failed(what: &str) -> String {
    let error = Error::last_os_error();
    format!("{what}: {error}; the bare fault needs userfaultfd with minor faults of shared memory (Linux 5.14, root or {DEVICE})")
}

fn descriptor(number: i64, what: &str) -> Result<OwnedFd, String> {
    if number < 0 {
        return Err(failed(what));
    }
    // SAFETY: just made by the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

fn open() -> Result<OwnedFd, String> {
    // SAFETY: flags only.
    let called = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if called >= 0 {
        return descriptor(called, "userfaultfd");
    }
    let device = std::fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = device.map_err(|_| failed("userfaultfd"))?;
    // SAFETY: the device's one request, with flags.
    let new = unsafe { libc::ioctl(device.as_raw_fd(), userfaultfd::NEW, libc::O_CLOEXEC) };
    descriptor(i64::from(new), DEVICE)
}

fn request<T>(uffd: &OwnedFd, number: u64, argument: &mut T, what: &str) -> Result<(), String> {
    // SAFETY: every caller passes the structure that belongs to the number.
    match unsafe { libc::ioctl(uffd.as_raw_fd(), number, std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(failed(what)),
    }
}

/// Memory that is there but not mapped.
struct Field {
    base: *mut u8,
    uffd: OwnedFd,
}

// SAFETY: plain memory; both threads only read it.
unsafe impl Sync for Field {}

impl Drop for Field {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nobody uses it any more.
        unsafe { libc::munmap(self.base.cast(), LENGTH) };
    }
}

impl Field {
    fn new() -> Result<Field, String> {
        let uffd = open()?;
        let mut api = Api {
            api: userfaultfd::VERSION,
            features: userfaultfd::FEATURE_MINOR_SHMEM,
            ioctls: 0,
        };
        request(&uffd, userfaultfd::API, &mut api, "UFFDIO_API")?;
        // SAFETY: a name and flags.
        let file = unsafe { libc::memfd_create(c"odfork-bare".as_ptr(), libc::MFD_CLOEXEC) };
        let file = descriptor(i64::from(file), "memfd_create")?;
        // SAFETY: our own file; a new mapping of it, where the kernel likes, whose every byte is then written.
        let base = unsafe {
            if libc::ftruncate(file.as_raw_fd(), LENGTH as i64) != 0 {
                return Err(failed("ftruncate"));
            }
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(
                std::ptr::null_mut(),
                LENGTH,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            if base == libc::MAP_FAILED {
                return Err(failed("mmap"));
            }
            std::ptr::write_bytes(base.cast::<u8>(), 0x5a, LENGTH);
            base.cast::<u8>()
        };
        let field = Field { base, uffd };
        field.unmap(PAGES, 1);
        let mut register = Register {
            range: Range { start: base as u64, len: LENGTH as u64 },
            mode: userfaultfd::REGISTER_MODE_MINOR,
            ioctls: 0,
        };
        request(&field.uffd, userfaultfd::REGISTER, &mut register, "UFFDIO_REGISTER")?;
        Ok(field)
    }

    fn unmap(&self, first: usize, pages: usize) {
        // SAFETY: our own shared mapping: the pages stay in the file.
        unsafe {
            let start = self.base.add(first * PAGE as usize);
            libc::madvise(start.cast(), pages * PAGE as usize, libc::MADV_DONTNEED);
        }
    }

    fn touch(&self, page: usize) {
        // SAFETY: inside the mapping; a fault is answered by the other thread.
        unsafe { self.base.add(page * PAGE as usize).read_volatile() };
    }

    /// Answers faults until the one at the page behind the last: nothing is asked of it that a flag could be too late for.
    fn serve(&self) {
        loop {
            let mut message = Message::default();
            // SAFETY: room for one message of 32 bytes.
            let got = unsafe { libc::read(self.uffd.as_raw_fd(), (&raw mut message).cast(), 32) };
            if got != 32 {
                continue;
            }
            let page = message.address & !(PAGE - 1);
            // A failure would leave the other thread waiting: nothing but ending helps.
            let range = Range { start: page, len: PAGE };
            let mut fill = Fill { range, mode: 0, done: 0 };
            if request(&self.uffd, userfaultfd::CONTINUE, &mut fill, "UFFDIO_CONTINUE").is_err() {
                std::process::abort();
            }
            if page == self.base as u64 + PAGES as u64 * PAGE {
                return;
            }
        }
    }
}

/// Faults in order for `limit`; the latencies are of single faults.
///
/// # Errors
/// No userfaultfd for this user, or a kernel without minor faults of shared memory: one line.
pub fn bare_continue(limit: Duration) -> Result<Done, String> {
    let field = Field::new()?;
    let mut done = Done::default();
    std::thread::scope(|scope| {
        scope.spawn(|| field.serve());
        let begin = Instant::now();
        // At least one pass.
        while done.accesses == 0 || begin.elapsed() < limit {
            field.unmap(0, PAGES);
            for page in 0..PAGES {
                let before = Instant::now();
                field.touch(page);
                let ns = before.elapsed().as_nanos() as u64;
                done.latencies.add(ns);
                done.ns += ns;
                done.accesses += 1;
            }
        }
        field.touch(PAGES);
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
