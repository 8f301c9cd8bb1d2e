//! Frames of which each holds one page until another takes its place: what FIFO, RAND and the
//! simple clock share.

use super::{bits, dirty_if};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

pub(super) struct Slots {
    frames: usize,
    /// Of each page; 0: not in memory.
    pub state: Vec<u8>,
    /// Of each frame in use.
    pub pages: Vec<Page>,
    pub tally: Tally,
}

impl Slots {
    pub fn new(frames: u32) -> Slots {
        let frames = frames as usize;
        Slots { frames, state: Vec::new(), pages: Vec::new(), tally: Tally::default() }
    }

    pub fn grow(&mut self, owners: &[Owner]) {
        self.state.resize(self.state.len() + owners.len(), 0);
    }

    pub fn frames(&self) -> usize {
        self.frames
    }

    /// The frame behind this one, in a circle.
    pub fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.frames {
            0
        } else {
            slot + 1
        }
    }

    /// A fault: the page enters, with `bits` beside those of every page in memory. In full memory
    /// `victim` names the frame.
    #[cold]
    pub fn fault(
        &mut self,
        page: Page,
        write: bool,
        bits: u8,
        victim: impl FnOnce(&mut Slots) -> usize,
    ) {
        self.tally.faults += 1;
        self.state[page as usize] = bits::IN | bits | dirty_if(write);
        if self.pages.len() < self.frames {
            self.pages.push(page);
            return;
        }
        let slot = victim(self);
        let gone = std::mem::replace(&mut self.pages[slot], page);
        self.tally.write_backs += u64::from(self.state[gone as usize] & bits::DIRTY != 0);
        self.state[gone as usize] = 0;
    }
}
