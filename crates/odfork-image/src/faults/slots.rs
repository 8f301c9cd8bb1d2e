//! Where the program has the parts of the regions now: it may move them about (mremap). Pure.

use crate::PAGE;

pub const PAGE64: u64 = PAGE as u64;
/// Room for parts of regions that were moved about before more memory is needed.
const ROOM: usize = 1024;
/// No address of a program has this bit.
const MOVING: u64 = 1 << 63;

/// A part of a region: where the program has it now, where it was saved, and its first bit in
/// `fresh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub now: u64,
    pub pages: u64,
    pub saved: u64,
    pub bit: u64,
}

impl Slot {
    pub fn end(&self) -> u64 {
        self.now + self.pages * PAGE64
    }

    /// The part of it that lies in `start..end`.
    pub fn cut(&self, start: u64, end: u64) -> Option<Slot> {
        let (start, end) = (start.max(self.now), end.min(self.end()));
        let skip = start.saturating_sub(self.now);
        (start < end).then(|| Slot {
            now: start,
            pages: (end - start) / PAGE64,
            saved: self.saved + skip,
            bit: self.bit + skip / PAGE64,
        })
    }
}

#[derive(Debug)]
pub struct Slots(Vec<Slot>);

impl Slots {
    pub fn new() -> Slots {
        Slots(Vec::with_capacity(ROOM))
    }

    pub fn add(&mut self, slot: Slot) {
        self.0.push(slot);
    }

    pub fn all(&self) -> &[Slot] {
        &self.0
    }

    pub fn at(&self, address: u64) -> Option<Slot> {
        self.0.iter().find(|slot| slot.now <= address && address < slot.end()).copied()
    }

    /// The program has moved `from..from + len` to `to`.
    pub fn moved(&mut self, from: u64, to: u64, len: u64) {
        let end = from.saturating_add(len);
        for at in (0..self.0.len()).rev() {
            let slot = self.0[at];
            let Some(part) = slot.cut(from, end) else { continue };
            self.0.swap_remove(at);
            self.0.extend(slot.cut(slot.now, from));
            self.0.extend(slot.cut(end, slot.end()));
            // Marked, so that it is not taken for a part that is still to be moved.
            self.0.push(Slot { now: part.now | MOVING, ..part });
        }
        for slot in self.0.iter_mut().filter(|slot| slot.now & MOVING != 0) {
            slot.now = (slot.now & !MOVING) - from + to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Slots {
        let mut slots = Slots::new();
        slots.add(Slot { now: 0x10000, pages: 16, saved: 0x90000, bit: 0 });
        slots
    }

    /// Where a saved page is now.
    fn now(slots: &Slots, saved: u64) -> Option<(u64, u64)> {
        let slot =
            slots.0.iter().find(|s| s.saved <= saved && saved < s.saved + s.pages * PAGE64)?;
        Some((slot.now + saved - slot.saved, slot.bit + (saved - slot.saved) / PAGE64))
    }

    #[test]
    fn every_page_is_found_where_it_was_moved() {
        for (from, pages, to) in
            [(0x12000, 3, 0x50000), (0x10000, 16, 0x50000), (0x8000, 12, 0x40000), (0x1f000, 9, 0)]
        {
            let mut slots = whole();
            slots.moved(from, to, pages * PAGE64);
            for page in 0..16 {
                let old = 0x10000 + page * PAGE64;
                let inside = (from..from + pages * PAGE64).contains(&old);
                let expected = if inside { old - from + to } else { old };
                assert_eq!(now(&slots, 0x90000 + page * PAGE64), Some((expected, page)));
                assert_eq!(
                    slots.at(expected).map(|slot| slot.bit + (expected - slot.now) / PAGE64),
                    Some(page)
                );
            }
            assert_eq!(slots.0.iter().map(|slot| slot.pages).sum::<u64>(), 16);
        }
    }

    #[test]
    fn moves_onto_neighbours_and_back() {
        let mut slots = whole();
        slots.moved(0x12000, 0x50000, 2 * PAGE64);
        slots.moved(0x50000, 0x12000, 2 * PAGE64);
        for page in 0..16 {
            assert_eq!(now(&slots, 0x90000 + page * PAGE64), Some((0x10000 + page * PAGE64, page)));
        }
        assert_eq!(slots.at(0x20000), None);
    }
}
