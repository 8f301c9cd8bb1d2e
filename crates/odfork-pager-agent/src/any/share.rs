//! A process' share of its group's limit: what it claims, and what it gives up for others.
//!
//! A share grows when the process needs it, and becomes smaller only when somebody else wishes for
//! more. Who hardly uses what it has gives that up first. Then the one that asks for fewer pages,
//! measured by what it has, gives to the one that asks for more.

use super::group::{urgency, LEAST};
use super::pager::Pager;
use super::report::status_number;
use crate::clock::now;

/// A share grows by this part of its own, and at most by that of the limit.
const STEP: u64 = 8;
const STEP_OF_ALL: u64 = 16;
/// It becomes smaller by this part of its own at a time.
const PART: u64 = 16;
/// Somebody else is that much more urgent before it gets something.
const MORE_URGENT: u64 = 2;

/// Between two steps in which it becomes smaller, and between two tries to get a slot.
const STEP_PAUSE: u64 = 16_000_000;
const JOIN_PAUSE: u64 = 1_000_000_000;

impl Pager {
    /// The task begins.
    pub fn join_group(&mut self) {
        self.state.joined = now();
        self.group.join();
        // All counts before it is asked whether there is room for all.
        self.count_resident();
        self.publish_share(now());
        self.count_parts(now(), 0);
        self.count_resident();
        self.claim(self.used());
        self.publish_share(now());
    }

    /// A child has all of this memory, too: each counts half of it. So there is room in the limit
    /// for what the child has.
    pub fn share_with_child(&mut self) {
        self.parts.begin();
        self.publish_share(now());
        // One who is not here yet.
        self.count_parts(now(), 1);
        self.count_resident();
        self.publish_share(now());
        if self.limit > self.used().max(LEAST) {
            self.shrink(self.used());
        }
    }

    fn publish_share(&self, time: u64) {
        self.group.publish(self.state.resident, &self.parts, &self.state.need, time);
    }

    /// What is in memory, and a little more.
    fn used(&self) -> u64 {
        self.state.resident + self.state.resident / 8 + 16
    }

    /// Pages that were brought into memory.
    pub fn asked(&self) -> u64 {
        self.counts.filled + self.counts.page_ins
    }

    /// A larger share, for so many pages more; false: there is none.
    pub fn enlarge(&mut self, more: u64) -> bool {
        self.claim(self.limit + more.max((self.limit / STEP).min(self.group.limit() / STEP_OF_ALL)))
    }

    /// What it gets counts; it may have the least share in any case.
    fn claim(&mut self, share: u64) -> bool {
        let old = core::mem::replace(&mut self.limit, self.group.claim(share).max(LEAST));
        self.limit > old
    }

    /// All that is mapped may fit into a larger share: then nothing has to be watched. True: it has
    /// one now.
    pub fn enlarge_for_mapped(&mut self) -> bool {
        let needed = self.state.resident.max(self.state.mapped + self.state.shared_memory);
        let (enough, spare) = (needed + needed / 7 + 8, needed / 4 + 64);
        let fits = enough <= self.group.limit() && !self.parts.are_any;
        fits && self.limit < enough + spare / 2 && self.claim(enough + spare)
    }

    /// At each look: what this process needs, and what others may have of it. True: others wish for
    /// more, so the next look comes soon.
    pub fn settle_share(&mut self, time: u64) -> bool {
        let asked = self.asked();
        self.state.need.measure(time, asked);
        if !self.group.is_member() && time >= self.state.joined + JOIN_PAUSE {
            self.state.joined = time;
            self.group.join();
        }
        self.publish_share(time);
        let is_late = self.parts.are_all_counted() && !self.group.is_roomy(0);
        if time >= self.parts.due() || is_late {
            self.count_parts(time, 0);
            self.count_resident();
            self.publish_share(time);
        }
        let share = self.group.share();
        if self.state.resident > share {
            self.claim(self.used().max(self.limit.min(self.state.resident + LEAST)));
        }
        let Some(wish) = self.group.wish(time) else { return false };
        let (used, share) = (self.used(), self.group.share());
        let own = urgency(self.state.need.rate, share).saturating_mul(MORE_URGENT);
        let gives = share > used || share > LEAST && wish.urgency > own;
        if gives && time >= self.state.gave + STEP_PAUSE {
            self.state.gave = time;
            self.shrink(match share > used {
                true => used.max(share.saturating_sub(wish.pages)),
                false => share - wish.pages.min(share / PART),
            });
        }
        gives
    }

    /// A smaller share, if what exceeds it can leave. All is watched before the rest of it is
    /// somebody else's.
    fn shrink(&mut self, to: u64) {
        let old = self.limit;
        // What could not leave may leave by now.
        self.state.refused.forget(self.state.refused.pages() / 2);
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
        self.group.give_up(if self.limit > LEAST { self.limit } else { to.max(self.used()) });
    }

    /// Much was brought into memory since what is shared was measured: some of it may be.
    pub fn renew_parts(&mut self) {
        if self.parts.is_due_at(self.asked()) {
            self.count_parts(now(), 0);
        }
    }

    /// So many come who have all that this process has.
    fn count_parts(&mut self, time: u64, more: u64) {
        let (asked, sharers) = (self.asked(), self.group.sharers() + more);
        match self.group.is_roomy(more * (self.state.resident + self.parts.others)) {
            true => self.parts.count_all(time),
            false => self.parts.measure(time, (asked, self.limit), sharers),
        }
    }

    /// What could not leave when it was last tried may leave by now.
    pub fn doubt_refused(&mut self) {
        match self.state.resident > self.limit {
            true => self.state.refused.doubt(self.limit, self.counts.busy),
            false => self.state.refused.trust(),
        }
    }

    /// It changes behind our back, and not often.
    pub fn count_shared_memory(&mut self) {
        self.state.shared_memory = status_number(c"/proc/self/status", b"RssShmem:") / 4;
    }

    /// Pages of all processes above the limit; 0 where another one is further above its share.
    pub fn above_limit(&self) -> u64 {
        let all = self.group.limit();
        match self.group.resident().saturating_sub(all) {
            few if few <= all / 10 => 0,
            excess if self.group.is_furthest() => excess,
            _ => 0,
        }
    }
}
