//! A pass as its caller sees it: run in the helper task, then taken over into the state.
//!
//! Owns the registry's and the statistics' part of a pass. Under the lock.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::account::Account;
use super::live::{self, make_private};
use super::state::{Owned, State, ROOM_BYTES};
use super::subject::subject;
use super::thaw::thaw_all_of;
use super::under_way::Rest;
use crate::args;
use crate::helper::{self, Finished, Job};
use crate::parts::Part;
use crate::pass::{self, Decide};
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::Registry;
use crate::report::Report;
use crate::slices::Slice;
use crate::spans::Room;
use crate::step::Step;
use crate::sys::{self, Kernel, PAGE};

/// Runs a pass in the helper and takes over what it did. `began_ns`: when the program's thread
/// began to wait for it. A helper that was killed for a call that can be spared is followed by one
/// that does not make it; one that might not trace this process, by one that may.
pub fn pass(st: &State, owned: &mut Owned, decide: Decide, began_ns: u64) -> Done<()> {
    pass_or_slice(st, owned, (decide, None), began_ns)
}

/// The same, or a slice of it.
pub fn pass_or_slice(
    st: &State,
    owned: &mut Owned,
    what: (Decide, Option<Slice>),
    began_ns: u64,
) -> Done<()> {
    // Another thread may have barred the process while this one waited for the lock.
    if st.barred() != Reason::None {
        return Err(Stop::of(st.barred()));
    }
    let Owned { spare, zone, .. } = owned;
    if matches!(what.0, Decide::Share) && !(live::may_share(st) && spare.make(zone)) {
        // The program has ruled it out since this pass was opened, or the way back might fail.
        owned.rest = Rest::new();
        owned.waits = false;
        return Ok(());
    }
    settle(st);
    // Who asks meanwhile whether anything is frozen waits until the answer is known: other threads
    // go on before their memory is in the sets.
    let was_frozen = st.ever_frozen.swap(1, SeqCst);
    let may_trace = st.tracer.is_wanted();
    let mut outcome = pass_once(st, owned, what, began_ns);
    while matches!(outcome, Err(Stop { reason: Reason::Seccomp, .. })) && st.trace.learn() {
        outcome = pass_once(st, owned, what, sys::now_ns());
    }
    if !may_trace && st.tracer.is_wanted() {
        outcome = pass_once(st, owned, what, sys::now_ns());
    }
    if owned.registry.live().next().is_none() {
        st.ever_frozen.store(was_frozen, SeqCst);
    }
    if let Err(stop) = &outcome {
        st.stats.count_stop(stop.reason, stop.errno);
        if matches!(stop.reason, Reason::Seccomp | Reason::RawCalls) {
            // A filter kills for what the helper does: make no more calls of our own.
            st.set_barred(stop.reason);
        }
        // Code that calls past us, or locks what it maps, must not meet frozen memory.
        if matches!(stop.reason, Reason::RawCalls | Reason::Locked) && st.addresses.any_frozen() {
            let _ = thaw_all_of(st, owned);
        }
    }
    outcome
}

fn pass_once(
    st: &State,
    owned: &mut Owned,
    (decide, slice): (Decide, Option<Slice>),
    began_ns: u64,
) -> Done<()> {
    // Before the helper is started: a child made by any fork while the lock is held finds its copy
    // of the mark wiped, so it knows that the copied lock is nobody's.
    st.fork_mark.set();
    let goes_on = slice.is_some_and(|slice| slice.goes_on);
    let samples = slice.is_some_and(|slice| slice.samples);
    if !(samples || goes_on && matches!(decide, Decide::Share)) {
        // No other job meets shared memory of the program.
        make_private(st, owned, (0, usize::MAX))
            .map_err(|e| Stop::failed(Reason::Step, Step::Switch, e))?;
    }
    make_spliced_word(st, owned)?;
    make_room(st, owned);
    owned.zeroed = 0;
    let Owned { shared_vm, account, scratch, zone, registry, searched, waits, rest, .. } = owned;
    let order = pass::Order {
        subject: subject(st, *shared_vm, registry, searched),
        allowed: st.allowed(),
        directory: CStr::from_bytes_until_nul(&st.options().image_dir).unwrap_or_default(),
        decide,
        slice,
        shares_later: live::may_share(st),
        is_chosen: st.choice.is_chosen(),
    };
    let door = (&st.trace, st.options().fault);
    let _named = st.tracer.name();
    let outcome = match helper::run(door, scratch, zone, Job::Pass(&order)) {
        Ok(finished) => {
            st.tracer.learn(&finished.results.report);
            finished.results.inspected().for_each(|code| searched.note(code));
            *waits = finished.results.report.waits.flag();
            *rest = Rest::of(&finished.results.report);
            let outcome = take_over(st, registry, account, &finished, goes_on);
            take_thawed(st, &decide, &outcome, &finished.results.report);
            // What others cost is not paid by forks.
            if matches!(decide, Decide::Always | Decide::Rental(_)) {
                let cost = (&finished.results.report, sys::now_ns() - began_ns);
                learn(account, &outcome, cost, goes_on || rest.more);
            }
            outcome
        }
        Err(stop) => {
            *rest = Rest::default();
            account.refused(sys::now_ns() - began_ns);
            Err(stop)
        }
    };
    publish(st, account);
    scratch.clear();
    live::publish(st, owned);
    outcome
}

