//! Snapshots of the memory of processes that fork, taken right after a fork or before their end.
//!
//! Owns what fork costs each of them by the model, and the snapshot of the largest. Reading a map
//! takes about as long as a fork, so a process is read again only when it has grown by a
//! quarter.

use std::collections::HashMap;

use super::price::Prices;
use super::smaps::Entries;
use super::subject::{self, Subject};
use odfork_proc::process::Pid;
use odfork_proc::status::{Rollup, Status};

/// Below this the share of huge pages does not matter, and the coarse figure will do.
const SMALL: u64 = 32 << 20;

pub struct Snapshots<'a> {
    prices: &'a Prices,
    /// Anonymous bytes when the sums were last read, and the share of them in huge pages then.
    shares: HashMap<Pid, (u64, f64)>,
    largest: Option<Subject>,
    /// Of a process inspected before: its share of huge pages. Reading the sums holds a process up,
    /// so then only what costs nothing is read.
    known_share: Option<f64>,
}

impl<'a> Snapshots<'a> {
    /// For a command: nothing is known of it, and snapshots are taken.
    pub fn empty(prices: &'a Prices) -> Snapshots<'a> {
        Snapshots { prices, shares: HashMap::new(), largest: None, known_share: None }
    }

    /// For a process that was inspected.
    pub fn knowing(prices: &'a Prices, huge_share: f64) -> Snapshots<'a> {
        Snapshots { known_share: Some(huge_share), ..Snapshots::empty(prices) }
    }

    /// What a fork of this process costs by the model now, nanoseconds.
    pub fn fork_of(&mut self, pid: Pid) -> Option<u64> {
        let status = Status::of_process(pid)?;
        if self.known_share.is_none() {
            self.snapshot(pid, status.anonymous + status.swapped);
        }
        let share = self.huge_share(pid, status.anonymous);
        let huge = (status.anonymous as f64 * share) as u64;
        let entries = Entries::of(status.anonymous, status.swapped, huge);
        Some(self.prices.now_ns(entries) as u64)
    }

    /// The process is about to end: a snapshot unless there is one of a process at least as large.
    pub fn last_of(&mut self, pid: Pid) {
        if let Some(status) = Status::of_process(pid).filter(|_| self.known_share.is_none()) {
            self.snapshot(pid, status.anonymous + status.swapped);
        }
    }

    /// The largest process seen.
    pub fn largest(self) -> Option<Subject> {
        self.largest
    }

    fn snapshot(&mut self, pid: Pid, bytes: u64) {
        let known = self.largest.as_ref().map(|s| s.status.anonymous + s.status.swapped);
        if known.is_none_or(|known| bytes > known + known / 4) {
            self.largest = subject::inspect(pid).ok().or(self.largest.take());
        }
    }

    fn huge_share(&mut self, pid: Pid, anonymous: u64) -> f64 {
        if let Some(share) = self.known_share {
            return share;
        }
        if anonymous < SMALL {
            return 0.0;
        }
        match self.shares.get(&pid) {
            Some(&(before, share)) if before.abs_diff(anonymous) <= before / 4 => share,
            _ => {
                let rollup = Rollup::of_process(pid).unwrap_or_default();
                let share = rollup.huge as f64 / rollup.anonymous.max(1) as f64;
                self.shares.insert(pid, (anonymous, share));
                share
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_picture_is_kept_until_something_larger_comes() {
        let (prices, own) = (Prices::built_in(), std::process::id() as Pid);
        let mut snapshots = Snapshots::empty(&prices);
        assert!(snapshots.fork_of(own).unwrap() >= 60_000);
        snapshots.last_of(Pid::MAX);
        assert_eq!(snapshots.largest().unwrap().pid, own);
        let mut bare = Snapshots::knowing(&prices, 0.0);
        assert!(bare.fork_of(own).is_some() && bare.fork_of(Pid::MAX).is_none());
        assert!(bare.largest().is_none());
    }
}
