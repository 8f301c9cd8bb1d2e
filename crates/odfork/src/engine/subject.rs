//! What a job needs to know about the process.
//!
//! Owns nothing: it is read from the state before the helper task is started.

use core::sync::atomic::Ordering::Relaxed;

use super::state::State;
use crate::code::Searched;
use crate::registry::Registry;
use crate::scan::Subject;
use crate::sys;

/// Mappings with less anonymous memory are not worth a mapping of their own (1 MB).
const MIN_BYTES: usize = 1 << 20;

/// What the helper needs to know about the process.
pub fn subject<'a>(
    st: &'a State,
    shared_vm: bool,
    registry: &'a Registry,
    searched: &'a Searched,
) -> Subject<'a> {
    // Not the stored pid: after a fork past the wrappers that is the parent's.
    let pid = sys::getpid();
    let borrowed = !st.owner.is(pid);
    Subject {
        pid,
        borrowed,
        shared_vm: shared_vm || borrowed,
        tid: sys::gettid(),
        registry,
        searched,
        addresses: &st.addresses,
        mapped: &st.mapped,
        changes: &st.changes,
        own: st.own_ranges(),
        sanitizer: [0, 1].map(|end| st.sanitizer[end].load(Relaxed)),
        min_bytes: MIN_BYTES,
        pi_futexes: st.pi_futexes.load(Relaxed) != 0,
        timed_sockets: st.timed_sockets.load(Relaxed) != 0,
        delicate_sockets: st.delicate_sockets.load(Relaxed) != 0,
        holding: st.options().holding,
        named: st.tracer.is_wanted(),
        spliced: st.spliced_word().is_some_and(|word| word.load(Relaxed) != 0),
    }
}
