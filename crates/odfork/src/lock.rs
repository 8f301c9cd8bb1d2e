//! The one lock of the runtime, and what only its holder may touch.
//!
//! Owns the lock, the protocol that keeps a fork from copying a half-changed state, and the cell
//! with that state: the guard that [`Lock::hold`] returns is the only way to it.
//!
//! Rules: the holder has all signals blocked, so no handler that forks waits for its own thread.
//! It runs no code of the program, so waiting for it always ends. It is never held across the
//! program's fork: handlers of `pthread_atfork` take the program's locks, whose owners may be
//! waiting here. A thread does not take it twice. A borrower of the memory (a vfork child) takes it
//! like a thread. Its holder is known by its process: who waits for another process asks its
//! [`Waiter`] whether that one can still let go, and overrules it if not.
//!
//! ```text
//! thread A: freeze                 thread B: fork
//!   hold                             calls += 1
//!   calls != 0? -> leave it          held? -> wait until it is free
//!   change, release                  fork(2); calls -= 1
//! ```
//! Either A sees B's call and does nothing, or B sees the lock and waits.
//!
//! Turns: who waits says for how many rounds it has, and who has waited less leaves a free lock to
//! it. Else a thread that takes the lock again and again would have it each time, between two looks
//! of the others. What it says is a hint: a waiter may be killed, or be in the process that this
//! one is a copy of. So a lock that stays free is taken after a number of rounds all the same.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::SeqCst;

use crate::sync::{self, AtomicI32, AtomicU32};

/// The lock, and the state it guards.
#[repr(C)]
pub struct Lock<T> {
    /// The pid of the holder's process; 0 when free.
    held: AtomicI32,
    /// Calls of the program under way that no change may overlap.
    calls: AtomicU32,
    /// Rounds that a waiter has waited for, the most; 0: nobody does.
    oldest: AtomicU32,
    guarded: UnsafeCell<T>,
}

// SAFETY: `guarded` is reached through a `Held` only, and there is at most one at a time:
// `hold` waits until it is free or its holder is gone, as its `Waiter` vouches, and `take_over`
// demands the proof that nobody else is there.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Who waits for the lock, and whom it may overrule.
pub trait Waiter {
    /// The pid of its process. Asked with signals blocked, before it takes the lock.
    fn process(&self) -> i32;

    /// The holder, of another process, never lets go. Asked after each round but the first ones.
    fn may_overrule(&self, holder: i32, rounds: u32) -> bool;
}

/// The lock is held and signals are blocked (but see `open`); dropped, both end.
///
/// It stays in its thread, whose signal mask it keeps.
pub struct Held<'a, T> {
    lock: &'a Lock<T>,
    mask: u64,
    process: i32,
    overruled: bool,
    in_this_thread: PhantomData<*mut ()>,
}

/// A call of the program is under way; dropped, it is over.
pub struct Call<'a, T> {
    lock: &'a Lock<T>,
}

/// Proof that no other task can reach the state now, nor an interrupted frame of this one.
pub struct OnlyTask(());

impl OnlyTask {
    /// The task that `detect_child` chose in a process that fork has just made.
    ///
    /// # Safety
    /// The memory is a copy made by fork: tasks that held the lock in the original are not here.
    /// Tasks made since are kept out by the caller until the guard is dropped.
    pub unsafe fn chosen_in_a_child() -> Self {
        OnlyTask(())
    }
}

impl<T> Lock<T> {
    /// Free.
    pub const fn new(guarded: T) -> Self {
        Lock {
            held: AtomicI32::new(0),
            calls: AtomicU32::new(0),
            oldest: AtomicU32::new(0),
            guarded: UnsafeCell::new(guarded),
        }
    }

