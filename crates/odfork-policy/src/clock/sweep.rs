//! The hand: what happens to a frame as it passes, when it moves by itself, and the ways out of the
//! active list.

use super::{Action, Clock, Frame, Owner, State, BIT, DIRTY, MAPPED, WRITING};

impl Clock {
    /// Moves the hand as far as the rule asks for by `now_ns` (from any fixed start, never
    /// backwards). Nothing moves while the pool, together with the frames on their way to it, is at
    /// the low watermark or above: otherwise a slow disk would make the hand empty the active list.
    /// Returns how many frames of the active list were passed.
    pub fn advance(&mut self, now_ns: u64, actions: &mut Vec<Action>) -> u64 {
        let supply = self.pool_len() + self.leaving;
        let due = self.pacer.due(now_ns, supply);
        let mut passed = 0;
        let mut walked = 0;
        while passed < due && walked < self.flags.len() && self.active_len > 0 {
            if !self.pacer.wants(self.pool_len() + self.leaving) {
                break;
            }
            passed += u64::from(self.step(&|_| false, actions));
            walked += 1;
        }
        self.pacer.supplied(now_ns, self.pool_len() + self.leaving);
        passed
    }

    /// Moves the hand over `count` frames of the active list, whatever the pool holds, but at most
    /// once around.
    pub fn scan(&mut self, count: u64, actions: &mut Vec<Action>) -> u64 {
        self.walk(count, &|_| false, actions)
    }

    /// Like [`Clock::scan`] for when frames are needed faster than reference bits may be simulated:
    /// what the hand passes leaves, its bit set or not, and its second chance is the pool (FIFO in
    /// front of a global free list, as in VMS). Pages of owners for whom `may` is false are scanned
    /// as ever.
    pub fn scan_for(
        &mut self,
        count: u64,
        may: impl Fn(Owner) -> bool,
        actions: &mut Vec<Action>,
    ) -> u64 {
        self.walk(count, &may, actions)
    }

    fn walk(
        &mut self,
        count: u64,
        unsampled: &impl Fn(Owner) -> bool,
        actions: &mut Vec<Action>,
    ) -> u64 {
        let mut passed = 0;
        let mut walked = 0;
        while passed < count && walked < self.flags.len() && self.active_len > 0 {
            passed += u64::from(self.step(unsampled, actions));
            walked += 1;
        }
        passed
    }

    /// One frame; true when it was in the active list.
    #[inline]
    fn step(&mut self, unsampled: &impl Fn(Owner) -> bool, actions: &mut Vec<Action>) -> bool {
        let frame = self.hand;
        self.hand = if frame as usize + 1 >= self.flags.len() { 0 } else { frame + 1 };
        let flags = self.flags[frame as usize];
        if flags & super::STATE != State::Active as u8 {
            return false;
        }
        self.counts.scanned += 1;
        if flags & BIT == 0 {
            self.leave(frame, actions);
        } else if unsampled(self.owner[frame as usize])
            || self.anomalous > 0 && self.owner_state(self.owner[frame as usize]).anomalous
        {
            self.leave_mapped(frame, actions);
        } else {
            self.flags[frame as usize] = flags & !BIT;
            self.counts.zapped += 1;
            actions.push(Action::Zap(frame));
        }
        true
    }

    /// Takes all pages of an owner out of the active list (load control, or the end of a program
    /// whose pages may be wanted again): they can be reclaimed until their frames are taken.
    /// Returns how many left.
    pub fn swap_out(&mut self, owner: Owner, actions: &mut Vec<Action>) -> u32 {
        let mut gone = 0;
        for frame in 0..self.flags.len() as Frame {
            if self.owner[frame as usize] != owner || self.state(frame) != State::Active {
                continue;
            }
            gone += 1;
            if self.has(frame, BIT) {
                self.leave_mapped(frame, actions);
            } else {
                self.leave(frame, actions);
            }
        }
        gone
    }

    fn leave_mapped(&mut self, frame: Frame, actions: &mut Vec<Action>) {
        self.out_of_loop(frame);
        self.flags[frame as usize] |= MAPPED;
        actions.push(Action::Unmap(frame));
    }

