//! What stopped a job: a reason of the statistics, the step, the error number.

pub use odfork_stats::{Reason, REASONS};

use crate::step::Step;
use crate::sys::Errno;

/// What stopped a job: the reason, the step and the error number behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// As in the statistics.
    pub reason: Reason,
    /// The step that failed; empty when none did.
    pub step: &'static str,
    /// Its error number; 0 when no system call failed.
    pub errno: i32,
}

impl Stop {
    /// A stop without a failed system call behind it.
    pub const fn of(reason: Reason) -> Self {
        Stop { reason, step: "", errno: 0 }
    }

    /// A stop because of `errno` in `step`.
    pub const fn failed(reason: Reason, step: Step, e: Errno) -> Self {
        Stop { reason, step: step.name(), errno: e.0 }
    }
}

/// Result of a job in the helper task.
pub type Done<T> = Result<T, Stop>;
