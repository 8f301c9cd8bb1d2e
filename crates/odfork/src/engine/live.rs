//! Live memory seen from the program: it becomes private before anything that shared memory would
//! answer differently.
//!
//! Owns the order. A call that copies the process or changes a mapping is announced first, so that
//! no pass shares anything until it is over; then what is shared becomes private, under the lock:
//!
//! ```text
//! thread A: fork                  thread B: wait, and a look       thread C: fork
//!   calls += 1                      lock                             calls += 1
//!   locked? -> wait                 calls != 0? -> leave it          locked? -> wait
//!   shared? -> lock, private        share, unlock                    shared? -> lock, private
//!   fork, calls -= 1                                                 fork, calls -= 1
//! ```
//! So whoever has announced a call and then finds nothing shared can rely on it.
//!
//! Futexes that are not private are known by file and offset in shared memory, by address in
//! private memory: a waiter would miss who wakes it after a switch. Nobody waits so in live memory:
//! it ends for good before the first object for such waits is made, or the first such wait begins
//! (`interpose::futexes`, `interpose::syscall`). Libc's own such waits are for the end of threads,
//! whose descriptors are never shared.

use super::child::detect_child;
use super::state::{state, Owned, State};
use super::subject::subject;
use super::waiter::{begin_call, hold};
use super::wipe;
use crate::backing;
use crate::helper::{self, Job};
use crate::live;
use crate::lock::Call;
use crate::parts::Part;
use crate::registry::BackingFile;
use crate::step::Step;
use crate::sys::{self, Errno, Kernel, SysResult, PAGE};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// All addresses.
pub const EVERYTHING: (usize, usize) = (0, usize::MAX);

/// Live memory is in force: wanted by the user, or chosen.
pub fn is_live_wanted() -> bool {
    state().works_in_calls() && state().choice.is_live()
}

/// Memory is live or may be one day: what that depends on is noted.
pub fn is_live_possible() -> bool {
    state().choice.is_possible()
}

/// A pass may share memory. Asked under the lock, by whoever makes it.
pub fn may_share(st: &State) -> bool {
    is_live_wanted() && !st.live.is_barred()
}

/// What is shared of a range becomes private. Under the lock; who relies on it beyond the lock has
/// announced a call.
pub fn make_private(st: &State, owned: &mut Owned, range: (usize, usize)) -> SysResult<()> {
    if !st.live.is_any() {
        return Ok(());
    }
    let began_ns = sys::now_ns();
    let kernel = Kernel::new(&st.trace, st.options().fault);
    kernel.enter(Step::Switch);
    let mut done = Ok(());
    while let Some((part, file)) = owned.registry.first_shared(range) {
        done = live::make_private(&kernel, owned.zone, &file, part.range())
            .or_else(|e| again(&kernel, owned, (&file, part.range()), e))
            .or_else(|e| by_helper(st, owned, e));
        if done.is_err() {
            break;
        }
        owned.registry.set_private(&part);
        st.slices.end_sharing();
        st.stats.switches.fetch_add(1, Relaxed);
    }
    st.live.expect();
    publish(st, owned);
    st.stats.switch_ns.fetch_add(sys::now_ns() - began_ns, Relaxed);
    done
}

/// Where the program has as many mappings as it may, some of ours go first.
fn again(
    k: &Kernel,
    owned: &mut Owned,
    (file, part): (&BackingFile, (usize, usize)),
    refusal: Errno,
) -> SysResult<()> {
    if !owned.spare.give() {
        return Err(refusal);
    }
    live::make_private(k, owned.zone, file, part)
}

/// By the helper task: limits are the program's, not its. All that is shared becomes private.
fn by_helper(st: &State, owned: &mut Owned, refusal: Errno) -> SysResult<()> {
    let Owned { shared_vm, scratch, zone, registry, searched, .. } = owned;
    let subject = subject(st, *shared_vm, registry, searched);
    let door = (&st.trace, st.options().fault);
    let done = match helper::run(door, scratch, zone, Job::Unshare(&subject)) {
        Ok(finished) => finished.outcome().is_ok(),
        Err(_) => false,
    };
    scratch.clear();
    done.then_some(()).ok_or(refusal)
}

/// Counts what is shared.
pub fn publish(st: &State, owned: &Owned) {
    let bytes = st.live.count(&owned.registry);
    st.stats.live_bytes.store(bytes as u64, Relaxed);
}

