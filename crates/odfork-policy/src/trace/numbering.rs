//! Numbers for pages in the order of their first appearance: an open-addressing table of 16 bytes
//! an entry.

use super::Page;
use crate::clock::Owner;

#[derive(Clone, Copy)]
struct Entry {
    page: u64,
    owner: Owner,
    number: Page,
}

const NONE: Page = Page::MAX;
const FREE: Entry = Entry { page: 0, owner: 0, number: NONE };
/// References keep a page number in 31 bits.
const MOST: u32 = (1 << 31) - 1;

pub(super) struct Numbering {
    table: Vec<Entry>,
    shift: u32,
    used: u32,
}

impl Numbering {
    pub fn new() -> Numbering {
        Numbering { table: vec![FREE; 1 << 12], shift: 64 - 12, used: 0 }
    }

    pub fn len(&self) -> u32 {
        self.used
    }

    pub fn is_full(&self) -> bool {
        self.used >= MOST
    }

    /// The page's number, and whether it is new. The caller looks at `is_full` before new pages can
    /// come.
    #[inline]
    pub fn number(&mut self, page: u64, owner: Owner) -> (Page, bool) {
        let mut at = self.place(page, owner);
        loop {
            let entry = self.table[at];
            if entry.number == NONE {
                return (self.add(at, page, owner), true);
            }
            if entry.page == page && entry.owner == owner {
                return (entry.number, false);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    #[inline]
    fn place(&self, page: u64, owner: Owner) -> usize {
        // Multiplication spreads neighbours (Fibonacci hashing); the rotation keeps high bits of
        // the page in play.
        let key =
            page ^ page.rotate_right(29) ^ u64::from(owner).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[cold]
    fn add(&mut self, at: usize, page: u64, owner: Owner) -> Page {
        let number = self.used;
        self.table[at] = Entry { page, owner, number };
        self.used += 1;
        if self.used as usize * 2 > self.table.len() {
            self.double();
        }
        number
    }

    fn double(&mut self) {
        let old = std::mem::take(&mut self.table);
        self.shift -= 1;
        self.table = vec![FREE; old.len() * 2];
        for entry in old.into_iter().filter(|entry| entry.number != NONE) {
            let mut at = self.place(entry.page, entry.owner);
            while self.table[at].number != NONE {
                at = (at + 1) & (self.table.len() - 1);
            }
            self.table[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stay_through_growth() {
        let mut numbers = Numbering::new();
        let keys = |i: u64| (i.wrapping_mul(0x1_0000_0001), (i % 3) as Owner);
        for i in 0..100_000 {
            let (page, owner) = keys(i);
            assert_eq!(numbers.number(page, owner), (i as Page, true));
        }
        for i in (0..100_000).rev() {
            let (page, owner) = keys(i);
            assert_eq!(numbers.number(page, owner), (i as Page, false));
        }
        assert_eq!(numbers.len(), 100_000);
    }
}
