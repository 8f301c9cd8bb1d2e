//! Passes in slices: when the next one is made, and what they cost together.
//!
//! Owns the order. With a bound on pauses no fork freezes anything by itself: it notes that a pass
//! is due. The program's own waits and mappings make the slices, each followed by at least as much
//! time for the program. No task and no thread of ours lives in between.
//!
//! ```text
//! fork           due? note it; no wait since the last fork? a slice
//! poll, wait ... noted, and it is time? a slice: first a look, then what it has found
//! ```
//! A child that lives shows what it has inherited. So slices pause after a fork until the program
//! hears of a child's end, or for a while. A fork in the middle finds what has moved by then.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use odfork_model::Trial;

use super::apply::pass_or_slice;
use super::child::detect_child;
use super::live::is_live_wanted;
use super::state::{state, Owned, State};
use super::under_way::{Purchase, Rest, MOVING, NONE, SHARING};
use super::waiter::{begin_call, hold, Stall};
use crate::args;
use crate::options::Freeze;
use crate::pass::{Bid, Decide};
use crate::reason::{Done, Reason, Stop};
use crate::slices::Slice;
use crate::sys;

/// How long a fork keeps slices off, unless the end of a child is heard of before (1 s). Live
/// memory gains nothing while a child shows it (10 s).
const AFTER_FORK_NS: u64 = 1_000_000_000;
const AFTER_LIVE_FORK_NS: u64 = 10_000_000_000;
/// Where nobody has asked for slices, a program has so long for what it does itself once a child
/// has ended (500 ms): a thread that closes a large file stops only when that is done.
const AFTER_CHILD_NS: u64 = 500_000_000;
/// The first pause after a slice in vain; it doubles up to 32 times that (50 ms).
const PATIENCE_NS: u64 = 50_000_000;
/// Slices in vain, one after the other, before the pass is given up.
const TRIES: u32 = 64;

/// Beside calls that no pass may overlap (1 ms).
const BESIDE_CALLS_NS: u64 = 1_000_000;

/// A look in vain is not repeated before so many times what it took.
const PATIENCE: u64 = 20;

/// Passes are made in slices in this process.
pub fn is_bounded(st: &State) -> bool {
    st.works_in_calls() && st.max_pause_ns() != 0
}

/// The program is about to wait, or maps memory: a good moment.
#[inline]
pub fn before_mapping() {
    if state().works_in_calls() {
        make_slice(state());
    }
}

#[cold]
fn make_slice(st: &State) {
    if st.slices.driven.load(Relaxed) == 0 && is_bounded(st) {
        st.slices.driven.store(1, Relaxed);
    }
    // A new child has no pass under way, and finds that out first.
    let may = st.slices.is_due() && st.barred() == Reason::None && detect_child();
    if may && st.slices.is_open() {
        let _ = slice(st, &mut hold());
    }
}

/// A pass is made in slices now.
#[inline]
pub fn is_pass_under_way() -> bool {
    state().works_in_calls()
        && state().slices.is_open()
        && state().barred() == Reason::None
        && detect_child()
}

/// Milliseconds to the next slice, if the program waits for longer than that (negative: without
/// end) and has nothing else to do.
pub fn until_slice(limit: i32) -> Option<i32> {
    let slices = &state().slices;
    let next_ns = slices.next_ns.load(Relaxed);
    let pause = (next_ns.saturating_sub(sys::now_ns()) / 1_000_000 + 1).min(i32::MAX as u64) as i32;
    let more = slices.is_open() && state().barred() == Reason::None;
    (more && (limit < 0 || pause < limit)).then_some(pause)
}

/// The program puts a new mapping there. In an announced call, or under the lock.
pub fn note_new(st: &State, start: usize, len: usize) {
    if st.works_in_calls() && st.slices.is_open() {
        st.changes.note(start, start.saturating_add(len));
    }
}

/// Makes a call that may give memory a property.
pub fn with_advice(call: impl FnOnce() -> isize) -> isize {
    let st = state();
    if !is_bounded(st) && !st.choice.is_possible() {
        return call();
    }
    let _call = begin_call(st);
    if is_bounded(st) {
        st.slices.doubt();
    }
    call()
}

/// The program has heard of the end of a child.
pub fn hear() {
    let st = state();
    st.slices.note_child(false);
    if st.slices.is_open() || st.slices.is_wanted() {
        begin_after_child(st);
    }
}

/// The first slice after the end of a child.
fn begin_after_child(st: &State) {
    match st.choice.is_chosen() {
        true => st.slices.put_off(AFTER_CHILD_NS),
        false => st.slices.next_ns.store(0, Relaxed),
    }
}

