//! Addresses where the program has made new mappings since a look: what the look has found of them
//! does not hold.
//!
//! Owns a list that any thread adds to without a lock. Who adds has announced a call, or holds the
//! lock; who reads holds the lock, and nobody is in an announced call.

use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

/// So many ranges; with more nothing is known any more.
const MOST: usize = 64;

/// The list.
pub struct Changes {
    ranges: [(AtomicUsize, AtomicUsize); MOST],
    count: AtomicUsize,
}

impl Changes {
    /// Empty.
    pub const fn new() -> Self {
        #[allow(clippy::declare_interior_mutable_const)]
        const NONE: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Changes { ranges: [NONE; MOST], count: AtomicUsize::new(0) }
    }

    /// Adds a range.
    pub fn note(&self, start: usize, end: usize) {
        if let Some((from, to)) = self.ranges.get(self.count.fetch_add(1, SeqCst)) {
            from.store(start, Relaxed);
            to.store(end, SeqCst);
        }
    }

    /// There were more than can be remembered.
    pub fn are_too_many(&self) -> bool {
        self.count.load(SeqCst) > MOST
    }

    /// Some of the range is new.
    pub fn touch(&self, start: usize, end: usize) -> bool {
        let known = &self.ranges[..self.count.load(SeqCst).min(MOST)];
        known.iter().any(|(from, to)| from.load(Relaxed) < end && to.load(SeqCst) > start)
    }

    /// A look begins.
    pub fn clear(&self) {
        self.count.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_known_until_there_is_too_much() {
        let changes = Changes::new();
        changes.note(10, 20);
        assert!(changes.touch(15, 16) && changes.touch(0, 11) && !changes.touch(20, 30));
        (0..MOST).for_each(|i| changes.note(100 * i, 100 * i + 1));
        assert!(changes.are_too_many() && changes.touch(15, 16));
        changes.clear();
        assert!(!changes.are_too_many() && !changes.touch(0, usize::MAX));
    }
}
