//! The hand: passes all memory of the program in the order of addresses and moves pages to the
//! pool; and what leaves the pool for the store.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::{pagemap, procmap};
use odfork_sys::Errno;

use super::pager::Pager;
use super::store::MOST;
use super::table::{Entry, Place};
use super::untold;
use crate::{ioctl, options};

const BYTES: u64 = PAGE as u64;
/// Pages looked at in one go: faults wait meanwhile.
const MOST_TRIED: u64 = 1024;

/// Pages that leave between two looks for memory that grows, and most parts of one reduction.
const PART: u64 = 128;
const MOST_PARTS: u32 = 256;
/// Growth that is worth looking for where it is.
const NOTICED: u64 = 8;

/// The part of the limit that is the pool: with a larger one (1/8, 1/4) a sort by perl faulted 1.4
/// and 2.2 times as often, and read about as much.
const POOL: u64 = 16;

/// Looks without filling the pool, when hardly anything was found.
const PAUSE: u32 = 100;

/// Pages that are spared for each one that is wanted; then the hand takes what it finds.
const SPARED: u64 = 8;

/// 1: reference bits are simulated, that is by touches of what was taken, and by nothing else.
const SIMULATED: &CStr = c"ODFORK_PAGE_SIMULATED";
static IS_SIMULATED: AtomicBool = AtomicBool::new(false);

/// Reads the option, while constructors run.
pub fn init() {
    IS_SIMULATED.store(options::number(SIMULATED) == Some(1), Relaxed);
}

/// How a run of pages was left.
pub enum Left {
    Done,
    /// Nothing can be moved just now.
    Later,
    /// The mapping is of a kind that cannot be.
    Unfit,
}

impl Pager {
    pub fn may_take(&self) -> bool {
        !self.state.is_blind && !self.state.is_protecting && !untold::is_under_way()
    }

    /// Takes so many pages, if they can be had.
    pub fn sweep(&mut self, want: u64) {
        if !self.may_take() || !self.protect() {
            return;
        }
        let (goal, mut wraps) = (self.counts.taken + want, 0);
        let most = self.counts.busy + MOST_TRIED;
        let mut spared = (want * SPARED).max(MOST_TRIED);
        while self.counts.taken < goal
            && self.counts.busy < most
            && wraps < 2
            && !self.state.must_read
        {
            match self.mapping(self.state.hand) {
                None => {
                    self.state.refused.begin_revolution();
                    self.state.hand = 0;
                    wraps += 1;
                }
                Some((start, end, true)) => {
                    self.state.hand = self.state.hand.max(start);
                    self.sweep_mapping((start, end), goal - self.counts.taken, &mut spared);
                }
                Some((_, end, false)) => self.state.hand = end,
            }
        }
        if self.counts.taken < goal {
            self.state.pause = PAUSE;
        }
        self.unshare.begin();
        // A thread may have begun, or a mutex been locked, meanwhile.
        self.state.is_unprotected = !self.protect();
    }

    /// The next mapping from an address on that can be written: its range, and whether its pages
    /// may be taken.
    pub fn mapping(&self, address: u64) -> Option<(u64, u64, bool)> {
        let plain = procmap::VMA_READABLE | procmap::VMA_WRITABLE;
        let mut query = procmap::Query {
            size: size_of::<procmap::Query>() as u64,
            flags: procmap::COVERING_OR_NEXT_VMA | plain,
            address,
            name_address: self.name as u64,
            name_size: super::NAME as u32,
            ..procmap::Query::default()
        };
        ioctl(self.maps, procmap::QUERY, &mut query).ok()?;
        // SAFETY: as much room as said.
        let name = unsafe { core::slice::from_raw_parts(self.name, query.name_size as usize) };
        let kind = plain | procmap::VMA_EXECUTABLE | procmap::VMA_SHARED;
        let is_known =
            !name.starts_with(b"[") || name.starts_with(b"[heap]") || name.starts_with(b"[anon:");
        let is_own = self.is_own(query.start, query.end);
        let fits = query.vma_flags & kind == plain && query.inode == 0 && is_known && !is_own;
        Some((query.start, query.end, fits))
    }

    /// Memory of the pager itself.
    pub fn is_own(&self, start: u64, end: u64) -> bool {
        let own = [
            (self.room.start as u64, (self.room.start + self.room.len) as u64),
            self.pool.range(),
            (self.probe, self.probe + BYTES),
            (self.gate, self.gate + 2 * BYTES),
            self.bell.place(),
        ];
        own.iter().any(|&(from, to)| start < to && from < end)
    }

