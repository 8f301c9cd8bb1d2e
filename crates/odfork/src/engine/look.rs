//! A look whether children still show the files of live memory: when the program has heard of the
//! end of one.
//!
//! Owns when it is made. Who is in a call that copies the process is not waited for.

use core::sync::atomic::Ordering::Relaxed;

use super::apply::pass;
use super::child::detect_child;
use super::live::is_live_wanted;
use super::slices::{self, finish_sharing};
use super::state::{state, Owned, State};
use super::waiter::hold;
use crate::pass::Decide;
use crate::reason::{Done, Reason};
use crate::sys;

/// After a call by which the program may have heard of the end of a child.
pub fn after_wait() {
    let st = state();
    if !is_live_wanted() || st.live.is_barred() || st.registry_in_use.load(Relaxed) == 0 {
        return;
    }
    let is_due = || st.live.is_due(sys::now_ns());
    // A new child has nothing to share, and finds that out first.
    if st.barred() == Reason::None && is_due() && detect_child() && is_due() {
        let mut owned = hold();
        if slices::is_bounded(st) {
            slices::open_sharing(st, &mut owned);
        } else if !owned.is_beside_calls(st) {
            let _ = share(st, &mut owned);
        }
    }
}

/// Shares what can be. Under the lock; nobody is in an announced call.
pub fn share(st: &State, owned: &mut Owned) -> Done<()> {
    let began_ns = sys::now_ns();
    let done = pass(st, owned, Decide::Share, began_ns);
    finish_sharing(st, owned, sys::now_ns() - began_ns);
    done
}
