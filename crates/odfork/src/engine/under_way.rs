//! The pass in slices that is under way: what is asked before anything is locked, and what the lock
//! guards.
//!
//! Owns the values; `slices.rs` has the order of things.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::pass::Decide;
use crate::report::Report;
use crate::sys;

pub const NONE: u32 = 0;
pub const MOVING: u32 = 1;
pub const SHARING: u32 = 2;

/// When a slice stops working, in thousandths of the bound, and how fast that changes.
const MOST_WORK: u32 = 600;
const LEAST_WORK: u32 = 200;
const STEP: u32 = 80;

const MOST_IN_VAIN: u32 = 6;

/// What is asked before anything is locked.
pub struct Slices {
    pub open: AtomicU32,
    pub next_ns: AtomicU64,
    /// 1: the program gave memory a property since the latest look.
    pub doubted: AtomicU32,
    /// 1: the program has come by since the latest fork.
    pub driven: AtomicU32,
    /// Passes in a row that have moved nothing.
    in_vain: AtomicU32,
    /// Forks since the latest one that was due and acted on.
    skipped: AtomicU32,
    /// 1: the program has heard of no child's end since the latest fork.
    beside_child: AtomicU32,
    /// 1: a fork has found something new. It is frozen once what is frozen is shared again: a look
    /// before would be one at every page that was copied beside the child.
    wanted: AtomicU32,
    /// How much less than it may a slice works, in thousandths: what it takes besides is not known
    /// before.
    less: AtomicU32,
}

impl Slices {
    pub const fn new() -> Self {
        Slices {
            open: AtomicU32::new(NONE),
            next_ns: AtomicU64::new(0),
            doubted: AtomicU32::new(0),
            driven: AtomicU32::new(0),
            in_vain: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            beside_child: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            less: AtomicU32::new(0),
        }
    }

    pub fn is_open(&self) -> bool {
        self.open.load(SeqCst) != NONE
    }

    pub fn is_due(&self) -> bool {
        self.is_open() && sys::now_ns() >= self.next_ns.load(Relaxed)
    }

    /// A pass has come to its end.
    pub fn note_end(&self, has_moved: bool) {
        let more = (self.in_vain.load(Relaxed) + 1).min(MOST_IN_VAIN);
        self.in_vain.store(if has_moved { 0 } else { more }, Relaxed);
    }

    /// So many times as much must be new, or so much more time have passed, before the next one:
    /// memory that is too sparse to be frozen is not looked at again and again.
    pub fn reluctance(&self) -> u64 {
        1 << self.in_vain.load(Relaxed)
    }

    /// At a fork with something new: it is acted on, or left for one of the next.
    pub fn is_turn(&self) -> bool {
        let forks = u64::from(self.skipped.load(Relaxed)) + 1;
        let is_turn = forks >= self.reluctance();
        self.skipped.store(if is_turn { 0 } else { forks as u32 }, Relaxed);
        is_turn
    }

    /// A fork is made, or the end of a child was heard of.
    pub fn note_child(&self, is_there: bool) {
        if self.is_beside_child() != is_there {
            self.beside_child.store(u32::from(is_there), Relaxed);
        }
    }

    pub fn is_beside_child(&self) -> bool {
        self.beside_child.load(Relaxed) != 0
    }

    /// What a look has found may not be so any more.
    pub fn doubt(&self) {
        self.doubted.store(1, SeqCst);
    }

    /// Shared memory became private: what is left of that pass is void.
    pub fn end_sharing(&self) {
        let _ = self.open.compare_exchange(SHARING, NONE, SeqCst, SeqCst);
    }

    pub fn put_off(&self, ns: u64) {
        self.next_ns.store(sys::now_ns() + ns, Relaxed);
    }

    /// How long after its beginning a slice of at most `most_ns` stops working, holding included;
    /// mapping and freeing what was copied, and letting go, come on top.
    pub fn work_ns(&self, most_ns: u64) -> u64 {
        most_ns / 1000 * u64::from(MOST_WORK - self.less.load(Relaxed).min(MOST_WORK - LEAST_WORK))
    }

