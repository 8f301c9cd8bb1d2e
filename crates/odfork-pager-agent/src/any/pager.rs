//! All that the serving task knows: one structure, reached by that task only.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{args, call};

use super::ahead::Ahead;
use super::group::Group;
use super::growth::{self, Bell};
use super::need::Need;
use super::parts::Parts;
use super::pool::Pool;
use super::protected::Protected;
use super::refused::Refused;
use super::room::Room;
use super::store::Store;
use super::table::{Entry, Place, Table};
use super::together::Together;
use super::unshare::Unshare;
use super::unwritten::Unwritten;
use super::watched::Watched;
use crate::messages::die;
use crate::proc_lines::number;

/// A process is new for so long.
const NEW: u64 = 200_000_000;

/// What was done, for the report.
#[derive(Default)]
pub struct Counts {
    pub faults: u64,
    pub reclaims: u64,
    pub page_ins: u64,
    /// Read at once with others.
    pub together: u64,
    /// Read because a neighbour was touched.
    pub ahead: u64,
    pub page_outs: u64,
    pub clean: u64,
    pub zeros: u64,
    pub filled: u64,
    pub taken: u64,
    pub busy: u64,
    pub unshared: u64,
    pub forks: u64,
    /// Turns that it gave up.
    pub outs: u64,
    /// Left for one more revolution.
    pub spared: u64,
    /// Most pages at a time.
    pub peak: u64,
}

/// How many pages a touch brings: doubled while touches come in a row. A program may walk in
/// several places in turn, as a merge does: it is followed in N of them.
pub struct Streams<const N: usize> {
    /// Where the next touch is expected, and how many pages the last one brought.
    list: [(u64, u64); N],
    /// The one that was touched last, and the one to be replaced.
    last: usize,
    oldest: usize,
}

impl<const N: usize> Default for Streams<N> {
    fn default() -> Streams<N> {
        Streams { list: [(0, 0); N], last: 0, oldest: 0 }
    }
}

impl<const N: usize> Streams<N> {
    pub fn run(&mut self, page: u64, most: u64) -> u64 {
        match self.list.iter().position(|&(next, _)| next == page) {
            Some(at) => {
                self.last = at;
                self.list[at].1 = (self.list[at].1 * 2).clamp(1, most);
            }
            None => {
                (self.last, self.oldest) = (self.oldest, (self.oldest + 1) % N);
                self.list[self.last] = (page, 1);
            }
        }
        self.list[self.last].1
    }

    /// A walk comes by here.
    pub fn expects(&self, page: u64) -> bool {
        self.list.iter().any(|&(next, _)| next == page)
    }

    /// Where the next touch is expected.
    pub fn expect(&mut self, page: u64) {
        self.list[self.last].0 = page;
    }
}

/// How far things are.
#[derive(Default)]
pub struct State {
    /// Anonymous pages in memory, and shared memory.
    pub resident: u64,
    /// So many more than what was given: memory that is not watched grows.
    pub grown: u64,
    /// Pages of private memory that are mapped for writing, without ours; and when it was last
    /// searched for what is not watched.
    pub mapped: u64,
    pub searched: u64,
    /// Pages of shared memory, which are not paged but count.
    pub shared_memory: u64,
    /// Where the hand goes on.
    pub hand: u64,
    pub refused: Refused,
    /// Looks until the pool is filled again: the hand found hardly anything.
    pub pause: u32,
    /// Somebody unread waits for an event to be read: nothing can be moved.
    pub must_read: bool,
    /// A note could not be made: nothing is taken any more.
    pub is_blind: bool,
    /// What the kernel uses could not be brought back yet.
    pub is_unprotected: bool,
    /// Pages are being brought back for the kernel's sake: no room is made meanwhile.
    pub is_protecting: bool,
    pub need: Need,
    /// When it last gave something up, and tried to get a slot.
    pub gave: u64,
    pub joined: u64,
    /// So often nothing came back for a fork that waits; 0: none does.
    pub vain: u32,
    /// Pages below come back no more.
    pub back: u64,
    /// It has no turn: touches are not answered.
    pub is_out: bool,
    /// What the program had used of a processor at the last look.
    pub ran: u64,
    pub reclaims: Streams<1>,
    pub ahead: Ahead,
    pub page_ins: Streams<8>,
    /// One: with eight, a growing heap exceeded its limit by a half.
    pub fills: Streams<1>,
}

pub struct Pager {
    pub uffd: Userfaultfd,
    pub room: Room,
    pub table: Table,
    pub watched: Watched,
    pub pool: Pool,
    pub store: Store,
    pub together: Together,
    pub protected: Protected,
    pub unwritten: Unwritten,
    pub unshare: Unshare,
    /// Of the program: /proc/PID/task; of this memory: maps, pagemap, statm, smaps.
    pub maps: c_int,
    pub pagemap: c_int,
    pub statm: c_int,
    pub smaps: c_int,
    pub program: c_int,
    /// In pages: this process' share of the limit.
    pub limit: u64,
    pub group: Group,
    pub parts: Parts,
    /// A page of ours that is watched: what the kernel answers about it tells whether mappings are
    /// changing.
    pub probe: u64,
    pub state: State,
    pub counts: Counts,
    /// For reading the store: MOST pages.
    pub buffer: *mut u8,
    /// For names of mappings.
    pub name: *mut u8,
    /// Never written: MOST_COPIED pages of zeros.
    pub zeros: *const u8,
    /// Watched, and never there: see `Gate`.
    pub gate: u64,
    pub bell: Bell,
    /// The task's own.
    pub stack: *mut u8,
}

