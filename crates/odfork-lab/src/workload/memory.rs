//! The memory a subject holds: every page filled with a pattern that says which page it is and when it was
//! last written, so that a wrong byte anywhere is seen and named.
//!
//! The expected content is a function of page number and two generations (one for the pages p % 16 == 0,
//! which acts dirty on purpose, one for the rest), so checking needs no second copy. Reading and writing use
//! raw volatile access: they run in forked children, without heap and without locks.

use std::str::FromStr;

use anyhow::{bail, Error, Result};

pub const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// One page in 16 (one in each 64 KB) is the sparse set.
pub const SPARSE_STEP: usize = 16;

/// Blocks of the malloc layout: below glibc's mmap threshold, so they come from the brk heap.
const BLOCK: usize = 64 * 1024;

/// How the memory is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One anonymous private mapping of 4 KB pages (MADV_NOHUGEPAGE).
    Mapped,
    /// The same with MADV_HUGEPAGE: what transparent huge pages do for a fork.
    Huge,
    /// Many 64 KB blocks of malloc.
    Malloced,
}

impl Layout {
    pub fn word(self) -> &'static str {
        match self {
            Layout::Mapped => "mapped",
            Layout::Huge => "huge",
            Layout::Malloced => "malloced",
        }
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        [Layout::Mapped, Layout::Huge, Layout::Malloced]
            .into_iter()
            .find(|layout| layout.word() == word)
            .ok_or_else(|| anyhow::anyhow!("not a layout: {word:?} (mapped, huge or malloced)"))
    }
}

#[derive(Clone, Copy)]
struct Extent {
    start: *mut u8,
    pages: usize,
}

/// Memory full of the pattern. Never given back: the process ends instead.
pub struct Memory {
    extents: Vec<Extent>,
    pages: usize,
    generation: u64,
    sparse_generation: u64,
}

/// The word that fills page `index` when last written in `generation`.
fn pattern(index: usize, generation: u64) -> u64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (generation + 1).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    mixed ^ (mixed >> 29)
}

impl Memory {
    /// Obtains `size` bytes (rounded down to pages) and fills them.
    pub fn hold(size: usize, layout: Layout) -> Result<Self> {
        let extents = match layout {
            Layout::Mapped => map(size, libc::MADV_NOHUGEPAGE)?,
            Layout::Huge => map(size, libc::MADV_HUGEPAGE)?,
            Layout::Malloced => allocate_blocks(size)?,
        };
        let mut memory = Memory {
            pages: extents.iter().map(|extent| extent.pages).sum(),
            extents,
            generation: 0,
            sparse_generation: 0,
        };
        memory.rewrite();
        Ok(memory)
    }

    pub fn pages(&self) -> usize {
        self.pages
    }

    pub fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    /// Every page in order: its number and its first word. CHILD: no heap, no locks.
    fn each(&self, mut visit: impl FnMut(usize, *mut u64)) {
        let mut index = 0;
        for extent in &self.extents {
            for page in 0..extent.pages {
                // SAFETY: page < extent.pages, and the extent is extent.pages * PAGE bytes that live forever.
                visit(index, unsafe { extent.start.add(page * PAGE) }.cast());
                index += 1;
            }
        }
    }

    fn generation_of(&self, index: usize) -> u64 {
        if index % SPARSE_STEP == 0 {
            self.sparse_generation
        } else {
            self.generation
        }
    }

    /// Writes every word of every page with a new generation.
    pub fn rewrite(&mut self) {
        self.generation += 1;
        self.sparse_generation = self.generation;
        let generation = self.generation;
        self.each(|index, first| {
            let word = pattern(index, generation);
            for offset in 0..WORDS {
                // SAFETY: offset < WORDS, so the word lies inside the page `first` begins.
                unsafe { first.add(offset).write_volatile(word) };
            }
        });
    }

