//! First in, first out.

use super::{dirt, held, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Fifo {
    frames: usize,
    state: Vec<u8>,
    ring: Vec<Page>,
    oldest: usize,
    tally: Tally,
}

impl Fifo {
    pub fn new(frames: u32) -> Fifo {
        let frames = frames as usize;
        Fifo { frames, state: Vec::new(), ring: Vec::new(), oldest: 0, tally: Tally::default() }
    }

    #[cold]
    fn fault(&mut self, page: Page, write: bool) {
        self.tally.faults += 1;
        self.state[page as usize] = held::IN | dirt(write);
        if self.ring.len() < self.frames {
            self.ring.push(page);
            return;
        }
        let victim = std::mem::replace(&mut self.ring[self.oldest], page);
        self.oldest = if self.oldest + 1 == self.frames { 0 } else { self.oldest + 1 };
        self.tally.write_backs += u64::from(self.state[victim as usize] & held::DIRTY != 0);
        self.state[victim as usize] = 0;
    }
}

impl Replacement for Fifo {
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
