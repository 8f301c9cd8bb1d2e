//! The buffer that a parent copies its memory to and from.

use super::children::Failure;
use super::layout::map_shared;
use super::PAGE;

/// Size of the buffer the parent copies from and to, as in the published program.
const BUFFER: usize = 32 << 20;
/// Pages that are read or written in one piece.
pub const BLOCK_PAGES: usize = 16;

/// Memory to copy from and to. It is a shared mapping so that fork has nothing to do for it: its
/// 8192 page-table entries would be most of what a fork of a small subject copies, and vanish
/// beside the memory of a large one.
pub struct Buffer {
    start: *mut u8,
    pages: usize,
}

impl Buffer {
    /// As large as the published one, or as the memory when that is smaller.
    pub fn mapped(memory: usize) -> Result<Buffer, Failure> {
        let block = BLOCK_PAGES * PAGE;
        let length = memory.min(BUFFER).next_multiple_of(block).max(block);
        let refused = |error: anyhow::Error| Failure::Unavailable(error.to_string());
        Ok(Buffer { start: map_shared(length).map_err(refused)?, pages: length / PAGE })
    }

    /// No page holds what was read into it before.
    pub fn blank(&self) {
        for page in 0..self.pages {
            // SAFETY: a page of the buffer.
            unsafe { self.start.add(page * PAGE).cast::<u64>().write_volatile(!0) };
        }
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The piece of the buffer that goes with the block that begins at page `index` of the memory.
    pub fn page_for(&self, index: usize) -> usize {
        index % self.pages
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `mapped` with this length, unmapped once.
        unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) };
    }
}
