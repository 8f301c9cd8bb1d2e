//! Memory of a job: mapped, used as words, given back when the job is done.

use anyhow::{bail, Result};

/// Zeroed words of an anonymous mapping.
#[derive(Debug)]
pub struct Slab {
    base: *mut u64,
    words: usize,
}

impl Slab {
    /// # Errors
    /// No memory.
    pub fn map(bytes: u64) -> Result<Slab> {
        let words = (bytes / 8).max(1) as usize;
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            bail!("{} MB cannot be mapped: {}", bytes >> 20, std::io::Error::last_os_error());
        }
        Ok(Slab { base: base.cast(), words })
    }

    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: our own mapping of that many words, zeroed by the kernel, borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.words) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nobody borrows it any more.
        unsafe { libc::munmap(self.base.cast(), self.words * 8) };
    }
}
