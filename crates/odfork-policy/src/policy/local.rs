//! Local variants: memory is divided between the processes beforehand, and each replaces only its
//! own pages.

use super::Replacement;
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::{Page, Summary};

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// The same for all.
    Equal,
    /// In proportion to the number of distinct pages.
    Footprint,
}

impl Division {
    /// Frames of every process; all frames are given out, and every process with pages gets at
    /// least one.
    fn shares(self, frames: u32, whole: &Summary) -> Vec<u32> {
        let weight = |pages: u32| match self {
            Division::Equal => u64::from(pages > 0),
            Division::Footprint => u64::from(pages),
        };
        let total: u64 = whole.footprints.iter().map(|&pages| weight(pages)).sum::<u64>().max(1);
        let (mut seen, mut given) = (0, 0);
        let share = |&pages: &u32| {
            seen += weight(pages);
            let until = u64::from(frames) * seen / total;
            let share = until - given;
            given = until;
            (share as u32).max(u32::from(pages > 0))
        };
        whole.footprints.iter().map(share).collect()
    }
}

pub(super) struct Local<R> {
    policies: Vec<R>,
    shares: Vec<u32>,
    /// Process of each page, and the page's number there.
    places: Vec<(Owner, Page)>,
    pages: Vec<Page>,
}

impl<R: Replacement> Local<R> {
    pub fn new(
        division: Division,
        frames: u32,
        whole: &Summary,
        make: impl Fn(u32) -> R,
    ) -> Local<R> {
        let shares = division.shares(frames, whole);
        let policies: Vec<R> = shares.iter().map(|&share| make(share)).collect();
        let pages = vec![0; policies.len()];
        Local { policies, shares, places: Vec::new(), pages }
    }
}

impl<R: Replacement> Replacement for Local<R> {
    fn grow(&mut self, owners: &[Owner]) {
        for &owner in owners {
            let number = &mut self.pages[owner as usize];
            self.places.push((owner, *number));
            *number += 1;
            self.policies[owner as usize].grow(&[owner]);
        }
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let (owner, page) = self.places[page as usize];
        self.policies[owner as usize].touch(page, write);
    }

    fn advise(&mut self, owner: Owner, on: bool) {
        if let Some(policy) = self.policies.get_mut(owner as usize) {
            policy.advise(owner, on);
        }
    }

    fn tally(&self, _: u32) -> Tally {
        let mut sum = Tally::default();
        for (policy, &share) in self.policies.iter().zip(&self.shares) {
            sum.add(&policy.tally(share));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_are_given_out() {
        let whole = Summary { references: 0, footprints: vec![0, 300, 100, 0, 1] };
        assert_eq!(Division::Equal.shares(10, &whole), [0, 3, 3, 0, 4]);
        assert_eq!(Division::Footprint.shares(401, &whole), [0, 300, 100, 0, 1]);
        assert_eq!(Division::Footprint.shares(40, &whole), [0, 29, 10, 0, 1]);
        assert_eq!(Division::Equal.shares(1, &whole), [0, 1, 1, 0, 1]);
    }
}
