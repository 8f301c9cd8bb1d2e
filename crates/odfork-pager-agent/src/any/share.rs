//! A process' share of its group's limit: what it claims, and what it gives up for others.
//!
//! A share grows when the process needs it, and becomes smaller only when somebody else wishes for
//! more. Who hardly uses what it has gives that up first. Then the one that asks for fewer pages,
//! measured by what it has, gives to the one that asks for more.
//!
//! What a fork left shared is in memory once, and the kernel counts it for each process. So as long
//! as there is any, each counts its part (smaps_rollup). That is measured again before much can
//! have changed.

use super::group::{now, urgency, Group, LEAST};
use super::pager::{number, Pager};
use super::report::status_number;
use crate::proc_lines::Lines;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// What a process asks for is measured over this time.
const MEASURED: u64 = SECOND / 2;
/// A share grows by this part of the limit.
const STEP: u64 = 16;
/// It becomes smaller by this part of its own at a time.
const PART: u64 = 16;
/// Somebody else is that much more urgent before it gets something.
const MORE_URGENT: u64 = 2;
/// A measurement of what is shared takes at most this part of the time. While it changes it is
/// repeated soon.
const DOUBLES_PART: u64 = 20;
const SHORTEST_PAUSE: u64 = 5 * MILLISECOND;
const LONGEST_PAUSE: u64 = SECOND;

/// Of one process.
pub struct Share {
    pub group: Group,
    /// Pages that it asks for in a second, and of what that was measured last.
    need: u64,
    measured: u64,
    asked: u64,
    /// Others may have pages of it, by a fork.
    has_doubles: bool,
    /// What they count of our pages; when that is measured again, at the latest, after which pause;
    /// and at how many pages that were asked for.
    doubles: u64,
    pause: u64,
    due: u64,
    due_at: u64,
}

impl Share {
    pub fn new(group: Group, has_doubles: bool) -> Share {
        Share {
            group,
            need: 0,
            measured: 0,
            asked: 0,
            has_doubles,
            doubles: 0,
            pause: SHORTEST_PAUSE,
            due: 0,
            due_at: 0,
        }
    }

    /// Pages that others count.
    pub fn doubles(&self) -> u64 {
        self.doubles
    }

    pub fn has_doubles(&self) -> bool {
        self.has_doubles
    }

    /// When what is shared is measured again.
    pub fn due(&self) -> u64 {
        if self.has_doubles {
            self.due
        } else {
            u64::MAX
        }
    }
}

impl Pager {
    /// The task begins.
    pub fn join_group(&mut self) {
        self.share.group.join();
        self.count_doubles(now());
        self.count_resident();
        self.limit = self.share.group.claim(LEAST.max(self.used()));
        self.share.group.publish(self.state.resident, 0, now());
    }

    /// A child has all of this memory, too: each counts half of it. So there is room in the limit
    /// for what the child has.
    pub fn share_with_child(&mut self) {
        self.share.has_doubles = true;
        self.share.pause = SHORTEST_PAUSE;
        self.count_doubles(now());
        self.count_resident();
        self.share.group.publish(self.state.resident, self.share.need, now());
        if self.limit > self.used().max(LEAST) {
            self.shrink(self.used());
        }
    }

    /// What is in memory, and a little more.
    fn used(&self) -> u64 {
        self.state.resident + self.state.resident / 8 + 64
    }

    /// Pages that were brought into memory.
    fn asked(&self) -> u64 {
        self.counts.filled + self.counts.page_ins
    }

    /// A larger share, for so many pages more; false: there is none.
    pub fn enlarge(&mut self, more: u64) -> bool {
        self.claim(self.limit + more.max(self.share.group.limit() / STEP))
    }

    fn claim(&mut self, share: u64) -> bool {
        let got = self.share.group.claim(share);
        let is_more = got > self.limit;
        self.limit = got;
        is_more
    }