/// What a pass has cost. Who drives the slices sums up what parts cost.
fn learn(
    account: &mut Account,
    outcome: &Done<()>,
    (report, spent_ns): (&Report, u64),
    is_part: bool,
) {
    match outcome {
        _ if is_part => account.learn_prices(report),
        Ok(()) => account.learn(report, spent_ns),
        Err(Stop { reason: Reason::Price, .. }) => account.stopped(report, spent_ns),
        Err(_) => account.refused(spent_ns),
    }
}

/// What a pass did becomes part of the state. Gives how it ended.
fn take_over(
    st: &State,
    registry: &mut Registry,
    account: &mut Account,
    finished: &Finished,
    goes_on: bool,
) -> Done<()> {
    let (outcome, report) = (finished.outcome(), &finished.results.report);
    take_files(st, registry, finished, &outcome);
    if report.unfit.flag() {
        st.live.bar();
    }
    if report.keeps.flag() {
        st.never_overwrite();
    }
    note_mappings(st, report);
    if report.scanned.flag() || goes_on {
        account.shown = shown(report);
    }
    count(st, registry, account.shown, report, goes_on);
    st.slack.learn(report);
    outcome
}

/// The mappings of the process were counted.
pub fn note_mappings(st: &State, report: &Report) {
    let count = report.mappings.get();
    if count > 0 {
        st.mappings.store(count as u32, Relaxed);
        st.cuts.store(0, Relaxed);
    }
}

/// All that showed a backing file in the range of such a pass is anonymous, if anything did.
fn take_thawed(st: &State, decide: &Decide, outcome: &Done<()>, report: &Report) {
    let bytes = report.thawed.get() as u64;
    if let (Decide::Thaw((start, end)), Ok(()), 1..) = (decide, outcome, bytes) {
        st.addresses.note_restless(*start, *end);
        st.stats.thaws.fetch_add(1, Relaxed);
        st.stats.thaw_bytes.fetch_add(bytes, Relaxed);
    }
}

/// What was thawed because it was given back again and again may be frozen after many forks.
fn settle(st: &State) {
    if st.given_up.is_forgotten(st.stats.forks.load(Relaxed)) {
        st.addresses.settle();
    }
}

/// What the account stands at, for the statistics.
pub fn publish(st: &State, account: &Account) {
    let (paid, price) = account.figures();
    st.stats.paid_ns.store(paid, Relaxed);
    st.stats.price_ns.store(price, Relaxed);
}

