//! The memory a subject holds: every page filled with a pattern that says which page it is and when
//! it was last written, so that a wrong byte anywhere is seen and named.
//!
//! The expected content is a function of page number and two generations (one for the pages p % 16
//! == 0, which operations dirty on purpose, one for the rest), so checking needs no second copy.
//! Reading and writing use raw volatile access: they run in forked children, without heap and
//! without locks. With the harness alone every loop runs and touches nothing.

use anyhow::{bail, Result};

use super::children::is_harness_alone;
pub use super::layout::{map_anonymous, warm_free_memory, Layout, THP_MODE};
use super::layout::{obtain, Extent, BLOCK};
use super::PAGE;

const WORDS: usize = PAGE / 8;

/// One page in 16 (one in each 64 KB) is the sparse set.
pub const SPARSE_STEP: usize = 16;

/// Memory full of the pattern. Never given back: the process ends instead.
pub struct Memory {
    layout: Layout,
    /// The harness is alone: loops run, nothing is accessed.
    alone: bool,
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
    #[cfg(test)]
    pub fn hold(size: usize, layout: Layout) -> Result<Self> {
        Self::hold_part(size, size, layout)
    }

    /// Obtains `size` bytes, fills the first `touched` of them (both rounded down to pages) and is
    /// about those alone.
    pub fn hold_part(size: usize, touched: usize, layout: Layout) -> Result<Self> {
        if touched > size {
            bail!("cannot touch {touched} of {size} bytes; touch at most what is held");
        }
        let alone = is_harness_alone();
        let mut extents = obtain(size, layout)?;
        let mut left = touched / PAGE;
        for extent in &mut extents {
            extent.pages = extent.pages.min(left);
            left -= extent.pages;
        }
        extents.retain(|extent| extent.pages > 0);
        let pages = extents.iter().map(|extent| extent.pages).sum();
        let mut memory =
            Memory { layout, alone, extents, pages, generation: 0, sparse_generation: 0 };
        memory.rewrite();
        Ok(memory)
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn pages(&self) -> usize {
        self.pages
    }

    pub fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    /// Every page in order: its number and its first word. CHILD: no heap, no locks.
    fn each(&self, visit: impl FnMut(usize, *mut u64)) {
        self.each_below(self.pages, visit);
    }

    /// The same for the first `limit` pages. CHILD.
    fn each_below(&self, limit: usize, mut visit: impl FnMut(usize, *mut u64)) {
        let mut index = 0;
        for extent in &self.extents {
            for page in 0..extent.pages.min(limit - index) {
                if self.alone {
                    std::hint::black_box(index);
                } else {
                    // SAFETY: page < extent.pages, and the extent is extent.pages * PAGE bytes that
                    // live forever.
                    visit(index, unsafe { extent.start.add(page * PAGE) }.cast());
                }
                index += 1;
            }
        }
    }

    /// The first `limit` pages in order, in blocks of at most BLOCK bytes: number of the first
    /// page, start and number of pages.
    pub fn each_block(&self, limit: usize, mut visit: impl FnMut(usize, *mut u8, usize)) {
        let mut index = 0;
        for extent in &self.extents {
            let end = index + extent.pages.min(limit - index);
            let mut start = extent.start;
            while index < end {
                let pages = (end - index).min(BLOCK / PAGE);
                visit(index, start, pages);
                // SAFETY: at most one past the extent, of which `pages` more pages were just given
                // out.
                start = unsafe { start.add(pages * PAGE) };
                index += pages;
            }
        }
    }

    /// How many pages the first `permille` are: at least one of a memory that has any, unless none
    /// are wanted.
    pub fn portion(&self, permille: u32) -> usize {
        (self.pages * permille.min(1000) as usize).div_ceil(1000)
    }

    fn generation_of(&self, index: usize) -> u64 {
        if index % SPARSE_STEP == 0 {
            self.sparse_generation
        } else {
            self.generation
        }
    }

    /// Pages a sum is made of.
    fn readable_pages(&self) -> usize {
        if self.alone {
            0
        } else {
            self.pages
        }
    }

    /// The first word of a page, as it must be.
    pub fn head(&self, index: usize) -> u64 {
        pattern(index, self.generation_of(index))
    }

    /// Writes one byte into each of the first `pages` pages, at its begin. CHILD.
    pub fn mark(&self, pages: usize, byte: u8) {
        self.each_below(pages, |_, first| {
            // SAFETY: the first byte of a page of ours.
            unsafe { first.cast::<u8>().write_volatile(byte) };
        });
    }

    /// Undoes `mark` on all pages; the first page that was not as `mark` with this byte left it.
    pub fn unmark(&self, byte: u8) -> Option<usize> {
        let mut wrong = None;
        self.each(|index, first| {
            let head = self.head(index);
            // SAFETY: the first word of a page of ours.
            unsafe {
                if first.read_volatile() != (head & !0xFF | u64::from(byte)) && wrong.is_none() {
                    wrong = Some(index);
                }
                first.write_volatile(head);
            }
        });
        wrong
    }

    /// Writes the pattern into one page again.
    pub(super) fn restore(&self, index: usize, first: *mut u64) {
        let tail = pattern(index, self.generation);
        for offset in 1..WORDS {
            // SAFETY: `first` is the first word of page `index`, and offset < WORDS.
            unsafe { first.add(offset).write_volatile(tail) };
        }
        // SAFETY: as above.
        unsafe { first.write_volatile(self.head(index)) };
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
        (0..self.readable_pages())
            .map(|index| self.head(index).to_le_bytes()[0])
            .map(u64::from)
            .sum()
    }

    /// Reads and overwrites the first word of every `step`-th page, beginning at `from`; returns
    /// the sum of what was there. CHILD.
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
        (from..self.readable_pages())
            .step_by(step)
            .map(|index| self.head(index))
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
            let head = self.head(index);
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
        if self.alone {
            return;
        }
        for extent in &self.extents {
            let length = extent.pages * PAGE;
            // SAFETY: the caller promises room for the sum of all lengths.
            unsafe { std::ptr::copy_nonoverlapping(extent.start, target.add(done), length) };
            done += length;
        }
    }
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
    fn marks_are_checked_and_taken_back() {
        let mut memory = Memory::hold(1 << 20, Layout::Malloced).unwrap();
        memory.dirty_sparse();
        memory.mark(memory.pages(), 0xA5);
        assert_eq!(memory.unmark(0xA5), None);
        assert_eq!(memory.first_wrong_page(), None);
        memory.mark(memory.pages() - 1, 0xA5);
        assert_eq!(memory.unmark(0xA5), Some(255));
        let word = memory.word_of(3).unwrap();
        // SAFETY: word 5 of page 3 of memory held above.
        unsafe { word.add(5).write_volatile(9) };
        memory.restore(3, word);
        memory.restore(16, memory.word_of(16).unwrap());
        assert_eq!(memory.sum_bytes(), memory.expected_bytes());
        assert_eq!(memory.find_wrong(2), None);
    }

