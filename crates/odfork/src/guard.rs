//! Holding other threads still while memory moves.
//!
//! Placeholder until the guard is written: threads mean plain fork.

use crate::helper::Scratch;
use crate::reason::{Done, Reason, Stop};
use crate::survey::Subject;

/// Threads held still.
pub struct Guard {}

impl Guard {
    /// Step `hold`.
    pub fn hold(_s: &mut Scratch, _subject: &Subject) -> Done<Guard> {
        Err(Stop::of(Reason::Threads))
    }

    /// Lets the threads go on.
    pub fn release(self, _s: &mut Scratch) {}
}
