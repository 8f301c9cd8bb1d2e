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
    /// Number of the move that brought it where it is.
    pub moves: u32,
}

/// A move whose end has not been told of.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: u64,
    end: u64,
    to: u64,
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
            moves: self.moves,
        })
    }
}

#[derive(Debug)]
pub struct Slots {
    all: Vec<Slot>,
    moves: u32,
    under_way: Option<Move>,
}

impl Slots {
    pub fn new() -> Slots {
        Slots { all: Vec::with_capacity(ROOM), moves: 0, under_way: None }
    }

    pub fn add(&mut self, slot: Slot) {
        self.all.push(slot);
    }

    pub fn all(&self) -> &[Slot] {
        &self.all
    }

    pub fn at(&self, address: u64) -> Option<Slot> {
        self.all.iter().find(|slot| slot.now <= address && address < slot.end()).copied()
    }

    /// The program has moved `from..from + len` to `to`. What was there before has been told of as
    /// unmapped.
    pub fn moved(&mut self, from: u64, to: u64, len: u64) {
        self.moves = self.moves.wrapping_add(1);
        let end = from.saturating_add(len);
        for at in (0..self.all.len()).rev() {
            if let Some(part) = self.take(at, from, end) {
                // Marked, so that it is not taken for a part that is still to be moved.
                self.all.push(Slot { now: part.now | MOVING, moves: self.moves, ..part });
            }
        }
        for slot in self.all.iter_mut().filter(|slot| slot.now & MOVING != 0) {
            slot.now = (slot.now & !MOVING) - from + to;
        }
        self.under_way = Some(Move { from, end, to });
    }

    /// Whether more about the last move may follow: what was left behind is unmapped.
    pub fn is_moving(&self) -> bool {
        self.under_way.is_some()
    }

    /// Nothing more follows.
    pub fn settle(&mut self) {
        self.under_way = None;
    }

    /// The program has no `start..end` any more; `gone` gets the parts that were there.
    pub fn unmapped(&mut self, start: u64, end: u64, mut gone: impl FnMut(Slot)) {
        self.drop_parts(start, end, None, &mut gone);
        let Some(last) = self.under_way else { return };
        if start == last.from {
            self.under_way = None;
        } else if start > last.from && end == last.end {
            // A move that shortens too: up to Linux 6.16 its news has the old length, and the end
            // that was not moved follows. It was taken along above, over what is there.
            let (start, end) = (start - last.from + last.to, end - last.from + last.to);
            self.drop_parts(start, end, Some(self.moves), &mut gone);
        }
    }

    fn drop_parts(
        &mut self,
        start: u64,
        end: u64,
        moves: Option<u32>,
        gone: &mut impl FnMut(Slot),
    ) {
        for at in (0..self.all.len()).rev() {
            if moves.is_none_or(|moves| self.all[at].moves == moves) {
                self.take(at, start, end).map(&mut *gone);
            }
        }
    }

    /// Takes a part out of a slot; what is left of the slot goes to the end of the list.
    fn take(&mut self, at: usize, start: u64, end: u64) -> Option<Slot> {
        let slot = self.all[at];
        let part = slot.cut(start, end)?;
        self.all.swap_remove(at);
        self.all.extend(slot.cut(slot.now, start));
        self.all.extend(slot.cut(end, slot.end()));
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Slots {
        let mut slots = Slots::new();
        slots.add(Slot { now: 0x10000, pages: 16, saved: 0x90000, bit: 0, moves: 0 });
        slots
    }

    /// Where a saved page is now.
    fn now(slots: &Slots, saved: u64) -> Option<(u64, u64)> {
        let slot =
            slots.all.iter().find(|s| s.saved <= saved && saved < s.saved + s.pages * PAGE64)?;
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
            assert_eq!(slots.all.iter().map(|slot| slot.pages).sum::<u64>(), 16);
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

    #[test]
    fn what_is_unmapped_is_nowhere() {
        let mut slots = whole();
        let mut gone = 0;
        // Page 0 moves onto page 10, as the kernel tells it.
        slots.unmapped(0x1a000, 0x1b000, |part| gone += part.pages);
        slots.moved(0x10000, 0x1a000, PAGE64);
        slots.unmapped(0x10000, 0x11000, |part| gone += part.pages);
        assert!(!slots.is_moving());
        assert_eq!((gone, now(&slots, 0x9a000)), (1, None));
        assert_eq!(now(&slots, 0x90000), Some((0x1a000, 0)));
        assert_eq!(slots.at(0x1a000).map(|slot| slot.saved), Some(0x90000));
        // The rest of the old place moves back where the moved page was: nothing is dropped twice.
        slots.unmapped(0x18000, 0x20000, |part| gone += part.pages);
        assert_eq!((gone, now(&slots, 0x90000)), (9, None));
        assert_eq!(slots.all.iter().map(|slot| slot.pages).sum::<u64>(), 7);
    }

    /// Pages 0 to 3 become two and move onto page 8, told with the old length: pages 10 and 11 are
    /// not touched, and pages 2 and 3 are gone.
    #[test]
    fn a_move_that_shortens() {
        let mut slots = whole();
        let mut gone = Vec::new();
        slots.unmapped(0x18000, 0x1a000, |part| gone.push((part.bit, part.pages)));
        slots.moved(0x10000, 0x18000, 4 * PAGE64);
        slots.unmapped(0x12000, 0x14000, |part| gone.push((part.bit, part.pages)));
        slots.unmapped(0x10000, 0x12000, |part| gone.push((part.bit, part.pages)));
        assert_eq!(gone, [(8, 2), (2, 2)]);
        for (page, place) in [(0, Some(8)), (1, Some(9)), (2, None), (10, Some(10)), (11, Some(11))]
        {
            let place = place.map(|place| (0x10000 + place * PAGE64, page));
            assert_eq!(now(&slots, 0x90000 + page * PAGE64), place);
        }
        // Later, the same addresses are unmapped again: the moved pages stay.
        slots.unmapped(0x12000, 0x14000, |part| gone.push((part.bit, part.pages)));
        assert_eq!(gone.len(), 2);
    }
}
