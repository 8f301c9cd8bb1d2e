//! A page chosen at random, by a seeded generator (splitmix64), so that a run can be repeated.
//!
//! The generator is written out: the published fault counts belong to its sequence.

use super::slots::{Eviction, Slots};

pub(super) struct Rand {
    seed: u64,
}

impl Rand {
    pub fn new(seed: u64) -> Rand {
        Rand { seed }
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

impl Eviction for Rand {
    fn victim(&mut self, slots: &mut Slots) -> usize {
        next(&mut self.seed, slots.frames())
    }
}