    /// All that is mapped may fit into a larger share: then nothing has to be watched. True: it has
    /// one now.
    pub fn enlarge_for_mapped(&mut self) -> bool {
        let needed = self.state.resident.max(self.state.mapped + self.state.shared_memory);
        let all = self.share.group.limit();
        let (enough, spare) = (needed + needed / 7 + 8, needed / 4 + all / 64);
        let is_worth_it =
            self.limit < enough + spare / 2 && enough <= all && !self.share.has_doubles;
        is_worth_it && self.claim(enough + spare)
    }

    /// At each look: what this process needs, and what others may have of it. True: others wish for
    /// more, so the next look comes soon.
    pub fn settle_share(&mut self, time: u64) -> bool {
        let share = &self.share;
        let passed = time.saturating_sub(share.measured);
        if passed >= 10 * MILLISECOND {
            let asked = self.asked();
            let rate = (asked - share.asked) * SECOND / passed;
            let (old, part) = (share.need, passed.min(MEASURED) / MILLISECOND);
            let whole = MEASURED / MILLISECOND;
            self.share.need = (old * (whole - part) + rate * part) / whole;
            (self.share.measured, self.share.asked) = (time, asked);
        }
        self.share.group.publish(self.state.resident, self.share.need, time);
        let over = self.state.resident.saturating_sub(self.limit);
        if over > 0 {
            self.enlarge(over);
        }
        if self.share.has_doubles && time >= self.share.due {
            self.count_doubles(time);
        }
        let Some(wish) = self.share.group.wish(time) else { return false };
        let used = self.used();
        let own = urgency(self.share.need, self.limit).saturating_mul(MORE_URGENT);
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
        self.share.group.give_up(self.limit);
    }

    /// Much was brought into memory since what is shared was measured: some of it may be.
    pub fn renew_doubles(&mut self) {
        if self.share.has_doubles && self.asked() >= self.share.due_at {
            self.count_doubles(now());
        }
    }

    /// Its part of what is shared with its parent, or its children, is what a process counts.
    fn count_doubles(&mut self, time: u64) {
        if !self.share.has_doubles {
            return;
        }
        let (mut all, mut part) = (0, None);
        if let Ok(mut lines) = Lines::open(c"/proc/self/smaps_rollup") {
            while let Some(line) = lines.next() {
                let of = |name: &[u8]| line.strip_prefix(name).map(|rest| kilobytes(rest) / 4);
                all = of(b"Anonymous:").unwrap_or(all);
                part = of(b"Pss_Anon:").or(part);
            }
        }
        // A kernel that does not tell counts all for each.
        let doubles = part.map_or(0, |part: u64| all.saturating_sub(part));
        let is_same = doubles.abs_diff(self.share.doubles) <= self.limit / 64;
        self.share.pause = match is_same {
            true => (2 * self.share.pause).min(LONGEST_PAUSE),
            false => SHORTEST_PAUSE,
        };
        self.share.doubles = doubles;
        // Few of them are as good as none.
        self.share.has_doubles = doubles > 16;
        let taken = now().saturating_sub(time);
        self.share.due = time + (taken * DOUBLES_PART).max(self.share.pause);
        self.share.due_at = self.asked() + self.limit / 32;
    }

    /// It changes behind our back, and not often.
    pub fn count_shared_memory(&mut self) {
        self.state.shared_memory = status_number(c"/proc/self/status", b"RssShmem:") / 4;
    }

    /// Pages above the limit: of all processes, and not more than this one has above its share.
    pub fn above_limit(&self) -> u64 {
        let all = self.share.group.limit();
        let group = self.share.group.resident().saturating_sub(all);
        match group.min(self.state.resident.saturating_sub(self.limit)) {
            few if few <= all / 10 => 0,
            excess => excess,
        }
    }
}

fn kilobytes(text: &[u8]) -> u64 {
    number(text.trim_ascii_start())
}