    fn leave(&mut self, frame: Frame, actions: &mut Vec<Action>) {
        self.out_of_loop(frame);
        self.settle(frame, actions);
    }

    fn out_of_loop(&mut self, frame: Frame) {
        let flags = self.flags[frame as usize];
        self.flags[frame as usize] = State::Leaving as u8 | (flags & (DIRTY | WRITING));
        self.active_len -= 1;
        self.leaving += 1;
        self.counts.left += 1;
        let owner = &mut self.owners[self.owner[frame as usize] as usize];
        owner.resident -= 1;
        owner.pooled += 1;
    }

    /// An unmapped page out of the active list: to the writer when dirty, else to the bottom of the
    /// pool.
    fn settle(&mut self, frame: Frame, actions: &mut Vec<Action>) {
        if self.has(frame, WRITING | MAPPED) {
            // A write from before its last touch is under way, or it is still to be unmapped; the
            // end of that decides.
        } else if self.has(frame, DIRTY) {
            self.start_write(frame);
            actions.push(Action::Clean(frame));
        } else {
            self.flags[frame as usize] = State::Pool as u8;
            self.leaving -= 1;
            self.pool.push_bottom(frame);
            actions.push(Action::Left(frame));
        }
    }

    /// The bit goes before the write: what is written to the page meanwhile sets it again.
    fn start_write(&mut self, frame: Frame) {
        self.flags[frame as usize] = self.flags[frame as usize] & !DIRTY | WRITING;
        self.counts.cleaned += 1;
    }

    /// [`Action::Unmap`] was carried out. Nothing happens when the page was touched meanwhile.
    pub fn unmapped(&mut self, frame: Frame, actions: &mut Vec<Action>) {
        if self.state_of(frame) == Some(State::Leaving) {
            self.flags[frame as usize] &= !MAPPED;
            self.settle(frame, actions);
        }
    }

    /// Whether a page may be written along with an adjacent one (clustered write-back): it is
    /// dirty, unmapped, still in the active list, and no write from it is under way. If so it
    /// counts as being written until `written`.
    pub fn clean_along(&mut self, frame: Frame) -> bool {
        let ready = self.state_of(frame) == Some(State::Active)
            && !self.has(frame, BIT)
            && self.has(frame, DIRTY)
            && !self.has(frame, WRITING);
        if ready {
            self.start_write(frame);
        }
        ready
    }

    /// A write has ended well. The page enters the pool unless it was touched; it is written again
    /// when it was changed.
    pub fn written(&mut self, frame: Frame, actions: &mut Vec<Action>) {
        if !self.is_writing(frame) {
            return;
        }
        self.flags[frame as usize] &= !WRITING;
        match self.state(frame) {
            State::Leaving => self.settle(frame, actions),
            State::Discarded => self.empty(frame),
            _ => {}
        }
    }

    /// A write has failed: the page is dirty as before and back in the active list, so that the
    /// hand tries again.
    pub fn not_written(&mut self, frame: Frame) {
        if !self.is_writing(frame) {
            return;
        }
        self.flags[frame as usize] &= !WRITING;
        match self.state(frame) {
            State::Leaving => {
                self.leaving -= 1;
                self.activate(frame);
                self.flags[frame as usize] = State::Active as u8 | DIRTY;
            }
            State::Active => self.flags[frame as usize] |= DIRTY,
            State::Discarded => self.empty(frame),
            _ => {}
        }
    }

    fn empty(&mut self, frame: Frame) {
        self.flags[frame as usize] = State::Empty as u8;
        self.pool.push_top(frame);
    }
}

/// The rule.
impl Clock {
    /// Another rule from now on.
    pub fn set_scan_rule(&mut self, rule: super::ScanRule) {
        self.pacer.set(rule);
    }

    /// The rule in force.
    pub fn rule(&self) -> &super::ScanRule {
        self.pacer.rule()
    }

    /// Low watermark and order quantity in force, in frames; the linear rule has no quantity.
    pub fn order(&self) -> (u32, u32) {
        self.pacer.order()
    }

    /// Frames per second at which the hand moves with the supply there is; 0 when it stands.
    pub fn scan_rate(&self) -> u64 {
        self.pacer.rate(self.pool_len() + self.leaving)
    }
}
