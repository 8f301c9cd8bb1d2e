//! Least recently used, all sizes of memory in one pass (Mattson's stack distances).
//!
//! A reference hits in memories of at least its stack distance: the number of distinct pages since
//! the last reference to the same page, itself included. Pages lie in a row of slots by the time of
//! their last reference, live slots marked in a bit map; the distance is the number of live slots
//! from the page's to the end: counted in the bit map near by, then by counts of blocks of 512
//! slots, of 64 blocks, and of 64 times 64. (Sums over short rows, without a branch that depends on
//! data: quicker than a Fenwick tree.) When the row is full it is packed; so memory is proportional
//! to distinct pages, however long the trace.

use super::Replacement;
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

const NEVER: u32 = u32::MAX;
/// Slots in a block, and 64-bit words in it.
const BLOCK: usize = 512;
const WORDS: usize = BLOCK / 64;
/// Blocks in a group, and groups in an area.
const FAN: usize = 64;
const GROUP: usize = BLOCK * FAN;
const AREA: usize = GROUP * FAN;

pub(super) struct Lru {
    slots: Slots,
    /// How many references had which distance.
    distances: Vec<u64>,
    cold: u64,
    /// Nothing needs to be noted of dirt before the first write.
    written: bool,
    /// Smallest memory in which the page has been dirty since its last write; NEVER when it was not
    /// written.
    dirty_from: Vec<u32>,
    /// Write-backs by size of memory, as differences.
    write_backs: Vec<i64>,
}

impl Lru {
    pub fn new() -> Lru {
        Lru {
            slots: Slots::new(),
            distances: vec![0],
            cold: 0,
            written: false,
            dirty_from: Vec::new(),
            write_backs: vec![0],
        }
    }

    /// In memories smaller than `distance` the page left since its last reference, dirty where it
    /// was dirty.
    fn note_dirt(&mut self, page: Page, distance: usize, write: bool) {
        let from = &mut self.dirty_from[page as usize];
        if *from != NEVER {
            if distance > *from as usize {
                self.write_backs[*from as usize] += 1;
                self.write_backs[distance] -= 1;
            }
            *from = (*from).max(distance as u32);
        }
        if write {
            *from = 1;
        }
    }

    /// Pages that were pushed out dirty after their last reference.
    fn left_dirty(&self, frames: u32) -> u64 {
        let behind = self.slots.newest_first().skip(frames as usize);
        behind.filter(|&page| self.dirty_from[page as usize] <= frames).count() as u64
    }
}

impl Replacement for Lru {
    fn grow(&mut self, owners: &[Owner]) {
        self.slots.last.resize(self.slots.last.len() + owners.len(), NEVER);
        let pages = self.slots.last.len();
        self.dirty_from.resize(pages, NEVER);
        self.distances.resize(pages + 1, 0);
        self.write_backs.resize(pages + 2, 0);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        self.written |= write;
        match self.slots.refer(page) {
            Some(distance) => {
                self.distances[distance] += 1;
                if write || (distance > 1 && self.written) {
                    self.note_dirt(page, distance, write);
                }
            }
            None => {
                self.cold += 1;
                if write {
                    self.dirty_from[page as usize] = 1;
                }
            }
        }
    }

    fn tally(&self, frames: u32) -> Tally {
        let size = (frames as usize).min(self.distances.len() - 1);
        let missed: u64 = self.distances[size + 1..].iter().sum();
        let size = (frames as usize).min(self.write_backs.len() - 1);
        let written: i64 = self.write_backs[..=size].iter().sum();
        Tally {
            faults: self.cold + missed,
            write_backs: written.max(0) as u64 + self.left_dirty(frames),
            ..Tally::default()
        }
    }
}

/// The row of slots.
struct Slots {
    /// Slot of each page.
    last: Vec<u32>,
    /// Page of each slot.
    page: Vec<Page>,
    live_bits: Vec<u64>,
    /// Live slots in each block, group and area.
    blocks: Vec<u32>,
    groups: Vec<u32>,
    areas: Vec<u32>,
    next: usize,
}

impl Slots {
    fn new() -> Slots {
        let mut slots = Slots {
            last: Vec::new(),
            page: Vec::new(),
            live_bits: Vec::new(),
            blocks: Vec::new(),
            groups: Vec::new(),
            areas: Vec::new(),
            next: 0,
        };
        slots.resize(16 * BLOCK);
        slots
    }

