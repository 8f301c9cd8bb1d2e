//! Allocates units of the store: a bitmap, next fit, and reference counts of shared slots.
//!
//! A run of pages that leaves memory together gets adjoining units where possible, so that one read
//! brings it back. Shared slots (fork) are counted; all others are not listed.

use std::collections::HashMap;

#[derive(Debug)]
pub struct Allocator {
    used: Vec<u64>,
    capacity: u64,
    taken: u64,
    next_fit: u64,
    /// Owners of a slot beyond the first, by its first unit.
    shared: HashMap<u64, u32>,
}

impl Allocator {
    /// `capacity` in units.
    pub fn new(capacity: u64) -> Allocator {
        Allocator { used: Vec::new(), capacity, taken: 0, next_fit: 0, shared: HashMap::new() }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// `units` in one piece.
    pub fn take(&mut self, units: u64) -> Option<u64> {
        if units == 0 || self.capacity.saturating_sub(self.taken) < units {
            return None;
        }
        let found = self
            .find(self.next_fit, self.capacity, units)
            .or_else(|| self.find(0, self.capacity.min(self.next_fit + units), units))?;
        self.mark(found, units);
        self.next_fit = found + units;
        Some(found)
    }

    /// Takes these very units: what a table says is in use when a daemon takes over. Taken already:
    /// one more owner. Also beyond the capacity, which may have shrunk since: who shares a slot
    /// must be known, or it is written over.
    pub fn claim(&mut self, at: u64, units: u64) {
        if self.is_used(at) {
            self.share(at);
        } else {
            self.mark(at, units);
        }
    }

    /// One more owner of the slot that begins here.
    pub fn share(&mut self, at: u64) {
        *self.shared.entry(at).or_insert(0) += 1;
    }

    pub fn is_shared(&self, at: u64) -> bool {
        !self.shared.is_empty() && self.shared.contains_key(&at)
    }

    /// One owner less; true when it was the last one and the room is free.
    pub fn release(&mut self, at: u64, units: u64) -> bool {
        if let Some(count) = self.shared.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.shared.remove(&at);
            }
            return false;
        }
        for unit in at..at + units {
            let (word, bit) = (unit as usize / 64, 1 << (unit % 64));
            if self.used.get(word).is_some_and(|used| used & bit != 0) {
                self.used[word] &= !bit;
                self.taken -= 1;
            }
        }
        true
    }

    /// Whether nothing in `[at, at + units)` is used.
    pub fn is_free(&self, at: u64, units: u64) -> bool {
        (at..at + units).all(|unit| !self.is_used(unit))
    }

    fn is_used(&self, unit: u64) -> bool {
        self.used.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    fn mark(&mut self, at: u64, units: u64) {
        let words = (at + units).div_ceil(64) as usize;
        if self.used.len() < words {
            self.used.resize(words, 0);
        }
        for unit in at..at + units {
            self.used[unit as usize / 64] |= 1 << (unit % 64);
        }
        self.taken += units;
    }

    fn find(&self, from: u64, to: u64, units: u64) -> Option<u64> {
        let mut at = from;
        while at + units <= to {
            match (at..at + units).rev().find(|&unit| self.is_used(unit)) {
                None => return Some(at),
                Some(used) => at = self.next_free(used + 1),
            }
        }
        None
    }

    fn next_free(&self, mut unit: u64) -> u64 {
        while let Some(&word) = self.used.get(unit as usize / 64) {
            let free = !word >> (unit % 64);
            if free != 0 {
                return unit + u64::from(free.trailing_zeros());
            }
            unit = (unit / 64 + 1) * 64;
        }
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_in_one_piece_and_used_again() {
        let mut allocator = Allocator::new(200);
        assert_eq!(allocator.take(64), Some(0));
        assert_eq!(allocator.take(70), Some(64));
        assert_eq!(allocator.take(64), Some(134));
        assert_eq!((allocator.take(3), allocator.take(2)), (None, Some(198)));
        assert!(allocator.release(64, 70));
        assert_eq!(allocator.taken(), 130);
        assert_eq!(allocator.take(70), Some(64));
        assert_eq!(allocator.take(1), None);
    }

    #[test]
    fn a_shared_slot_is_free_after_its_last_owner() {
        let mut allocator = Allocator::new(10);
        allocator.claim(4, 2);
        allocator.claim(4, 2);
        allocator.share(4);
        assert!(allocator.is_shared(4));
        assert!(!allocator.release(4, 2) && !allocator.release(4, 2));
        assert!(!allocator.is_shared(4) && !allocator.is_free(4, 2));
        assert!(allocator.release(4, 2) && allocator.is_free(4, 2));
    }

    #[test]
    fn what_is_in_use_beyond_the_end_is_counted() {
        let mut allocator = Allocator::new(10);
        allocator.claim(9, 5);
        allocator.claim(40, 2);
        allocator.claim(40, 2);
        assert!(allocator.is_shared(40));
        assert_eq!((allocator.taken(), allocator.take(1)), (7, Some(0)));
        allocator.claim(100, 8);
        assert_eq!(allocator.take(1), None, "more in use than there is room");
        assert!(!allocator.release(40, 2) && allocator.release(40, 2));
        assert_eq!(allocator.taken(), 14);
    }

    /// Against a plain list of free units, over many random steps.
    #[test]
    fn never_gives_what_is_in_use() {
        let mut allocator = Allocator::new(500);
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let units = random.u64(1..=20);
            if random.bool() {
                if let Some(at) = allocator.take(units) {
                    assert!(held.iter().all(|&(a, n)| at + units <= a || a + n <= at));
                    assert!(at + units <= 500);
                    held.push((at, units));
                }
            } else if !held.is_empty() {
                let (at, units) = held.swap_remove(random.usize(..held.len()));
                assert!(allocator.release(at, units));
            }
            assert_eq!(allocator.taken(), held.iter().map(|h| h.1).sum::<u64>());
        }
    }
}
