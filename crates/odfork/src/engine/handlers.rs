//! Signals that get a handler, and those that stay open while a pass holds the lock (`ignored.rs`).

use super::child::detect_child;
use super::state::{state, State};
use super::waiter::{Stall, Task};
use crate::ignored::Ignored;

/// Before a pass, which holds the lock for long.
pub fn leave_ignored_open(st: &State, held: &Stall) {
    held.open(st.ignored.set(held.process()));
}

/// Makes a call that may give a signal a handler.
pub fn with_handler<T>(signal: i32, call: impl FnOnce() -> T) -> T {
    if !Ignored::concerns(signal) {
        return call();
    }
    let st = state();
    st.ignored.begin(signal);
    if st.lock.is_held() {
        // A lock that fork has copied while it was held would never be free.
        detect_child();
        st.lock.wait_until_free(&Task);
    }
    let answer = call();
    st.ignored.end();
    answer
}
