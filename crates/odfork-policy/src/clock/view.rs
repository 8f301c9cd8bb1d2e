//! What a caller can ask of the clock; nothing here changes it.

use super::{Clock, Counts, Frame, Owner, OwnerState, State, BIT, DIRTY, PREFETCHED, WRITING};

impl Clock {
    /// Where a frame is; `None` when it was never used or does not exist.
    pub fn state_of(&self, frame: Frame) -> Option<State> {
        ((frame as usize) < self.flags.len()).then(|| self.state(frame))
    }

    /// Whether the page is mapped as far as the caller carried out all actions.
    pub fn is_valid(&self, frame: Frame) -> bool {
        self.state_of(frame) == Some(State::Active) && self.has(frame, BIT)
    }

    /// Whether the page must be written before its frame can be reused.
    pub fn is_dirty(&self, frame: Frame) -> bool {
        self.state_of(frame).is_some() && self.has(frame, DIRTY)
    }

    /// Whether a write from this frame was asked for and has not ended.
    pub fn is_writing(&self, frame: Frame) -> bool {
        self.state_of(frame).is_some() && self.has(frame, WRITING)
    }

    /// Whether a page came by pre-paging and was not touched yet.
    pub fn is_prefetched(&self, frame: Frame) -> bool {
        self.state_of(frame).is_some() && self.has(frame, PREFETCHED)
    }

    /// Owner and page in a frame that holds one.
    pub fn content(&self, frame: Frame) -> Option<(Owner, u64)> {
        match self.state_of(frame)? {
            State::Active | State::Leaving | State::Pool => {
                Some((self.owner[frame as usize], self.page[frame as usize]))
            }
            State::Empty | State::Taken | State::Discarded => None,
        }
    }

    /// What is known of an owner.
    pub fn owner_state(&self, owner: Owner) -> OwnerState {
        self.owners.get(owner as usize).copied().unwrap_or_default()
    }

    /// Frames in all.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Frames in the active list.
    pub fn active_len(&self) -> u32 {
        self.active_len
    }

    /// Frames in the pool, with content or without.
    pub fn pool_len(&self) -> u32 {
        self.pool.len()
    }

    /// Frames that left the active list and are not in the pool yet: being unmapped or written.
    pub fn leaving(&self) -> u32 {
        self.leaving
    }

    /// The frame the hand looks at next.
    pub fn hand(&self) -> Frame {
        self.hand
    }

    /// What happened since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The pool from the frame that is reused first to the one reused last; frames never used are
    /// not listed.
    pub fn pool(&self) -> impl Iterator<Item = Frame> + '_ {
        self.pool.iter()
    }
}
