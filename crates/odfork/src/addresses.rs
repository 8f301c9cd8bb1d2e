//! What is known about addresses without asking the kernel.
//!
//! Owns sets of addresses, which are read at any time and changed under the lock. The wrappers of
//! the calls that change mappings keep them: what shows a backing file is always in the set, and
//! what is in the set shows one unless the C library has unmapped it by itself (`free`, the end
//! of a thread) or the set had no room ([`Addresses::is_exact`]).

use crate::spans::Spans;

/// Access that memory can have been given: the bits of `PROT_READ`, `WRITE` and `EXEC`.
const ACCESSES: usize = 8;

/// Reading and writing, as all memory has when it is frozen.
const READ_WRITE: usize = 3;

/// What is known.
pub struct Addresses {
    /// They show a backing file.
    frozen: Spans<16384>,
    /// They were frozen once: the kernel may hold several mappings where the program made one,
    /// which only `mremap` minds.
    split: Spans<4096>,
    /// The program gave their mappings a property (`MADV_DONTFORK`, a lock, ...) that joining
    /// them with others would lose.
    special: Spans<4096>,
    /// Memory that was frozen once, with other access, by its bits. In the place of
    /// [`READ_WRITE`]: the access is not known, a change of it failed half-way.
    access: [Spans<1024>; ACCESSES],
}

impl Addresses {
    /// Nothing is known to be frozen.
    pub const fn new() -> Self {
        #[allow(clippy::declare_interior_mutable_const)]
        const NONE: Spans<1024> = Spans::new();
        Addresses {
            frozen: Spans::new(),
            split: Spans::new(),
            special: Spans::new(),
            access: [NONE; ACCESSES],
        }
    }

    /// True if any address of `start..end` may show a backing file.
    pub fn may_be_frozen(&self, start: usize, end: usize) -> bool {
        self.frozen.touches(start, end)
    }

    /// True if `start..end` may consist of more mappings than the program made.
    pub fn may_be_split(&self, start: usize, end: usize) -> bool {
        self.split.touches(start, end)
    }

    /// True if a part of `start..end` may have a property of its own.
    pub fn may_be_special(&self, start: usize, end: usize) -> bool {
        self.special.touches(start, end)
    }

    /// True while any memory may be frozen.
    pub fn any_frozen(&self) -> bool {
        self.may_be_frozen(0, usize::MAX)
    }

    /// The first frozen part of a range.
    pub fn first_frozen(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        self.frozen.first(start, end)
    }

    /// The frozen part that `at` lies in.
    pub fn frozen_around(&self, at: usize) -> Option<(usize, usize)> {
        self.frozen.around(at)
    }

    /// How many frozen parts there are: memory given up in between makes them more.
    pub fn frozen_parts(&self) -> usize {
        self.frozen.count()
    }

    /// The access to memory that was frozen, at `start`, and up to where it is the same; `None`:
    /// unknown.
    pub fn access(&self, start: usize, end: usize) -> (Option<i32>, usize) {
        let mut until = end;
        for (bits, spans) in self.access.iter().enumerate() {
            match spans.first(start, end) {
                Some((from, to)) if from == start => {
                    let known = bits != READ_WRITE && spans.is_exact();
                    return (known.then_some(bits as i32), to);
                }
                Some((from, _)) => until = until.min(from),
                None => {}
            }
        }
        (Some(READ_WRITE as i32), until)
    }

    /// The sets say neither more nor less than what is.
    pub fn is_exact(&self) -> bool {
        self.frozen.is_exact()
    }

    /// What is said to be frozen may be something else from now on.
    pub fn doubt(&self) {
        self.frozen.doubt();
    }

    /// `start..end` shows a backing file from now on.
    pub fn freeze(&self, start: usize, end: usize) {
        self.frozen.cover(start, end);
        self.split.cover(start, end);
    }

    /// The same of memory that can be read and written, whatever was known of its addresses.
    pub fn freeze_anew(&self, start: usize, end: usize) {
        self.freeze(start, end);
        self.forget_access(start, end);
    }

    /// `start..end` may consist of more mappings than the program made.
    pub fn note_split(&self, start: usize, end: usize) {
        self.split.cover(start, end);
    }

    /// The program gave `start..end` a property of its own.
    pub fn note_special(&self, start: usize, end: usize) {
        self.special.cover(start, end);
    }

    /// `start..end` certainly shows no backing file any more.
    pub fn uncover(&self, start: usize, end: usize) {
        self.frozen.uncover(start, end);
    }

    /// The program made new mappings at `start..end`, or unmapped it.
    pub fn forget(&self, start: usize, end: usize) {
        for spans in [&self.split, &self.special] {
            if spans.touches(start, end) {
                spans.uncover(start, end);
            }
        }
        self.uncover(start, end);
        self.forget_access(start, end);
    }

    /// The access of `start..end` was changed; `None`: perhaps.
    pub fn note_access(&self, start: usize, end: usize, bits: Option<i32>) {
        self.forget_access(start, end);
        match bits.map(|b| b as usize % ACCESSES) {
            Some(READ_WRITE) => {}
            bits => self.access[bits.unwrap_or(READ_WRITE)].cover(start, end),
        }
    }

    fn forget_access(&self, start: usize, end: usize) {
        self.access.iter().filter(|s| s.touches(start, end)).for_each(|s| s.uncover(start, end));
    }

    /// In a child of fork: what a thread of the parent left half-changed.
    pub fn recover(&self) {
        self.frozen.recover();
        self.split.recover();
        self.special.recover();
        self.access.iter().for_each(Spans::recover);
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_known_part_by_part() {
        let a = Box::new(Addresses::new());
        a.freeze(100, 200);
        assert_eq!(a.access(100, 200), (Some(3), 200));
        a.note_access(120, 140, Some(1));
        a.note_access(130, 160, Some(0));
        assert_eq!(a.access(100, 200), (Some(3), 120));
        assert_eq!(a.access(120, 200), (Some(1), 130));
        assert_eq!(a.access(130, 200), (Some(0), 160));
        a.note_access(100, 200, None);
        assert_eq!(a.access(130, 200), (None, 200));
        a.note_access(100, 150, Some(3));
        assert_eq!(a.access(130, 200), (Some(3), 150));
        a.forget(0, 300);
        assert_eq!((a.access(130, 200), a.any_frozen()), ((Some(3), 200), false));
    }

    #[test]
    fn what_is_replaced_is_forgotten() {
        let a = Box::new(Addresses::new());
        a.freeze(10, 50);
        a.note_special(20, 30);
        a.forget(15, 40);
        assert_eq!(a.first_frozen(0, 100), Some((10, 15)));
        assert_eq!(a.first_frozen(15, 100), Some((40, 50)));
        assert!(!a.may_be_special(0, 100) && !a.may_be_split(15, 40) && a.may_be_split(40, 41));
    }
}
