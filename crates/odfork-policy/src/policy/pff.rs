//! Page-fault frequency (Chu & Opderbeck 1976): at a fault, when the process has had none for
//! `threshold` of its references, the pages it did not touch since its last fault leave its
//! resident set; when faults come faster, the set only grows.

use super::sets::Sets;
use super::Replacement;
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Pff {
    sets: Sets,
    threshold: u64,
}

impl Pff {
    pub fn new(frames: u32, threshold: u64) -> Pff {
        Pff { sets: Sets::new(frames), threshold }
    }
}

impl Replacement for Pff {
    fn grow(&mut self, owners: &[Owner]) {
        self.sets.grow(owners);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let owner = self.sets.owner[page as usize];
        self.sets.since[owner as usize] += 1;
        if self.sets.is_resident(page) {
            self.sets.hit(page, write);
            return;
        }
        // A reclaim from the free list is a fault, too, for the one who counts them.
        if self.sets.since[owner as usize] > self.threshold {
            self.sets.sample(owner);
        }
        self.sets.since[owner as usize] = 0;
        self.sets.bring(page, write);
    }

    fn tally(&self, _: u32) -> Tally {
        self.sets.tally
    }
}
