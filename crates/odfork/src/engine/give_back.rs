//! The program gives frozen memory up: what its files hold beyond that is given back.
//!
//! Owns the order of things; when is in `given_up.rs`, how is a pass (`Decide::GiveBack`).

use core::sync::atomic::Ordering::Relaxed;

use super::apply::pass;
use super::child::detect_child;
use super::state::{state, State};
use super::waiter::hold;
use crate::pass::Decide;
use crate::reason::Reason;
use crate::sys;

/// After a call by which `len` bytes of frozen memory lost their content.
pub fn gave_up(len: usize) {
    let st = state();
    let frozen = st.stats.frozen_bytes.load(Relaxed);
    if frozen > 0 && !st.live.is_any() && st.given_up.add(len as u64, frozen) && detect_child() {
        give_back(st);
    }
}

fn give_back(st: &State) {
    if st.barred() != Reason::None {
        return;
    }
    let mut owned = hold();
    // A fork of another thread copies what it finds: the next call looks again.
    if owned.is_beside_calls(st) {
        return;
    }
    let before = held(&owned.registry);
    let _ = pass(st, &mut owned, Decide::GiveBack, sys::now_ns());
    st.given_up.looked(held(&owned.registry) < before);
}

fn held(registry: &crate::registry::Registry) -> usize {
    registry.live().map(|(_, file)| file.bytes).sum()
}
