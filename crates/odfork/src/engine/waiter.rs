//! The way to the lock; and a task that waits for it: may it overrule the holder?
//!
//! Owns the evidence that the holder never lets go. Either it is gone: a borrower of the memory
//! that was killed. Or this memory is a copy that a fork past the wrappers made while the lock was
//! held, and no fork mark tells so.
//!
//! Rules: called in the program, in signal handlers and in new children: no heap.

use core::ops::{Deref, DerefMut};

use super::child::{detect_child, process_here};
use super::state::{state, Owned, State};
use crate::absent::Entry;
use crate::lock::{Call, Held, Waiter};
use crate::reason::Reason;
use crate::sync::LONG;
use crate::{args, sys};

/// What kcmp(2) is to compare: the memory.
const KCMP_VM: i32 = 1;

/// Waits for the lock of this process's state, or of the one whose memory this task borrows.
pub fn hold() -> Stall {
    let began_ns = sys::now_ns();
    let mut held = state().lock.hold(&Task);
    if held.has_overruled() {
        // A helper of the one that is gone may still end: it shares nothing with the next one.
        held.scratch.forget();
    }
    Stall { held, began_ns }
}

/// The lock, held; what waiting for it and holding it took is counted as a stall of the program.
pub struct Stall {
    held: Held<'static, Owned>,
    began_ns: u64,
}

impl Deref for Stall {
    type Target = Held<'static, Owned>;

    fn deref(&self) -> &Self::Target {
        &self.held
    }
}

impl DerefMut for Stall {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.held
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        state().stats.count_stall(sys::now_ns().saturating_sub(self.began_ns));
    }
}

/// Announces a call of the program beside which no pass may run.
pub fn begin_call(st: &State) -> Call<'_, Owned> {
    if st.was_frozen() || st.lock.is_held() {
        // A lock that fork has copied while it was held would never be free.
        detect_child();
    }
    st.lock.begin_call(&Task)
}

/// As [`begin_call`], for a call that the thread may leave without a word, or never.
pub fn begin_absence(st: &State) -> (Option<Entry<'_>>, Option<Call<'_, Owned>>) {
    let Some(entry) = st.absent.enter(sys::gettid()) else {
        return (None, Some(st.lock.begin_call(&Task)));
    };
    if st.lock.is_held() {
        st.lock.wait_until_free(&Task);
    }
    (Some(entry), None)
}

impl Stall {
    /// Another thread is inside a call that no pass may overlap.
    pub fn is_beside_calls(&self, st: &State) -> bool {
        self.held.calls_under_way() || st.absent.any_but(sys::gettid(), is_thread)
    }
}

/// A thread of this process runs under that number. A main thread that has ended keeps its number,
/// but no memory.
fn is_thread(thread: i32) -> bool {
    let me = sys::getpid();
    // SAFETY: signal 0 only asks; so does comparing.
    unsafe {
        sys::raw(libc::SYS_tgkill, args![me, thread, 0]) == 0
            && !matches!(sys::raw(libc::SYS_kcmp, args![me, thread, KCMP_VM]), 1..=3)
    }
}

/// The calling task.
pub struct Task;

impl Waiter for Task {
    fn process(&self) -> i32 {
        process_here().0
    }

    fn ignored(&self) -> u64 {
        match state().barred() {
            // A filter may kill for the question, and code past the wrappers may install one.
            Reason::Seccomp | Reason::RawCalls => 0,
            _ => state().ignored.set(),
        }
    }

    fn may_overrule(&self, holder: i32, rounds: u32) -> bool {
        let st = state();
        is_gone(st, holder) || rounds >= LONG && may_be_a_copy(st, holder)
    }
}

/// No such process, or a child that waits to be reaped.
fn is_gone(st: &State, holder: i32) -> bool {
    // SAFETY: signal 0 only asks.
    if unsafe { sys::raw(libc::SYS_kill, args![holder, 0]) } == -(libc::ESRCH as isize) {
        // The first task of a pid namespace does not see its maker, nor the maker's threads.
        return !st.owner.is(holder) || getppid() != 0;
    }
    let options = libc::WNOHANG | libc::WNOWAIT | libc::WEXITED | libc::__WALL;
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let a = args![libc::P_PID, holder, &mut info, options, 0];
        sys::raw(libc::SYS_waitid, a) == 0 && info.si_pid() == holder
    }
}

fn getppid() -> isize {
    // SAFETY: only asks.
    unsafe { sys::raw(libc::SYS_getppid, [0; 6]) }
}

/// Without a mark only short operations hold the lock, and the program's own call in them. A
/// holder that runs in this very memory is waited for, however long that takes.
fn may_be_a_copy(st: &State, holder: i32) -> bool {
    // SAFETY: compares two tasks; where that is not allowed, the time that has passed decides.
    let same = || unsafe { sys::raw(libc::SYS_kcmp, args![sys::getpid(), holder, KCMP_VM]) } == 0;
    st.fork_mark.is_set().is_none() && !same()
}