impl Pager {
    /// Pages that may be in memory. What is shared with children or pinned, and shared memory,
    /// cannot leave: the rest has half of the limit at least. What several processes have together
    /// is copied to be taken, and counts for one more often when another one has ended: so it may
    /// stay as long as all of the group have no more than the limit.
    pub fn allowed(&self) -> u64 {
        let refused = self.state.refused.pages().min(self.state.resident);
        let allowed = self.limit.max(refused + self.state.shared_memory + self.limit / 2);
        if self.parts.are_any {
            // Who has just come is counted by others in full, until they have a look.
            let is_new = crate::clock::now() < self.state.joined + NEW;
            let free = if is_new { u64::MAX / 2 } else { self.group.free() };
            let parts = self.limit + self.parts.others;
            return allowed.max(if free > 0 { parts.min(self.state.resident + free) } else { 0 });
        }
        allowed
    }

    /// From so many pages on all memory is watched: what grows waits for room.
    pub fn mark(&self) -> u64 {
        self.limit - self.limit / 8
    }

    /// What is in memory, or all that is mapped, may exceed the mark.
    pub fn is_tight(&self) -> bool {
        self.state.resident.max(self.state.mapped + self.state.shared_memory) >= self.mark()
    }

    /// A page of the pool.
    pub fn parked(&self, number: u64) -> &'static [u8] {
        let at = self.pool.address(number) as *const u8;
        // SAFETY: a page in the pool is there, and only this task changes it.
        unsafe { core::slice::from_raw_parts(at, PAGE) }
    }

    /// Anonymous pages and shared memory, ours among them. How much more may be mapped follows.
    pub fn count_resident(&mut self) {
        if self.parts.are_any {
            self.parts.adjust(self.group.sharers());
        }
        let spent = growth::spent();
        let mut text = [0u8; 128];
        let read = args![self.statm, text.as_mut_ptr(), text.len(), 0];
        // SAFETY: as much room as said.
        let got = unsafe { call(libc::SYS_pread64, read) }.unwrap_or(0);
        let mut words = text[..got].split(|&byte| byte == b' ').skip(1).map(number);
        if let (Some(all), Some(files), Some(data)) = (words.next(), words.next(), words.nth(2)) {
            let anonymous = all.saturating_sub(files).saturating_sub(self.parts.others);
            let resident = anonymous + self.state.shared_memory;
            self.state.grown = resident.saturating_sub(self.state.resident);
            self.state.resident = resident;
            self.counts.peak = self.counts.peak.max(resident);
            let mapped = data.saturating_sub(self.own());
            if mapped < self.state.mapped {
                growth::forget_tops();
            }
            self.state.mapped = mapped;
            let more = if self.is_tight() { 0 } else { self.mark() - mapped };
            growth::allow(spent, more.saturating_sub(self.state.shared_memory));
        }
    }

    /// Pages mapped for the pager.
    fn own(&self) -> u64 {
        self.room.len as u64 / PAGE as u64 + self.pool.len() + 4
    }

    /// New memory of the program: it waits until this was looked at, and until all that was changed
    /// before is known.
    pub fn ring(&mut self, page: u64) -> bool {
        if !self.bell.turn(self.uffd) {
            die(b"odfork page: the program cannot be made to wait for memory: ending\n");
        }
        self.count_resident();
        if self.enlarge_for_mapped() {
            self.count_resident();
        }
        if self.is_tight() && !self.watch_all() {
            return false;
        }
        self.uffd.zero(page, PAGE as u64).0 > 0
    }

    /// The content of a page is nowhere but at its address from now on, if anywhere.
    pub fn drop_entry(&mut self, page: u64, entry: Entry) {
        match entry.place {
            Place::Kept(slot) | Place::Stored(slot) => self.store.free(slot),
            Place::Parked(number) => {
                if let Some(slot) = self.pool.forget(number) {
                    self.store.free(slot);
                }
            }
            Place::Here | Place::Zero => {}
        }
        self.table.set(page, Entry::at(Place::Here));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_grow_while_others_are_touched_in_turn() {
        let mut streams = Streams::<8>::default();
        let mut places = [0x1000, 0x8000, 0x30000].map(|page: u64| page * PAGE as u64);
        for round in 0..6 {
            for at in &mut places {
                let run = streams.run(*at, 16);
                assert_eq!(run, 16.min(1 << round));
                *at += run * PAGE as u64;
                streams.expect(*at);
            }
            // One that is not in a row does not end them.
            assert_eq!(streams.run(0x7000_0000 + round, 16), 1);
        }
    }
}
