//! The clock against an obvious model: one record a frame, times of touches and of the hand's
//! passes, a plain queue.
//!
//! In the model a page leaves the active list exactly when it was not touched between two passes of
//! the hand. Any sequence of calls must give the same actions, states, queue and counts. Owns the
//! model and the comparison. Where the calls come from is the caller's: `clock_model.rs` makes
//! random ones, the fuzz target reads them from bytes.

use std::collections::VecDeque;

use odfork_policy::clock::{Action, Clock, Frame, List, Owner, ScanRule, State, Taken, Touch};

pub const OWNERS: u32 = 3;

#[derive(Clone, Debug)]
struct Record {
    state: State,
    owner: Owner,
    page: u64,
    touched: u64,
    passed: u64,
    dirty: bool,
    writing: bool,
    mapped: bool,
    prefetched: bool,
}

struct Model {
    frames: usize,
    used: Vec<Record>,
    queue: VecDeque<Frame>,
    hand: usize,
    now: u64,
    anomalous: [bool; OWNERS as usize],
}

impl Model {
    fn new(frames: usize) -> Model {
        let anomalous = [false; OWNERS as usize];
        Model { frames, used: Vec::new(), queue: VecDeque::new(), hand: 0, now: 0, anomalous }
    }

    fn take(&mut self) -> Option<Taken> {
        let empty =
            self.queue.front().is_some_and(|&f| self.used[f as usize].state == State::Empty);
        if !empty && self.used.len() < self.frames {
            self.used.push(Record {
                state: State::Taken,
                owner: 0,
                page: 0,
                touched: 0,
                passed: 0,
                dirty: false,
                writing: false,
                mapped: false,
                prefetched: false,
            });
            let frame = self.used.len() as Frame - 1;
            return Some(Taken { frame, evicted: None, wasted: false });
        }
        let frame = self.queue.pop_front()?;
        let record = &mut self.used[frame as usize];
        let held = record.state == State::Pool;
        record.state = State::Taken;
        assert!(!record.dirty && !record.writing, "a pool page must be clean");
        let evicted = held.then_some((record.owner, record.page));
        Some(Taken { frame, evicted, wasted: held && record.prefetched })
    }

    fn insert(&mut self, frame: Frame, owner: Owner, page: u64, place: List) {
        self.now += 1;
        let prefetched = place == List::Pool;
        self.used[frame as usize] = Record {
            state: if prefetched { State::Pool } else { State::Active },
            owner,
            page,
            touched: self.now,
            passed: 0,
            dirty: false,
            writing: false,
            mapped: false,
            prefetched,
        };
        if prefetched {
            self.queue.push_back(frame);
        }
    }

    fn touch(&mut self, frame: usize, write: bool) -> Touch {
        self.now += 1;
        let now = self.now;
        let Some(record) = self.used.get_mut(frame) else { return Touch::NotHeld };
        let touch = match record.state {
            State::Active if record.touched > record.passed => Touch::Valid,
            State::Active => Touch::FromActive,
            State::Leaving => Touch::FromLeaving,
            State::Pool if record.prefetched => Touch::Prefetched,
            State::Pool => Touch::FromPool,
            _ => return Touch::NotHeld,
        };
        self.queue.retain(|&f| f as usize != frame);
        record.state = State::Active;
        record.touched = now;
        (record.mapped, record.prefetched) = (false, false);
        record.dirty |= write;
        touch
    }

    fn settle(&mut self, frame: usize, actions: &mut Vec<Action>) {
        let record = &mut self.used[frame];
        if record.mapped || record.writing {
            return;
        }
        if record.dirty {
            (record.dirty, record.writing) = (false, true);
            actions.push(Action::Clean(frame as Frame));
        } else {
            record.state = State::Pool;
            self.queue.push_back(frame as Frame);
            actions.push(Action::Left(frame as Frame));
        }
    }

    fn leave(&mut self, frame: usize, mapped: bool, actions: &mut Vec<Action>) {
        self.used[frame].state = State::Leaving;
        self.used[frame].prefetched = false;
        if mapped {
            self.used[frame].mapped = true;
            actions.push(Action::Unmap(frame as Frame));
        } else {
            self.settle(frame, actions);
        }
    }

