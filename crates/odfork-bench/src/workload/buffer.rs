//! The buffer that a parent copies its memory to and from.

use super::children::Failure;
use super::PAGE;
use crate::mapping::Mapping;

/// Size of the buffer the parent copies from and to, as in the published program.
const BUFFER: usize = 32 << 20;
/// Pages that are read or written in one piece.
pub const BLOCK_PAGES: usize = 16;

/// Memory to copy from and to. It is a shared mapping so that fork has nothing to do for it: its
/// 8192 page-table entries would be most of what a fork of a small subject copies, and vanish
/// beside the memory of a large one.
pub struct Buffer {
    memory: Mapping,
    pages: usize,
}

impl Buffer {
    /// As large as the published one, or as the memory when that is smaller.
    pub fn mapped(memory: usize) -> Result<Buffer, Failure> {
        let block = BLOCK_PAGES * PAGE;
        let length = memory.min(BUFFER).next_multiple_of(block).max(block);
        let refused = |error| Failure::Unavailable(format!("no buffer: {error}"));
        let memory = Mapping::shared(length as u64).map_err(refused)?;
        Ok(Buffer { memory, pages: length / PAGE })
    }

    /// No page holds what was read into it before.
    pub fn blank(&self) {
        for page in 0..self.pages {
            // SAFETY: a page of the buffer.
            unsafe { self.start().add(page * PAGE).cast::<u64>().write_volatile(!0) };
        }
    }

    pub fn start(&self) -> *mut u8 {
        self.memory.base().cast()
    }

    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The piece of the buffer that goes with the block that begins at page `index` of the memory.
    pub fn page_for(&self, index: usize) -> usize {
        index % self.pages
    }
}
