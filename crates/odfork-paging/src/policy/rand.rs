//! A page chosen at random, by a seeded generator (splitmix64), so that a run can be repeated.

use super::{dirt, held, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Rand {
    frames: usize,
    state: Vec<u8>,
    slots: Vec<Page>,
    seed: u64,
    tally: Tally,
}

impl Rand {
    pub fn new(frames: u32, seed: u64) -> Rand {
        let frames = frames as usize;
        Rand { frames, state: Vec::new(), slots: Vec::new(), seed, tally: Tally::default() }
    }

    /// Below the number of frames.
    fn next(&mut self) -> usize {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.seed;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((u128::from(word) * self.frames as u128) >> 64) as usize
    }

    #[cold]
    fn fault(&mut self, page: Page, write: bool) {
        self.tally.faults += 1;
        self.state[page as usize] = held::IN | dirt(write);
        if self.slots.len() < self.frames {
            self.slots.push(page);
            return;
        }
        let slot = self.next();
        let victim = std::mem::replace(&mut self.slots[slot], page);
        self.tally.write_backs += u64::from(self.state[victim as usize] & held::DIRTY != 0);
        self.state[victim as usize] = 0;
    }
}

impl Replacement for Rand {
    fn grow(&mut self, owners: &[Owner]) {
        self.state.resize(self.state.len() + owners.len(), 0);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let state = &mut self.state[page as usize];
        if *state != 0 {
            *state |= dirt(write);
        } else {
            self.fault(page, write);
        }
    }

    fn tally(&self, _: u32) -> Tally {
        self.tally
    }
}
