//! The page table of one program: where each page is when it is not in memory.
//!
//! Two words a page in a memory file that the supervisor owns, so that it outlives the daemon. Its
//! one rule: **when a page is in the memory file, the file is authoritative; only when it is not,
//! the entry is.** So entries change in this order: write to the store, publish the entry, punch
//! the file; and: copy into the file, then map. A daemon may die between any two steps. The one
//! exception is `Filling`: the file may hold half of it, and a new daemon punches it and reads
//! again.

use std::io::Result;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use odfork_pager_protocol::{BACKING_BYTES, PAGE};

use crate::store::Slot;
use crate::sys::{self, Mapping};

/// Index of a page in its program's backing memfd.
pub type Page = u64;

const BYTES_A_PAGE: u64 = 16;
pub const TABLE_BYTES: u64 = BACKING_BYTES / PAGE as u64 * BYTES_A_PAGE;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// All zeros: never touched, or found to be zeros when it left.
    Zero,
    /// In the store.
    Stored(Slot),
    /// In the store, and on its way into the file by pre-paging.
    Filling(Slot),
    /// Its content was lost (read error, wrong checksum): a touch is SIGBUS.
    Poisoned,
}

const KIND: u64 = 0b11;
const STORED: u64 = 1;
const FILLING: u64 = 2;
const POISONED: u64 = 3;

#[derive(Debug)]
pub struct Table {
    words: Mapping,
}

impl Table {
    pub fn map(file: BorrowedFd) -> Result<Table> {
        Ok(Table { words: Mapping::of(file, TABLE_BYTES as usize)? })
    }

    fn word(&self, page: Page, which: usize) -> &AtomicU64 {
        let at = page as usize * BYTES_A_PAGE as usize + which * 8;
        assert!(at + 8 <= self.words.bytes());
        // SAFETY: inside the mapping, aligned, and only ever used atomically.
        unsafe { AtomicU64::from_ptr(self.words.as_ptr().add(at).cast()) }
    }

    pub fn get(&self, page: Page) -> Entry {
        let word = self.word(page, 0).load(Ordering::Acquire);
        let slot = || Slot {
            at: word >> 16,
            len: (word >> 2 & 0x3FFF) as u16,
            sum: self.word(page, 1).load(Ordering::Acquire),
        };
        match word & KIND {
            STORED => Entry::Stored(slot()),
            FILLING => Entry::Filling(slot()),
            POISONED => Entry::Poisoned,
            _ => Entry::Zero,
        }
    }

    /// Publishes an entry. The checksum goes first: while the two words disagree, the page is in
    /// memory and nobody asks.
    pub fn set(&self, page: Page, entry: Entry) {
        let pack = |slot: Slot, kind| {
            self.word(page, 1).store(slot.sum, Ordering::Release);
            slot.at << 16 | u64::from(slot.len) << 2 | kind
        };
        let word = match entry {
            Entry::Zero => 0,
            Entry::Stored(slot) => pack(slot, STORED),
            Entry::Filling(slot) => pack(slot, FILLING),
            Entry::Poisoned => POISONED,
        };
        self.word(page, 0).store(word, Ordering::Release);
    }

    /// All entries of the range become `Zero`; whole pages of the table are freed.
    pub fn forget(&self, file: BorrowedFd, first: Page, pages: u64) -> Result<()> {
        let per = PAGE as u64 / BYTES_A_PAGE;
        let (start, end) = (first.next_multiple_of(per), (first + pages) / per * per);
        if end <= start {
            (first..first + pages).for_each(|page| self.set(page, Entry::Zero));
            return Ok(());
        }
        (first..start).chain(end..first + pages).for_each(|page| self.set(page, Entry::Zero));
        sys::punch(file, start * BYTES_A_PAGE, (end - start) * BYTES_A_PAGE)
    }

    /// The pages of `[first, first + pages)` that lie in used parts of the table: all others are
    /// `Zero`.
    pub fn used(file: BorrowedFd, first: Page, pages: u64) -> Vec<(Page, Page)> {
        let mut found = Vec::new();
        let (mut at, end) = (first, first + pages);
        while at < end {
            let Some((start, stop)) = sys::next_data(file, at * BYTES_A_PAGE) else { break };
            let (start, stop) = (start / BYTES_A_PAGE, stop / BYTES_A_PAGE);
            if start >= end {
                break;
            }
            found.push((start.max(first), stop.min(end)));
            at = stop;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn entries_survive_another_mapping() {
        let file = sys::memory_file(c"table", TABLE_BYTES).unwrap();
        let slot = Slot { at: (1 << 40) + 5, len: 4096, sum: !7 };
        {
            let table = Table::map(file.as_fd()).unwrap();
            assert_eq!(table.get(1 << 27), Entry::Zero);
            table.set(9, Entry::Stored(slot));
            table.set(1 << 27, Entry::Filling(slot));
            table.set(10, Entry::Poisoned);
        }
        let table = Table::map(file.as_fd()).unwrap();
        assert_eq!(table.get(9), Entry::Stored(slot));
        assert_eq!(table.get(10), Entry::Poisoned);
        assert_eq!(table.get(1 << 27), Entry::Filling(slot));
        let used = Table::used(file.as_fd(), 0, 1 << 28);
        assert_eq!(used, [(0, 256), (1 << 27, (1 << 27) + 256)]);
        table.forget(file.as_fd(), 10, 1 << 28 >> 1).unwrap();
        assert_eq!(table.get(9), Entry::Stored(slot));
        assert_eq!(table.get(10), Entry::Zero);
        assert_eq!(table.get(1 << 27), Entry::Zero);
    }
}
