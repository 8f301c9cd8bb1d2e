//! Load control: where several processes wait for their pages for much of the time, one is put out,
//! and they take turns.
//!
//! The paper swaps out the oldest of the four largest. A process that is out is not stopped: its
//! touches are not answered, so it stalls at its next one. Its pages leave, and nothing is read
//! before it touches it again. It comes back when no other large process is left, or when the
//! others had their turns. Small processes take no part.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::group::{Group, Slot, LEAST};
use super::holder::{ALL, LOWEST};
use super::need::{Need, MOST_WAITS};
use super::pager::Pager;
use crate::clock;

const MILLISECOND: u64 = 1_000_000;
/// A turn takes as long, and longer for a process with much memory to read and write.
const TURN: u64 = 1_000 * MILLISECOND;
const TURN_OF_PAGE: u64 = 20_000;

/// Who has a smaller part of the limit than this does not compete for it.
const SMALL: u64 = 8;
/// The oldest of so many is put out, when two at least wait much for pages.
const LARGEST: usize = 4;
/// Who is outside comes back so much later than others see that it is to come.
const MOMENT: u64 = 50 * MILLISECOND;
/// Who has not run for so long does not compete. Longer than between two looks.
const IDLE: u64 = 150 * MILLISECOND;
/// Of who is put out, so much may stay.
const KEPT: u64 = 64;
/// Below so much in all there is nothing to win.
const LEAST_OF_ALL: u64 = 4 * LEAST;

impl Group {
    /// Those who have a turn and compete for memory at that time.
    fn rivals(&self, time: u64, turn: u64) -> impl Iterator<Item = &'static Slot> {
        let least = self.limit() / SMALL;
        let is_one = move |slot: &&Slot| {
            let returned = slot.returned.load(Relaxed);
            // Who has just come back has nothing yet.
            let is_back = returned > 0 && time.saturating_sub(returned) < turn;
            let is_large = slot.resident.load(Relaxed) >= least;
            let waits = slot.waits.load(Relaxed) >= MOST_WAITS;
            slot.out.load(Relaxed) == 0 && (is_back || is_large || waits)
        };
        self.slots(time).filter(is_one)
    }

    /// The one that came first of those outside who want to come back.
    fn first_out(&self, time: u64) -> Option<&'static Slot> {
        let is_out = |slot: &&Slot| slot.out.load(Relaxed) != 0 && slot.asks.load(Relaxed) != 0;
        self.slots(time).filter(is_out).min_by_key(|slot| slot.out.load(Relaxed))
    }

    /// This process is to give up its turn: somebody outside has waited for one, and it had its own
    /// for longer than others; or one waits for pages for two turns already, and it is the oldest
    /// of those who do not; or several wait, and it is the oldest of the four largest of them.
    pub fn must_leave(&self, time: u64, turn: u64) -> bool {
        let Some(own) = self.slot.filter(|_| self.limit() >= LEAST_OF_ALL) else { return false };
        let is_own = |slot: &Slot| core::ptr::eq(own, slot);
        let had = |since: &AtomicU64| time.saturating_sub(since.load(Relaxed)) >= turn;
        let oldest = self.rivals(time, turn).min_by_key(|slot| slot.since.load(Relaxed));
        // One at a time: what it gives goes to who comes back, before another one gives more.
        let gone = |slot: &Slot| match slot.out.load(Relaxed) {
            0 => false,
            out => time.saturating_sub(out) < 2 * MOMENT,
        };
        if self.slots(time).any(gone) {
            return false;
        }
        let is_waited_for = self.first_out(time).is_some_and(|out| had(&out.out));
        if is_waited_for && oldest.is_some_and(is_own) && had(&own.since) {
            return true;
        }
        let mut others = self.rivals(time, turn).filter(|slot| !is_own(slot));
        let starves = |slot: &Slot| {
            let since = slot.waiting.load(Relaxed);
            since > 0 && time.saturating_sub(since) >= turn.saturating_mul(2)
        };
        let is_fed = |slot: &&Slot| slot.waits.load(Relaxed) < MOST_WAITS;
        if others.any(starves) && is_fed(&own) {
            let fed = self.rivals(time, turn).filter(|slot| is_fed(slot));
            return fed.min_by_key(|slot| slot.since.load(Relaxed)).is_some_and(is_own);
        }
        let mut largest: [Option<&Slot>; LARGEST] = [None; LARGEST];
        let mut count = 0;
        for slot in self.rivals(time, turn).filter(|slot| slot.waits.load(Relaxed) >= MOST_WAITS) {
            count += 1;
            let size = |slot: Option<&Slot>| slot.map_or(0, |slot| slot.resident.load(Relaxed));
            let mut next = Some(slot);
            for place in &mut largest {
                if size(next) > size(*place) {
                    core::mem::swap(place, &mut next);
                }
            }
        }
        let oldest = largest.into_iter().flatten().min_by_key(|slot| slot.since.load(Relaxed));
        count > 1 && oldest.is_some_and(is_own)
    }

    /// This process is outside, and is to come back: nobody who runs competes, or all who do had
    /// their turns. A moment later than they see that, so that one of them leaves. After a second
    /// turn in any case: there may always be somebody new.
    pub fn may_return(&self, time: u64, turn: u64) -> bool {
        let Some(own) = self.slot.filter(|slot| slot.out.load(Relaxed) != 0) else { return true };
        if !self.first_out(time).is_some_and(|slot| core::ptr::eq(own, slot)) {
            return false;
        }
        let passed = |since: &AtomicU64| time.saturating_sub(since.load(Relaxed));
        let waited = passed(&own.out);
        waited >= turn.saturating_mul(2)
            || self
                .rivals(time, turn)
                .filter(|rival| passed(&rival.ran) < IDLE)
                .all(|rival| waited >= turn.saturating_add(MOMENT) && passed(&rival.since) >= turn)
    }

    pub fn go_out(&self, time: u64) {
        self.slot.into_iter().for_each(|slot| slot.out.store(time, SeqCst));
    }

    /// A touch was not answered.
    pub fn ask(&self) {
        self.slot.into_iter().for_each(|slot| slot.asks.store(1, Relaxed));
    }

    /// The program has used so much of a processor by then.
    pub fn has_run(&self, used: &mut u64, now_used: u64, time: u64) {
        if core::mem::replace(used, now_used) != now_used {
            self.slot.into_iter().for_each(|slot| slot.ran.store(time, Relaxed));
        }
    }

    pub fn come_back(&self, time: u64) {
        if let Some(slot) = self.slot {
            [&slot.since, &slot.returned, &slot.ran]
                .iter()
                .for_each(|one| one.store(time, Relaxed));
            slot.asks.store(0, Relaxed);
            slot.out.store(0, SeqCst);
        }
    }
}

