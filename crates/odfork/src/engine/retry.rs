//! When an eager process tries again whose threads could not be held.
//!
//! Owns the wait: as long as the vain pass took, twice that after the next one, and so on. Else a
//! process whose threads never come to rest would wait for most of its time. The rental rule needs
//! none of this: there a vain pass is paid by forks.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::reason::{Done, Reason};

/// Waits double so many times: then at most one part in 64 of the time goes into vain passes.
const DOUBLINGS: u32 = 6;

pub struct Retry {
    vain: AtomicU32,
    not_before_ns: AtomicU64,
}

impl Retry {
    pub const fn new() -> Retry {
        Retry { vain: AtomicU32::new(0), not_before_ns: AtomicU64::new(0) }
    }

    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.not_before_ns.load(Relaxed)
    }

    /// What a pass came to that began and ended then.
    pub fn note(&self, outcome: &Done<()>, (began_ns, now_ns): (u64, u64)) {
        let in_vain =
            matches!(outcome, Err(stop) if matches!(stop.reason, Reason::Threads | Reason::Busy));
        if !in_vain {
            return self.vain.store(0, Relaxed);
        }
        let vain = self.vain.load(Relaxed);
        let wait_ns = now_ns.saturating_sub(began_ns) << vain;
        self.not_before_ns.store(now_ns.saturating_add(wait_ns), Relaxed);
        self.vain.store((vain + 1).min(DOUBLINGS), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Stop;

    #[test]
    fn vain_passes_become_rare_and_one_that_succeeds_ends_that() {
        let retry = Retry::new();
        let busy = || Err(Stop::of(Reason::Busy));
        assert!(retry.is_due(0));
        retry.note(&busy(), (100, 110));
        assert!(!retry.is_due(119) && retry.is_due(120));
        retry.note(&busy(), (200, 210));
        assert!(!retry.is_due(229) && retry.is_due(230));
        (0..9).for_each(|_| retry.note(&busy(), (300, 310)));
        assert!(!retry.is_due(949) && retry.is_due(950));
        retry.note(&Ok(()), (1000, 1010));
        retry.note(&busy(), (1100, 1110));
        assert!(retry.is_due(1120));
        retry.note(&Err(Stop::of(Reason::NotWorth)), (1200, 1210));
        assert!(retry.is_due(1210));
    }
}
