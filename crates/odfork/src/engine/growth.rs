//! The program grows: is what odfork holds still within what is free?
//!
//! Owns when the slack (`slack.rs`) is measured again, and what happens when there is none:
//! everything is thawed, so that the reserve is free. Not while another process shows a file: it
//! would exist twice, and on stock rewriting takes as much. Nor where so much has grown unseen that
//! the thaw itself would not fit, a few MB: the program may never rewrite what is frozen.

use super::apply::note_mappings;
use super::child::detect_child;
use super::state::{state, Owned, State};
use super::subject::subject;
use super::thaw::leave_files;
use super::waiter::hold;
use crate::helper::{self, Job};
use crate::reason::Reason;

/// A process that forks is measured again after so long (100 ms): what its allocator has asked
/// for inside the C library was not seen.
const MEASURE_NS: u64 = 100_000_000;

/// Before a call that gives the program `len` bytes more that it may write: where they would
/// touch the reserve, the reserve is given back first.
pub fn before_growth(len: usize) {
    let st = state();
    if is_too_much(st, len) && detect_child() {
        keep_reserve(st, len);
    }
}

/// After a call that lets the program write to `len` bytes. How many of them it has not touched
/// yet, the measurement finds: access that is taken away and given back is no growth.
pub fn after_growth(len: usize) {
    let st = state();
    if is_too_much(st, len) && detect_child() {
        keep_reserve(st, 0);
    }
}

/// So many bytes more touch the reserve as far as is known, or it is time to measure again.
fn is_too_much(st: &State, len: usize) -> bool {
    if len == 0 || !st.slack.is_limited() {
        return false;
    }
    let again = st.slack.is_put_off() && st.slack.age_ns() > MEASURE_NS;
    !st.slack.take(len) || again
}

/// Before a fork: what has grown unseen.
pub fn before_fork(st: &State) {
    if st.slack.is_limited() && st.slack.age_ns() > MEASURE_NS {
        keep_reserve(st, 0);
    }
}

fn keep_reserve(st: &State, len: usize) {
    let mut owned = hold();
    // A pass of another thread may have been here meanwhile.
    if !st.slack.is_limited() {
        return;
    }
    match measure(st, &mut owned, len) {
        Room::Enough => {}
        Room::Stuck => st.slack.put_off(),
        Room::Short => match leave_files(st, &mut owned) {
            Ok(()) => st.stats.count_stop(Reason::Memory, 0),
            // Threads cannot be held now: else every call would try.
            Err(_) => st.slack.put_off(),
        },
    }
}

/// What there is for so many bytes more.
enum Room {
    Enough,
    Short,
    /// Not enough, and no thaw is to be had.
    Stuck,
}

fn measure(st: &State, owned: &mut Owned, len: usize) -> Room {
    let (measured, stuck) = look(st, owned);
    match measured && st.slack.take(len) {
        true => Room::Enough,
        false if stuck => Room::Stuck,
        // What cannot be measured may be used up.
        false => Room::Short,
    }
}

/// Measures what is free, and counts the mappings. Whether that was to be had, and whether what is
/// frozen cannot be thawed now.
pub fn look(st: &State, owned: &mut Owned) -> (bool, bool) {
    let Owned { shared_vm, scratch, zone, registry, searched, .. } = owned;
    let mut stuck = false;
    let subject = subject(st, *shared_vm, registry, searched);
    let door = (&st.trace, st.options().fault);
    let measured = helper::run(door, scratch, zone, Job::Measure(&subject)).is_ok_and(|done| {
        st.slack.learn(&done.results.report);
        note_mappings(st, &done.results.report);
        stuck = done.results.report.stuck.flag();
        done.outcome().is_ok()
    });
    scratch.clear();
    (measured, stuck)
}