/// Before a fork: a program that never waits gets its slices here.
pub fn before_fork(st: &State, owned: &mut Stall) {
    if st.slices.driven.swap(0, Relaxed) == 0 && st.slices.is_due() {
        let _ = slice(st, owned);
    }
    put_off_beside_child(st);
}

/// A child may live.
pub fn put_off_beside_child(st: &State) {
    st.slices.put_off(if is_live_wanted() { AFTER_LIVE_FORK_NS } else { AFTER_FORK_NS });
}

/// The program has heard of a child's end: what is frozen may be shared again, by what an earlier
/// look has found. A pass that moves memory comes after that, its look is a short one then.
pub fn open_sharing(st: &State, owned: &mut Owned) {
    let moves = st.slices.open.load(SeqCst) == MOVING;
    if moves && matches!(owned.purchase.decide, Some(Decide::Always)) && is_any_frozen(st) {
        st.slices.want();
    } else if st.slices.is_open() {
        return;
    }
    open(st, owned, Decide::Share);
    begin_after_child(st);
    let purchase = &mut owned.purchase;
    (purchase.looks, purchase.again, purchase.left_ns) = (false, true, u64::MAX);
}

fn is_any_frozen(st: &State) -> bool {
    st.registry_in_use.load(Relaxed) != 0
}

/// Before a fork with something new: whether that can wait until the program has heard of the end
/// of the child. One that never waits would never hear of it.
pub fn may_wait(st: &State) -> bool {
    let waits = is_live_wanted()
        && !st.live.is_barred()
        && st.freeze() == Freeze::Eager
        && is_any_frozen(st)
        && st.slices.driven.swap(0, Relaxed) != 0;
    if waits {
        st.slices.want();
        st.slices.put_off(AFTER_LIVE_FORK_NS);
    }
    waits
}

/// The program is about to wait, and a pass is due once what is frozen is shared again. A child
/// whose end the program does not ask for is asked for here, every ten seconds.
pub fn begin_wanted(st: &State) {
    let is_later = || sys::now_ns() < st.slices.next_ns.load(Relaxed);
    if st.slices.is_open() || is_later() || st.barred() != Reason::None || !detect_child() {
        return;
    }
    if !st.slices.is_wanted() {
        // A new child.
        return;
    }
    if st.slices.is_beside_child() && has_children() && st.slices.is_patient() {
        return st.slices.put_off(AFTER_LIVE_FORK_NS);
    }
    st.slices.note_child(false);
    open_sharing(st, &mut hold());
}

/// This process has children, or might have.
fn has_children() -> bool {
    let how = libc::WNOHANG | libc::WNOWAIT | libc::WEXITED;
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let a = args![libc::P_ALL, 0, &mut info, how, 0];
        sys::raw(libc::SYS_waitid, a) != -(libc::ECHILD as isize)
    }
}

/// From now on a pass is under way.
pub fn open(st: &State, owned: &mut Owned, decide: Decide) {
    let samples = is_live_wanted() && matches!(decide, Decide::Always);
    owned.purchase = Purchase { decide: Some(decide), samples, ..Purchase::new() };
    let what = if matches!(decide, Decide::Share) { SHARING } else { MOVING };
    st.slices.open.store(what, SeqCst);
    st.slices.next_ns.store(0, Relaxed);
}

/// One slice, under the lock.
fn slice(st: &State, owned: &mut Stall) -> Done<()> {
    let Some(decide) = owned.purchase.decide else { return Ok(()) };
    if owned.is_beside_calls(st) {
        beside_calls(st, owned);
        return Ok(());
    }
    let began_ns = sys::now_ns();
    let doubted = st.slices.doubted.load(SeqCst) != 0 || st.changes.are_too_many();
    let looks = owned.purchase.looks || doubted;
    // A sample leaves what an earlier look has found, and all doubts about it.
    let samples = looks && core::mem::take(&mut owned.purchase.samples);
    if looks && !samples {
        st.slices.doubted.store(0, SeqCst);
        st.changes.clear();
    }
    let left_ns = if looks { u64::MAX } else { owned.purchase.left_ns };
    let trial = Trial::new(began_ns, left_ns.min(st.slices.work_ns(st.max_pause_ns())));
    let decide = match decide {
        Decide::Rental(bid) => {
            Decide::Rental(Bid { began_ns, look: bid.rental.look(began_ns), ..bid })
        }
        other => other,
    };
    owned.rest = Rest::new();
    let again = core::mem::take(&mut owned.purchase.again) && !looks;
    let slice = Slice { trial, goes_on: !looks || samples, again, samples };
    let done = pass_or_slice(st, owned, (decide, Some(slice)), began_ns);
    let spent_ns = sys::now_ns() - began_ns;
    st.choice.spend(spent_ns);
    if samples && done.is_ok() {
        if !owned.rest.more {
            end(st, owned);
        }
        st.slices.put_off(spent_ns);
        return done;
    }
    conclude(st, owned, &done, looks, spent_ns);
    done
}