    /// What is missing in a mapping is asked of us from now on. Not while mappings are changing:
    /// what was noted of this place may have moved, which is not told yet.
    fn watch(&mut self, start: u64, end: u64) -> bool {
        if self.watched.covers(start, end) {
            return true;
        }
        let is_done = (untold::is_on() || super::ORDER.gate.shut(self.uffd))
            && !self.is_changing()
            && self.uffd.register(start, end - start, super::WATCHED).is_ok();
        if is_done {
            self.watched.add(start, end);
        }
        is_done
    }

    /// All that can be taken is watched: it grows no faster than there is room. What is watched is
    /// passed without a question: there may be thousands of mappings. False: not now.
    pub fn watch_all(&mut self) -> bool {
        self.state.searched = self.state.mapped;
        let mut at = 0;
        loop {
            at = self.watched.end_of(at).unwrap_or(at);
            let Some((start, end, fits)) = self.mapping(at) else { return !self.is_changing() };
            if fits && !self.watch(start, end) && self.is_changing() {
                self.state.must_read = true;
                return false;
            }
            at = end;
        }
    }

    fn sweep_mapping(&mut self, (start, end): (u64, u64), want: u64, spared: &mut u64) {
        let mut found = [pagemap::Region::default(); 64];
        let (mut count, mut reached) = self.present(self.state.hand, end, &mut found);
        if count > 0 && !self.watch(start, end) {
            self.state.hand = end;
            return;
        }
        let is_watched = |one: &pagemap::Region| one.categories & pagemap::IS_WPALLOWED != 0;
        if !found[..count].iter().all(is_watched) {
            // Watched since, or noted wrongly: a range may have changed while it was registered.
            (count, reached) = self.present(self.state.hand, end, &mut found);
            if !found[..count].iter().all(is_watched) {
                self.watched.remove(start, end);
                self.state.hand = end;
                return;
            }
        }
        let goal = self.counts.taken + want;
        for region in &found[..count] {
            let mut at = self.spare(region, spared);
            self.state.hand = at;
            while at < region.end {
                let stop = region.end.min(at + (goal - self.counts.taken) * BYTES);
                let (from, to) = self.takeable(at, stop);
                match self.take(from, to) {
                    // Nothing would change before the next turn: the sweep ends.
                    Left::Later => {
                        self.state.must_read = true;
                        return;
                    }
                    Left::Unfit => {
                        self.state.hand = end;
                        return;
                    }
                    Left::Done => at = to.max(at + BYTES),
                }
                self.state.hand = at;
                if self.counts.taken >= goal {
                    return;
                }
            }
        }
        self.state.hand = reached;
    }

    /// What was written since the hand came by stays for one more revolution, up to so many pages;
    /// the first page behind them. What was brought back since counts as written.
    fn spare(&mut self, region: &pagemap::Region, spared: &mut u64) -> u64 {
        if region.categories & pagemap::IS_WRITTEN == 0 || IS_SIMULATED.load(Relaxed) {
            return region.start;
        }
        let count = (*spared).min((region.end - region.start) / BYTES);
        let to = region.start + count * BYTES;
        *spared -= count;
        self.counts.spared += count;
        self.clear_written(region.start, to);
        to
    }

    /// The first run of pages in a range that may be taken.
    pub fn takeable(&mut self, mut at: u64, end: u64) -> (u64, u64) {
        let may = |pager: &Pager, page| !pager.table.get(page).stale;
        while at < end && (!may(self, at) || self.protected.first(at, at + BYTES).is_some()) {
            at += BYTES;
        }
        let end = self.protected.first(at, end).unwrap_or(end);
        let mut to = at;
        while to < end && may(self, to) && self.table.prepare(to, &mut self.room) {
            to += BYTES;
        }
        (at, to)
    }

    /// Moves pages to the pool.
    pub fn take(&mut self, mut at: u64, end: u64) -> Left {
        while at < end {
            if self.pool.room() == 0 {
                // It may be full of places that hold nothing.
                self.evict(MOST as u64);
            }
            if self.pool.room() == 0 {
                return Left::Later;
            }
            let len = (end - at).min(self.pool.room() * BYTES);
            let (done, error) = self.pool.take_in(self.uffd, at, len);
            for page in (at..at + done).step_by(PAGE) {
                let kept = match self.table.get(page).place {
                    Place::Kept(slot) => Some(slot),
                    _ => None,
                };
                let number = self.pool.push(page, kept);
                self.table.set(page, Entry::at(Place::Parked(number)));
            }
            self.counts.taken += done / BYTES;
            at += done;
            match error {
                _ if done > 0 => {}
                Err(Errno(libc::EAGAIN)) => {
                    self.state.must_read = true;
                    return Left::Later;
                }
                // Pinned, shared with a child, or gone since.
                Err(Errno(error @ (libc::EBUSY | libc::ENOENT | libc::EFAULT))) => {
                    if error == libc::EBUSY {
                        self.unshare.add(at);
                    }
                    self.counts.busy += 1;
                    self.state.refused.add();
                    at += BYTES;
                }
                Err(Errno(libc::EINVAL)) => return Left::Unfit,
                Ok(()) | Err(_) => return Left::Later,
            }
        }
        Left::Done
    }

