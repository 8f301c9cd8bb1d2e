//! The process that the runtime's state belongs to, and how it passes to a child.
//!
//! Owns the number. Several threads of a new process may find out at once that it is not theirs:
//! one of them begins the child's state, the others wait for it.

use core::sync::atomic::Ordering::SeqCst;

use crate::sync::{pause, AtomicI32};

/// Its pid; negative while that process begins its state; 0 before the first.
pub struct Owner(AtomicI32);

impl Owner {
    /// Nobody's yet.
    pub const fn new() -> Self {
        Owner(AtomicI32::new(0))
    }

    /// It belongs to process `me`.
    pub fn is(&self, me: i32) -> bool {
        self.0.load(SeqCst) == me
    }

    /// It is made by process `me`, which has one thread.
    pub fn set(&self, me: i32) {
        self.0.store(me, SeqCst);
    }

    /// Makes it process `me`'s, unless `is_mine` says that another thread has: `begin` runs in
    /// one thread, and whoever returns finds it done. Signals are blocked: a handler that forks
    /// would wait for what it interrupted.
    pub fn pass_to(&self, me: i32, is_mine: impl Fn() -> bool, begin: impl FnOnce()) {
        let before = self.0.load(SeqCst);
        if before != -me
            && !is_mine()
            && self.0.compare_exchange(before, -me, SeqCst, SeqCst).is_ok()
        {
            begin();
            self.0.store(me, SeqCst);
        }
        let mut rounds = 0u32;
        while !self.is(me) {
            pause(rounds);
            rounds = rounds.saturating_add(1);
        }
    }
}
