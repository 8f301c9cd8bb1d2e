//! A value that is set once and read at any time.
//!
//! Owns the cell for what the constructor finds out. Not a lock: who reads before it is set gets
//! nothing, and a second value is refused.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

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

impl<T: Copy> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_threads_sets_it() {
        static CELL: SetOnce<[usize; 4]> = SetOnce::new();
        assert_eq!(CELL.get(), None);
        let threads: Vec<_> = (0..4)
            .map(|i| {
                std::thread::spawn(move || {
                    let won = CELL.set([i; 4]);
                    (won, CELL.get().copied())
                })
            })
            .collect();
        let ends: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(ends.iter().filter(|(won, _)| *won).count(), 1);
        let value = CELL.get().copied().unwrap();
        assert!(ends.iter().all(|(_, seen)| seen.is_none_or(|v| v == value)));
        assert!(!CELL.set([9; 4]));
    }
}
