//! The simplest clock: the hand moves at a fault with full memory until it finds a page whose
//! reference bit is clear.
//!
//! A page enters with its bit set, as a demanded page on real memory must, or (`insert=0`) clear.
//! Setting the bit of a page in memory is a reclaim.

use super::slots::Slots;
use super::{bits, dirty_if, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Clock {
    slots: Slots,
    /// Bits of a page that enters.
    entering: u8,
    hand: usize,
}

impl Clock {
    pub fn new(frames: u32, insert: bool) -> Clock {
        let entering = if insert { bits::BIT } else { 0 };
        Clock { slots: Slots::new(frames), entering, hand: 0 }
    }
}

/// Clears bits until one is clear already; the hand ends behind that frame.
fn unreferenced(slots: &mut Slots, hand: &mut usize) -> usize {
    loop {
        let slot = *hand;
        *hand = slots.after(slot);
        let state = &mut slots.state[slots.pages[slot] as usize];
        if *state & bits::BIT == 0 {
            return slot;
        }
        *state &= !bits::BIT;
    }
}

impl Replacement for Clock {
    fn grow(&mut self, owners: &[Owner]) {
        self.slots.grow(owners);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let state = &mut self.slots.state[page as usize];
        if *state != 0 {
            self.slots.tally.reclaims += u64::from(*state & bits::BIT == 0);
            *state |= bits::BIT | dirty_if(write);
            return;
        }
        let hand = &mut self.hand;
        self.slots.fault(page, write, self.entering, |slots| unreferenced(slots, hand));
    }

    fn tally(&self, _: u32) -> Tally {
        self.slots.tally
    }
}
