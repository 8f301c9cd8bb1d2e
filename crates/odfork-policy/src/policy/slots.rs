//! Frames of which each holds one page until another takes its place: what FIFO, RAND and the
//! simple clock share. They differ in whom they evict, and in what a hit changes.

use super::{bits, dirty_if, Replacement};
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

/// What a policy over [`Slots`] decides.
pub(super) trait Eviction: Send {
    /// Bits of a page that enters, beside those of every page in memory.
    fn entering(&self) -> u8 {
        0
    }

    /// Whether a hit sets the reference bit; setting one that is clear counts as a reclaim.
    const REFERENCES: bool = false;

    /// The frame to be reused, in full memory.
    fn victim(&mut self, slots: &mut Slots) -> usize;
}

/// A policy that evicts one page of all frames.
pub(super) struct Slotted<E> {
    slots: Slots,
    eviction: E,
}

impl<E> Slotted<E> {
    pub fn new(frames: u32, eviction: E) -> Slotted<E> {
        Slotted { slots: Slots::new(frames), eviction }
    }
}

impl<E: Eviction> Replacement for Slotted<E> {
    fn grow(&mut self, owners: &[Owner]) {
        self.slots.grow(owners);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        let state = &mut self.slots.state[page as usize];
        if *state == 0 {
            return self.slots.fault(page, write, &mut self.eviction);
        }
        if E::REFERENCES {
            self.slots.tally.reclaims += u64::from(*state & bits::BIT == 0);
            *state |= bits::BIT;
        }
        *state |= dirty_if(write);
    }

    fn tally(&self, _: u32) -> Tally {
        self.slots.tally
    }
}

pub(super) struct Slots {
    frames: usize,
    /// Of each page; 0: not in memory.
    pub state: Vec<u8>,
    /// Of each frame in use.
    pub pages: Vec<Page>,
    tally: Tally,
}

impl Slots {
    fn new(frames: u32) -> Slots {
        let frames = frames as usize;
        Slots { frames, state: Vec::new(), pages: Vec::new(), tally: Tally::default() }
    }

    fn grow(&mut self, owners: &[Owner]) {
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

    /// A fault: the page enters; in full memory another leaves.
    #[cold]
    fn fault(&mut self, page: Page, write: bool, eviction: &mut impl Eviction) {
        self.tally.faults += 1;
        self.state[page as usize] = bits::IN | eviction.entering() | dirty_if(write);
        if self.pages.len() < self.frames {
            self.pages.push(page);
            return;
        }
        let slot = eviction.victim(self);
        let gone = std::mem::replace(&mut self.pages[slot], page);
        self.tally.write_backs += u64::from(self.state[gone as usize] & bits::DIRTY != 0);
        self.state[gone as usize] = 0;
    }
}
