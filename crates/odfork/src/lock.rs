//! The one lock of the runtime, and what only its holder may touch.
//!
//! Owns the lock, the protocol that keeps a fork from copying a half-changed state, and the cell
//! with that state: the guard that [`Lock::hold`] returns is the only way to it.
//!
//! Rules: the holder has all signals blocked but those that are ignored (`ignored.rs`), so no
//! handler that forks waits for its own thread: one that is set while somebody is about to take the
//! lock changes its word. The holder runs no code of the
//! program, so waiting for it always ends. It is never held across the program's fork: handlers of
//! `pthread_atfork` take the program's locks, whose owners may be waiting here. A thread does not
//! take it twice. A borrower of the memory (a vfork child) takes it like a thread. Its holder is
//! known by its process: who waits for another process asks its [`Waiter`] whether that one can
//! still let go, and overrules it if not.
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

use crate::sync::{self, AtomicU32, AtomicU64};

/// Of the lock's word: how many signals have got handlers.
const HANDLERS: u64 = !0 << 32;

/// What a task has seen of the lock, and the signals that it blocked before.
struct Look {
    word: u64,
    mask: u64,
    process: i32,
    /// Ignored signals stay open.
    is_open: bool,
}

/// The lock, and the state it guards.
#[repr(C)]
pub struct Lock<T> {
    /// Below the pid of the holder's process, 0 when free; above how many signals have got handlers
    /// that were ignored.
    held: AtomicU64,
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

    /// Signals that are ignored stay open. The kernel drops them then; blocked ones would wake
    /// another thread.
    fn ignored(&self) -> u64 {
        0
    }

    /// The holder, of another process, never lets go. Asked after each round but the first ones.
    fn may_overrule(&self, holder: i32, rounds: u32) -> bool;
}

/// The lock is held and signals are blocked; dropped, both end.
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
            held: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            oldest: AtomicU32::new(0),
            guarded: UnsafeCell::new(guarded),
        }
    }

    /// Waits for the lock.
    pub fn hold(&self, waiter: &impl Waiter) -> Held<'_, T> {
        let mut look = self.look(waiter);
        let is_free = self.oldest.load(SeqCst) == 0 && self.take(&look);
        let overruled = !is_free && self.wait_for_turn(waiter, &mut look);
        let Look { mask, process, .. } = look;
        Held { lock: self, mask, process, overruled, in_this_thread: PhantomData }
    }

    /// Blocks signals, and looks at the lock. In this order: who sets a handler says so before the
    /// word changes.
    fn look(&self, waiter: &impl Waiter) -> Look {
        let word = self.held.load(SeqCst);
        let open = waiter.ignored();
        let mask = sync::block_more_signals(!open);
        Look { word, mask, process: waiter.process(), is_open: open != 0 }
    }

    /// Takes it if it is free, and no signal has got a handler since the look.
    fn take(&self, look: &Look) -> bool {
        holder_of(look.word) == 0 && self.change(look.word, look.process)
    }

    fn change(&self, word: u64, process: i32) -> bool {
        let taken = word & HANDLERS | u64::from(process as u32);
        self.held.compare_exchange(word, taken, SeqCst, SeqCst).is_ok()
    }

    /// Takes it when it is free and nobody has waited longer. True: its holder was overruled.
    ///
    /// Signals are blocked at looks only: who sleeps blocks none but those of the program.
    #[cold]
    fn wait_for_turn(&self, waiter: &impl Waiter, look: &mut Look) -> bool {
        let (mut rounds, mut vain) = (0u32, 0u32);
        loop {
            let is_turn = self.oldest.load(SeqCst) <= rounds || vain >= sync::PATIENCE;
            if is_turn && self.take(look) {
                self.oldest.store(0, SeqCst);
                return false;
            }
            let holder = holder_of(look.word);
            if holder == 0 {
                // Another's turn: to stand aside is not to wait.
                vain += 1;
                sync::restore_signals(look.mask);
                sync::pause(sync::SPINS);
                *look = self.look(waiter);
                continue;
            }
            if is_gone(waiter, holder, look.process, rounds) && self.change(look.word, look.process)
            {
                return true;
            }
            if rounds < sync::SPINS && !look.is_open {
                self.pause(&mut rounds);
                look.word = self.held.load(SeqCst);
                continue;
            }
            sync::restore_signals(look.mask);
            self.pause(&mut rounds);
            *look = self.look(waiter);
        }
    }

    /// A signal has got out of what may stay open, and is about to get a handler.
    pub fn note_handler(&self) {
        self.held.fetch_add(1 << 32, SeqCst);
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
        let mask = sync::block_more_signals(!0);
        let word = self.held.load(SeqCst);
        self.held.store(word & HANDLERS | u64::from(process as u32), SeqCst);
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
            let holder = holder_of(self.held.load(SeqCst));
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
        holder_of(self.held.load(SeqCst)) != 0
    }
}

fn holder_of(word: u64) -> i32 {
    word as u32 as i32
}

/// A holder of the waiter's own process always lets go: its threads do not end one by one.
fn is_gone(waiter: &impl Waiter, holder: i32, process: i32, rounds: u32) -> bool {
    holder != process && rounds >= sync::SPINS && waiter.may_overrule(holder, rounds)
}

impl<T> Held<'_, T> {
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
        let is_mine = |word| (holder_of(word) == self.process).then_some(word & HANDLERS);
        let _ = self.lock.held.fetch_update(SeqCst, SeqCst, is_mine);
        sync::restore_signals(self.mask);
    }
}

impl<T> Drop for Call<'_, T> {
    fn drop(&mut self) {
        self.lock.end_call();
    }
}
