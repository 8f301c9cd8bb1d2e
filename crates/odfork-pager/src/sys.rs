//! The kernel for supervisor and daemon: memory files, mappings, file ranges, futexes, limits.
//!
//! Thin: rustix where it covers the call. Owns no policy; messages over sockets are in `socket`.
//! Errors are `std::io::Error`.

use std::ffi::{c_int, CStr};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec};

/// The answer of a call that says -1 and errno.
pub fn check(answer: c_int) -> Result<c_int> {
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// As [`check`], for calls that answer with a size.
pub fn check_size(answer: isize) -> Result<usize> {
    usize::try_from(answer).map_err(|_| Error::last_os_error())
}

/// A sparse memory file that can no longer change its size.
pub fn memory_file(name: &CStr, bytes: u64) -> Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A shared mapping of a whole memory file, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process; what lies in it is only reached through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a memory file to read and write.
    pub fn of(file: BorrowedFd, bytes: usize) -> Result<Mapping> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, READ_WRITE, flags, file, 0)? };
        Mapping::new(at, bytes)
    }

    fn new(at: *mut std::ffi::c_void, bytes: usize) -> Result<Mapping> {
        let at = NonNull::new(at.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, bytes })
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and references into it do not outlive it.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Gives the pages of `[offset, offset + bytes)` back; the file reads as zeros there.
pub fn punch(file: BorrowedFd, offset: u64, bytes: u64) -> Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, bytes))?)
}

/// Reads all of `buffer`.
///
/// # Errors
/// Those of pread(2), and `UnexpectedEof` where the file ends.
pub fn read_all(file: BorrowedFd, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
    while !buffer.is_empty() {
        match retry_on_intr(|| rustix::io::pread(file, &mut *buffer, offset))? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            done => {
                buffer = &mut buffer[done..];
                offset += done as u64;
            }
        }
    }
    Ok(())
}

/// Writes all of `buffer`.
pub fn write_all(file: BorrowedFd, mut buffer: &[u8], mut offset: u64) -> Result<()> {
    while !buffer.is_empty() {
        match retry_on_intr(|| rustix::io::pwrite(file, buffer, offset))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            done => {
                buffer = &buffer[done..];
                offset += done as u64;
            }
        }
    }
    Ok(())
}

/// Where the next data of a memory file begins and ends, from `offset` on; `None` when only holes
/// follow. Moves the file's position, which nobody uses.
pub fn next_data(file: BorrowedFd, offset: u64) -> Option<(u64, u64)> {
    let start = rustix::fs::seek(file, SeekFrom::Data(offset)).ok()?;
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).ok()?;
    (end > start).then_some((start, end))
}

/// Raises the limit of open files as far as it goes; returns it.
pub fn raise_open_files() -> u64 {
    let files = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: files.maximum, ..files };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => files.maximum.unwrap_or(u64::MAX),
        Err(_) => files.current.unwrap_or(u64::MAX),
    }
}

/// Takes off the limits of whoever happens to start the daemon, which serves others, too, and for
/// longer. What may not be raised any more stays where its hard limit is.
///
/// # Errors
/// One line: a limit under which the daemon would be killed by a signal.
pub fn drop_limits() -> std::result::Result<(), String> {
    for limit in [Resource::Fsize, Resource::Cpu, Resource::As, Resource::Data] {
        let hard = rustix::process::getrlimit(limit).maximum;
        let none = Rlimit { current: None, maximum: None };
        if rustix::process::setrlimit(limit, none).is_err() {
            let _ = rustix::process::setrlimit(limit, Rlimit { current: hard, maximum: hard });
        }
    }
    // A daemon that has used up its processor time is replaced; that should be rare.
    const SECONDS: u64 = 600;
    for (limit, least, what, option) in [
        (Resource::Fsize, u64::MAX, "the size of files", 'f'),
        (Resource::Cpu, SECONDS, "processor time", 't'),
    ] {
        let hard = rustix::process::getrlimit(limit).maximum;
        if let Some(hard) = hard.filter(|&hard| hard < least) {
            return Err(format!(
                "the hard limit of {what} here is {hard} and would kill the daemon: raise it \
                 (ulimit -H{option}), or start 'odfork page daemon' where there is none"
            ));
        }
    }
    Ok(())
}

/// A process of ours takes nothing over from where it happens to be started: no environment
/// (libraries are preloaded by it), no folder that would be held.
pub fn bare(command: &mut std::process::Command) {
    command.env_clear().current_dir("/");
}

/// Descriptors above `last` do not survive the next exec. For use between fork and exec.
pub fn keep_no_more_than(last: RawFd) -> Result<()> {
    let (first, flags) = (last as u32 + 1, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: a plain call; descriptors stay open until the exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    check_size(done as isize).map(drop)
}

/// Sleeps while `word` has the value `seen`, at most so long. Any outcome is fine: callers look
/// again.
pub fn futex_wait(word: &AtomicU32, seen: u32, most: Duration) {
    let time = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&time));
}

/// Wakes all sleepers on `word`, in all processes.
pub fn futex_wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds the calling thread has computed.
pub fn thread_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A buffer aligned to a page, as direct I/O wants it.
#[derive(Debug)]
pub struct Buffer(Mapping);

impl Buffer {
    /// Zeros, rounded up to whole pages.
    ///
    /// # Errors
    /// No memory.
    pub fn new(bytes: usize) -> Result<Buffer> {
        let null = std::ptr::null_mut();
        // SAFETY: a new private mapping.
        let at = unsafe { rustix::mm::mmap_anonymous(null, bytes, READ_WRITE, MapFlags::PRIVATE)? };
        Ok(Buffer(Mapping::new(at, bytes)?))
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: private memory of this buffer alone.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.bytes()) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.0.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn data_is_found_and_punched() {
        let file = memory_file(c"test", 1 << 30).unwrap();
        assert_eq!(next_data(file.as_fd(), 0), None);
        write_all(file.as_fd(), &[1; 8192], 40960).unwrap();
        assert_eq!(next_data(file.as_fd(), 0), Some((40960, 49152)));
        punch(file.as_fd(), 40960, 4096).unwrap();
        assert_eq!(next_data(file.as_fd(), 0), Some((45056, 49152)));
    }
}