    /// `pressed`: owners whose pages leave without a look at their bits.
    fn scan(&mut self, count: usize, pressed: &[Owner]) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut passed = 0;
        for _ in 0..self.used.len() {
            let left = self.used.iter().filter(|record| record.state == State::Active).count();
            if passed == count || left == 0 {
                break;
            }
            let frame = self.hand;
            self.hand = (frame + 1) % self.used.len();
            if self.used[frame].state != State::Active {
                continue;
            }
            passed += 1;
            self.now += 1;
            let record = &mut self.used[frame];
            let touched = record.touched > record.passed;
            record.passed = self.now;
            if !touched {
                self.leave(frame, false, &mut actions);
            } else if self.anomalous[record.owner as usize] || pressed.contains(&record.owner) {
                self.leave(frame, true, &mut actions);
            } else {
                actions.push(Action::Zap(frame as Frame));
            }
        }
        actions
    }

    fn forget(&mut self, frame: usize) -> bool {
        let Some(record) = self.used.get_mut(frame) else { return false };
        if matches!(record.state, State::Empty | State::Discarded) {
            return false;
        }
        self.queue.retain(|&f| f as usize != frame);
        let wait = record.writing && record.state != State::Taken;
        record.state = if wait { State::Discarded } else { State::Empty };
        (record.dirty, record.mapped, record.prefetched) = (false, false, false);
        record.writing = false;
        if !wait {
            self.queue.push_front(frame as Frame);
        }
        true
    }
}

#[derive(Clone, Debug)]
pub enum Call {
    Demand(Owner, bool),
    Prefetch(Owner),
    TakeAndReturn,
    Touch(u8, bool),
    MarkDirty(u8),
    Scan(u8),
    Press(u8, Owner),
    Unmapped,
    Written(bool),
    CleanAlong(u8),
    Discard(u8),
    SwapOut(Owner),
    DiscardOwner(Owner),
    Anomalous(Owner, bool),
}

/// Both machines, and what the caller still has to carry out.
pub struct Pair {
    clock: Clock,
    model: Model,
    unmaps: VecDeque<Frame>,
    writes: Vec<Frame>,
    next_page: u64,
}

impl Pair {
    pub fn new(frames: usize) -> Pair {
        Pair {
            clock: Clock::new(frames as u32, ScanRule::Never),
            model: Model::new(frames),
            unmaps: VecDeque::new(),
            writes: Vec::new(),
            next_page: 0,
        }
    }

    fn demand(&mut self, owner: Owner, place: List, write: bool) {
        let taken = self.clock.take_frame();
        let expected = self.model.take();
        assert_eq!(taken, expected);
        let Some(taken) = taken else { return };
        self.next_page += 1;
        assert!(self.clock.insert(taken.frame, owner, self.next_page, place));
        self.model.insert(taken.frame, owner, self.next_page, place);
        if write && place == List::Active {
            self.touch(taken.frame as usize, true);
        }
    }

    fn touch(&mut self, frame: usize, write: bool) {
        assert_eq!(self.clock.touch(frame as Frame, write), self.model.touch(frame, write));
        self.unmaps.retain(|&f| f as usize != frame);
    }

    fn same(&mut self, actions: Vec<Action>, expected: Vec<Action>) {
        assert_eq!(actions, expected);
        for action in actions {
            match action {
                Action::Unmap(frame) => self.unmaps.push_back(frame),
                Action::Clean(frame) => self.writes.push(frame),
                Action::Zap(_) | Action::Left(_) => {}
            }
        }
    }

    pub fn apply(&mut self, call: Call) {
        let mut actions = Vec::new();
        let mut expected = Vec::new();
        match call {
            Call::Demand(owner, write) => self.demand(owner, List::Active, write),
            Call::Prefetch(owner) => self.demand(owner, List::Pool, false),
            Call::TakeAndReturn => self.take_and_return(),
            Call::Touch(frame, write) => self.touch(frame as usize % 20, write),
            Call::MarkDirty(frame) => self.mark_dirty(frame as usize % 20),
            Call::Scan(count) => {
                self.clock.scan(count.into(), &mut actions);
                expected = self.model.scan(count.into(), &[]);
            }
            Call::Press(count, owner) => {
                self.clock.scan_for(count.into(), |one| one == owner, &mut actions);
                expected = self.model.scan(count.into(), &[owner]);
            }
            Call::Unmapped => {
                let Some(frame) = self.unmaps.pop_front() else { return };
                self.clock.unmapped(frame, &mut actions);
                if self.model.used[frame as usize].state == State::Leaving {
                    self.model.used[frame as usize].mapped = false;
                    self.model.settle(frame as usize, &mut expected);
                }
            }
            Call::Written(well) => self.write_ends(well, &mut actions, &mut expected),
            Call::CleanAlong(frame) => self.clean_along(frame as usize % 20),
            Call::Discard(frame) => {
                let frame = frame as usize % 20;
                assert_eq!(self.clock.discard(frame as Frame), self.model.forget(frame));
                self.unmaps.retain(|&f| f as usize != frame);
            }
            Call::SwapOut(owner) => self.swap_out(owner, &mut actions, &mut expected),
            Call::DiscardOwner(owner) => self.discard_owner(owner),
            Call::Anomalous(owner, on) => {
                self.clock.set_anomalous(owner, on);
                self.model.anomalous[owner as usize] = on;
            }
        }
        self.same(actions, expected);
    }

