//! Calls that give memory a property which frozen memory cannot have (`mlock`, `MADV_DONTFORK`).
//!
//! Owns the bound on what they thaw part by part. Each part has mappings of its own from then on:
//! the kernel does not join them with those beside them, as it does on stock once the program
//! takes the property back. A process that has thousands of them becomes plain, long before it
//! reaches `vm.max_map_count`.

use core::sync::atomic::Ordering::Relaxed;

use super::child::detect_child;
use super::growth;
use super::notes::bar;
use super::state::{state, State};
use super::thaw::{leave_files, thaw_all_of, thaw_range};
use super::waiter::hold;
use crate::reason::{Done, Reason};
use crate::thaw::Content;

/// After so many parts, since they were counted last, mappings are counted.
const MANY_CUTS: u32 = 256;

/// So many mappings are too many then; and so many while not all can be thawed: what is thawed then
/// exists twice, or does not fit.
const MOST: u32 = 4096;
const MOST_STUCK: u32 = 32768;

/// Makes a call that gives a range a property (not to be inherited, locked, ...):
/// the range is thawed, and neither frozen again while it has the property (the
/// scan sees to that) nor joined with its neighbours.
/// `call` hears whether memory is still frozen, because no thaw is to be had.
pub fn with_property<T>(start: usize, len: usize, call: impl FnOnce(Done<bool>) -> T) -> T {
    let st = state();
    before_cut(st);
    let mut owned = hold();
    st.slices.doubt();
    let end = start.saturating_add(len);
    // What has a property of its own was thawed, and joined, when it got it.
    let had = st.addresses.may_be_special(start, end) && !st.addresses.may_be_frozen(start, end);
    let thawed = match had {
        true => Ok(false),
        false => thaw_range(st, &mut owned, (start, len), Content::Join, false),
    };
    st.addresses.note_special(start, end);
    call(thawed)
}

/// The program has mapped memory there that has a property from the beginning, or moved some.
pub fn note_special(start: usize, len: usize) {
    let _owned = hold();
    state().addresses.note_special(start, start.saturating_add(len));
}

/// Parts that were thawed before may have made too many mappings.
fn before_cut(st: &State) {
    if st.cuts.load(Relaxed) < MANY_CUTS || !detect_child() {
        return;
    }
    st.cuts.store(0, Relaxed);
    let mut owned = hold();
    let (_, stuck) = growth::look(st, &mut owned);
    let most = if stuck { MOST_STUCK } else { MOST };
    if st.mappings.load(Relaxed) < most {
        return;
    }
    let thawed = match stuck {
        true => thaw_all_of(st, &mut owned),
        false => leave_files(st, &mut owned),
    };
    drop(owned);
    if thawed.is_ok() && st.barred() == Reason::None {
        bar(Reason::MapLimit);
    }
}