    /// Waits for the lock.
    pub fn hold(&self, waiter: &impl Waiter) -> Held<'_, T> {
        let mask = sync::block_signals();
        let process = waiter.process();
        let is_free = self.oldest.load(SeqCst) == 0
            && self.held.compare_exchange(0, process, SeqCst, SeqCst).is_ok();
        let overruled = !is_free && self.wait_for_turn(waiter, process);
        Held { lock: self, mask, process, overruled, in_this_thread: PhantomData }
    }

    /// Takes it when it is free and nobody has waited longer. True: its holder was overruled.
    #[cold]
    fn wait_for_turn(&self, waiter: &impl Waiter, process: i32) -> bool {
        let (mut rounds, mut vain) = (0u32, 0u32);
        loop {
            let is_turn = self.oldest.load(SeqCst) <= rounds || vain >= sync::PATIENCE;
            let holder = match is_turn {
                true => self.held.compare_exchange(0, process, SeqCst, SeqCst),
                false => Err(self.held.load(SeqCst)),
            };
            let Err(holder) = holder else {
                self.oldest.store(0, SeqCst);
                return false;
            };
            if holder == 0 {
                // Another's turn: to stand aside is not to wait.
                vain += 1;
                sync::pause(sync::SPINS);
                continue;
            }
            if is_gone(waiter, holder, process, rounds)
                && self.held.compare_exchange(holder, process, SeqCst, SeqCst).is_ok()
            {
                return true;
            }
            self.pause(&mut rounds);
        }
    }

    /// Until the next look. Whom the lock passes over meanwhile says so again then.
    fn pause(&self, rounds: &mut u32) {
        if *rounds >= sync::SPINS {
            self.oldest.fetch_max(*rounds, SeqCst);
        }
        sync::pause(*rounds);
        *rounds = rounds.saturating_add(1);
    }

    /// The lock as a new process takes it, however fork has copied it.
    pub fn take_over(&self, process: i32, _: OnlyTask) -> Held<'_, T> {
        let mask = sync::block_signals();
        self.held.store(process, SeqCst);
        self.calls.store(0, SeqCst);
        self.oldest.store(0, SeqCst);
        Held { lock: self, mask, process, overruled: true, in_this_thread: PhantomData }
    }

    /// Announces a fork, or another call of the program that must not meet a
    /// change half-way, and waits until nothing is being changed.
    pub fn begin_call(&self, waiter: &impl Waiter) -> Call<'_, T> {
        self.calls.fetch_add(1, SeqCst);
        if self.is_held() {
            self.wait_until_free(waiter);
        }
        Call { lock: self }
    }

    /// Ends a call, also one whose guard was forgotten.
    pub fn end_call(&self) {
        // A fork in a signal handler that interrupted this one may have reset it.
        let _ = self.calls.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// Waits while it is held, by whom ever can still let go.
    #[cold]
    pub fn wait_until_free(&self, waiter: &impl Waiter) {
        let process = waiter.process();
        let mut rounds = 0u32;
        loop {
            let holder = self.held.load(SeqCst);
            if holder == 0 || is_gone(waiter, holder, process, rounds) {
                break;
            }
            self.pause(&mut rounds);
        }
        if self.oldest.load(SeqCst) < rounds {
            self.oldest.store(0, SeqCst);
        }
    }

    /// Somebody holds it, in this process or in the one that this is a copy of.
    pub fn is_held(&self) -> bool {
        self.held.load(SeqCst) != 0
    }
}

/// A holder of the waiter's own process always lets go: its threads do not end one by one.
fn is_gone(waiter: &impl Waiter, holder: i32, process: i32, rounds: u32) -> bool {
    holder != process && rounds >= sync::SPINS && waiter.may_overrule(holder, rounds)
}

impl<T> Held<'_, T> {
    /// From now on all signals but those are blocked, and what the program blocks.
    pub fn open(&self, signals: u64) {
        sync::restore_signals(self.mask | !signals);
    }

    /// The pid of the process that holds it.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Some thread is inside such a call right now.
    pub fn calls_under_way(&self) -> bool {
        self.lock.calls.load(SeqCst) != 0
    }

    /// Another process held it before and did not let go.
    pub fn has_overruled(&self) -> bool {
        self.overruled
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held; `&mut` needs this guard mutably.
        unsafe { &*self.lock.guarded.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and this guard is borrowed for as long.
        unsafe { &mut *self.lock.guarded.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Where this one was overruled, the lock is another's.
        let _ = self.lock.held.compare_exchange(self.process, 0, SeqCst, SeqCst);
        sync::restore_signals(self.mask);
    }
}

impl<T> Drop for Call<'_, T> {
    fn drop(&mut self) {
        self.lock.end_call();
    }
}