    fn take_and_return(&mut self) {
        let taken = self.clock.take_frame();
        assert_eq!(taken, self.model.take());
        if let Some(taken) = taken {
            assert!(self.clock.give_back(taken.frame));
            assert!(!self.clock.give_back(taken.frame));
            assert!(self.model.forget(taken.frame as usize));
        }
    }

    fn mark_dirty(&mut self, frame: usize) {
        self.clock.mark_dirty(frame as Frame);
        if let Some(record) = self.model.used.get_mut(frame) {
            record.dirty |= matches!(record.state, State::Active | State::Leaving);
        }
    }

    fn clean_along(&mut self, frame: usize) {
        let along = self.clock.clean_along(frame as Frame);
        let record = self.model.used.get_mut(frame);
        let ready = record.is_some_and(|record| {
            let ready = record.state == State::Active
                && record.touched <= record.passed
                && record.dirty
                && !record.writing;
            if ready {
                (record.dirty, record.writing) = (false, true);
            }
            ready
        });
        assert_eq!(along, ready);
        if along {
            self.writes.push(frame as Frame);
        }
    }

    fn swap_out(&mut self, owner: Owner, actions: &mut Vec<Action>, expected: &mut Vec<Action>) {
        self.clock.swap_out(owner, actions);
        for frame in 0..self.model.used.len() {
            let record = &self.model.used[frame];
            if record.state == State::Active && record.owner == owner {
                let mapped = record.touched > record.passed;
                self.model.leave(frame, mapped, expected);
            }
        }
    }

    fn discard_owner(&mut self, owner: Owner) {
        self.clock.discard_owner(owner);
        for frame in 0..self.model.used.len() {
            if self.model.used[frame].owner == owner {
                self.model.forget(frame);
                self.unmaps.retain(|&f| f as usize != frame);
            }
        }
    }

    fn write_ends(&mut self, well: bool, actions: &mut Vec<Action>, expected: &mut Vec<Action>) {
        if self.writes.is_empty() {
            return;
        }
        let frame = self.writes.remove(0);
        if well {
            self.clock.written(frame, actions);
        } else {
            self.clock.not_written(frame);
        }
        let at = frame as usize;
        let record = &mut self.model.used[at];
        if record.state == State::Discarded {
            record.state = State::Empty;
            self.model.queue.push_front(frame);
            return;
        }
        assert!(record.writing, "one write of a frame at a time");
        record.writing = false;
        match (well, record.state) {
            (true, State::Leaving) => self.model.settle(at, expected),
            (false, State::Leaving) => {
                record.state = State::Active;
                (record.dirty, record.mapped) = (true, false);
                // Not touched: the next pass of the hand finds it unreferenced.
                record.passed = record.passed.max(record.touched);
            }
            (false, _) => record.dirty = true,
            _ => {}
        }
    }

    pub fn compare(&self) {
        let model = &self.model;
        let count = |state| model.used.iter().filter(|record| record.state == state).count() as u32;
        for (frame, record) in model.used.iter().enumerate() {
            let frame = frame as Frame;
            assert_eq!(self.clock.state_of(frame), Some(record.state), "frame {frame}");
            assert_eq!(self.clock.is_dirty(frame), record.dirty, "frame {frame}");
            if record.state == State::Active {
                assert_eq!(self.clock.is_valid(frame), record.touched > record.passed);
            }
        }
        assert_eq!(
            self.clock.pool().collect::<Vec<_>>(),
            model.queue.iter().copied().collect::<Vec<_>>()
        );
        assert_eq!(self.clock.active_len(), count(State::Active));
        assert_eq!(self.clock.leaving(), count(State::Leaving));
        let all = self.clock.pool_len() + self.clock.active_len() + self.clock.leaving();
        assert_eq!(all + count(State::Taken) + count(State::Discarded), self.clock.frames());
        for owner in 0..OWNERS {
            let of = |wanted: &[State]| {
                let mine = |r: &&Record| r.owner == owner && wanted.contains(&r.state);
                model.used.iter().filter(mine).count() as u32
            };
            let state = self.clock.owner_state(owner);
            assert_eq!(state.resident, of(&[State::Active]));
            assert_eq!(state.pooled, of(&[State::Leaving, State::Pool]));
        }
    }
}
