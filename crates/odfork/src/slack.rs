//! How much more the program may use before the reserve is touched.
//!
//! Owns the account: the reserve is what rewriting all frozen memory would take. Kept where a
//! control group limits memory; elsewhere others could use the reserve up as well, and a pass asks
//! how much is free. Read and changed at any time, so atomic.
//!
//! ```text
//! limit   |== used ==|= reserve =|= mapped, not populated =|== slack ==|
//! ```

use core::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::report::Report;
use crate::sys;

/// That account.
pub struct Slack {
    /// Bytes left; at least half of the largest number: no limit, or nothing frozen.
    bytes: AtomicI64,
    measured_ns: AtomicU64,
}

const UNLIMITED: i64 = i64::MAX;
/// What is left where a measurement was put off.
const PUT_OFF: i64 = UNLIMITED / 4;

impl Slack {
    /// No limit known.
    pub const fn new() -> Self {
        Slack { bytes: AtomicI64::new(UNLIMITED), measured_ns: AtomicU64::new(0) }
    }

    /// Takes over what a job has measured.
    pub fn learn(&self, r: &Report) {
        if let Some(slack) = r.slack() {
            self.bytes.store(slack, SeqCst);
            self.measured_ns.store(sys::now_ns(), Relaxed);
        }
    }

    /// Nothing can be done for now: to be measured again after a while.
    pub fn put_off(&self) {
        self.bytes.store(PUT_OFF, SeqCst);
        self.measured_ns.store(sys::now_ns(), Relaxed);
    }

    /// It was put off.
    pub fn is_put_off(&self) -> bool {
        (PUT_OFF / 2..UNLIMITED / 2).contains(&self.bytes.load(SeqCst))
    }

    /// Nothing is frozen any more.
    pub fn forget(&self) {
        self.bytes.store(UNLIMITED, SeqCst);
    }

    /// Some limit counts.
    pub fn is_limited(&self) -> bool {
        self.bytes.load(SeqCst) < UNLIMITED / 2
    }

    /// The program uses `len` bytes more; false if that is more than there is. What it gives back
    /// counts when it is measured again, which is before anything is thawed.
    pub fn take(&self, len: usize) -> bool {
        let len = i64::try_from(len).unwrap_or(UNLIMITED).min(UNLIMITED / 8);
        self.bytes.fetch_sub(len, SeqCst) >= len
    }

    /// Time since it was measured.
    pub fn age_ns(&self) -> u64 {
        sys::now_ns() - self.measured_ns.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_and_given_back() {
        let slack = Slack::new();
        assert!(!slack.is_limited());
        let report = Report::default();
        slack.learn(&report);
        assert!(!slack.is_limited(), "nothing was measured");
        report.note_slack(100);
        slack.learn(&report);
        assert!(slack.is_limited() && slack.take(60) && !slack.take(60));
        report.note_slack(-5);
        slack.learn(&report);
        assert!(!slack.take(0) && !slack.is_put_off());
        slack.put_off();
        assert!(slack.is_limited() && slack.take(1 << 40) && slack.is_put_off());
        assert_ne!(slack.measured_ns.load(Relaxed), 0);
        slack.forget();
        assert!(!slack.is_limited());
    }
}
