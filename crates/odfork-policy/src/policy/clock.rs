//! The simplest clock: the hand moves at a fault with full memory until it finds a page whose
//! reference bit is clear.
//!
//! A page enters with its bit set, as a demanded page on real memory must, or (`insert=0`) clear.
//! Setting the bit of a page in memory is a reclaim.

use super::bits;
use super::slots::{Eviction, Slots};

pub(super) struct Clock {
    /// Bits of a page that enters.
    entering: u8,
    hand: usize,
}

impl Clock {
    pub fn new(insert: bool) -> Clock {
        Clock { entering: if insert { bits::BIT } else { 0 }, hand: 0 }
    }
}

impl Eviction for Clock {
    const REFERENCES: bool = true;

    fn entering(&self) -> u8 {
        self.entering
    }

    /// Clears bits until one is clear already; the hand ends behind that frame.
    fn victim(&mut self, slots: &mut Slots) -> usize {
        loop {
            let slot = self.hand;
            self.hand = slots.after(slot);
            let state = &mut slots.state[slots.pages[slot] as usize];
            if *state & bits::BIT == 0 {
                return slot;
            }
            *state &= !bits::BIT;
        }
    }
}