    /// Writes the first word of the sparse pages with a new generation: dirties them.
    pub fn dirty_sparse(&mut self) {
        self.sparse_generation += 1;
        let generation = self.sparse_generation;
        self.each(|index, first| {
            if index % SPARSE_STEP == 0 {
                // SAFETY: `first` is the first word of a page of ours.
                unsafe { first.write_volatile(pattern(index, generation)) };
            }
        });
    }

    /// Sum of one byte of every page, as it is. CHILD.
    pub fn sum_bytes(&self) -> u64 {
        let mut sum = 0u64;
        self.each(|_, first| {
            // SAFETY: `first` points into memory of ours.
            sum += u64::from(unsafe { first.cast::<u8>().read_volatile() });
        });
        sum
    }

    /// What `sum_bytes` must give.
    pub fn expected_bytes(&self) -> u64 {
        (0..self.pages)
            .map(|index| pattern(index, self.generation_of(index)).to_le_bytes()[0])
            .map(u64::from)
            .sum()
    }

    /// Reads and overwrites the first word of every `step`-th page, beginning at `from`; returns the sum of
    /// what was there. CHILD.
    pub fn overwrite(&self, from: usize, step: usize) -> u64 {
        let mut sum = 0u64;
        self.each(|index, first| {
            if index % step == from {
                // SAFETY: `first` is the first word of a page of ours.
                unsafe {
                    sum = sum.wrapping_add(first.read_volatile());
                    first.write_volatile(!0);
                }
            }
        });
        sum
    }

    /// Sum of the first word of every `step`-th page, beginning at `from`, without writing. CHILD.
    pub fn sum_words(&self, from: usize, step: usize) -> u64 {
        let mut sum = 0u64;
        self.each(|index, first| {
            if index % step == from {
                // SAFETY: `first` is the first word of a page of ours.
                sum = sum.wrapping_add(unsafe { first.read_volatile() });
            }
        });
        sum
    }

    /// What `overwrite` and `sum_words` must return.
    pub fn expected_words(&self, from: usize, step: usize) -> u64 {
        (from..self.pages)
            .step_by(step)
            .map(|index| pattern(index, self.generation_of(index)))
            .fold(0, u64::wrapping_add)
    }

    /// The address of the first word of a page, for a single write.
    pub fn word_of(&self, index: usize) -> Option<*mut u64> {
        let mut left = index;
        for extent in &self.extents {
            if left < extent.pages {
                // SAFETY: left < extent.pages.
                return Some(unsafe { extent.start.add(left * PAGE) }.cast());
            }
            left -= extent.pages;
        }
        None
    }

    /// The first page whose first word is not what it must be. CHILD.
    pub fn first_wrong_page(&self) -> Option<usize> {
        self.find_wrong(1)
    }

    /// The first page with any wrong word. CHILD.
    pub fn first_wrong_page_fully(&self) -> Option<usize> {
        self.find_wrong(WORDS)
    }

    /// A sparse page keeps its older words behind the first: only the first one was rewritten.
    fn find_wrong(&self, words: usize) -> Option<usize> {
        let mut wrong = None;
        self.each(|index, first| {
            let head = pattern(index, self.generation_of(index));
            let tail = pattern(index, self.generation);
            // SAFETY: every offset lies inside the page `first` begins.
            let good = unsafe { first.read_volatile() } == head
                && (1..words).all(|offset| unsafe { first.add(offset).read_volatile() } == tail);
            if !good && wrong.is_none() {
                wrong = Some(index);
            }
        });
        wrong
    }

    /// Copies everything to `target`, which has room for `bytes()`.
    ///
    /// # Safety
    /// `target` must be writable for `bytes()` bytes and not overlap this memory.
    pub unsafe fn copy_to(&self, target: *mut u8) {
        let mut done = 0;
        for extent in &self.extents {
            let length = extent.pages * PAGE;
            // SAFETY: the caller promises room for the sum of all lengths.
            unsafe { std::ptr::copy_nonoverlapping(extent.start, target.add(done), length) };
            done += length;
        }
    }
}

