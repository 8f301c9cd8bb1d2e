//! Sampled working set: every `window` references of a process all its reference bits are looked at
//! and cleared; pages not referenced since the look before leave its resident set for the free
//! list.

use super::sets::Sets;
use super::Replacement;
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Sws {
    sets: Sets,
    window: u64,
}

impl Sws {
    pub fn new(frames: u32, window: u64) -> Sws {
        Sws { sets: Sets::new(frames), window }
    }
}

impl Replacement for Sws {
    fn grow(&mut self, owners: &[Owner]) {
        self.sets.grow(owners);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let owner = self.sets.owner[page as usize];
        if self.sets.since[owner as usize] == self.window {
            self.sets.since[owner as usize] = 0;
            self.sets.sample(owner);
        }
        self.sets.since[owner as usize] += 1;
        if self.sets.is_resident(page) {
            self.sets.hit(page, write);
        } else {
            self.sets.bring(page, write);
        }
    }

    fn tally(&self, _: u32) -> Tally {
        self.sets.tally
    }
}
