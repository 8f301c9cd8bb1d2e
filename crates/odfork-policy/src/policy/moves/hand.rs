//! The hand: passes pages in the order of addresses and moves them to the pool; what leaves the
//! pool for the store.

use super::pool::Parked;
use super::{Bits, Moves, Place, DIRTY, WRITTEN, ZEROS};
use crate::trace::Page;

/// The part of the limit that the pool is filled to, and by which more leaves than must.
const POOL: u64 = 16;
const SLACK: u64 = 32;
/// Pages that leave at a time, and most parts of one reduction.
const PART: u64 = 128;
const MOST_PARTS: u32 = 256;
/// Most pages written at once.
const MOST_WRITTEN: u64 = 256;
/// Pages that are spared for each one that is wanted, and the least of it.
const SPARED: u64 = 8;
const LEAST_SPARED: u64 = 1024;
/// Runs of pages, and pages, that are looked at in one go.
const MOST_RUNS: usize = 64;
const MOST_SEEN: u64 = 1024;
/// Reductions without filling the pool, when hardly anything was found.
const PAUSE: u32 = 100;

impl Moves {
    /// Room for so many pages more.
    pub(super) fn make_room(&mut self, count: u64) {
        // What a sweep passed by is found by the next one.
        for _ in 0..4 {
            if self.resident() + count <= self.limit {
                return;
            }
            self.reduce(count);
        }
    }

    fn reduce(&mut self, more: u64) {
        let wanted = if self.pause > 0 { 0 } else { self.limit / POOL };
        self.pause = self.pause.saturating_sub(1);
        let goal = self.limit - self.limit / SLACK;
        let filled = self.pool.parked >= wanted - wanted / 4;
        let pool = if filled { 0 } else { wanted };
        for _ in 0..MOST_PARTS {
            let over = (self.resident() + more).saturating_sub(goal);
            if over == 0 {
                return;
            }
            if self.pool.parked < over + pool {
                self.sweep(over + pool - self.pool.parked);
            }
            if self.evict(over.min(PART)) == 0 {
                return;
            }
        }
    }

    /// Takes so many pages, in at most two turns.
    fn sweep(&mut self, want: u64) {
        let goal = self.taken + want;
        let mut spared = (want * SPARED).max(LEAST_SPARED);
        let mut turns = 0;
        while self.taken < goal && turns < 2 {
            if self.hand >= self.pages.len() {
                self.hand = 0;
                turns += 1;
                continue;
            }
            let (runs, reached) = self.runs();
            self.hand = self.sweep_runs(&runs, reached, goal, &mut spared);
        }
        if self.taken < goal {
            self.pause = PAUSE;
        }
    }

    /// Takes pages of these runs; where the hand goes on.
    fn sweep_runs(
        &mut self,
        runs: &[(usize, usize, bool)],
        reached: usize,
        goal: u64,
        spared: &mut u64,
    ) -> usize {
        for &(start, end, is_written) in runs {
            let mut at = start;
            if is_written && self.settings.bits == Bits::Written {
                at += (*spared).min((end - start) as u64) as usize;
                *spared -= (at - start) as u64;
                self.pages[start..at].iter_mut().for_each(|entry| entry.flags &= !WRITTEN);
            }
            while at < end && self.taken < goal {
                self.park(at);
                at += 1;
            }
            if self.taken >= goal {
                return at;
            }
        }
        reached
    }

    /// Runs of present pages from the hand on, each written or not, and the end of what was seen.
    fn runs(&self) -> (Vec<(usize, usize, bool)>, usize) {
        let mut runs: Vec<(usize, usize, bool)> = Vec::new();
        let mut seen = 0;
        for (at, entry) in self.pages.iter().enumerate().skip(self.hand) {
            if !matches!(entry.place, Place::Present(_)) {
                continue;
            }
            let is_written = entry.flags & WRITTEN != 0;
            let len = runs.len();
            match runs.last_mut() {
                Some(last) if last.1 == at && last.2 == is_written => last.1 = at + 1,
                _ if len == MOST_RUNS => break,
                _ => runs.push((at, at + 1, is_written)),
            }
            seen += 1;
            if seen == MOST_SEEN {
                break;
            }
        }
        let is_full = runs.len() == MOST_RUNS || seen == MOST_SEEN;
        let reached = if is_full { runs[runs.len() - 1].1 } else { self.pages.len() };
        (runs, reached)
    }

    /// Moves a page to the pool, which may be full of places that hold nothing.
    fn park(&mut self, page: usize) {
        if self.pool.room() == 0 {
            self.evict(MOST_WRITTEN);
        }
        let Place::Present(kept) = self.pages[page].place else { return };
        let place = self.pool.push(Parked { page: page as Page, kept, ahead: false });
        self.pages[page].place = Place::Parked(place);
        self.present -= 1;
        self.taken += 1;
    }

    /// The oldest pages of the pool leave memory; how many.
    fn evict(&mut self, count: u64) -> u64 {
        let mut gone = 0;
        while gone < count {
            let list = self.pool.oldest((count - gone).min(MOST_WRITTEN) as usize);
            if list.is_empty() {
                break;
            }
            gone += list.len() as u64;
            self.save(&list);
        }
        gone
    }

    fn save(&mut self, list: &[Parked]) {
        let is_changed = |parked: &&Parked| {
            let flags = self.pages[parked.page as usize].flags;
            flags & ZEROS == 0 && (parked.kept.is_none() || flags & DIRTY != 0)
        };
        let count = list.iter().filter(is_changed).count();
        let mut next = if count > 0 { self.store.take(count) } else { 0 };
        self.tally.write_backs += count as u64;
        for parked in list {
            if parked.ahead {
                self.blocks.ended(false);
            }
            let entry = &mut self.pages[parked.page as usize];
            let is_clean = entry.flags & DIRTY == 0;
            entry.place = match parked.kept {
                _ if entry.flags & ZEROS != 0 => Place::Fresh,
                Some(slot) if is_clean => Place::Stored(slot),
                kept => {
                    kept.into_iter().for_each(|slot| self.store.free(slot));
                    next += 1;
                    Place::Stored(next - 1)
                }
            };
            entry.flags = 0;
        }
    }
}