    fn resize(&mut self, slots: usize) {
        self.page.resize(slots, 0);
        self.page.shrink_to_fit();
        self.live_bits = vec![0; slots / 64];
        self.blocks = vec![0; slots / BLOCK];
        self.groups = vec![0; slots.div_ceil(GROUP)];
        self.areas = vec![0; slots.div_ceil(AREA)];
    }

    /// The distance of this reference to its page (`None`: the first); the page moves to the end of
    /// the row.
    #[inline]
    fn refer(&mut self, page: Page) -> Option<usize> {
        let slot = self.last[page as usize];
        if slot == NEVER {
            self.append(page);
            return None;
        }
        let slot = slot as usize;
        if slot + 1 == self.next {
            return Some(1);
        }
        let distance = 1 + self.after(slot);
        self.live_bits[slot / 64] &= !(1 << (slot % 64));
        self.blocks[slot / BLOCK] -= 1;
        self.groups[slot / GROUP] -= 1;
        self.areas[slot / AREA] -= 1;
        self.append(page);
        Some(distance)
    }

    /// Live slots behind this one: the rest of its word, block, group and area, and the areas that
    /// follow.
    #[inline]
    fn after(&self, slot: usize) -> usize {
        // Two shifts: a shift by 64 is none.
        let word = (self.live_bits[slot / 64] >> (slot % 64) >> 1).count_ones() as usize;
        let end = self.next;
        let words = rest(slot / 64, WORDS, end.div_ceil(64));
        let in_block: u32 = self.live_bits[words].iter().map(|word| word.count_ones()).sum();
        let blocks = rest(slot / BLOCK, FAN, end.div_ceil(BLOCK));
        let in_group: u32 = self.blocks[blocks].iter().sum();
        let groups = rest(slot / GROUP, FAN, end.div_ceil(GROUP));
        let in_area: u32 = self.groups[groups].iter().sum();
        let beyond: u32 = self.areas[slot / AREA + 1..].iter().sum();
        word + (in_block + in_group + in_area + beyond) as usize
    }

    #[inline]
    fn append(&mut self, page: Page) {
        if self.next == self.page.len() {
            self.last[page as usize] = NEVER;
            self.pack();
        }
        let slot = self.next;
        self.live_bits[slot / 64] |= 1 << (slot % 64);
        self.page[slot] = page;
        self.last[page as usize] = slot as u32;
        self.next += 1;
        self.blocks[slot / BLOCK] += 1;
        self.groups[slot / GROUP] += 1;
        self.areas[slot / AREA] += 1;
    }

    /// Live slots to the front; at least half of the row is free afterwards.
    #[cold]
    fn pack(&mut self) {
        let mut packed = 0;
        for word in 0..self.next / 64 {
            let mut bits = self.live_bits[word];
            while bits != 0 {
                let page = self.page[word * 64 + bits.trailing_zeros() as usize];
                self.page[packed] = page;
                self.last[page as usize] = packed as u32;
                packed += 1;
                bits &= bits - 1;
            }
        }
        let slots = (packed * 3).next_multiple_of(BLOCK).max(16 * BLOCK);
        self.resize(slots);
        for slot in 0..packed {
            self.live_bits[slot / 64] |= 1 << (slot % 64);
            self.blocks[slot / BLOCK] += 1;
            self.groups[slot / GROUP] += 1;
            self.areas[slot / AREA] += 1;
        }
        self.next = packed;
    }

    fn newest_first(&self) -> impl Iterator<Item = Page> + '_ {
        let live = |slot: &usize| self.live_bits[slot / 64] >> (slot % 64) & 1 != 0;
        (0..self.next).rev().filter(live).map(|slot| self.page[slot])
    }
}

/// What follows `at` in its row of `fan`, up to `end`.
#[inline]
fn rest(at: usize, fan: usize, end: usize) -> std::ops::Range<usize> {
    let first = at + 1;
    first..first.next_multiple_of(fan).min(end).max(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows long enough for several areas, and for packing.
    #[test]
    fn distances_over_a_million_pages() {
        let pages = 1_000_000;
        let mut lru = Lru::new();
        lru.grow(&vec![0; pages]);
        (0..pages).for_each(|page| assert_eq!(lru.slots.refer(page as Page), None));
        // Around again: everything lies between; then backwards: one more each time.
        (0..pages).for_each(|page| assert_eq!(lru.slots.refer(page as Page), Some(pages)));
        (0..pages).rev().for_each(|page| {
            assert_eq!(lru.slots.refer(page as Page), Some(pages - page));
        });
        assert!(lru.slots.page.len() > AREA && lru.slots.page.len() <= 3 * pages + BLOCK);
    }
}
