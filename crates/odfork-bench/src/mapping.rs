//! Memory of a workload: mapped at once, unmapped when it is dropped.

use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::ptr;

/// Readable and writable memory, a whole number of words.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u64,
    bytes: usize,
}

// SAFETY: plain memory, owned by this value; who shares it across threads says how it is used.
unsafe impl Send for Mapping {}
// SAFETY: as above; `words` needs a `&mut`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private zeroed memory.
    pub fn anonymous(bytes: u64) -> std::io::Result<Mapping> {
        map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Zeroed memory shared with children: a fork copies no page-table entries of it, and no engine
    /// freezes it.
    pub fn shared(bytes: u64) -> std::io::Result<Mapping> {
        map(bytes, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    /// The first bytes of a file, shared with it.
    pub fn of_file(file: &File, bytes: u64) -> std::io::Result<Mapping> {
        map(bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    pub fn base(&self) -> *mut u64 {
        self.base
    }

    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: our own mapping of that many words, borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes / 8) }
    }
}

fn map(bytes: u64, flags: libc::c_int, file: libc::c_int) -> std::io::Result<Mapping> {
    let bytes = usize::try_from((bytes / 8).max(1) * 8)
        .map_err(|_| Error::from_raw_os_error(libc::ENOMEM))?;
    Ok(Mapping { base: obtain(bytes, flags, file)?.cast(), bytes })
}

/// New memory where the kernel likes, for whoever keeps it to the end of the process. By the C
/// library: our pager pages what a program maps by its functions.
pub fn obtain(bytes: usize, flags: libc::c_int, file: libc::c_int) -> std::io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: nothing of ours is replaced.
    match unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) } {
        libc::MAP_FAILED => Err(Error::last_os_error()),
        base => Ok(base.cast()),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nobody borrows it any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
