//! Live memory before the first fork: a pass that no fork has asked for.
//!
//! Owns when it begins: in the program's own waits, once enough pages are new. So a server that
//! loads its data and then waits finds it frozen at its first fork. Each look reads the page tables
//! of what is new, in one piece: to look early and often keeps it short. Not in mappings: those may
//! be an allocator's, with its locks held, and the inspection of the program takes the loader's.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::child::detect_child;
use super::fork::passes_inspection;
use super::live::{is_live_wanted, map_again};
use super::slices;
use super::state::{state, State};
use super::waiter::hold;
use crate::options::Freeze;
use crate::pass::Decide;
use crate::reason::Reason;
use crate::sys::{self, PAGE};

/// The page faults are not asked for more often than that (20 ms).
const ASK_NS: u64 = 20_000_000;
/// New pages that are worth a pass at once (16 MB), and after a while.
const MANY: u64 = 4096;
const SOME: u64 = 1024;
const WHILE_NS: u64 = 500_000_000;
/// A look reads what is frozen too: of that so much must be new.
const SHARE: u64 = 8;

/// The program is about to wait: the moment for a slice, or for a pass to begin.
#[inline]
pub fn before_wait() {
    if state().choice.is_wished() {
        choose(state());
    }
    if state().works_in_calls() {
        work(state());
    }
}

/// Live memory is wished for: it is live from here on.
#[cold]
fn choose(st: &State) {
    if !detect_child() {
        return;
    }
    if st.live.is_barred() || !passes_inspection(st) {
        return st.choice.rule_out();
    }
    let mut owned = hold();
    // First: a fork that finds memory live and no slices would freeze it in one piece.
    st.works_in_calls.store(1, SeqCst);
    if !st.choice.choose() {
        return st.work_as_asked();
    }
    // What the latest fork has made may live.
    st.slices.note_child(true);
    slices::open(st, &mut owned, Decide::Always);
    slices::put_off_beside_child(st);
}

#[cold]
fn work(st: &State) {
    // A new child has nothing under way, and finds that out first.
    if st.live.is_unmapped() && detect_child() && st.live.is_unmapped() {
        map_again(st);
    }
    if st.slices.is_wanted() {
        slices::begin_wanted(st);
    }
    if may_begin(st) && detect_child() && is_live_wanted() && passes_inspection(st) {
        let mut owned = hold();
        if !st.slices.is_open() {
            slices::open(st, &mut owned, Decide::Always);
        }
    }
    slices::before_mapping();
}

fn may_begin(st: &State) -> bool {
    if !is_live_wanted()
        || st.freeze() != Freeze::Eager
        || !slices::is_bounded(st)
        || st.slices.is_open()
        || st.barred() != Reason::None
        || st.live.is_barred()
        // A child of the latest fork may live.
        || st.slices.is_beside_child()
    {
        return false;
    }
    let now_ns = sys::now_ns();
    if now_ns < st.slices.next_ns.load(Relaxed) {
        return false;
    }
    st.slices.put_off(ASK_NS);
    let new = st.touched();
    let frozen = st.stats.frozen_bytes.load(Relaxed) / PAGE as u64;
    let times = st.slices.reluctance();
    let is_old = now_ns.saturating_sub(st.last_pass_ns.load(Relaxed)) > WHILE_NS * times;
    new >= MANY.max(frozen / SHARE) * times || is_old && new >= SOME * times
}
