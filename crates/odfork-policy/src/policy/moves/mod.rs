//! The pager of all memory (`page run --memory any`) on a trace: pages are moved to a pool and
//! back, and the oldest of the pool leave.
//!
//! Its rules are those of the agent, in the same order and with the same numbers, but on a program
//! with one region and nothing else: page numbers are addresses. What it leaves out is time, forks,
//! and pages that cannot be moved. A page has content from its first touch on. The hand is in
//! `hand`.

mod ahead;
mod hand;
mod pool;
mod store;

use super::Replacement;
use crate::clock::Owner;
use crate::cost::Tally;
use crate::trace::Page;

use ahead::{Blocks, Walks};
use pool::{Parked, Pool};
use store::Store;

/// Most pages of zeros for a touch of new memory.
const MOST_FILLED: u64 = 32;
/// Most pages read by one touch of a walk; 1 MB.
const MOST_READ: u64 = 256;
const WALKS: usize = 8;
/// Pages that a touch takes back from the pool, and the most in a walk.
const LEAST_RECLAIMS: u64 = 4;
const MOST_RECLAIMS: u64 = 16;

/// What is known of references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// The kernel's marks: a page written, or brought back, since the hand came by is spared.
    Written,
    /// Nothing: each page leaves in its turn, and a touch in the pool is its reference.
    Simulated,
}

/// The process and the hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Frames in which the process has other pages than the trace's.
    pub own: u32,
    /// What the hand goes by.
    pub bits: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Never touched, or all zeros when it left.
    Fresh,
    /// With the program; the slot holds an earlier content.
    Present(Option<u32>),
    /// In the pool, at this place.
    Parked(u32),
    Stored(u32),
}

/// Written since the hand came by, as the kernel notes it.
const WRITTEN: u8 = 1;
/// Written since it was read.
const DIRTY: u8 = 2;
/// Brought as zeros and not touched yet.
const ZEROS: u8 = 4;

#[derive(Clone, Copy)]
struct Entry {
    place: Place,
    flags: u8,
}

const FRESH: Entry = Entry { place: Place::Fresh, flags: 0 };

pub(super) struct Moves {
    settings: Settings,
    limit: u64,
    own: u64,
    /// In the order of addresses.
    pages: Vec<Entry>,
    present: u64,
    pool: Pool,
    store: Store,
    hand: usize,
    taken: u64,
    /// Reductions until the pool is filled again: the hand found hardly anything.
    pause: u32,
    fills: Walks,
    reads: Walks,
    reclaims: Walks,
    blocks: Blocks,
    tally: Tally,
}

impl Moves {
    pub fn new(frames: u32, settings: Settings) -> Moves {
        let limit = u64::from(frames);
        Moves {
            settings,
            limit,
            own: u64::from(settings.own).min(limit - 1),
            pages: Vec::new(),
            present: 0,
            pool: Pool::new(limit as usize),
            store: Store::default(),
            hand: 0,
            taken: 0,
            pause: 0,
            fills: Walks::new(1),
            reads: Walks::new(WALKS),
            reclaims: Walks::new(1),
            blocks: Blocks::new(),
            tally: Tally::default(),
        }
    }

    /// Pages in memory, the process' own among them.
    fn resident(&self) -> u64 {
        self.present + self.pool.parked + self.own
    }

    /// Memory may be smaller than what a touch would bring.
    fn at_most(&self, pages: u64) -> u64 {
        pages.min(((self.limit - self.own) / 2).max(1))
    }

    fn place(&self, page: u64) -> Place {
        self.pages.get(page as usize).map_or(Place::Fresh, |entry| entry.place)
    }

    #[cold]
    fn fault(&mut self, page: u64) {
        match self.place(page) {
            Place::Parked(place) => {
                self.tally.reclaims += 1;
                self.take_back(page, place);
            }
            Place::Stored(slot) => {
                self.tally.faults += 1;
                self.read(page, slot);
            }
            Place::Fresh | Place::Present(_) => {
                self.tally.faults += 1;
                self.fill(page);
            }
        }
    }

