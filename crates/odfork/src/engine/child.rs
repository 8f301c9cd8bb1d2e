//! Whose state is this? A process made by fork finds out here, and begins one of its own.
//!
//! Owns the change of the state from a process to its child. Every entrance of the runtime that
//! goes to the lock (`waiter.rs`) comes through here first.
//!
//! Rules: called in the program, in signal handlers and in new children: no heap.

use core::sync::atomic::Ordering::Relaxed;

use super::state::{state, State};
use super::wipe;
use crate::lock::OnlyTask;
use crate::reason::Reason;
use crate::sys;

/// The state is this process's own, at the latest now. False for a task that borrows another
/// process's memory (a vfork child): the state is not its own.
pub fn detect_child() -> bool {
    process_here().1
}

/// The same, with the number of this process.
pub fn process_here() -> (i32, bool) {
    let (st, me) = (state(), sys::getpid());
    if is_ours(st, me) {
        return (me, true);
    }
    arrive(st)
}

/// In a child, or a borrower of another process's memory.
#[cold]
fn arrive(st: &State) -> (i32, bool) {
    // A handler that interrupted this and forks would wait below for what it interrupted. One
    // that has forked already left a child here: its number is asked for only now.
    let mask = sys::block_signals();
    let me = sys::getpid();
    let ours = is_ours(st, me) || !st.fork_mark.is_borrowed(me);
    if ours {
        st.owner.pass_to(me, || is_ours(st, me), || begin_child(st, me));
    }
    sys::restore_signals(mask);
    (me, ours)
}

/// The state was begun by process `me`. A child in another pid namespace may have its parent's
/// number: its mark is not set.
fn is_ours(st: &State, me: i32) -> bool {
    st.owner.is(me) && st.fork_mark.is_set() != Some(false)
}

/// A state of its own for a new process.
fn begin_child(st: &State, me: i32) {
    // SAFETY: fork has copied this memory and one thread. Only the one that `detect_child` chose
    // comes here; others made since wait there, because every way to the lock leads through it.
    let mut owned = st.lock.take_over(me, unsafe { OnlyTask::chosen_in_a_child() });
    owned.registry.inherit(&st.addresses);
    if st.unsettled.swap(0, Relaxed) != 0 {
        // A thread of the parent had mapped something that the sets do not tell yet.
        st.addresses.doubt();
    }
    owned.scratch.forget();
    owned.shared_vm = false;
    st.live.begin_child();
    if st.is_any_mapped.load(Relaxed) != 0 {
        st.mapped.begin_child();
    }
    st.tracer.begin_child();
    st.slices.begin_child();
    if st.choice.is_chosen() {
        st.work_as_asked();
    }
    st.choice.begin_child();
    st.ignored.begin_child();
    owned.spare.forget();
    owned.account.begin_child();
    owned.retained.clear();
    st.addresses.settle();
    st.given_up.begin_child();
    st.stats.reset();
    st.stats.pid.store(me, Relaxed);
    st.faults.store(u64::MAX, Relaxed);
    if st.arrived.load(Relaxed) != 0 {
        st.arrived.store(0, Relaxed);
    }
    st.unpaid_ns.store(0, Relaxed);
    st.unpaid_forks.store(0, Relaxed);
    wipe::in_child(st);
    if st.barred() == Reason::Helper {
        // Its tasks are born where it was born itself (`with_new_namespace`).
        st.set_barred(Reason::None);
    }
    // From now on this memory is its own, whatever borrows it or is copied from it.
    if st.fork_mark.is_set() == Some(false) {
        st.fork_mark.set();
    }
}
