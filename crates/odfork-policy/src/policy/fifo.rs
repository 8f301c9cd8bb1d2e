//! First in, first out.

use super::slots::Slots;
use super::{dirty_if, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Fifo {
    slots: Slots,
    oldest: usize,
}

impl Fifo {
    pub fn new(frames: u32) -> Fifo {
        Fifo { slots: Slots::new(frames), oldest: 0 }
    }
}

impl Replacement for Fifo {
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
        let oldest = &mut self.oldest;
        self.slots.fault(page, write, 0, |slots| {
            let after = slots.after(*oldest);
            std::mem::replace(oldest, after)
        });
    }

    fn tally(&self, _: u32) -> Tally {
        self.slots.tally
    }
}
