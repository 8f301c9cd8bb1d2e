//! A set of addresses as sorted intervals, of bounded size and conservative: when
//! it is full, or being changed, it claims more than it was given, never less. It knows
//! whether it ever had to ([`Spans::is_exact`]). It can move into memory that has room for more
//! ([`Spans::move_to`]), and makes no system call.
//!
//! It is read at any time: in every thread, and in a signal handler that interrupted a reader or
//! a fork's child. So it consists of atomics and a sequence number (odd while it is changed), and
//! a reader that met a change answers "yes". Only one thread at a time may change it.

use core::sync::atomic::{
    fence, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Intervals that there is room for once the set was moved.
pub const ROOM: usize = 16384;

/// The set, of `MAX` intervals at most, or of [`ROOM`] once it was moved.
pub struct Spans<const MAX: usize> {
    sequence: AtomicUsize,
    count: AtomicUsize,
    /// 1: it has claimed more than it was given.
    wide: AtomicUsize,
    /// Where it was moved to, or null.
    moved: AtomicPtr<[Span; ROOM]>,
    spans: [Span; MAX],
}

/// Memory for a set that is moved. All zeros is valid.
pub type Room = [Span; ROOM];

/// One interval.
pub struct Span {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Span {
    fn get(&self) -> (usize, usize) {
        (self.start.load(Relaxed), self.end.load(Relaxed))
    }

    fn set(&self, (start, end): (usize, usize)) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
    }
}

impl<const MAX: usize> Default for Spans<MAX> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const MAX: usize> Spans<MAX> {
    /// Empty.
    pub const fn new() -> Self {
        #[allow(clippy::declare_interior_mutable_const)]
        const NONE: Span = Span { start: AtomicUsize::new(0), end: AtomicUsize::new(0) };
        Spans {
            sequence: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            wide: AtomicUsize::new(0),
            moved: AtomicPtr::new(core::ptr::null_mut()),
            spans: [NONE; MAX],
        }
    }

    /// True if any address of `start..end` is in the set, or may be.
    pub fn touches(&self, start: usize, end: usize) -> bool {
        let found = || {
            let spans = self.in_use();
            let i = spans.partition_point(|s| s.end.load(Relaxed) <= start);
            spans.get(i).is_some_and(|s| s.start.load(Relaxed) < end)
        };
        self.unchanged(found).unwrap_or(true)
    }

    /// The first part of `start..end` in the set. Asked by those who may change it.
    pub fn first(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let spans = self.in_use();
        let i = spans.partition_point(|s| s.end.load(Relaxed) <= start);
        let (a, b) = spans.get(i)?.get();
        (start < end && a < end).then_some((a.max(start), b.min(end)))
    }

    /// The interval that `at` lies in. Asked by those who may change the set.
    pub fn around(&self, at: usize) -> Option<(usize, usize)> {
        let spans = self.in_use();
        let i = spans.partition_point(|s| s.end.load(Relaxed) <= at);
        spans.get(i).map(Span::get).filter(|span| span.0 <= at)
    }

    /// The answer to a question about the set; none where it changed meanwhile.
    pub fn unchanged<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        let before = self.sequence.load(Acquire);
        let answer = ask();
        fence(Acquire);
        (before % 2 == 0 && self.sequence.load(Relaxed) == before).then_some(answer)
    }

    /// How many intervals it has.
    pub fn count(&self) -> usize {
        self.in_use().len()
    }

    /// One interval more has room.
    pub fn has_room(&self) -> bool {
        self.count() < self.spans().len()
    }

    /// Nobody is changing it, nor was when fork copied it.
    pub fn is_settled(&self) -> bool {
        self.sequence.load(Relaxed) % 2 == 0
    }

    /// It claims what it was given and nothing else.
    pub fn is_exact(&self) -> bool {
        self.wide.load(Relaxed) == 0
    }

    /// Something in the set may be there without having been given.
    pub fn doubt(&self) {
        self.wide.store(1, Relaxed);
    }

    /// Where it was moved to.
    pub fn room(&self) -> Option<&Room> {
        // SAFETY: null, or memory that lives as long as the set (`move_to`).
        unsafe { self.moved.load(Acquire).as_ref() }
    }

    /// Moves the set into memory where more intervals have room.
    ///
    /// # Safety
    /// The memory is valid as long as the set is used, in children of fork too, and nobody else's.
    pub unsafe fn move_to(&self, room: *mut Room) {
        self.change(|| {
            // SAFETY: valid, says the caller.
            let spans = unsafe { &*room };
            self.in_use().iter().zip(spans).for_each(|(from, to)| to.set(from.get()));
            self.moved.store(room, Release);
        });
    }

    fn spans(&self) -> &[Span] {
        self.room().map_or(&self.spans[..], |room| &room[..])
    }

    fn in_use(&self) -> &[Span] {
        // The place first: there is never less room than what was counted after it was known.
        let spans = self.spans();
        &spans[..self.count.load(Relaxed).min(spans.len())]
    }

    /// Adds `start..end`.
    pub fn cover(&self, start: usize, end: usize) {
        self.change(|| self.merge(start, end));
    }

    /// Takes `start..end` out.
    pub fn uncover(&self, start: usize, end: usize) {
        self.change(|| self.cut(start, end));
    }

    /// In a process that fork made while another thread of its parent changed the set: it will
    /// never be finished, so everything is claimed.
    pub fn recover(&self) {
        if self.sequence.load(Relaxed) % 2 == 1 {
            self.doubt();
            self.change(|| {
                self.spans()[0].set((0, usize::MAX));
                self.count.store(1, Relaxed);
            });
        }
    }

    fn change(&self, change: impl FnOnce()) {
        let before = self.sequence.load(Relaxed);
        self.sequence.store(before | 1, Relaxed);
        fence(Release);
        change();
        self.sequence.store((before | 1) + 1, Release);
    }

    fn merge(&self, start: usize, end: usize) {
        let spans = self.in_use();
        let first = spans.partition_point(|s| s.get().1 < start);
        let last = spans.partition_point(|s| s.get().0 <= end);
        if last <= first {
            self.insert(first, (start, end));
        } else {
            let merged = (start.min(spans[first].get().0), end.max(spans[last - 1].get().1));
            spans[first].set(merged);
            self.remove(first + 1, last);
        }
    }

    fn insert(&self, at: usize, span: (usize, usize)) {
        let count = self.in_use().len();
        if count < self.spans().len() {
            for i in (at..count).rev() {
                self.spans()[i + 1].set(self.spans()[i].get());
            }
            self.spans()[at].set(span);
            self.count.store(count + 1, Relaxed);
            return;
        }
        // Full: widen the neighbour. Too much is only slower, never wrong.
        self.doubt();
        match at {
            0 => self.spans()[0].start.store(span.0, Relaxed),
            at => self.spans()[at - 1].end.store(span.1, Relaxed),
        }
    }

    fn remove(&self, from: usize, to: usize) {
        let count = self.in_use().len();
        for i in to..count {
            self.spans()[i - (to - from)].set(self.spans()[i].get());
        }
        self.count.store(count - (to - from), Relaxed);
    }

    fn cut(&self, start: usize, end: usize) {
        let mut i = self.in_use().partition_point(|s| s.get().1 <= start);
        while i < self.in_use().len() && self.spans()[i].get().0 < end {
            let (a, b) = self.spans()[i].get();
            match (a < start, b > end) {
                (true, true) if self.in_use().len() == self.spans().len() => return self.doubt(),
                (true, true) => {
                    self.insert(i + 1, (end, b));
                    self.spans()[i].set((a, start));
                    return;
                }
                (true, false) => self.spans()[i].set((a, start)),
                (false, true) => {
                    self.spans()[i].set((end, b));
                    return;
                }
                (false, false) => {
                    self.remove(i, i + 1);
                    continue;
                }
            }
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_SPANS: usize = 4096;
    const STEPS: usize = if cfg!(miri) { 200 } else { 5000 };

    /// The simple model: one bit per page of a small address space.
    #[test]
    fn cover_and_uncover_agree_with_a_bitmap() {
        let spans = Box::new(Spans::<MAX_SPANS>::new());
        let mut model = [false; 64];
        let mut seed = 1u32;
        for _ in 0..STEPS {
            let mut next = |n: u32| {
                seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                (seed >> 16) as usize % n as usize
            };
            let (a, set) = (next(60), next(2) == 0);
            let b = a + 1 + next(4);
            if set {
                spans.cover(a, b);
            } else {
                spans.uncover(a, b);
            }
            model[a..b].fill(set);
            for (i, &m) in model.iter().enumerate() {
                assert_eq!(spans.touches(i, i + 1), m, "page {i}");
            }
            let (from, to) = (next(64), next(64));
            let first = (from..to).find(|&i| model[i]);
            let last = first.map(|f| (f..to).find(|&i| !model[i]).unwrap_or(to));
            assert_eq!(spans.first(from, to), first.zip(last));
            let around = spans.around(a);
            assert_eq!(around.is_some(), model[a]);
            assert!(around.is_none_or(|(x, y)| model[x..y].iter().all(|&m| m) && !model[y]));
            let begins = (0..64).filter(|&i| model[i] && (i == 0 || !model[i - 1])).count();
            assert_eq!(spans.count(), begins);
        }
    }

    #[test]
    fn a_full_map_stays_conservative() {
        let spans = Box::new(Spans::<MAX_SPANS>::new());
        for i in 0..MAX_SPANS + 10 {
            spans.cover(10 * i + 10, 10 * i + 15);
        }
        assert!(!spans.is_exact());
        for i in 0..MAX_SPANS + 10 {
            assert!(spans.touches(10 * i + 10, 10 * i + 15));
        }
    }

    #[test]
    fn a_full_set_has_room_again_elsewhere() {
        let spans = Box::new(Spans::<4>::new());
        let full = |many: usize| (0..many).for_each(|i| spans.cover(10 * i + 10, 10 * i + 15));
        full(4);
        assert!(spans.is_exact() && spans.room().is_none());
        // SAFETY: all zeros is valid; it outlives the set.
        let room = unsafe { Box::<Room>::new_zeroed().assume_init() };
        let room = Box::into_raw(room);
        // SAFETY: nobody else's.
        unsafe { spans.move_to(room) };
        assert_eq!((spans.count(), spans.first(20, 50)), (4, Some((20, 25))));
        full(100);
        spans.uncover(501, 502);
        assert!(spans.is_exact());
        assert_eq!((spans.count(), spans.around(503)), (101, Some((502, 505))));
        drop(spans);
        // SAFETY: made above, and used no more.
        drop(unsafe { Box::from_raw(room) });
    }

    #[test]
    fn what_was_left_half_changed_claims_everything() {
        let spans = Box::new(Spans::<MAX_SPANS>::new());
        spans.cover(10, 20);
        spans.recover();
        assert!(!spans.touches(30, 40));
        spans.sequence.fetch_add(1, Relaxed);
        assert!(spans.touches(30, 40) && spans.is_exact());
        spans.recover();
        assert!(!spans.is_exact());
        assert!(spans.touches(30, 40));
        spans.uncover(30, 40);
        assert!(!spans.touches(30, 40) && spans.touches(10, 20) && spans.touches(50, 60));
    }

    /// Whoever reads while others move about never misses what is in the set all the time.
    #[test]
    fn a_reader_never_misses_what_stays() {
        static SPANS: Spans<MAX_SPANS> = Spans::new();
        SPANS.cover(1000, 1010);
        let reader = std::thread::spawn(|| (0..STEPS).all(|_| SPANS.touches(1004, 1005)));
        for i in 0..STEPS {
            SPANS.cover(10 * (i % 90), 10 * (i % 90) + 5);
            SPANS.uncover(10 * ((i + 7) % 90), 10 * ((i + 7) % 90) + 5);
        }
        assert!(reader.join().unwrap());
    }
}