fn map(size: usize, advice: libc::c_int) -> Result<Vec<Extent>> {
    let pages = size / PAGE;
    if pages == 0 {
        return Ok(Vec::new());
    }
    let start = map_anonymous(pages * PAGE)?;
    // SAFETY: the range was just mapped. Advice may fail on kernels without huge pages: then there are none.
    unsafe { libc::madvise(start.cast(), pages * PAGE, advice) };
    Ok(vec![Extent { start, pages }])
}

/// New private anonymous memory, untouched.
pub fn map_anonymous(length: usize) -> Result<*mut u8> {
    // SAFETY: asks for new memory anywhere; nothing of ours is replaced.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        bail!("cannot map {length} bytes: {}", std::io::Error::last_os_error());
    }
    Ok(start.cast())
}

/// Touches `bytes` of new memory and gives it back. On a virtual machine whose host takes free memory away (free page
/// reporting), the first touch of a free page costs up to a hundred times a normal one; what is taken next then finds
/// pages the host has backed. Best effort: on any refusal nothing is warmed.
pub fn warm_free_memory(bytes: u64) {
    const HUGE: usize = 2 << 20;
    let length = (bytes as usize).next_multiple_of(HUGE);
    if bytes == 0 {
        return;
    }
    let Ok(start) = map_anonymous(length) else {
        return;
    };
    // SAFETY: the range was just mapped and is unmapped once, used by nobody else.
    unsafe {
        libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE);
        for page in (0..length).step_by(PAGE) {
            start.add(page).write_volatile(1);
        }
        libc::munmap(start.cast(), length);
    }
}

fn allocate_blocks(size: usize) -> Result<Vec<Extent>> {
    (0..size / BLOCK)
        .map(|_| {
            // SAFETY: malloc has no precondition; the block is BLOCK bytes, aligned for u64.
            let start = unsafe { libc::malloc(BLOCK) }.cast::<u8>();
            if start.is_null() {
                bail!("malloc of {BLOCK} bytes failed");
            }
            Ok(Extent { start, pages: BLOCK / PAGE })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_expected() {
        for layout in [Layout::Mapped, Layout::Malloced] {
            let mut memory = Memory::hold(1 << 20, layout).unwrap();
            assert_eq!(memory.pages(), 256);
            assert_eq!(memory.sum_bytes(), memory.expected_bytes());
            memory.dirty_sparse();
            assert_eq!(memory.sum_bytes(), memory.expected_bytes());
            assert_eq!(memory.first_wrong_page_fully(), None);
            memory.rewrite();
            assert_eq!(memory.first_wrong_page_fully(), None);
        }
    }

    #[test]
    fn a_foreign_write_is_found_and_named() {
        let memory = Memory::hold(1 << 20, Layout::Mapped).unwrap();
        let word = memory.word_of(77).unwrap();
        // SAFETY: word 9 of page 77 of memory held above.
        unsafe { word.add(9).write_volatile(1) };
        assert_eq!(memory.first_wrong_page(), None);
        assert_eq!(memory.first_wrong_page_fully(), Some(77));
        // SAFETY: as above.
        unsafe { word.write_volatile(1) };
        assert_eq!(memory.first_wrong_page(), Some(77));
    }

    #[test]
    fn overwriting_reports_what_was_there() {
        let memory = Memory::hold(1 << 20, Layout::Mapped).unwrap();
        let expected = memory.expected_words(3, 16);
        assert_eq!(memory.overwrite(3, 16), expected);
        assert_ne!(memory.overwrite(3, 16), expected);
        assert_eq!(memory.first_wrong_page(), Some(3));
    }

    #[test]
    fn no_memory_is_a_valid_amount() {
        let memory = Memory::hold(0, Layout::Mapped).unwrap();
        assert_eq!((memory.pages(), memory.sum_bytes()), (0, 0));
        assert!(memory.word_of(0).is_none());
    }
}
