//! A look whether children still show the files of live memory: when the program has heard of the
//! end of one.
//!
//! Owns when it is made. Who is in a call that copies the process is not waited for.

use core::sync::atomic::Ordering::Relaxed;

use super::apply::pass;
use super::child::detect_child;
use super::live::is_live_wanted;
use super::state::{state, Owned, State};
use super::waiter::hold;
use crate::options::Freeze;
use crate::pass::Decide;
use crate::reason::Reason;
use crate::sys;

/// A look in vain is not repeated before so many times what it took.
const PATIENCE: u64 = 20;

/// After a call by which the program may have heard of the end of a child.
pub fn after_wait() {
    let st = state();
    if !is_live_wanted() || st.live.is_barred() || st.registry_in_use.load(Relaxed) == 0 {
        return;
    }
    if st.barred() == Reason::None && st.live.is_due(sys::now_ns()) && detect_child() {
        let mut owned = hold();
        if !owned.is_beside_calls(st) {
            share(st, &mut owned);
        }
    }
}

/// Shares what can be. Under the lock; nobody is in an announced call.
pub fn share(st: &State, owned: &mut Owned) {
    let began_ns = sys::now_ns();
    let _ = pass(st, owned, Decide::Share, began_ns);
    let now_ns = sys::now_ns();
    let eager = st.options().freeze == Freeze::Eager;
    let patience = if eager { 0 } else { (now_ns - began_ns) * PATIENCE };
    let waits = owned.waits;
    if st.live.is_any() {
        let Owned { spare, zone, .. } = owned;
        spare.make(zone);
    }
    st.live.looked(waits, if waits { now_ns + patience } else { 0 });
    if eager {
        st.faults.store(sys::minor_faults(), Relaxed);
    }
    st.last_pass_ns.store(now_ns, Relaxed);
}
