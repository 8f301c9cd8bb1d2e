//! What was counted, and what it costs.
//!
//! The paper judges policies by a weighted sum of page faults and reclaims, because on a machine
//! without reference bits a policy pays for what it wants to know. Costs are in units of one
//! reclaim.

/// Fault : reclaim. A page-in from memory (12 us), from a disk of today (55 us), and on the VAX (30
/// ms), each against the reclaim of its time (6.4 us, 6.4 us, 250 us).
pub const RATIOS: [f64; 3] = [2.0, 8.6, 120.0];

/// Counts of one policy on one trace with one size of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// References so far.
    pub references: u64,
    /// Page-ins, the first of every page included.
    pub faults: u64,
    /// Faults without I/O: reference bits set by software, pages found in a free pool.
    pub reclaims: u64,
    /// Evictions of pages written since they came in.
    pub write_backs: u64,
    /// Pages read, those read ahead among them, by policies that read ahead.
    pub pages_read: u64,
    /// Looks at all pages of a resident set (sampled working set, page-fault frequency).
    pub samples: u64,
    /// Sum over samples of the pages looked at.
    pub sampled: u64,
}

impl Tally {
    /// Faults times `ratio`, and reclaims, and write-backs times `ratio` times `write` (the share
    /// of a fault's cost that a write-back has: 0 in the paper's function, small when pages are
    /// written in clusters).
    pub fn cost(&self, ratio: f64, write: f64) -> f64 {
        ratio * (self.faults as f64 + write * self.write_backs as f64) + self.reclaims as f64
    }

    /// Sums, but for references, which the caller counts once.
    pub fn add(&mut self, other: &Tally) {
        self.faults += other.faults;
        self.reclaims += other.reclaims;
        self.write_backs += other.write_backs;
        self.pages_read += other.pages_read;
        self.samples += other.samples;
        self.sampled += other.sampled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_in_reclaims() {
        let tally = Tally { faults: 10, reclaims: 3, write_backs: 4, ..Tally::default() };
        assert_eq!(tally.cost(2.0, 0.0), 23.0);
        assert_eq!(tally.cost(2.0, 0.5), 27.0);
    }
}