impl Pager {
    /// At each look: takes part, or not.
    pub fn take_turns(&mut self, time: u64) {
        let turn = self.group.limit().saturating_mul(TURN_OF_PAGE).saturating_add(TURN);
        self.group.has_run(&mut self.state.ran, clock::used_by(self.program), time);
        if self.state.is_out {
            if self.group.may_return(time, turn) {
                self.state.is_out = false;
                self.state.need = Need::since(time, self.asked());
                self.group.come_back(time);
                // Whoever touches a page that is away asks again.
                let _ = self.uffd.wake(LOWEST, ALL);
            } else if self.state.resident > self.limit {
                self.put_out();
            }
        } else if self.group.must_leave(time, turn) {
            self.state.is_out = true;
            self.counts.outs += 1;
            self.group.go_out(time);
            self.put_out();
        }
    }

    /// All that can leave does. Until all is watched nothing is somebody else's.
    fn put_out(&mut self) {
        self.limit = KEPT;
        self.count_resident();
        if !self.watch_all() {
            // At the next look.
            return;
        }
        loop {
            let before = self.state.resident;
            self.state.refused.forget(u64::MAX);
            self.reduce(0);
            self.count_resident();
            if self.state.resident <= KEPT || self.state.resident >= before {
                break;
            }
        }
        self.limit = self.state.resident.max(KEPT);
        self.group.give_up(self.state.resident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::group::found;

    const LIMIT: u64 = 8192;
    const SECOND: u64 = 1_000 * MILLISECOND;

    /// Of processes with so many pages that wait so much, and came one after the other.
    fn groups<const N: usize>(processes: [(u64, u64); N]) -> [Group; N] {
        let address = found(LIMIT).unwrap();
        let mut came = 0;
        processes.map(|(resident, waits)| {
            let mut group = Group::at(address).unwrap();
            group.join();
            came += 1;
            let slot = group.slot.unwrap();
            slot.resident.store(resident, Relaxed);
            slot.waits.store(waits, Relaxed);
            slot.since.store(came, Relaxed);
            slot.looked.store(u64::MAX, Relaxed);
            slot.ran.store(u64::MAX, Relaxed);
            group
        })
    }

    fn leaving<const N: usize>(groups: &[Group; N], time: u64) -> [bool; N] {
        core::array::from_fn(|at| groups[at].must_leave(time, SECOND))
    }

    fn returning<const N: usize>(groups: &[Group; N], time: u64) -> [bool; N] {
        core::array::from_fn(|at| groups[at].may_return(time, SECOND))
    }

    #[test]
    fn the_oldest_of_the_four_largest_that_wait_is_put_out() {
        let all = groups([(900, 900), (1500, 800), (1400, 700), (1300, 600), (2000, 600)]);
        assert_eq!(leaving(&all, 100), [false, true, false, false, false]);
        // One that waits alone has nobody to make room for.
        let all = groups([(3000, 900), (3000, 100), (100, 0)]);
        assert_eq!(leaving(&all, 100), [false; 3]);
    }

    #[test]
    fn turns_pass_from_one_to_the_next() {
        let all = groups([(3000, 900), (3000, 900), (100, 0)]);
        all[0].go_out(SECOND);
        all[0].ask();
        all[0].slot.unwrap().resident.store(LEAST, Relaxed);
        assert_eq!(leaving(&all, SECOND + 1), [false; 3]);
        assert_eq!(returning(&all, SECOND + 1), [false, true, true]);
        // It has waited for as long as a turn takes: the other one goes, it comes.
        let time = 2 * SECOND + 60 * MILLISECOND;
        assert_eq!(leaving(&all, time), [false, true, false]);
        all[1].go_out(time);
        all[1].ask();
        all[1].slot.unwrap().resident.store(LEAST, Relaxed);
        assert_eq!(returning(&all, time), [true, false, true]);
        all[0].come_back(time);
        // It has nothing yet, but it has its turn.
        assert_eq!(returning(&all, time + 1), [true, false, true]);
        assert_eq!(leaving(&all, time + SECOND / 2), [false; 3]);
        assert_eq!(leaving(&all, time + 2 * SECOND), [true, false, false]);
    }

    #[test]
    fn one_leaves_for_one_that_comes_back() {
        let all = groups([(3000, 900), (3000, 900), (3000, 0), (3000, 0)]);
        for (at, time) in [(2, SECOND), (3, SECOND + 1)] {
            all[at].slot.unwrap().ran.store(0, Relaxed);
            all[at].go_out(time);
            all[at].ask();
        }
        let time = 2 * SECOND + 60 * MILLISECOND;
        assert_eq!(leaving(&all, time), [true, false, false, false]);
        all[0].go_out(time);
        assert_eq!(leaving(&all, time + 1), [false; 4]);
        assert_eq!(returning(&all, time + 1), [false, true, true, false]);
        all[2].come_back(time + 1);
        // It has not been seen running, but it has just come.
        assert_eq!(returning(&all, time + 2), [false, true, true, false]);
    }

    #[test]
    fn who_is_out_comes_back_when_nobody_competes() {
        let all = groups([(3000, 900), (3000, 900)]);
        all[0].go_out(5);
        // It does not want to: it has touched nothing.
        assert_eq!(returning(&all, 6), [false, true]);
        all[0].ask();
        assert_eq!(returning(&all, 6), [false, true]);
        all[1].slot.unwrap().resident.store(100, Relaxed);
        all[1].slot.unwrap().waits.store(0, Relaxed);
        assert_eq!(returning(&all, 6), [true, true]);
        // The other one is large again, and sleeps.
        all[1].slot.unwrap().resident.store(3000, Relaxed);
        assert_eq!(returning(&all, 6), [false, true]);
        all[1].slot.unwrap().ran.store(6, Relaxed);
        assert_eq!(returning(&all, 6 + IDLE), [true, true]);
    }

    #[test]
    fn who_has_all_it_needs_makes_room_for_who_waits_for_long() {
        let all = groups([(3000, 400), (3000, 0), (3000, 0), (100, 0)]);
        all[0].slot.unwrap().waiting.store(7, Relaxed);
        assert_eq!(leaving(&all, 2 * SECOND), [false; 4]);
        assert_eq!(leaving(&all, 2 * SECOND + 7), [false, true, false, false]);
    }

    #[test]
    fn new_ones_that_follow_each_other_do_not_keep_who_is_out_for_ever() {
        let all = groups([(3000, 900), (3000, 900)]);
        all[0].go_out(5);
        all[0].ask();
        all[1].slot.unwrap().since.store(SECOND, Relaxed);
        assert!(!all[0].may_return(2 * SECOND - 100, SECOND));
        all[1].slot.unwrap().since.store(2 * SECOND, Relaxed);
        assert!(all[0].may_return(2 * SECOND + 5, SECOND));
    }
}
