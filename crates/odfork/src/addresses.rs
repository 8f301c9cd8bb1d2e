//! What is known about addresses without asking the kernel.
//!
//! Owns sets of addresses, which are read at any time and changed under the lock. The wrappers of
//! the calls that change mappings keep them: what shows a backing file is always in the set, and
//! what is in the set shows one unless the C library has unmapped it by itself (`free`, the end
//! of a thread) or the set had no room ([`Addresses::is_exact`]).

use crate::spans::{Room, Spans};

/// Access that memory can have been given: the bits of `PROT_READ`, `WRITE` and `EXEC`.
const ACCESSES: usize = 8;

/// Properties of memory that its backing file's mapping has not.
const PROPERTIES: usize = 6;
/// Those from this one on must not be given to other memory: from sets that are not exact none is
/// taken.
const STRICT: usize = 3;

/// Reading and writing, as all memory has when it is frozen.
const READ_WRITE: usize = 3;

/// What is known.
pub struct Addresses {
    /// They show a backing file. Moved before there is much in it ([`Addresses::move_to`]): room
    /// for all would be in the library's file.
    frozen: Spans<64>,
    /// They were frozen once: the kernel may hold several mappings where the program made one,
    /// which only `mremap` minds.
    split: Spans<4096>,
    /// The program gave their mappings a property (`MADV_DONTFORK`, a lock, ...) that joining
    /// them with others would lose.
    special: Spans<4096>,
    /// It was thawed because the program kept giving parts of it back: not frozen again for now.
    restless: Spans<64>,
    /// The kernel keeps it out of children, where it is to be empty (`engine/wipe.rs`).
    wiped: Spans<64>,
    /// Memory that was frozen once, with other access, by its bits. In the place of
    /// [`READ_WRITE`]: the access is not known, a change of it failed half-way.
    access: [Spans<1024>; ACCESSES],
    /// It was frozen, and had a property that anonymous memory there gets again, by its bit
    /// (`kept.rs`). Too much of most is no harm.
    kept: [Spans<256>; PROPERTIES],
}

impl Addresses {
    /// Nothing is known to be frozen.
    pub const fn new() -> Self {
        #[allow(clippy::declare_interior_mutable_const)]
        const NONE: Spans<1024> = Spans::new();
        #[allow(clippy::declare_interior_mutable_const)]
        const KEPT: Spans<256> = Spans::new();
        Addresses {
            frozen: Spans::new(),
            split: Spans::new(),
            special: Spans::new(),
            restless: Spans::new(),
            wiped: Spans::new(),
            access: [NONE; ACCESSES],
            kept: [KEPT; PROPERTIES],
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

    /// Where there is room for more frozen parts.
    pub fn room(&self) -> Option<&Room> {
        self.frozen.room()
    }

    /// Makes room for more frozen parts.
    ///
    /// # Safety
    /// The memory lives as long as the process and its children, and is nobody else's.
    pub unsafe fn move_to(&self, room: *mut Room) {
        // SAFETY: passed on to the caller.
        unsafe { self.frozen.move_to(room) };
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

    /// The same of memory that can be read and written and had these properties, whatever was
    /// known of its addresses.
    pub fn freeze_anew(&self, start: usize, end: usize, kept: u32) {
        self.freeze(start, end);
        self.forget_access(start, end);
        self.keep(start, end, kept, !kept);
        if self.wiped.touches(start, end) {
            self.wiped.uncover(start, end);
        }
    }

    /// Anonymous memory at `start..end` gets these properties again, and not those.
    pub fn keep(&self, start: usize, end: usize, these: u32, not_those: u32) {
        for (i, spans) in self.kept.iter().enumerate() {
            if these & 1 << i != 0 {
                spans.cover(start, end);
            } else if not_those & 1 << i != 0 && spans.touches(start, end) {
                spans.uncover(start, end);
            }
        }
    }

    /// Which properties it gets at `start`, and up to where they are the same.
    pub fn kept(&self, start: usize, end: usize) -> (u32, usize) {
        let (mut bits, mut until) = (0, end);
        for (i, spans) in self.kept.iter().enumerate() {
            if i >= STRICT && !spans.is_exact() {
                continue;
            }
            match spans.first(start, end) {
                Some((from, to)) if from == start => {
                    bits |= 1 << i;
                    until = until.min(to);
                }
                Some((from, _)) => until = until.min(from),
                None => {}
            }
        }
        (bits, until)
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

    /// `start..end` was thawed, and is not to be frozen again for now.
    pub fn note_restless(&self, start: usize, end: usize) {
        self.uncover(start, end);
        self.restless.cover(start, end);
    }

    /// `start..end` is to be empty in children; false: there is no room to remember it.
    pub fn note_wiped(&self, start: usize, end: usize) -> bool {
        let fits = self.wiped.has_room();
        if fits {
            self.wiped.cover(start, end);
        }
        fits
    }

    /// It is not.
    pub fn keep_wiped(&self, start: usize, end: usize) {
        self.wiped.uncover(start, end);
    }

    /// The first such part of a range; none if a thread of the parent left the set half-changed.
    pub fn first_wiped(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        self.wiped.first(start, end).filter(|_| self.wiped.is_settled())
    }

    /// All of it may be frozen.
    pub fn settle(&self) {
        self.restless.uncover(0, usize::MAX);
    }

    /// The parts of a range that are not restless. Asked by those who may change the sets.
    pub fn each_restful(&self, start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
        let mut at = start;
        while at < end {
            let (a, b) = self.restless.first(at, end).unwrap_or((end, end));
            if at < a {
                each(at, a);
            }
            at = b;
        }
    }

    /// The program made new mappings at `start..end`, or unmapped it.
    pub fn forget(&self, start: usize, end: usize) {
        for spans in [&self.split, &self.special] {
            if spans.touches(start, end) {
                spans.uncover(start, end);
            }
        }
        if self.wiped.touches(start, end) {
            self.wiped.uncover(start, end);
        }
        self.uncover(start, end);
        self.forget_access(start, end);
        self.keep(start, end, 0, u32::MAX);
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
        self.restless.recover();
        self.access.iter().for_each(Spans::recover);
        self.kept.iter().for_each(Spans::recover);
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
    fn restless_memory_is_left_out() {
        let a = Box::new(Addresses::new());
        a.freeze(0, 100);
        a.note_restless(20, 40);
        let parts = |a: &Addresses| {
            let mut parts = Vec::new();
            a.each_restful(10, 60, |start, end| parts.push((start, end)));
            parts
        };
        assert_eq!((parts(&a), a.first_frozen(10, 60)), (vec![(10, 20), (40, 60)], Some((10, 20))));
        a.settle();
        assert_eq!(parts(&a), vec![(10, 60)]);
    }

    #[test]
    fn properties_are_known_part_by_part() {
        let a = Box::new(Addresses::new());
        a.freeze_anew(100, 200, 4);
        a.keep(120, 140, 1, 2);
        assert_eq!(
            (a.kept(100, 200), a.kept(120, 200), a.kept(140, 200)),
            ((4, 120), (5, 140), (4, 200))
        );
        a.keep(130, 150, 2, 1);
        assert_eq!((a.kept(120, 200), a.kept(130, 200)), ((5, 130), (6, 150)));
        a.forget(0, 150);
        assert_eq!((a.kept(100, 200), a.kept(150, 200)), ((0, 150), (4, 200)));
        a.freeze_anew(100, 200, 0);
        assert_eq!(a.kept(100, 200), (0, 200));
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
