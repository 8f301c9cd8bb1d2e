//! Signals that get a handler: until then they stay open under the lock (`ignored.rs`).

use super::child::detect_child;
use super::state::state;
use super::waiter::Task;
use crate::ignored::Ignored;

/// Makes a call that may give a signal a handler.
pub fn with_handler<T>(signal: i32, call: impl FnOnce() -> T) -> T {
    if !Ignored::concerns(signal) {
        return call();
    }
    let st = state();
    st.ignored.begin();
    st.lock.note_handler();
    if st.lock.is_held() {
        // A lock that fork has copied while it was held would never be free.
        detect_child();
        st.lock.wait_until_free(&Task);
    }
    let answer = call();
    st.ignored.end();
    answer
}