/// Who is in such a call may never come back.
fn beside_calls(st: &State, owned: &mut Owned) {
    owned.purchase.in_vain += 1;
    if owned.purchase.in_vain > TRIES {
        return close(st, owned, 0);
    }
    st.slices.put_off(BESIDE_CALLS_NS << owned.purchase.in_vain.min(10));
}

/// After a slice: when the next one is due, or that there is none.
fn conclude(st: &State, owned: &mut Owned, done: &Done<()>, looked: bool, spent_ns: u64) {
    if !looked {
        st.slices.learn(spent_ns, st.max_pause_ns());
    }
    let (rest, purchase) = (owned.rest, &mut owned.purchase);
    purchase.spent_ns += spent_ns;
    if looked && rest.more && !rest.lost {
        (purchase.looks, purchase.left_ns) = (false, rest.allowance_ns);
    }
    purchase.left_ns = purchase.left_ns.saturating_sub(spent_ns);
    purchase.looks |= rest.lost;
    purchase.moved |= rest.moved;
    let total_ns = purchase.spent_ns;
    match done {
        Ok(()) if !rest.more => {
            match purchase.moved {
                _ if looked => {}
                true => owned.account.bought(),
                false => owned.account.refused(total_ns),
            }
            close(st, owned, spent_ns);
        }
        Ok(()) if rest.waits && is_sharing(st) && st.slices.is_wanted() => {
            // Another child lives on.
            close(st, owned, spent_ns);
        }
        Ok(()) if !rest.waits && !rest.lost && purchase.left_ns == 0 => {
            owned.account.rental.stopped(total_ns);
            close(st, owned, spent_ns);
        }
        Ok(()) if !rest.waits && !rest.lost => {
            purchase.in_vain = 0;
            st.slices.put_off(spent_ns);
        }
        Ok(()) | Err(Stop { reason: Reason::Busy, .. }) if purchase.in_vain < TRIES => {
            st.slices.put_off(spent_ns.max(PATIENCE_NS << purchase.in_vain.min(5)));
            purchase.in_vain += 1;
        }
        _ => {
            let is_any = is_any_frozen(st);
            let none = matches!(done, Err(Stop { reason: Reason::Image, .. }));
            if st.choice.is_chosen() && (none || !is_any) {
                st.choice.despair();
            } else if none && !is_any {
                st.set_barred(Reason::Image);
            }
            if !looked || rest.more {
                owned.account.refused(total_ns);
            }
            close(st, owned, spent_ns);
        }
    }
}

/// What is under way is no more.
pub fn abandon(st: &State, owned: &mut Owned) {
    st.slices.begin_child();
    owned.purchase.decide = None;
}

/// Nothing is new: no pass.
fn end(st: &State, owned: &mut Owned) {
    st.slices.open.store(NONE, SeqCst);
    owned.purchase.decide = None;
    st.arrived.store(0, Relaxed);
    st.note_pass();
}

/// The pass is over; what has become clean may be shared next.
fn close(st: &State, owned: &mut Owned, spent_ns: u64) {
    let shared = st.slices.open.swap(NONE, SeqCst) == SHARING;
    let decide = owned.purchase.decide.take();
    if shared {
        finish_sharing(st, owned, spent_ns);
        if st.slices.is_wanted_now() {
            open(st, owned, Decide::Always);
            st.slices.put_off(spent_ns);
        }
        return;
    }
    st.slices.note_end(owned.purchase.moved);
    st.note_pass();
    if !is_live_wanted() || st.live.is_barred() {
        return;
    }
    st.arrived.store(owned.rest.arrived, Relaxed);
    let urges = owned.rest.urges && owned.purchase.moved;
    if urges && matches!(decide, Some(Decide::Always)) {
        if !st.slices.is_beside_child() {
            // Without waiting for growth to end, as what asks for less does.
            open(st, owned, Decide::Always);
            return st.slices.put_off(spent_ns);
        }
        st.slices.want();
    }
    if st.live.is_due(sys::now_ns()) {
        // With a look: what was frozen just now is not in that of the pass.
        open(st, owned, Decide::Share);
        st.slices.put_off(spent_ns);
    }
}

fn is_sharing(st: &State) -> bool {
    st.slices.open.load(SeqCst) == SHARING
}

/// What follows when as much is shared as can be; the end of it took so long.
pub fn finish_sharing(st: &State, owned: &mut Owned, spent_ns: u64) {
    let now_ns = sys::now_ns();
    let eager = st.freeze() == Freeze::Eager;
    let patience = if eager { 0 } else { spent_ns * PATIENCE };
    let waits = owned.waits;
    st.live.looked(waits, if waits { now_ns + patience } else { 0 });
    st.note_pass();
}
