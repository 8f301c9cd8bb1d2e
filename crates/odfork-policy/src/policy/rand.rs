//! A page chosen at random, by a seeded generator (splitmix64), so that a run can be repeated.

use super::slots::Slots;
use super::{dirty_if, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Rand {
    slots: Slots,
    seed: u64,
}

impl Rand {
    pub fn new(frames: u32, seed: u64) -> Rand {
        Rand { slots: Slots::new(frames), seed }
    }
}

/// Below `bound`.
fn next(seed: &mut u64, bound: usize) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *seed;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    ((u128::from(word) * bound as u128) >> 64) as usize
}

impl Replacement for Rand {
    fn grow(&mut self, owners: &[Owner]) {
        self.slots.grow(owners);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let state = &mut self.slots.state[page as usize];
        if *state != 0 {
            *state |= dirty_if(write);
            return;
        }
        let seed = &mut self.seed;
        self.slots.fault(page, write, 0, |slots| next(seed, slots.frames()));
    }

    fn tally(&self, _: u32) -> Tally {
        self.slots.tally
    }
}
