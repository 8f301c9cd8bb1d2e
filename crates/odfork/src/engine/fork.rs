//! One fork: decide, freeze or refreeze, fork, record.
//!
//! Owns the decision whether a pass is due before a fork, and what is remembered after it. A fork
//! for which nothing is due makes one system call besides fork(2): getpid, in the parent.

use core::sync::atomic::Ordering::Relaxed;

use odfork_model::Trial;

use super::apply::{pass, publish};
use super::child::detect_child;
use super::growth;
use super::live::{copying, is_live_wanted, make_private, EVERYTHING};
use super::look::share;
use super::notes::bar;
use super::slices;
use super::state::{state, Owned, State};
use super::thaw::thaw_all;
use super::waiter::{hold, Task};
use crate::options::Freeze;
use crate::pass::{Bid, Decide};
use crate::reason::{Done, Reason, Stop};
use crate::stats::{IS_PLAIN, STAY_PLAIN};
use crate::sys;

/// Fork time that passes before the rental account is scanned at: below that,
/// not even freezing a 1 MB process could be due.
const SETTLE_NS: u64 = 1_000_000;

/// How long backing files may go without a look when the process forks (10 s).
const STALE_NS: u64 = 10_000_000_000;

/// Calls the program's fork, made cheap where that pays.
///
/// `refuse` takes the place of the call where it must not be made, with an error number.
///
/// # Safety
/// `real` must be fork(2) or behave like it: return twice.
pub unsafe fn fork(real: impl Fn() -> i32, refuse: impl Fn(i32) -> i32) -> i32 {
    let st = state();
    if st.is_fenced() || !detect_child() {
        return copying(&real, &refuse);
    }
    obey(st);
    prepare(st);
    let call = st.lock.begin_call(&Task);
    let begin = sys::now_ns();
    let pid = copying(&real, &refuse);
    if pid == 0 {
        // CHILD: nothing is written here, each page of ours would be a fault. The
        // child finds out that it is one (`detect_child`) when it next needs the runtime.
        core::mem::forget(call);
        return 0;
    }
    let end = sys::now_ns();
    drop(call);
    record(st, pid, (end - begin, end));
    pid
}

/// An operator asked for plain memory (`odfork stats --plain`). What cannot be thawed now is tried
/// again before the next fork.
fn obey(st: &State) {
    if st.stats.wish.load(Relaxed) != STAY_PLAIN {
        return;
    }
    if st.barred() == Reason::None {
        bar(Reason::Asked);
    }
    if thaw_all().is_ok() {
        st.stats.wish.store(IS_PLAIN, Relaxed);
    }
}

/// Before a fork: looks whether freezing or refreezing is due, and does it.
fn prepare(st: &State) {
    // Another library's constructor that forks before ours: the options are not read yet.
    if st.setup.get().is_none() {
        return;
    }
    let freeze = st.freeze();
    if freeze == Freeze::Never || st.barred() != Reason::None {
        return;
    }
    growth::before_fork(st);
    st.slices.end_sharing();
    if is_live_wanted() {
        st.slices.note_child(true);
    }
    let under_way = st.slices.is_open();
    if !under_way && (!may_be_due(st, freeze) || slices::may_wait(st)) {
        return;
    }
    let began_ns = sys::now_ns();
    if !passes_inspection(st) {
        return;
    }
    let mut owned = hold();
    let decide = match freeze {
        _ if under_way => None,
        Freeze::Eager => Some(Decide::Always),
        _ => by_rental_rule(st, &mut owned, began_ns),
    };
    if slices::is_bounded(st) {
        if let Some(decide) = decide {
            slices::open(st, &mut owned, decide);
        }
        return slices::before_fork(st, &mut owned);
    }
    if let Some(decide) = decide.filter(|_| !owned.is_beside_calls(st)) {
        let outcome = pass(st, &mut owned, decide, began_ns);
        st.note_pass();
        st.retry.note(&outcome, (began_ns, sys::now_ns()));
    }
}