    /// A slice took so long: the next one works less if that was too long.
    pub fn learn(&self, spent_ns: u64, most_ns: u64) {
        let less = self.less.load(Relaxed);
        if spent_ns > most_ns {
            self.less.store((less + STEP).min(MOST_WORK - LEAST_WORK), Relaxed);
        } else if spent_ns < most_ns / 4 * 3 {
            self.less.store(less.saturating_sub(STEP / 4), Relaxed);
        }
    }

    /// A pass that moves memory is due when what is frozen is shared.
    pub fn want(&self) {
        self.wanted.store(1, Relaxed);
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed) != 0
    }

    /// Another child may live for ever: it is not waited for for more than a minute.
    pub fn is_patient(&self) -> bool {
        self.wanted.fetch_add(1, Relaxed) < MOST_IN_VAIN
    }

    /// It begins.
    pub fn is_wanted_now(&self) -> bool {
        let is_wanted = self.is_wanted() && !self.is_beside_child();
        if is_wanted {
            self.wanted.store(0, Relaxed);
        }
        is_wanted
    }

    /// In a child: the pass was the parent's. A page that says so already is left alone.
    pub fn begin_child(&self) {
        if self.is_open() {
            self.open.store(NONE, SeqCst);
        }
        if self.is_wanted() {
            self.wanted.store(0, Relaxed);
        }
    }
}

/// The pass that is open.
pub struct Purchase {
    pub decide: Option<Decide>,
    /// The next slice begins with a look.
    pub looks: bool,
    /// It shares what an earlier look has found.
    pub again: bool,
    /// A sample tells first whether a look is worth it.
    pub samples: bool,
    pub left_ns: u64,
    pub spent_ns: u64,
    /// Something was frozen or refrozen.
    pub moved: bool,
    pub in_vain: u32,
}

impl Purchase {
    pub const fn new() -> Self {
        Purchase {
            decide: None,
            looks: true,
            again: false,
            samples: false,
            left_ns: 0,
            spent_ns: 0,
            moved: false,
            in_vain: 0,
        }
    }
}

/// What a slice left.
#[derive(Clone, Copy, Default)]
pub struct Rest {
    pub more: bool,
    pub lost: bool,
    pub waits: bool,
    pub moved: bool,
    /// Pages that came meanwhile; and whether they make the next pass due at once.
    pub arrived: u32,
    pub urges: bool,
    pub allowance_ns: u64,
}

impl Rest {
    pub const fn new() -> Self {
        Rest {
            more: false,
            lost: false,
            waits: false,
            moved: false,
            arrived: 0,
            urges: false,
            allowance_ns: 0,
        }
    }

    pub fn of(report: &Report) -> Self {
        Rest {
            more: report.more.flag(),
            lost: report.lost.flag(),
            waits: report.waits.flag(),
            moved: report.frozen.get() + report.written_back.get() > 0,
            arrived: report.arrived.get() as u32,
            urges: report.urges.flag(),
            allowance_ns: report.allowance.get() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_nothing_comes_ever_more_rarely() {
        let slices = Slices::new();
        assert_eq!(slices.reluctance(), 1);
        (0..3).for_each(|_| slices.note_end(false));
        assert_eq!(slices.reluctance(), 8);
        (0..40).for_each(|_| slices.note_end(false));
        assert_eq!(slices.reluctance(), 1 << MOST_IN_VAIN);
        slices.note_end(true);
        assert!(slices.reluctance() == 1 && slices.is_turn() && slices.is_turn());
        slices.note_end(false);
        assert!(!slices.is_turn() && slices.is_turn() && !slices.is_turn());
    }

    #[test]
    fn slices_that_take_too_long_work_less() {
        let (slices, most_ns) = (Slices::new(), 5_000_000);
        assert_eq!(slices.work_ns(most_ns), 3_000_000);
        slices.learn(most_ns + 1, most_ns);
        assert!(slices.work_ns(most_ns) < 3_000_000);
        (0..100).for_each(|_| slices.learn(10 * most_ns, most_ns));
        assert_eq!(slices.work_ns(most_ns), 1_000_000);
        (0..100).for_each(|_| slices.learn(1_000_000, most_ns));
        assert_eq!(slices.work_ns(most_ns), 3_000_000);
        slices.learn(most_ns - 1, most_ns);
        assert_eq!(slices.work_ns(most_ns), 3_000_000);
    }
}