/// Nothing of this memory is shared until the guard goes: it is copied, by fork or clone. In an
/// announced call, so that no choice of live memory comes in between.
///
/// # Errors
/// Something must stay shared: the copy must not be made.
pub fn begin_copy(st: &'static State) -> SysResult<Option<Call<'static, Owned>>> {
    if !is_live_wanted() {
        return Ok(None);
    }
    let call = begin_call(st);
    if st.live.is_any() {
        let mut owned = hold();
        for i in 0..owned.registry.shared().len() {
            let part = owned.registry.shared()[i];
            owned.registry.unmapped.add(part);
        }
        make_private(st, &mut owned, EVERYTHING)?;
        st.live.set_unmapped(true);
    }
    Ok(Some(call))
}

/// Maps what a fork made private, as it was before: what a child alone maps would count as the
/// child's own. Not in the fork, which would take so much longer; a part of it at a time.
pub fn map_again(st: &State) {
    let mut owned = hold();
    let kernel = Kernel::new(&st.trace, st.options().fault);
    let mut left = AT_ONCE;
    while let Some(part) = owned.registry.unmapped.pop() {
        let end = part.end.min(part.start + left);
        if st.mapped.holds(part.start, end) {
            backing::populate(&kernel, (part.start, end));
        }
        left -= end - part.start;
        if left == 0 {
            owned.registry.unmapped.add(Part { start: end, ..part });
            return;
        }
    }
    st.live.set_unmapped(false);
}

/// Memory that is mapped again at once: 0.1 ms.
const AT_ONCE: usize = 256 << 20;

/// Makes a call that copies this memory; `refuse` says that it failed.
pub fn copying<T>(call: impl FnOnce() -> T, refuse: impl FnOnce(i32) -> T) -> T {
    match begin_copy(state()) {
        Ok(_call) => {
            let answer = call();
            after_copy();
            answer
        }
        Err(e) => refuse(e.0),
    }
}

/// The same for a copy past the C library's fork: no pass may overlap it. The sets and the list of
/// files learn what a pass has moved after other threads go on: a copy made in between would show
/// old content where it gives memory up.
pub fn announced<T: Default + PartialEq>(
    call: impl FnOnce() -> T,
    refuse: impl FnOnce(i32) -> T,
) -> T {
    let st = state();
    let under_way = (!st.is_fenced()).then(|| begin_call(st));
    let answer = copying(call, refuse);
    if answer == T::default() {
        // CHILD: or a borrower of this memory, whose maker ends it.
        core::mem::forget(under_way);
    }
    answer
}

/// A child with something to do about its memory finds out at once that it is one.
pub extern "C" fn after_copy() {
    if wipe::is_any() {
        detect_child();
    }
}

/// The handlers of `pthread_atfork`: forks that the C library makes by itself.
pub extern "C" fn before_libc_fork() {
    core::mem::forget(begin_call(state()));
    // Where it fails the child misses what is shared. The guard goes: the call stays announced.
    let _ = begin_copy(state());
}

pub extern "C" fn after_libc_fork() {
    state().lock.end_call();
}

/// Makes a call that changes the mapping of a range, or what the kernel does with it.
pub fn on_private(start: usize, len: usize, call: impl FnOnce() -> isize) -> isize {
    if !is_live_possible() {
        return call();
    }
    // Announced before it is asked whether anything is shared: it is not from then on.
    let st = state();
    let _call = begin_call(st);
    match st.live.is_any().then(|| make_range_private(st, start, len)) {
        Some(Err(e)) => -(e.0 as isize),
        _private => call(),
    }
}

/// The same for whoever has announced a call.
#[cold]
fn make_range_private(st: &State, start: usize, len: usize) -> SysResult<()> {
    make_private(st, &mut hold(), (start & !(PAGE - 1), start.saturating_add(len)))
}

/// The program does what live memory must not meet: there is none from now on, in this process and
/// in its children. False: what is shared must stay so.
pub fn bar_live() -> bool {
    if !is_live_possible() || state().live.is_barred() {
        return true;
    }
    let st = state();
    st.live.bar();
    st.choice.rule_out();
    // A pass that did not know of it ends before.
    !is_live_wanted() || make_private(st, &mut hold(), EVERYTHING).is_ok()
}

/// What is shared becomes private: until the next pass, which looks again whether it may be shared.
/// False: something must stay so.
#[cold]
pub fn share_nothing() -> bool {
    make_private(state(), &mut hold(), EVERYTHING).is_ok()
}

/// Less is not noted: it costs more than it may gain (256 KB).
const LEAST: usize = 256 << 10;

/// The program has mapped private memory.
#[inline]
pub fn note_mapped(start: usize, len: usize) {
    if len >= LEAST && is_live_possible() && !state().live.is_barred() {
        add_mapped(start, len);
    }
}

#[cold]
fn add_mapped(start: usize, len: usize) {
    state().mapped.add(start, start.saturating_add(len.next_multiple_of(PAGE)));
    state().is_any_mapped.store(1, SeqCst);
}

/// The program unmaps it, replaces it, or puts the stack of a thread there. What is shared of it
/// must be private by then.
#[inline]
pub fn forget_mapped(start: usize, len: usize) {
    if is_live_possible() && state().is_any_mapped.load(SeqCst) != 0 {
        remove_mapped(start, len);
    }
}

#[cold]
fn remove_mapped(start: usize, len: usize) {
    let end = start.saturating_add(len).saturating_add(PAGE - 1) & !(PAGE - 1);
    let (st, start) = (state(), start & !(PAGE - 1));
    if st.mapped.touches(start, end) {
        st.mapped.remove(start, end);
    }
}

/// Content that the program gives up in live memory: small parts are zeroed where they are, within
/// the budget. Larger ones are to be given back: that memory becomes private, and false is told.
pub fn give_up(st: &State, owned: &mut Owned, (start, end): (usize, usize)) -> SysResult<bool> {
    let (len, most) = (end - start, owned.account.shown as usize / 8);
    if len > SMALL || owned.zeroed + len > most {
        return make_private(st, owned, (start, end)).map(|()| false);
    }
    owned.zeroed += len;
    // SAFETY: readable and writable, and its content was given up.
    unsafe { core::ptr::write_bytes(start as *mut u8, 0, len) };
    Ok(true)
}

/// Up to here zeros are written.
const SMALL: usize = 64 << 10;
