//! A process' share of its group's limit: what it claims, and what it gives up for others.
//!
//! A share grows when the process needs it, and becomes smaller only when somebody else wishes for
//! more. Who hardly uses what it has gives that up first. Then the one that asks for fewer pages,
//! measured by what it has, gives to the one that asks for more.

use super::group::{now, urgency, LEAST};
use super::pager::Pager;
use super::report::status_number;

/// A share grows by this part of its own, and at most by that of the limit.
const STEP: u64 = 8;
const STEP_OF_ALL: u64 = 16;
/// It becomes smaller by this part of its own at a time.
const PART: u64 = 16;
/// Somebody else is that much more urgent before it gets something.
const MORE_URGENT: u64 = 2;

impl Pager {
    /// The task begins.
    pub fn join_group(&mut self) {
        self.group.join();
        self.count_parts(now());
        self.count_resident();
        self.limit = self.group.claim(LEAST.max(self.used()));
        self.group.publish(self.state.resident, &self.state.need, now());
    }

    /// A child has all of this memory, too: each counts half of it. So there is room in the limit
    /// for what the child has.
    pub fn share_with_child(&mut self) {
        self.parts.begin();
        self.count_parts(now());
        self.count_resident();
        self.group.publish(self.state.resident, &self.state.need, now());
        if self.limit > self.used().max(LEAST) {
            self.shrink(self.used());
        }
    }

    /// What is in memory, and a little more.
    fn used(&self) -> u64 {
        self.state.resident + self.state.resident / 8 + 64
    }

    /// Pages that were brought into memory.
    pub fn asked(&self) -> u64 {
        self.counts.filled + self.counts.page_ins
    }

    /// A larger share, for so many pages more; false: there is none.
    pub fn enlarge(&mut self, more: u64) -> bool {
        self.claim(self.limit + more.max((self.limit / STEP).min(self.group.limit() / STEP_OF_ALL)))
    }

    fn claim(&mut self, share: u64) -> bool {
        let got = self.group.claim(share);
        let is_more = got > self.limit;
        self.limit = got;
        is_more
    }

    /// All that is mapped may fit into a larger share: then nothing has to be watched. True: it has
    /// one now.
    pub fn enlarge_for_mapped(&mut self) -> bool {
        let needed = self.state.resident.max(self.state.mapped + self.state.shared_memory);
        let all = self.group.limit();
        let (enough, spare) = (needed + needed / 7 + 8, needed / 4 + all / 64);
        let is_worth_it = self.limit < enough + spare / 2 && enough <= all && !self.parts.are_any;
        is_worth_it && self.claim(enough + spare)
    }

    /// At each look: what this process needs, and what others may have of it. True: others wish for
    /// more, so the next look comes soon.
    pub fn settle_share(&mut self, time: u64) -> bool {
        let asked = self.asked();
        self.state.need.measure(time, asked);
        self.group.publish(self.state.resident, &self.state.need, time);
        let over = self.state.resident.saturating_sub(self.limit);
        if over > 0 {
            self.enlarge(over);
        }
        if time >= self.parts.due() {
            self.count_parts(time);
        }
        let Some(wish) = self.group.wish(time) else { return false };
        let used = self.used();
        let own = urgency(self.state.need.rate, self.limit).saturating_mul(MORE_URGENT);
        if self.limit > used.max(LEAST) {
            self.shrink(used.max(self.limit.saturating_sub(wish.pages)));
        } else if wish.urgency > own {
            self.shrink(self.limit - wish.pages.min(self.limit / PART));
        }
        true
    }

    /// A smaller share, if what exceeds it can leave. All is watched before the rest of it is
    /// somebody else's.
    fn shrink(&mut self, to: u64) {
        let old = self.limit;
        // What could not leave may leave by now.
        self.state.shared = self.state.shared.map(|pages| pages / 2);
        self.limit = to.max(LEAST).min(old);
        self.count_resident();
        if self.is_tight() {
            match self.watch_all() {
                true => self.reduce(0),
                false => self.limit = old,
            }
        }
        self.limit = self.limit.max(self.state.resident.min(old));
        self.count_resident();
        self.group.give_up(self.limit);
    }

    /// Much was brought into memory since what is shared was measured: some of it may be.
    pub fn renew_parts(&mut self) {
        if self.parts.is_due_at(self.asked()) {
            self.count_parts(now());
        }
    }

    fn count_parts(&mut self, time: u64) {
        let asked = self.asked();
        self.parts.measure(time, asked, self.limit);
    }

    /// It changes behind our back, and not often.
    pub fn count_shared_memory(&mut self) {
        self.state.shared_memory = status_number(c"/proc/self/status", b"RssShmem:") / 4;
    }

    /// Pages above the limit: of all processes, and not more than this one has above its share.
    pub fn above_limit(&self) -> u64 {
        let all = self.group.limit();
        let group = self.group.resident().saturating_sub(all);
        match group.min(self.state.resident.saturating_sub(self.limit)) {
            few if few <= all / 10 => 0,
            excess => excess,
        }
    }
}
