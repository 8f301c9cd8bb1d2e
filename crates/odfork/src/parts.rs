//! Memory that may be mapped shared, part by part, with the file that each shows. Pure.
//!
//! Owns the table (`registry.rs` has it). Who reads it to rely on it holds the lock.

/// Parts at most: more memory stays private.
pub const MAX_PARTS: usize = 256;

/// Memory of the backing file in that slot. The kernel has it as one mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    pub slot: usize,
    pub start: usize,
    pub end: usize,
}

impl Part {
    pub fn range(&self) -> (usize, usize) {
        (self.start, self.end)
    }
}

pub struct Parts {
    all: [Part; MAX_PARTS],
    count: usize,
}

impl Parts {
    pub const fn new() -> Self {
        Parts { all: [Part { slot: 0, start: 0, end: 0 }; MAX_PARTS], count: 0 }
    }

    pub fn all(&self) -> &[Part] {
        &self.all[..self.count]
    }

    /// One more; false where there is no room. Neighbours in one file are one: so the kernel has
    /// them.
    pub fn add(&mut self, part: Part) -> bool {
        let mut whole = part;
        let touches =
            |old: &Part| old.slot == part.slot && old.start <= part.end && part.start <= old.end;
        while let Some(at) = self.all().iter().position(touches) {
            let old = self.take(at);
            whole.start = whole.start.min(old.start);
            whole.end = whole.end.max(old.end);
        }
        let Some(place) = self.all.get_mut(self.count) else { return false };
        *place = whole;
        self.count += 1;
        true
    }

    /// The lowest that has an address of the range.
    pub fn first(&self, (start, end): (usize, usize)) -> Option<Part> {
        let touching = self.all().iter().filter(|part| part.start.max(start) < part.end.min(end));
        touching.min_by_key(|part| part.start).copied()
    }

    /// That one is private.
    pub fn remove(&mut self, part: &Part) {
        if let Some(at) = self.all().iter().position(|other| other == part) {
            self.take(at);
        }
    }

    /// Takes one out.
    pub fn pop(&mut self) -> Option<Part> {
        let at = self.count.checked_sub(1)?;
        Some(self.take(at))
    }

    /// Nothing shows the file in that slot.
    pub fn forget(&mut self, slot: usize) {
        while let Some(at) = self.all().iter().position(|part| part.slot == slot) {
            self.take(at);
        }
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    fn take(&mut self, at: usize) -> Part {
        self.count -= 1;
        self.all.swap(at, self.count);
        self.all[self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_one_file_are_one_part() {
        let mut parts = Parts::new();
        let part = |slot, start, end| Part { slot, start, end };
        assert!(parts.add(part(1, 10, 20)) && parts.add(part(1, 30, 40)));
        assert!(parts.add(part(2, 20, 30)) && parts.all().len() == 3);
        assert_eq!(parts.first((0, 100)), Some(part(1, 10, 20)));
        assert_eq!(parts.first((20, 31)), Some(part(2, 20, 30)));
        assert_eq!((parts.first((40, 50)), parts.first((0, 10))), (None, None));
        parts.remove(&part(2, 20, 30));
        assert!(parts.add(part(1, 20, 30)));
        assert_eq!(parts.all(), [part(1, 10, 40)]);
        parts.remove(&part(1, 10, 41));
        assert_eq!(parts.all().len(), 1);
        parts.forget(2);
        assert_eq!(parts.all().len(), 1);
        parts.forget(1);
        assert_eq!(parts.all().len(), 0);
        parts.clear();
        assert!((0..MAX_PARTS).all(|i| parts.add(part(i, 0, 9))) && !parts.add(part(9999, 0, 9)));
        assert!(parts.add(part(3, 9, 12)), "where one joins there is room");
    }
}