    #[test]
    fn blocks_cover_the_wanted_pages_once_and_in_order() {
        for layout in [Layout::Mapped, Layout::Malloced] {
            let memory = Memory::hold(1 << 20, layout).unwrap();
            let mut next = 0;
            memory.each_block(100, |index, start, pages| {
                assert_eq!(index, next);
                assert_eq!(start, memory.word_of(index).unwrap().cast());
                next += pages;
            });
            assert_eq!(next, 100);
        }
        let memory = Memory::hold(4096 * 10, Layout::Mapped).unwrap();
        assert_eq!([0, 1, 300, 1000].map(|permille| memory.portion(permille)), [0, 1, 3, 10]);
    }

    #[test]
    fn only_the_touched_part_is_filled() {
        let memory = Memory::hold_part(1 << 20, 3 * PAGE, Layout::Mapped).unwrap();
        assert_eq!((memory.pages(), memory.first_wrong_page_fully()), (3, None));
        let last = memory.word_of(2).unwrap();
        // SAFETY: the first word of page 3 of the 256 that are mapped.
        assert_eq!(unsafe { last.add(WORDS).read_volatile() }, 0);
        assert!(Memory::hold_part(PAGE, 2 * PAGE, Layout::Mapped).is_err());
    }

    #[test]
    fn no_memory_is_a_valid_amount() {
        let memory = Memory::hold(0, Layout::Mapped).unwrap();
        assert_eq!((memory.pages(), memory.sum_bytes()), (0, 0));
        assert!(memory.word_of(0).is_none());
    }
}