    /// Room for so many pages more under the limit.
    pub fn make_room(&mut self, count: u64) {
        if self.state.resident + count <= self.allowed() || self.state.is_protecting {
            return;
        }
        self.renew_parts();
        self.count_resident();
        let over = (self.state.resident + count).saturating_sub(self.allowed());
        if over > 0 && !self.enlarge(over) {
            self.reduce(count);
        }
    }

    /// Makes what is in memory, with so many pages more, less by what exceeds the limit. Then the
    /// pool is filled, too: what is in it has a second chance. Not when it was emptied by touches
    /// alone: pages in use would come and go without end. Memory that is not watched may grow
    /// meanwhile, so it is looked for after each part.
    pub fn reduce(&mut self, more: u64) {
        if untold::is_under_way() {
            return;
        }
        let unshared = self.unshare.end();
        self.counts.unshared += unshared;
        self.state.refused.forget(unshared);
        // What is shared with a child would be copied to be taken.
        let pool = match self.state.pause > 0 || self.parts.are_any {
            true => 0,
            false => self.limit / POOL,
        };
        self.state.pause = self.state.pause.saturating_sub(1);
        let allowed = self.allowed();
        // A little more than must, and not for each page: a sweep has its price.
        let goal = match self.state.resident + more > allowed {
            true => allowed - self.limit / 32,
            false => allowed,
        };
        let pool = if self.pool.parked < pool - pool / 4 { pool } else { 0 };
        for _ in 0..MOST_PARTS {
            if self.state.grown > NOTICED || self.state.mapped != self.state.searched {
                self.watch_all();
            }
            let over = (self.state.resident + more).saturating_sub(goal);
            if over == 0 {
                return;
            }
            if self.pool.parked < over + pool {
                self.sweep(over + pool - self.pool.parked);
            }
            if self.evict(over.min(PART)) == 0 {
                return;
            }
            self.count_resident();
        }
    }

    /// The oldest pages of the pool leave memory; how many.
    fn evict(&mut self, count: u64) -> u64 {
        let mut gone = 0;
        while gone < count {
            let (mut list, mut len, mut at) = ([0u64; MOST], 0, self.pool.tail);
            while at < self.pool.head && len < MOST.min((count - gone) as usize) {
                if self.pool.page(at) != 0 {
                    list[len] = at;
                    len += 1;
                }
                at += 1;
            }
            if !self.save(&list[..len]) {
                break;
            }
            self.pool.clear(self.uffd, at);
            self.state.resident = self.state.resident.saturating_sub(len as u64);
            gone += len as u64;
            if len == 0 {
                break;
            }
        }
        gone
    }

    /// Notes pages of the pool as zeros, as held by the store already, or writes them. False, and
    /// nothing changed: the store has no room.
    fn save(&mut self, list: &[u64]) -> bool {
        let (mut pages, mut numbers, mut count) = ([[].as_slice(); MOST], [0; MOST], 0);
        for &number in list {
            let content = self.parked(number);
            let kept = self.pool.kept(number);
            if !kept.is_some_and(|slot| self.store.holds(slot, content)) && !is_zero(content) {
                (pages[count], numbers[count]) = (content, number);
                count += 1;
            }
        }
        let mut first = 0;
        if count > 0 {
            match self.store.write(&pages[..count]) {
                Some(slot) => first = slot,
                None => return false,
            }
        }
        let mut written = 0;
        for &number in list {
            let content = self.parked(number);
            let page = self.pool.page(number);
            if self.pool.is_ahead(number) {
                self.state.ahead.ended(false);
            }
            let kept = self.pool.forget(number);
            let place = if written < count && numbers[written] == number {
                written += 1;
                kept.into_iter().for_each(|slot| self.store.free(slot));
                Place::Stored(first + written as u64 - 1)
            } else if let Some(slot) = kept.filter(|&slot| self.store.holds(slot, content)) {
                self.counts.clean += 1;
                Place::Stored(slot)
            } else {
                kept.into_iter().for_each(|slot| self.store.free(slot));
                self.counts.zeros += 1;
                Place::Zero
            };
            self.table.set(page, Entry::at(place));
        }
        self.counts.page_outs += count as u64;
        true
    }
}

pub fn is_zero(page: &[u8]) -> bool {
    // SAFETY: a page is aligned, and any bytes are words.
    unsafe { page.align_to::<u64>() }.1.iter().all(|&word| word == 0)
}
