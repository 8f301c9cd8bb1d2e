//! The one lock of the runtime, and the dance that keeps a fork from copying
//! a half-changed state.
//!
//! Whoever holds the lock has all signals blocked (a handler that forks must
//! not wait for its own thread) and runs no code of the program, so waiting
//! for it always ends. It is never held across the program's fork: handlers of
//! `pthread_atfork` take the program's locks, whose owners may be waiting here.
//!
//! ```text
//! thread A: freeze                 thread B: fork
//!   lock                             forking += 1
//!   forking != 0? -> leave it        locked? -> wait until it is free
//!   change, unlock                   fork(2); forking -= 1
//! ```
//! Either A sees B forking and does nothing, or B sees the lock and waits.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

use crate::args;
use crate::sys;

/// The lock; its value is the pid of the holder's process, 0 when free.
pub struct Lock {
    holder: AtomicI32,
    forking: AtomicU32,
}

/// The lock is held, signals are blocked; dropped, both end.
pub struct Held<'a> {
    lock: &'a Lock,
    mask: u64,
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Lock {
    /// Free.
    pub const fn new() -> Self {
        Lock { holder: AtomicI32::new(0), forking: AtomicU32::new(0) }
    }

    /// Waits for the lock. A holder of another pid is a copy inherited by a fork
    /// that went past the wrappers: it will never let go, so it is overruled.
    pub fn hold(&self) -> Held<'_> {
        let mask = sys::block_signals();
        let me = sys::getpid();
        let mut rounds = 0u32;
        while let Err(other) = self.holder.compare_exchange(0, me, SeqCst, SeqCst) {
            if other != me {
                self.holder.store(me, SeqCst);
                break;
            }
            pause(rounds);
            rounds = rounds.saturating_add(1);
        }
        Held { lock: self, mask }
    }

    /// Announces a fork, or another call of the program that must not meet a
    /// change half-way, and waits until nothing is being changed.
    pub fn begin_call(&self) {
        self.forking.fetch_add(1, SeqCst);
        if self.holder.load(SeqCst) == 0 {
            return;
        }
        let me = sys::getpid();
        let mut rounds = 0u32;
        while self.holder.load(SeqCst) == me {
            pause(rounds);
            rounds = rounds.saturating_add(1);
        }
    }

    /// The call is over, in the parent.
    pub fn end_call(&self) {
        // A fork in a signal handler that interrupted this one may have reset it.
        let _ = self.forking.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// In a new child: nobody else is here.
    pub fn reset(&self) {
        self.holder.store(0, SeqCst);
        self.forking.store(0, SeqCst);
    }
}

impl Held<'_> {
    /// Some thread is inside such a call right now.
    pub fn calls_under_way(&self) -> bool {
        self.lock.forking.load(SeqCst) != 0
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.holder.store(0, SeqCst);
        sys::restore_signals(self.mask);
    }
}

fn pause(rounds: u32) {
    if rounds < 50 {
        core::hint::spin_loop();
        return;
    }
    let ns = if rounds < 1000 { 10_000 } else { 1_000_000 };
    let t = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: sleeps; an early return only means another look.
    unsafe { sys::raw(libc::SYS_nanosleep, args![&t, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_under_contention() {
        static LOCK: Lock = Lock::new();
        static mut N: u64 = 0;
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..500 {
                        let _held = LOCK.hold();
                        // SAFETY: under the lock.
                        unsafe { N += 1 };
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: all threads are gone.
        assert_eq!(unsafe { N }, 2000);
    }

    #[test]
    fn an_inherited_lock_is_overruled() {
        let lock = Lock::new();
        lock.holder.store(1, SeqCst);
        drop(lock.hold());
        assert_eq!(lock.holder.load(SeqCst), 0);
    }
}
