//! The image engine seen from the program: one fork, and what else reaches frozen memory.
//!
//! Owns the runtime's state and the order of things; everything that moves memory is a job for
//! the helper task. The way of one fork, in this order of files:
//!
//! ```text
//! fork()  ->  child.rs   is this memory ours?     (waiter.rs  whose lock may be overruled)
//!         ->  fork.rs    prepare: is a pass due?      ->  apply.rs  run it, take over what it did
//!         ->  the program's fork(2)
//!         ->  fork.rs    parent: record the time      child: nothing, until child.rs is asked
//! ```

mod account;
mod apply;
mod child;
mod choice;
mod early;
mod fork;
mod give_back;
mod give_up;
mod growth;
mod handlers;
mod live;
mod look;
mod mapping;
mod notes;
mod objects;
mod property;
mod relocate;
mod retry;
mod slices;
mod state;
mod subject;
mod thaw;
mod under_way;
mod waiter;
mod wipe;
mod zero;

pub use early::before_wait;
pub use fork::{fork, freeze_now};
pub use give_back::gave_up;
pub use give_up::give_up;
pub use growth::{after_growth, before_growth};
pub use handlers::with_handler;
pub use live::{
    after_copy, after_libc_fork, announced, bar_live, before_libc_fork, forget_mapped,
    is_live_possible, is_live_wanted, note_mapped, on_private, share_nothing,
};
pub use look::after_wait;
pub use mapping::{is_done, keep, map, protect, replace};
pub use notes::{
    away_from_passes, before_filter, before_loading, before_raw_fork, before_unloading,
    before_unseen_code, beside_no_pass, is_interrupting, name_tracer, never_overwrite,
    note_delicate_socket, note_pi_futex, note_shared_vm, note_timed_socket, stay_plain, unmended,
    with_new_namespace,
};
pub use objects::{is_behind, is_libcs};
pub use property::with_property;
pub use relocate::{remap, remap_thawed, Remap};
pub use slices::{before_mapping, hear, is_pass_under_way, until_slice, with_advice};
pub use state::{state, Setup, FIND_OBJECT, MAX_NEXT};
pub use thaw::{
    call_if_plain, keep_in_children, thaw_all, was_ever_frozen, with_all_thawed, with_thawed,
};
pub use wipe::{is_any as is_any_wiped, wipe};

use core::sync::atomic::Ordering::Relaxed;

use crate::options::{Freeze, Options, Profile};
use crate::reason::Reason;
use crate::sys;

/// Begins: reads the options. Called once, from the library's constructor. Everything in the
/// program's tree that is executed comes through
/// here, most of it to end soon without a fork: what can wait, waits.
pub fn start(inspect: fn() -> Reason) {
    let st = state();
    let options = Options::from_env();
    if !st.setup.set(Setup { options, inspect }) {
        return;
    }
    let in_calls = options.max_pause_ns != 0 || options.profile == Profile::Live;
    st.works_in_calls.store(u32::from(in_calls), Relaxed);
    st.choice.start(options.profile);
    if options.freeze == Freeze::Never {
        st.stats.last_reason.store(Reason::Never as u32, Relaxed);
    }
    let me = sys::getpid();
    st.stats.publish(me);
    st.owner.set(me);
    st.born.store(me, Relaxed);
}

/// The process that loaded the library by exec; its forked children do not report.
pub fn born() -> i32 {
    state().born.load(Relaxed)
}

/// The state is this process's, not that of one that it borrows memory of, or is a child of.
pub fn is_state_of_this_process() -> bool {
    state().owner.is(sys::getpid())
}

/// The memory is this process's own, not one that it borrows (a vfork child).
pub fn owns_memory() -> bool {
    child::detect_child()
}

/// A system-call filter was noticed.
pub fn is_fenced() -> bool {
    state().is_fenced()
}

/// True once any memory of this process was frozen: a cheap first question for
/// the wrappers.
pub fn anything_frozen() -> bool {
    state().was_frozen()
}

/// Memory of this process is frozen now, perhaps.
pub fn is_any_frozen() -> bool {
    state().was_frozen() && state().addresses.any_frozen()
}

/// Calls of the freeze path so far, and failures injected by a test.
pub fn calls() -> (u32, u32) {
    state().trace.counts()
}