/// The cheap question before every fork: a fork of a small process asks only this.
fn may_be_due(st: &State, freeze: Freeze) -> bool {
    if is_stale(st) {
        return true;
    }
    match freeze {
        Freeze::Eager => {
            let is_new = || st.touched() >= st.patience.load(Relaxed);
            let never = st.faults.load(Relaxed) == u64::MAX;
            let may = never || is_new() && (!is_live_wanted() || st.slices.is_turn());
            may && st.retry.is_due(sys::now_ns())
        }
        _ => st.unpaid_ns.load(Relaxed) >= SETTLE_NS,
    }
}

/// Backing files were not scanned at for a while: memory that the program has unmapped
/// since is still held by their anchors.
fn is_stale(st: &State) -> bool {
    st.registry_in_use.load(Relaxed) != 0
        && sys::now_ns() - st.last_pass_ns.load(Relaxed) > STALE_NS
}

/// Asked without the lock. Who comes while another thread inspects does not wait for it, nor does
/// the child of a fork made meanwhile.
pub fn passes_inspection(st: &State) -> bool {
    let Some(setup) = st.setup.get() else { return false };
    let done = st.inspection.run(|| {
        let found = (setup.inspect)();
        if found != Reason::None {
            bar(found);
        }
    });
    done && st.barred() == Reason::None
}

/// The rental account is worth a look at the process, or the backing files need one.
fn by_rental_rule(st: &State, owned: &mut Owned, began_ns: u64) -> Option<Decide> {
    let (ns, forks) = (st.unpaid_ns.swap(0, Relaxed), st.unpaid_forks.swap(0, Relaxed));
    let last_ns = st.last_fork_ns.load(Relaxed);
    let account = &mut owned.account;
    account.charge(ns, forks, last_ns);
    publish(st, account);
    let floor = account.model.scan_floor_ns(last_ns, account.shown);
    let (model, rental) = (account.model, account.rental);
    if is_stale(st) {
        // Not for the sake of the rent: what the program has unmapped must be given back.
        return Some(Decide::Rental(Bid { model, rental, began_ns, look: Trial::UNLIMITED }));
    }
    let look = rental.look(sys::now_ns());
    rental.worth_scanning(floor).then_some(Decide::Rental(Bid { model, rental, began_ns, look }))
}

/// After a fork in the parent: what was paid, for the rental rule. No lock and
/// no system call: the amounts wait in counters until somebody looks.
fn record(st: &State, pid: i32, (ns, now_ns): (u64, u64)) {
    if pid < 0 {
        st.stats.forks_failed.fetch_add(1, Relaxed);
        return;
    }
    st.stats.count_fork(ns);
    if st.choice.hears(ns, now_ns) {
        leave_live(st);
    }
    if st.freeze() == Freeze::Auto {
        st.last_fork_ns.store(ns, Relaxed);
        st.unpaid_ns.fetch_add(ns, Relaxed);
        st.unpaid_forks.fetch_add(1, Relaxed);
    }
}

/// Live memory was chosen, and does not pay: static from here on. Where something must stay shared,
/// this is tried again after the next fork.
#[cold]
fn leave_live(st: &State) {
    let mut owned = hold();
    if make_private(st, &mut owned, EVERYTHING).is_ok() {
        slices::abandon(st, &mut owned);
        st.choice.leave();
        st.work_as_asked();
    }
}

/// Freezes and refreezes now, whatever the rental rule says.
pub fn freeze_now() -> Done<()> {
    let st = state();
    if st.setup.get().is_none() {
        return Err(Stop::of(Reason::NotLoaded));
    }
    if !detect_child() {
        return Err(Stop::of(Reason::SharedVm));
    }
    if st.barred() != Reason::None || !passes_inspection(st) {
        let under_way = st.barred() == Reason::None;
        return Err(Stop::of(if under_way { Reason::Threads } else { st.barred() }));
    }
    let mut owned = hold();
    if owned.is_beside_calls(st) {
        return Err(Stop::of(Reason::Threads));
    }
    st.addresses.settle();
    let done = match pass(st, &mut owned, Decide::Always, sys::now_ns()) {
        Err(Stop { reason: Reason::NotWorth, .. }) if st.addresses.any_frozen() => Ok(()),
        other => other,
    };
    if done.is_ok() {
        st.note_pass();
    }
    if done.is_ok() && is_live_wanted() && !st.live.is_barred() {
        let _ = share(st, &mut owned);
    }
    done
}
