//! The advice call, for runtimes that know their phases.

use core::ffi::c_int;

use odfork_pager_protocol::control::op;

use crate::calls;
use crate::stack::on_unpaged_stack;
use crate::state::{self, Locked};

/// No phase of its own.
const NORMAL: c_int = 0;
/// A garbage collection, or another walk over everything: what is touched now says nothing about
/// what will be.
const ANOMALOUS: c_int = 1;

/// Tells the pager how the program will use its memory from now on: `ODFORK_PAGE_ANOMALOUS`
/// switches the simulation of reference bits off for it (its pages leave in nearly random order and
/// cost no reclaims), `ODFORK_PAGE_NORMAL` switches it on. Returns 0; -1 when nothing of this
/// program is paged, or the advice is not known.
#[no_mangle]
pub extern "C" fn odfork_page_advise(advice: c_int) -> c_int {
    if !state::is_active() || !(NORMAL..=ANOMALOUS).contains(&advice) {
        return -1;
    }
    let answer =
        on_unpaged_stack(move || calls::ask(&Locked::take(), op::ADVISE, [advice as u64, 0]));
    match answer {
        0 => 0,
        _ => -1,
    }
}