/// A word that all descendants share, before there is anything to say in it.
fn make_spliced_word(st: &State, owned: &mut Owned) -> Done<()> {
    if st.spliced_word().is_some() {
        return Ok(());
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, never unmapped.
    unsafe {
        let at = sys::mmap(owned.zone, PAGE, prot, flags)
            .map_err(|e| Stop::failed(Reason::Limit, Step::Helper, e))?;
        st.set_spliced_word(at);
    }
    owned.zone += PAGE;
    Ok(())
}

/// Memory for the addresses of what will be frozen, kept from the first pass on by this process and
/// its children. Without it there is room for a few: all between them then counts as frozen.
fn make_room(st: &State, owned: &mut Owned) {
    if st.addresses.room().is_some() {
        return;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let kernel = Kernel::new(&st.trace, st.options().fault);
    // SAFETY: a new mapping, never unmapped; zeros.
    unsafe {
        let a = args![owned.zone, ROOM_BYTES, prot, flags, -1isize, 0];
        let Ok(at) = kernel.call(libc::SYS_mmap, a) else { return };
        st.addresses.move_to(at as *mut Room);
    }
    owned.zone += ROOM_BYTES.next_multiple_of(sys::HUGE);
}

/// Backing files that nothing shows go, those made come in.
fn take_files(st: &State, registry: &mut Registry, f: &Finished, outcome: &Done<()>) {
    let died = matches!(outcome, Err(Stop { reason: Reason::Helper | Reason::Seccomp, .. }));
    if f.results.report.scanned.flag() {
        refreeze::drop_unseen(registry, f.results);
    }
    for (part, certain) in f.results.shared() {
        let part = Part { end: shared_end(&part, certain, died), ..part };
        if part.end > part.start {
            registry.set_shared(part);
        }
        st.stats.switches.fetch_add(1, Relaxed);
    }
    for (slot, grown) in f.results.grown() {
        let place = registry.get(slot).map_or(0, crate::live::place);
        registry.grow(&st.addresses, (slot, place), grown);
        st.live.expect();
    }
    for (slot, most) in f.results.punched() {
        registry.set_bytes(slot, most);
    }
    if let Some(debt) = f.results.debt() {
        let before = registry.debt();
        registry.set_debt(debt);
        before.probes.iter().for_each(|&probe| refreeze::drop_probe(registry, probe));
    }
    for mut file in f.results.created() {
        if died {
            file.probe = 0;
        }
        if file.end > file.start {
            // Room was checked by the pass: it makes no more backing files than fit.
            registry.add(&st.addresses, file);
            st.live.expect();
        } else {
            crate::backing::unmap_anchors(&file);
        }
    }
}

/// Up to where the part is shared. A task that died was perhaps about to make it so: the first
/// address that was private before tells.
fn shared_end(part: &Part, certain: usize, died: bool) -> usize {
    match died && crate::live::is_shared(certain) == Ok(false) {
        true => certain,
        false => part.end,
    }
}

/// Bytes of address space that show backing files after the pass.
fn shown(r: &Report) -> u64 {
    (r.shown.get() + r.frozen.get()) as u64
}

fn count(st: &State, registry: &Registry, shown: u64, r: &Report, goes_on: bool) {
    let stats = &st.stats;
    if r.scanned.flag() {
        stats.dirty_pages.store((r.dirty.get() / PAGE) as u64, Relaxed);
    }
    let get = |n: &crate::report::Number| n.get() as u64;
    let (frozen, rebuilt, written_back) = (get(&r.frozen), get(&r.rebuilt), get(&r.written_back));
    if frozen > rebuilt {
        // Slices after the first are no freezes of their own, unless the first was a mere look.
        let first = !goes_on || stats.freezes.load(Relaxed) == 0;
        stats.freezes.fetch_add(u64::from(first), Relaxed);
        stats.freeze_bytes.fetch_add(frozen - rebuilt, Relaxed);
        stats.freeze_ns.fetch_add(get(&r.freeze_ns), Relaxed);
    }
    if written_back > 0 {
        stats.folds_in_place.fetch_add(1, Relaxed);
    }
    if rebuilt > 0 {
        stats.folds_rebuilt.fetch_add(1, Relaxed);
    }
    if written_back + rebuilt > 0 {
        stats.fold_bytes.fetch_add(written_back + rebuilt, Relaxed);
        stats.fold_ns.fetch_add(get(&r.refreeze_ns), Relaxed);
    }
    let bytes: usize = registry.live().map(|(_, i)| i.bytes).sum();
    stats.image_bytes.store(bytes as u64, Relaxed);
    st.registry_in_use.store(u32::from(bytes > 0), Relaxed);
    stats.frozen_bytes.store(shown, Relaxed);
    let huge = registry.live().any(|(_, i)| i.huge == 1);
    let engine = if bytes == 0 { 0 } else { 1 + u32::from(huge) };
    stats.engine.store(engine, Relaxed);
}
