//! Pages that a fork left shared: in memory once, and counted by the kernel for each process.
//!
//! As long as there are any, each process counts its part of them (smaps_rollup). That is measured
//! again before much can have changed. When another one comes or goes, the parts become smaller or
//! larger in proportion, without a measurement: a hundred children may come at once.

use crate::clock::now;
use crate::proc_lines::{number, Lines};

const MILLISECOND: u64 = 1_000_000;
/// Measurements of all processes of a group take at most this part of the time. While they change
/// they are repeated soon.
const PART: u64 = 20;
const SHORTEST_PAUSE: u64 = 5 * MILLISECOND;
const LONGEST_PAUSE: u64 = 1_000 * MILLISECOND;
/// Few are as good as none.
const FEW: u64 = 16;

pub struct Parts {
    /// Others may have pages of this process.
    pub are_any: bool,
    /// What the others count of them.
    pub others: u64,
    /// When last measured: how many there are, this process' part, and for how many who share.
    shared: u64,
    part: u64,
    sharers: u64,
    pause: u64,
    /// When that is measured again, at the latest; and at how many pages that were asked for.
    due: u64,
    due_at: u64,
}

impl Parts {
    pub fn new(are_any: bool) -> Parts {
        Parts {
            are_any,
            others: 0,
            shared: 0,
            part: 0,
            sharers: 1,
            pause: SHORTEST_PAUSE,
            due: 0,
            due_at: 0,
        }
    }

    /// A fork: all is shared.
    pub fn begin(&mut self) {
        (self.are_any, self.pause) = (true, SHORTEST_PAUSE);
    }

    /// Each process counts all of its memory.
    pub fn are_all_counted(&self) -> bool {
        self.are_any && self.others == 0
    }

    /// When they are measured again.
    pub fn due(&self) -> u64 {
        if self.are_any {
            self.due
        } else {
            u64::MAX
        }
    }

    /// So many pages were asked for: some of what was brought may be shared no more.
    pub fn is_due_at(&self, asked: u64) -> bool {
        self.are_any && asked >= self.due_at
    }

    /// There is room for all, although each process counts everything.
    pub fn count_all(&mut self, time: u64) {
        (self.others, self.shared, self.part) = (0, 0, 0);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.due = time + self.pause;
    }

    /// So many share now.
    pub fn adjust(&mut self, sharers: u64) {
        self.others =
            self.shared.saturating_sub(self.part.saturating_mul(self.sharers) / sharers.max(1));
    }

    /// `asked` pages were asked for so far by a process with that share; so many share.
    pub fn measure(&mut self, time: u64, (asked, share): (u64, u64), sharers: u64) {
        if !self.are_any {
            return;
        }
        let (mut all, mut alone, mut own) = (0, 0, None);
        if let Ok(mut lines) = Lines::open(c"/proc/self/smaps_rollup") {
            while let Some(line) = lines.next() {
                let pages = |name: &[u8]| {
                    line.strip_prefix(name).map(|rest| number(rest.trim_ascii_start()) / 4)
                };
                all = pages(b"Anonymous:").unwrap_or(all);
                alone = pages(b"Private_Dirty:").unwrap_or(alone);
                own = pages(b"Pss_Anon:").or(own);
            }
        }
        // A kernel that does not tell counts all for each.
        let own = own.unwrap_or(all).min(all);
        (self.shared, self.part) = (all.saturating_sub(alone), own.saturating_sub(alone));
        self.sharers = sharers;
        let others = all - own;
        self.pause = match others.abs_diff(self.others) <= share / 64 {
            true => (2 * self.pause).min(LONGEST_PAUSE),
            false => SHORTEST_PAUSE,
        };
        (self.others, self.are_any) = (others, others > FEW);
        let taken = now().saturating_sub(time);
        self.due = time + taken.saturating_mul(PART * sharers.min(1_000)).max(self.pause);
        self.due_at = asked + share / 32;
    }
}
