//! Calls of the program that map, unmap or protect: the sets of addresses learn of them.
//!
//! Owns the order: a call is announced, so that no freeze comes between the question whether it
//! concerns frozen memory and its end. One that replaces frozen memory is made under the lock,
//! so that its addresses are not frozen again before the sets have forgotten them.

use core::sync::atomic::Ordering::SeqCst;

use super::slices::note_new;
use super::state::{state, State};
use super::thaw::call_if_plain;
use super::waiter::{begin_call, hold};
use crate::sys::{self, PAGE};

/// A call under way after which the kernel knows better than the sets.
pub struct Unsettled<'a>(&'a State);

impl<'a> Unsettled<'a> {
    pub fn begin(st: &'a State) -> Self {
        st.unsettled.fetch_add(1, SeqCst);
        Unsettled(st)
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        // A fork in a signal handler that interrupted this one may have reset it.
        let _ = self.0.unsettled.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }
}

/// A call that puts something new at `start`, or nothing.
pub fn replace(start: usize, len: usize, call: impl Fn() -> isize) -> isize {
    let call = || {
        note_new(state(), start, len);
        call()
    };
    change(start, len, call, |st, end, answer| {
        if sys::check(answer).is_ok() {
            st.addresses.forget(start, end);
        }
    })
}

/// A call on a range, after which `learn` tells the sets what became of it up to its end.
fn change(
    start: usize,
    len: usize,
    call: impl Fn() -> isize,
    learn: impl FnOnce(&State, usize, isize),
) -> isize {
    let Some(len) = len.checked_next_multiple_of(PAGE) else { return call() };
    if let Some(answer) = call_if_plain(start, len, true, &call) {
        return answer;
    }
    settle(start, len, call, learn)
}

/// The same where memory of the range may be frozen.
#[cold]
fn settle(
    start: usize,
    len: usize,
    call: impl Fn() -> isize,
    learn: impl FnOnce(&State, usize, isize),
) -> isize {
    let st = state();
    let _owned = hold();
    let _unsettled = Unsettled::begin(st);
    let answer = call();
    learn(st, start.saturating_add(len), answer);
    answer
}

/// The kernel has carried out an advice, over holes too: it goes on behind them, and tells of them
/// at the end.
pub fn is_done(answer: isize) -> bool {
    answer == 0 || answer == -(libc::ENOMEM as isize)
}

/// An advice that gives a range a property that anonymous memory has to get again, and takes
/// another.
pub fn keep(start: usize, len: usize, kept: (u32, u32), call: impl Fn() -> isize) -> isize {
    change(start, len, call, |st, end, answer| {
        if is_done(answer) {
            st.addresses.keep(start, end, kept.0, kept.1);
        }
    })
}

/// A call that maps `len` bytes where the kernel chooses.
pub fn map(len: usize, call: impl FnOnce() -> isize) -> isize {
    let st = state();
    let _call = begin_call(st);
    let unsettled = st.was_frozen().then(|| Unsettled::begin(st));
    let answer = call();
    if let Ok(at) = sys::check(answer) {
        let len = len.next_multiple_of(PAGE);
        note_new(st, at, len);
        if unsettled.is_some() {
            forget_frozen(st, at, at.saturating_add(len));
        }
    }
    answer
}

/// Something was mapped there. The C library has unmapped before what was frozen.
#[cold]
fn forget_frozen(st: &State, at: usize, end: usize) {
    if st.addresses.may_be_frozen(at, end) || st.addresses.may_be_split(at, end) {
        let _owned = hold();
        st.addresses.forget(at, end);
    }
}

/// A call that gives a range other access, of these `PROT_*` bits.
pub fn protect(start: usize, len: usize, bits: i32, call: impl Fn() -> isize) -> isize {
    change(start, len, call, |st, end, answer| {
        let known = sys::check(answer).is_ok().then_some(bits);
        // Refused at its arguments, it has changed nothing.
        if known.is_some() || answer != -(libc::EINVAL as isize) {
            st.addresses.note_access(start, end, known);
        }
    })
}
