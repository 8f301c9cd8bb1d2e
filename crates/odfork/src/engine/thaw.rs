//! Calls of the program that frozen memory would answer differently: thaw first, then call.
//!
//! Owns the order of the two and keeps a freeze from coming in between; the thaw itself is a job
//! for the helper task.

use core::sync::atomic::Ordering::Relaxed;

use super::child::detect_child;
use super::live::make_private;
use super::state::{state, Owned, State};
use super::subject::subject;
use super::waiter::{begin_call, hold};
use super::wipe;
use crate::helper::{self, Job};
use crate::lock::Call;
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::MAX_FILES;
use crate::step::Step;
use crate::sys::PAGE;
use crate::thaw::{Content, Order};

/// All addresses: start and length.
const EVERYTHING: (usize, usize) = (0, usize::MAX & !(PAGE - 1));

/// Somebody may kill the helper task; what it did until then is whole.
const TRIES: u32 = 4;

/// True if a range may be frozen, or was once and consists of several mappings.
pub fn was_ever_frozen(start: usize, len: usize) -> bool {
    call_if_plain(start, len, true, || ()).is_none()
}

/// Makes a call of the program's on a range that is not frozen, with no freeze
/// in between; `None` if some of the range may be frozen or, where it matters that
/// the range is `whole`, may be split.
pub fn call_if_plain<T>(
    start: usize,
    len: usize,
    whole: bool,
    call: impl FnOnce() -> T,
) -> Option<T> {
    let _call = begin_if_plain(start, len, whole)?;
    Some(call())
}

/// The announcement of such a call. Once in the library, not in every wrapper.
#[inline(never)]
fn begin_if_plain(start: usize, len: usize, whole: bool) -> Option<Call<'static, Owned>> {
    let st = state();
    let call = begin_call(st);
    let end = start.saturating_add(len);
    let frozen = st.was_frozen()
        && (st.addresses.may_be_frozen(start, end)
            || whole && st.addresses.may_be_split(start, end));
    (!frozen).then_some(call)
}

/// Thaws a range and then makes the program's own call, with no freeze in
/// between. `call` hears whether the thaw succeeded, and whether it did all
/// there was to do (zeros by hand).
pub fn with_thawed<T>(
    start: usize,
    len: usize,
    content: Content,
    moves: bool,
    call: impl FnOnce(Done<bool>) -> T,
) -> T {
    let mut owned = hold();
    call(thaw_range(state(), &mut owned, (start, len), content, moves))
}

/// After the program took back that a range is to be empty in children.
pub fn keep_in_children(start: usize, len: usize) {
    if wipe::is_any() {
        let _owned = hold();
        wipe::keep(start, start.saturating_add(len));
    }
}

/// Thaws a range, under the lock. True: zeros were written by hand.
pub fn thaw_range(
    st: &State,
    owned: &mut Owned,
    (start, len): (usize, usize),
    content: Content,
    moves: bool,
) -> Done<bool> {
    let end = start.saturating_add(len);
    let join = content == Content::Join;
    let joins = join && st.addresses.may_be_split(start, end);
    if !(st.addresses.may_be_frozen(start, end) || joins) {
        return Ok(false);
    }
    make_private(st, owned, (start, end))
        .map_err(|e| Stop::failed(Reason::Step, Step::Switch, e))?;
    let Owned { shared_vm, scratch, zone, registry, searched, .. } = owned;
    let subject = subject(st, *shared_vm, registry, searched);
    let mut order = Order { start, end, content, moves, subject };
    let door = (&st.trace, st.options().fault);
    let mut tries = 0;
    let (outcome, by_hand, refused, bytes) = loop {
        let may_trace = st.tracer.is_wanted();
        order.subject.named = may_trace;
        let named = st.tracer.name();
        let finished = helper::run(door, scratch, zone, Job::Thaw(&order))?;
        drop(named);
        let (outcome, report) = (finished.outcome(), &finished.results.report);
        st.tracer.learn(report);
        tries += 1;
        let again = matches!(outcome, Err(Stop { reason: Reason::Helper, .. }))
            || !may_trace && st.tracer.is_wanted();
        if tries < TRIES && again {
            continue;
        }
        let (by_hand, refused) = (report.by_hand.flag(), report.refused.flag());
        break (outcome, by_hand, refused, report.thawed.get() as u64);
    };
    scratch.clear();
    outcome?;
    // What was not replaced still shows a backing file.
    if !by_hand && !refused {
        st.addresses.uncover(start, end);
    }
    if bytes > 0 {
        st.stats.thaws.fetch_add(1, Relaxed);
        st.stats.thaw_bytes.fetch_add(bytes, Relaxed);
        st.cuts.fetch_add(1, Relaxed);
    }
    Ok(by_hand)
}

/// Makes a call of the program's while nothing is frozen.
pub fn with_all_thawed<T>(call: impl FnOnce() -> T) -> T {
    let st = state();
    if !st.was_frozen() || st.is_fenced() || !detect_child() {
        return call();
    }
    let mut owned = hold();
    let _ = thaw_all_of(st, &mut owned);
    call()
}

/// Makes all memory anonymous again, and lets go of the backing files.
pub fn thaw_all() -> Done<()> {
    thaw_all_of(state(), &mut hold())
}

/// The same, under the lock.
pub fn thaw_all_of(st: &State, owned: &mut Owned) -> Done<()> {
    match leave_files(st, owned) {
        Err(stop) if !matches!(stop.reason, Reason::Threads | Reason::Busy | Reason::SharedVm) => {
            thaw_by(st, owned, Content::Keep)
        }
        done => done,
    }
}

/// The same, if files can give each part back at once. Else some of it is frozen still.
pub fn leave_files(st: &State, owned: &mut Owned) -> Done<()> {
    thaw_by(st, owned, Content::Leave)
}

fn thaw_by(st: &State, owned: &mut Owned, content: Content) -> Done<()> {
    thaw_range(st, owned, EVERYTHING, content, false)?;
    for slot in 0..MAX_FILES {
        if let Some(file) = owned.registry.remove(slot) {
            crate::backing::unmap_anchors(&file);
            refreeze::drop_probe(&owned.registry, file.probe);
        }
    }
    owned.account.shown = 0;
    owned.retained.clear();
    st.slack.forget();
    st.stats.frozen_bytes.store(0, Relaxed);
    st.stats.image_bytes.store(0, Relaxed);
    st.stats.engine.store(0, Relaxed);
    Ok(())
}
