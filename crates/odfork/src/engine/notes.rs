//! What the wrappers have seen the program do, as far as it matters to freezing.
//!
//! Owns the reasons never to freeze, and what a pass must know about tasks, filters and pages
//! that leave the process. It moves no memory itself.

use core::sync::atomic::Ordering::Relaxed;

use super::child::detect_child;
use super::state::state;
use super::thaw::thaw_all_of;
use super::waiter::{begin_absence, hold, Task};
use crate::begun;
use crate::held::Holding;
use crate::reason::Reason;

/// Never freeze again in this process.
pub fn bar(reason: Reason) {
    let st = state();
    // Held: a pass under way ends before.
    let _owned = hold();
    st.set_barred(reason);
    st.stats.count_stop(reason, 0);
}

/// Thaws everything, and never freezes again in this process: in one go, so that no pass of
/// another thread comes in between.
pub fn stay_plain(reason: Reason) {
    let st = state();
    let mut owned = hold();
    let _ = thaw_all_of(st, &mut owned);
    if reason == Reason::Seccomp {
        // Nothing is noted any more.
        st.choice.rule_out();
    }
    st.set_barred(reason);
    st.stats.count_stop(reason, 0);
}

/// The program is about to install a system-call filter: give back what later
/// needs system calls of ours, and make none from now on.
pub fn before_filter() {
    if !state().is_fenced() {
        stay_plain(Reason::Seccomp);
    }
}

/// The program is about to load code whose calls will not be seen: no memory may be frozen then.
pub fn before_unseen_code() {
    if state().setup.get().is_none() {
        // An earlier constructor than ours: nothing is frozen yet.
        return state().set_barred(Reason::RawCalls);
    }
    // A helper may be had again in children, which have that code too.
    if detect_child() && matches!(state().barred(), Reason::None | Reason::Helper) {
        stay_plain(Reason::RawCalls);
    }
}

/// Code is about to be loaded. What was searched may have been unloaded, and its addresses and file
/// be those of other code now.
pub fn before_loading() {
    if state().unloads.load(Relaxed) && detect_child() {
        hold().searched.forget();
    }
}

/// The program unloads a library.
pub fn before_unloading() {
    state().unloads.store(true, Relaxed);
}

/// Makes a call after which the next child is the first of a new pid namespace, or in a time
/// namespace where nobody may share this memory. A helper of ours must not be that child: the
/// namespace would end with it, and every fork after it fail. So memory that may need one is
/// given back before, and none is made until the call was refused, or in this process's children.
pub fn with_new_namespace(call: impl FnOnce() -> isize) -> isize {
    if !detect_child() || state().barred() != Reason::None {
        return call();
    }
    stay_plain(Reason::Helper);
    let ret = call();
    if ret < 0 {
        state().unbar(Reason::Helper);
    }
    ret
}

/// Makes a call of the program that must not meet a pass: none begins meanwhile, and one under
/// way ends before. A borrower of the memory has passes of its own, which do not hold others.
pub fn beside_no_pass<T>(call: impl FnOnce() -> T) -> T {
    if state().is_fenced() || !detect_child() {
        return call();
    }
    let _call = state().lock.begin_call(&Task);
    call()
}

/// The program names who may trace it, by a call that must not come between the naming of a helper
/// and its end.
pub fn name_tracer(who: usize, call: impl FnOnce() -> isize) -> isize {
    beside_no_pass(|| {
        let ret = call();
        if ret >= 0 {
            state().tracer.note(who != 0);
        }
        ret
    })
}

/// As [`beside_no_pass`], for a call that may never return.
pub fn away_from_passes<T>(call: impl FnOnce() -> T) -> T {
    if state().is_fenced() {
        return call();
    }
    let _away = begin_absence(state());
    call()
}

/// Makes a call that nothing mends if it is interrupted: no pass that interrupts threads begins
/// meanwhile, and one under way ends before.
pub fn unmended<T>(call: impl FnOnce() -> T) -> T {
    if state().is_fenced() || !is_interrupting() {
        return call();
    }
    let lock = &state().lock;
    let wait = || {
        if lock.is_held() {
            lock.wait_until_free(&Task);
        }
    };
    begun::unmended(wait, call)
}

/// Threads of this process may be interrupted to be held.
pub fn is_interrupting() -> bool {
    state().options().holding != Holding::Userfaultfd
}

/// The program uses futex operations that fail on protected pages.
pub fn note_pi_futex() {
    state().pi_futexes.store(1, Relaxed);
}

/// Pages of this process go into a pipe or a socket, or it is about to change its privileges: no
/// backing file that may show them is overwritten any more, in this process or any other that
/// shares it.
pub fn never_overwrite() {
    state().never_overwrite();
}

/// A task is about to be made past the C library's fork: what it does to the memory is not
/// known, and it must find out whether the memory is its own.
pub fn before_raw_fork() {
    let mark = &state().fork_mark;
    if mark.is_set() != Some(true) && !state().is_fenced() && detect_child() {
        mark.set();
    }
}

/// A socket of the program gets a limit of time: a wait begun again would have it anew.
pub fn note_timed_socket() {
    state().timed_sockets.store(1, Relaxed);
}

/// A socket keeps back what it has received, or may wait when it is closed: cut short, neither can
/// be made up for.
pub fn note_delicate_socket() {
    state().delicate_sockets.store(1, Relaxed);
}

/// A task that shares this address space and is no thread was started.
pub fn note_shared_vm() {
    before_raw_fork();
    hold().shared_vm = true;
}
