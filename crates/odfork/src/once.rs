//! What happens once in a process: a value that is set, work that is done.
//!
//! Owns the cell for what the constructor finds out, and the gate before an inspection. Neither
//! is a lock: who comes meanwhile does not wait, it gets nothing.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::sync::AtomicU32;

const EMPTY: u32 = 0;
const BEING_SET: u32 = 1;
const SET: u32 = 2;

/// The cell.
pub struct SetOnce<T> {
    phase: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the one thread that leaves EMPTY writes before SET, everybody else reads after SET.
unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

impl<T: Copy> SetOnce<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        SetOnce { phase: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets it; false if there was a value, or another thread is setting one.
    pub fn set(&self, value: T) -> bool {
        if self.phase.compare_exchange(EMPTY, BEING_SET, Relaxed, Relaxed).is_err() {
            return false;
        }
        // SAFETY: only this thread comes here, and nobody reads before SET.
        unsafe { (*self.value.get()).write(value) };
        self.phase.store(SET, Release);
        true
    }

    /// The value, once it is set.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: written before SET, never again.
        (self.phase.load(Acquire) == SET).then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }
}

/// Work that one thread does.
pub struct RunOnce {
    phase: AtomicU32,
}

impl RunOnce {
    /// Not done yet.
    pub const fn new() -> Self {
        RunOnce { phase: AtomicU32::new(EMPTY) }
    }

    /// Does it, unless another thread has begun; true if it is done. In a child of a fork made
    /// while another thread was at it, it never will be.
    pub fn run(&self, work: impl FnOnce()) -> bool {
        if self.phase.compare_exchange(EMPTY, BEING_SET, SeqCst, SeqCst).is_ok() {
            work();
            self.phase.store(SET, SeqCst);
        }
        self.phase.load(SeqCst) == SET
    }
}
