//! Named crash points: a test makes the daemon kill itself there.
//!
//! `ODFORK_PAGE_KILL=NAME:N` kills the daemon (SIGKILL) when it passes point NAME for the N-th
//! time. A restarted daemon does the same as long as the supervisor passes the variable on
//! (`ODFORK_PAGE_KILLS` times, 1 if not set). Without the variable a point costs one load.
//! docs/pager.md lists the names beside the steps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// Names the point and the pass at which to die.
pub const VARIABLE: &str = "ODFORK_PAGE_KILL";
/// How many daemons die so.
pub const TIMES: &str = "ODFORK_PAGE_KILLS";

/// Every point there is, in the order of the steps.
pub const NAMES: [&str; 17] = [
    "fault.read",
    "zero.copied",
    "pagein.filling",
    "pagein.read",
    "pagein.copied",
    "pagein.filled",
    "evict.punched",
    "zap.sent",
    "zap.answered",
    "pageout.read",
    "pageout.written",
    "pageout.published",
    "call.begun",
    "call.done",
    "call.answered",
    "snapshot.half",
    "snapshot.answered",
];

struct Plan {
    name: String,
    left: AtomicU32,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

fn plan() -> Option<Plan> {
    let value = std::env::var(VARIABLE).ok()?;
    let (name, count) = value.split_once(':').unwrap_or((&value, "1"));
    Some(Plan { name: name.to_owned(), left: AtomicU32::new(count.parse().unwrap_or(1)) })
}

/// The daemon may die here.
#[inline]
pub fn pass(name: &str) {
    if let Some(plan) = PLAN.get_or_init(plan) {
        if plan.name == name && plan.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }
}