    /// From the pool, with what was taken together with it.
    fn take_back(&mut self, page: u64, place: u32) {
        let mut most = self.reclaims.run(page, MOST_RECLAIMS).max(LEAST_RECLAIMS);
        if self.pool.at(place).is_some_and(|parked| parked.ahead) {
            self.blocks.ended(true);
            most = most.max(self.blocks.run());
        }
        let is_one = |page: u64, at: u64| {
            at < self.pool.len() && self.place(page) == Place::Parked(at as u32)
        };
        let (mut before, mut behind) = (0, 0);
        let at = u64::from(place);
        while behind + 1 < most && is_one(page + behind + 1, at + behind + 1) {
            behind += 1;
        }
        while before + behind + 1 < most
            && before < page.min(at)
            && is_one(page - before - 1, at - before - 1)
        {
            before += 1;
        }
        for back in 0..before + 1 + behind {
            let kept = self.pool.take((at - before + back) as u32).and_then(|parked| parked.kept);
            self.bring((page - before + back) as usize, kept, WRITTEN);
        }
        self.reclaims.expect(page + behind + 1);
    }

    /// From the store: a walk with what follows, another page with its block.
    fn read(&mut self, page: u64, slot: u32) {
        let slot = u64::from(slot);
        let most = self.reads.run(page, self.at_most(MOST_READ));
        let is_stored =
            |pages: &Moves, page: u64, slot: u64| pages.place(page) == Place::Stored(slot as u32);
        let mut run = 1;
        while run < most && is_stored(self, page + run, slot + run) {
            run += 1;
        }
        let (mut before, mut behind) = (0, 0);
        if most == 1 {
            let size = self.blocks.size();
            let size = self.at_most(size);
            let start = page & !(size.next_power_of_two() - 1);
            while page - before > start
                && slot > before
                && is_stored(self, page - before - 1, slot - before - 1)
            {
                before += 1;
            }
            while page + behind + 1 < start + size
                && is_stored(self, page + behind + 1, slot + behind + 1)
            {
                behind += 1;
            }
        }
        self.make_room(before + run + behind);
        for at in 0..run {
            self.bring((page + at) as usize, Some((slot + at) as u32), WRITTEN);
        }
        self.tally.pages_read += run;
        self.reads.expect(page + run + behind);
        let beside = (0..before).map(|at| at + 1).rev().map(|back| (page - back, slot - back));
        let beside: Vec<_> = beside.chain((1..=behind).map(|at| (page + at, slot + at))).collect();
        for (page, slot) in beside {
            if self.pool.room() == 0 {
                break;
            }
            self.tally.pages_read += 1;
            let kept = Some(slot as u32);
            let place = self.pool.push(Parked { page: page as Page, kept, ahead: true });
            self.pages[page as usize].place = Place::Parked(place);
        }
    }

    /// Zeros, and more of them for a walk through new memory.
    fn fill(&mut self, page: u64) {
        let most = self.fills.run(page, self.at_most(MOST_FILLED));
        self.make_room(most);
        let mut done = 0;
        while done < most && self.place(page + done) == Place::Fresh {
            if self.pages.len() as u64 <= page + done {
                self.pages.push(FRESH);
            }
            self.bring((page + done) as usize, None, WRITTEN | ZEROS);
            done += 1;
        }
        self.fills.expect(page + done.max(1));
    }

    fn bring(&mut self, page: usize, kept: Option<u32>, flags: u8) {
        let entry = &mut self.pages[page];
        entry.place = Place::Present(kept);
        entry.flags = entry.flags & (DIRTY | ZEROS) | flags;
        self.present += 1;
    }
}

impl Replacement for Moves {
    fn grow(&mut self, owners: &[Owner]) {
        let known = self.pages.len();
        self.pages.resize(known + owners.len(), FRESH);
    }

    #[inline]
    fn touch(&mut self, page: Page, write: bool) {
        if !matches!(self.pages[page as usize].place, Place::Present(_)) {
            self.fault(page.into());
        }
        let flags = &mut self.pages[page as usize].flags;
        if write || *flags & ZEROS != 0 {
            *flags = *flags & !ZEROS | WRITTEN | DIRTY;
        }
    }

    fn tally(&self, _: u32) -> Tally {
        self.tally
    }
}
