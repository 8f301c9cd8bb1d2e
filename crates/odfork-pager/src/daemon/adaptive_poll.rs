//! Adaptive polling: a fault thread polls for the next fault while faults come in quick succession,
//! and blocks otherwise.
//!
//! Waking a thread on an idle processor takes a few microseconds, up to forty in a virtual machine;
//! that is more than the rest of a reclaim. A polling thread yields between two polls, so it uses
//! only idle time.

/// Weight of the past against one new gap.
const MEMORY: u64 = 3;

#[derive(Debug)]
pub struct AdaptivePoll {
    /// Usual time from the end of one service to the next fault.
    gap_ns: u64,
}

impl AdaptivePoll {
    pub fn new() -> AdaptivePoll {
        AdaptivePoll { gap_ns: u64::MAX / 8 }
    }

    /// How long to look before sleeping, if at all.
    pub fn window_ns(&self, most_ns: u64) -> u64 {
        if self.gap_ns <= most_ns {
            most_ns
        } else {
            0
        }
    }

    /// A fault came so long after the last one was served.
    pub fn record_gap(&mut self, gap_ns: u64, most_ns: u64) {
        // One long silence counts, but not for long.
        let (past, gap) = (self.gap_ns.min(most_ns * 4), gap_ns.min(most_ns * 4));
        self.gap_ns = (past * MEMORY + gap) / (MEMORY + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_only_while_faults_come_closely() {
        let mut poll = AdaptivePoll::new();
        assert_eq!(poll.window_ns(50), 0);
        (0..9).for_each(|_| poll.record_gap(10, 50));
        assert_eq!(poll.window_ns(50), 50);
        poll.record_gap(1_000_000, 50);
        assert_eq!(poll.window_ns(50), 0, "one silence of a second ends it");
        (0..4).for_each(|_| poll.record_gap(10, 50));
        assert_eq!(poll.window_ns(50), 50);
        (0..4).for_each(|_| poll.record_gap(10, 0));
        assert_eq!(AdaptivePoll::new().window_ns(0), 0);
    }
}
