//! The simplest clock: the hand moves at a fault with full memory until it finds a page whose reference bit is clear.
//!
//! A page enters with its bit set, as a demanded page on real memory must, or (`insert=0`) clear. Setting the bit of a page
//! in memory is a reclaim.

use super::{dirt, held, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Clock {
    frames: usize,
    entering: u8,
    state: Vec<u8>,
    ring: Vec<Page>,
    hand: usize,
    tally: Tally,
}

impl Clock {
    pub fn new(frames: u32, insert: bool) -> Clock {
        Clock {
            frames: frames as usize,
            entering: held::IN | if insert { held::BIT } else { 0 },
            state: Vec::new(),
            ring: Vec::new(),
            hand: 0,
            tally: Tally::default(),
        }
    }

    #[cold]
    fn fault(&mut self, page: Page, write: bool) {
        self.tally.faults += 1;
        self.state[page as usize] = self.entering | dirt(write);
        if self.ring.len() < self.frames {
            self.ring.push(page);
            return;
        }
        let slot = self.unreferenced();
        let victim = std::mem::replace(&mut self.ring[slot], page);
        self.tally.write_backs += u64::from(self.state[victim as usize] & held::DIRTY != 0);
        self.state[victim as usize] = 0;
    }

    /// Clears bits until one is clear already; the hand ends behind that frame.
    fn unreferenced(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = if slot + 1 == self.frames { 0 } else { slot + 1 };
            let state = &mut self.state[self.ring[slot] as usize];
            if *state & held::BIT == 0 {
                return slot;
            }
            *state &= !held::BIT;
        }
    }
}

impl Replacement for Clock {
    fn grow(&mut self, owners: &[Owner]) {
        self.state.resize(self.state.len() + owners.len(), 0);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let state = &mut self.state[page as usize];
        if *state != 0 {
            self.tally.reclaims += u64::from(*state & held::BIT == 0);
            *state |= held::BIT | dirt(write);
        } else {
            self.fault(page, write);
        }
    }

    fn tally(&self, _: u32) -> Tally {
        self.tally
    }
}
