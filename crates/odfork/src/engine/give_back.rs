//! The program gives frozen memory up: what its files hold beyond that is given back, and what it
//! gives up again and again becomes anonymous.
//!
//! Owns the order of things; when is in `given_up.rs`, how is a pass (`Decide::GiveBack`,
//! `Decide::Thaw`).

use core::sync::atomic::Ordering::Relaxed;

use super::apply::pass;
use super::child::detect_child;
use super::slices;
use super::state::{state, State};
use super::waiter::hold;
use crate::pass::Decide;
use crate::reason::Reason;
use crate::retained::Retained;
use crate::sys;

/// After a call by which `len` bytes of frozen memory from `start` on lost their content.
pub fn gave_up(start: usize, len: usize) {
    let st = state();
    let frozen = st.stats.frozen_bytes.load(Relaxed);
    if frozen == 0 || st.live.is_any() {
        return;
    }
    let is_much = st.given_up.add(len as u64, frozen);
    let retained = st.given_up.is_too_much_retained(frozen);
    let thaws = retained || st.given_up.is_thaw_due();
    if !(is_much || thaws) || !detect_child() || st.barred() != Reason::None {
        return;
    }
    let thawed = thaws && thaw(st, start, retained);
    if is_much && !thawed {
        give_back(st);
    }
}

fn give_back(st: &State) {
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

/// The memory around an address, or that of which files retain most. Not for a process that has
/// inherited it: nothing would leave the files, and all of it would exist twice. Nor where pauses
/// are bounded. True: some of it was thawed.
fn thaw(st: &State, at: usize, retained: bool) -> bool {
    let began_ns = sys::now_ns();
    let mut owned = hold();
    if owned.is_beside_calls(st) {
        return false;
    }
    let most = owned.retained.most().filter(|_| retained);
    let range = most.unwrap_or(Retained::around(at));
    let here = |start: usize, end: usize| start < range.1 && end > range.0;
    let is_own = owned.registry.live().any(|(_, f)| f.anchor_shared != 0 && here(f.start, f.end));
    let before = st.stats.thaw_bytes.load(Relaxed);
    if is_own && !slices::is_bounded(st) && st.addresses.may_be_frozen(range.0, range.1) {
        let _ = pass(st, &mut owned, Decide::Thaw(range), began_ns);
    }
    let bytes = st.stats.thaw_bytes.load(Relaxed) - before;
    if bytes > 0 || retained {
        owned.retained.forget(range);
        st.given_up.note_retained(owned.retained.total());
        st.given_up.released(bytes > 0);
    }
    let (ns, forks) = (sys::now_ns() - began_ns, st.stats.forks.load(Relaxed));
    if bytes > 0 || !retained {
        st.given_up.thawed(bytes, ns, forks);
    }
    bytes > 0
}
