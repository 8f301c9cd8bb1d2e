//! The paper's policy on a trace: the very [`Clock`] that the pager runs, in virtual time.
//!
//! Time passes with references, faults and reclaims. The hand moves by the rule in ticks of 10 ms;
//! a fault that finds the pool empty waits while the hand moves at its fastest. Writes end at once.

use super::Replacement;
use crate::clock::{Action, Clock, Frame, Inventory, Linear, List, Owner, ScanRule, Touch};
use crate::cost::Tally;
use crate::trace::Page;

const OUT: Frame = Frame::MAX;
const TICK_NS: u64 = 10_000_000;
const SECOND: u64 = 1_000_000_000;

/// The machine and the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// A reference, in nanoseconds.
    pub reference_ns: u64,
    /// A fault.
    pub fault_ns: u64,
    /// A reclaim.
    pub reclaim_ns: u64,
    /// Low watermark as a share of memory.
    pub order: f64,
    /// Frames per second just below the low watermark; 0: the paper's value, scaled.
    pub slowest: u64,
    /// Frames per second with an empty pool; 0: the paper's value, scaled.
    pub fastest: u64,
    /// Share of a processor that reclaims may take.
    pub cpu: f64,
    /// The inventory rule in place of the linear rule.
    pub inventory: bool,
    /// Share of memory below which pages leave without a look at their bits, as in the pager
    /// (1/16); 0: never, as in the paper.
    pub press: f64,
    /// Marks in the trace are heeded.
    pub advice: bool,
}

impl Settings {
    fn rule(&self, frames: u32) -> Linear {
        let mut rule = Linear::paper(frames, self.reclaim_ns, self.cpu);
        rule.low_watermark = ((f64::from(frames) * self.order) as u32).max(1);
        if self.fastest > 0 {
            rule.fastest = self.fastest;
        }
        if self.slowest > 0 {
            rule.slowest = self.slowest;
        }
        rule.slowest = rule.slowest.min(rule.fastest);
        rule
    }
}

pub(super) struct Unix {
    clock: Clock,
    settings: Settings,
    /// What moving the hand over one frame takes at its fastest.
    frame_ns: u64,
    /// Frames in the pool below which the hand presses.
    least: u32,
    frame: Vec<Frame>,
    owner: Vec<Owner>,
    now_ns: u64,
    tick_ns: u64,
    actions: Vec<Action>,
    tally: Tally,
}

impl Unix {
    pub fn new(frames: u32, settings: Settings) -> Unix {
        let linear = settings.rule(frames);
        let rule = if settings.inventory {
            ScanRule::Inventory(Inventory::for_frames(frames, linear.fastest))
        } else {
            ScanRule::Linear(linear)
        };
        Unix {
            clock: Clock::new(frames, rule),
            settings,
            frame_ns: SECOND / linear.fastest,
            least: (f64::from(frames) * settings.press) as u32,
            frame: Vec::new(),
            owner: Vec::new(),
            now_ns: 0,
            tick_ns: TICK_NS,
            actions: Vec::new(),
            tally: Tally::default(),
        }
    }

    #[cold]
    fn tick(&mut self) {
        self.tick_ns = self.now_ns + TICK_NS;
        self.clock.advance(self.now_ns, &mut self.actions);
        self.apply();
    }

    fn apply(&mut self) {
        let mut next = 0;
        while let Some(&action) = self.actions.get(next) {
            next += 1;
            match action {
                Action::Zap(_) | Action::Left(_) => {}
                Action::Unmap(frame) => self.clock.unmapped(frame, &mut self.actions),
                Action::Clean(frame) => {
                    self.tally.write_backs += 1;
                    self.clock.written(frame, &mut self.actions);
                }
            }
        }
        self.actions.clear();
    }

    #[cold]
    fn fault(&mut self, page: Page, write: bool) {
        self.tally.faults += 1;
        self.now_ns += self.settings.fault_ns;
        if self.clock.pool_len() < self.least {
            let wanted = self.least + self.least / 4 - self.clock.pool_len();
            self.clock.scan_for(wanted.into(), |_| true, &mut self.actions);
            self.apply();
        }
        let taken = loop {
            if let Some(taken) = self.clock.take_frame() {
                break taken;
            }
            // Every frame is in the active list, so two revolutions bring one at the latest.
            self.clock.scan(1, &mut self.actions);
            self.now_ns += self.frame_ns;
            self.apply();
        };
        if let Some((_, evicted)) = taken.evicted {
            self.frame[evicted as usize] = OUT;
        }
        self.clock.insert(taken.frame, self.owner[page as usize], page.into(), List::Active);
        self.frame[page as usize] = taken.frame;
        if write {
            self.clock.mark_dirty(taken.frame);
        }
    }
}

impl Replacement for Unix {
    fn grow(&mut self, owners: &[Owner]) {
        self.owner.extend_from_slice(owners);
        self.frame.resize(self.owner.len(), OUT);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        self.now_ns += self.settings.reference_ns;
        if self.now_ns >= self.tick_ns {
            self.tick();
        }
        match self.clock.touch(self.frame[page as usize], write) {
            Touch::Valid => {}
            Touch::NotHeld => self.fault(page, write),
            _ => {
                self.tally.reclaims += 1;
                self.now_ns += self.settings.reclaim_ns;
            }
        }
    }

    fn advise(&mut self, owner: Owner, on: bool) {
        if self.settings.advice {
            self.clock.set_anomalous(owner, on);
        }
    }

    fn tally(&self, _: u32) -> Tally {
        self.tally
    }
}
