//! The paper's replacement: frames in a loop, one hand, reference bits simulated by unmapping, a
//! free pool.
//!
//! Source: Babaoglu & Joy, "Converting a Swap-Based System to do Paging in an Architecture Lacking
//! Page-Referenced Bits", 1981. Owns the state of every frame, the hand, the pool and the counts.
//! Does no I/O and knows no page tables: the caller finds the frame of a page, reports faults by
//! [`Clock::touch`], and carries out the [`Action`]s it gets.
//!
//! ```text
//!             insert(Active)                 hand, bit set: Zap (clear the bit, page stays)
//!   Taken ------------------> Active, valid <---------------------> Active, reclaimable
//!     ^  \                         ^            touch                 | hand, bit clear
//!     |   \ insert(Pool)           | touch = reclaim, no I/O          v
//!     |    \                       +------- Leaving (Clean: write it) | dirty
//!     |     +--> Pool bottom <-----+------- written                   |
//!     +---------- Pool top                 Pool bottom <--------------+ clean
//!      take_frame: the content is out
//! ```
//!
//! Rules: the active list is in the order of frame numbers and global over all owners. Every page
//! in the pool can be reclaimed until its frame is taken. A pool page is never mapped and never
//! dirty, so taking a frame needs no I/O. Calls about a frame in another state than the caller
//! believed change nothing and say so; nothing panics.

mod pool;
mod scan_rule;
mod sweep;
mod view;

use pool::Pool;
use scan_rule::Pacer;
pub use scan_rule::{Inventory, Linear, ScanRule};

/// A frame: an index below [`Clock::frames`].
pub type Frame = u32;
/// Whose page it is: small numbers, chosen by the caller.
pub type Owner = u32;

/// What the caller must do, in the order of the list, before it reports anything more about that
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The reference bit was cleared: unmap the page and keep it (valid to reclaimable). If it
    /// turns out to have been written since it was mapped, say so by [`Clock::mark_dirty`].
    Zap(Frame),
    /// A page of an owner without reference simulation leaves the active list while it is mapped:
    /// unmap it, say whether it is dirty, then call [`Clock::unmapped`].
    Unmap(Frame),
    /// A dirty page has left the active list: write it, then call [`Clock::written`] or
    /// [`Clock::not_written`].
    Clean(Frame),
    /// A clean page has left the active list and is in the pool now; nothing needs to be done.
    Left(Frame),
}

/// What a touch was. All but `Valid` and `NotHeld` are reclaims: a fault without I/O, after which
/// the page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The bit was set already; on real memory such a touch does not fault.
    Valid,
    /// It was in the active list with its bit clear.
    FromActive,
    /// It was on its way out of the active list: being unmapped or written.
    FromLeaving,
    /// It was in the pool.
    FromPool,
    /// It was pre-paged into the pool, and this is its first touch.
    Prefetched,
    /// The frame holds nothing that could be touched; nothing was changed.
    NotHeld,
}

/// Where a page enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Demanded: mapped, in the active list, bit set.
    Active,
    /// Pre-paged: bottom of the pool, not mapped, marked "prefetched, not yet read".
    Pool,
}

/// A frame taken from the top of the pool, and what it held until now (clean and unmapped, now
/// out).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The frame, now the caller's until `insert` or `give_back`.
    pub frame: Frame,
    /// Owner and page that are no longer in memory.
    pub evicted: Option<(Owner, u64)>,
    /// The evicted page had been pre-paged and never touched.
    pub wasted: bool,
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// In the pool, without content.
    Empty = 0,
    /// In the hands of the caller.
    Taken = 1,
    /// In the active list.
    Active = 2,
    /// Out of the active list, to be unmapped or written before it may enter the pool.
    Leaving = 3,
    /// In the pool, with content that can be reclaimed.
    Pool = 4,
    /// Its content is gone, but a write from it has not ended.
    Discarded = 5,
}

const STATE: u8 = 0b111;
const BIT: u8 = 1 << 3;
const DIRTY: u8 = 1 << 4;
const PREFETCHED: u8 = 1 << 5;
const WRITING: u8 = 1 << 6;
/// In state `Leaving`: the page is still mapped, an `Unmap` is to be carried out.
const MAPPED: u8 = 1 << 7;

/// Everything counted since the start; all in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames of the active list that the hand passed.
    pub scanned: u64,
    /// Reference bits cleared.
    pub zapped: u64,
    /// Pages that left the active list.
    pub left: u64,
    /// Reclaims out of the active list: the price of simulated reference bits.
    pub reclaims_active: u64,
    /// Reclaims of pages on their way out, and out of the pool.
    pub reclaims_pool: u64,
    /// First touches of pre-paged pages.
    pub prefetch_used: u64,
    /// Pre-paged pages evicted without a touch.
    pub prefetch_wasted: u64,
    /// Pages evicted, that is whose frame was taken.
    pub evicted: u64,
    /// Writes asked for.
    pub cleaned: u64,
}

/// What is known of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerState {
    /// Its pages in the active list, valid or reclaimable: the resident set.
    pub resident: u32,
    /// Its pages in memory but out of the active list.
    pub pooled: u32,
    /// Reference simulation is off.
    pub anomalous: bool,
}

/// The state machine; 21 bytes a frame that was ever used.
#[derive(Clone, Debug)]
pub struct Clock {
    flags: Vec<u8>,
    owner: Vec<Owner>,
    page: Vec<u64>,
    pool: Pool,
    frames: u32,
    hand: Frame,
    active_len: u32,
    leaving: u32,
    anomalous: u32,
    owners: Vec<OwnerState>,
    pacer: Pacer,
    counts: Counts,
}

impl Clock {
    /// All `frames` are in the pool, empty; they take no room here before they are used.
    pub fn new(frames: u32, rule: ScanRule) -> Clock {
        Clock {
            flags: Vec::new(),
            owner: Vec::new(),
            page: Vec::new(),
            pool: Pool::new(frames),
            frames,
            hand: 0,
            active_len: 0,
            leaving: 0,
            anomalous: 0,
            owners: Vec::new(),
            pacer: Pacer::new(rule),
            counts: Counts::default(),
        }
    }

    /// More memory: `more` empty frames at the end of the active list's order.
    pub fn add_frames(&mut self, more: u32) {
        let more = more.min(u32::MAX - 1 - self.frames);
        self.frames += more;
        self.pool.add_fresh(more);
    }

    /// Takes the frame that is reused first: an empty one while there is one, else the top of the
    /// pool. `None`: the pool is empty; [`Clock::scan`] and the completion of writes fill it.
    pub fn take_frame(&mut self) -> Option<Taken> {
        let empty_on_top = self.pool.top().is_some_and(|frame| self.state(frame) == State::Empty);
        if !empty_on_top && self.pool.take_fresh() {
            let frame = self.flags.len() as Frame;
            self.flags.push(State::Taken as u8);
            self.owner.push(0);
            self.page.push(0);
            self.pool.grow();
            self.pacer.demand(1);
            return Some(Taken { frame, evicted: None, wasted: false });
        }
        let frame = self.pool.top()?;
        self.pool.unlink(frame);
        self.pacer.demand(1);
        let held = self.state(frame) == State::Pool;
        let wasted = held && self.has(frame, PREFETCHED);
        let mut evicted = None;
        if held {
            self.owners[self.owner[frame as usize] as usize].pooled -= 1;
            self.counts.evicted += 1;
            self.counts.prefetch_wasted += u64::from(wasted);
            evicted = Some((self.owner[frame as usize], self.page[frame as usize]));
        }
        self.flags[frame as usize] = State::Taken as u8;
        Some(Taken { frame, evicted, wasted })
    }

    /// Puts a page into a taken frame. False, and nothing changed: the frame was not taken.
    pub fn insert(&mut self, frame: Frame, owner: Owner, page: u64, list: List) -> bool {
        if self.state_of(frame) != Some(State::Taken) {
            return false;
        }
        self.know(owner);
        let at = frame as usize;
        (self.owner[at], self.page[at]) = (owner, page);
        match list {
            List::Active => {
                self.flags[at] = State::Active as u8 | BIT;
                self.active_len += 1;
                self.owners[owner as usize].resident += 1;
            }
            List::Pool => {
                self.flags[at] = State::Pool as u8 | PREFETCHED;
                self.pool.push_bottom(frame);
                self.owners[owner as usize].pooled += 1;
            }
        }
        true
    }

    /// A taken frame that is not needed after all goes back, empty, to the top of the pool.
    pub fn give_back(&mut self, frame: Frame) -> bool {
        let taken = self.state_of(frame) == Some(State::Taken);
        if taken {
            self.flags[frame as usize] = State::Empty as u8;
            self.pool.push_top(frame);
        }
        taken
    }

    /// The page in `frame` is touched (for the pager: it faulted); it is in the active list with
    /// its bit set afterwards.
    #[inline]
    pub fn touch(&mut self, frame: Frame, write: bool) -> Touch {
        let Some(&flags) = self.flags.get(frame as usize) else { return Touch::NotHeld };
        let dirty = if write { DIRTY } else { 0 };
        if flags & (STATE | BIT) == State::Active as u8 | BIT {
            self.flags[frame as usize] = flags | dirty;
            return Touch::Valid;
        }
        self.reclaim(frame, flags, dirty)
    }

    fn reclaim(&mut self, frame: Frame, flags: u8, dirty: u8) -> Touch {
        let touch = match self.state(frame) {
            State::Active => Touch::FromActive,
            State::Leaving => Touch::FromLeaving,
            State::Pool if flags & PREFETCHED != 0 => Touch::Prefetched,
            State::Pool => Touch::FromPool,
            State::Empty | State::Taken | State::Discarded => return Touch::NotHeld,
        };
        match touch {
            Touch::FromActive => self.counts.reclaims_active += 1,
            Touch::Prefetched => self.counts.prefetch_used += 1,
            _ => self.counts.reclaims_pool += 1,
        }
        match touch {
            Touch::FromActive => {}
            Touch::FromLeaving => {
                self.leaving -= 1;
                self.activate(frame);
            }
            _ => {
                self.pool.unlink(frame);
                self.pacer.demand(1);
                self.activate(frame);
            }
        }
        let kept = flags & (DIRTY | WRITING);
        self.flags[frame as usize] = State::Active as u8 | BIT | kept | dirty;
        touch
    }

    fn activate(&mut self, frame: Frame) {
        self.active_len += 1;
        let owner = &mut self.owners[self.owner[frame as usize] as usize];
        owner.resident += 1;
        owner.pooled -= 1;
    }

    /// The page turned out to have been written. Ignored for frames whose page is not in the active
    /// list or leaving it.
    pub fn mark_dirty(&mut self, frame: Frame) {
        if matches!(self.state_of(frame), Some(State::Active | State::Leaving)) {
            self.flags[frame as usize] |= DIRTY;
        }
    }

    /// Forgets the content of a frame (unmapped by its program, or gone with it). The frame is
    /// reused next, or when the write from it has ended.
    pub fn discard(&mut self, frame: Frame) -> bool {
        let Some(state) = self.state_of(frame) else { return false };
        let owner = self.owner[frame as usize] as usize;
        match state {
            State::Active => {
                self.active_len -= 1;
                self.owners[owner].resident -= 1;
            }
            State::Leaving => {
                self.leaving -= 1;
                self.owners[owner].pooled -= 1;
            }
            State::Pool => {
                self.pool.unlink(frame);
                self.owners[owner].pooled -= 1;
            }
            State::Taken => return self.give_back(frame),
            State::Empty | State::Discarded => return false,
        }
        if self.has(frame, WRITING) {
            self.flags[frame as usize] = State::Discarded as u8 | WRITING;
        } else {
            self.flags[frame as usize] = State::Empty as u8;
            self.pool.push_top(frame);
        }
        true
    }

    /// Forgets all pages of an owner, in one walk over the frames in use; returns how many.
    pub fn discard_owner(&mut self, owner: Owner) -> u32 {
        let mut gone = 0;
        for frame in 0..self.flags.len() as Frame {
            let taken = matches!(self.state(frame), State::Taken);
            if self.owner[frame as usize] == owner && !taken {
                gone += u32::from(self.discard(frame));
            }
        }
        gone
    }

    /// Advice: an owner in an anomalous phase (a garbage collection) has no reference bits. Its
    /// pages are never zapped; they leave the active list when the hand comes by, which is
    /// replacement in the order of frames, nearly random.
    pub fn set_anomalous(&mut self, owner: Owner, on: bool) {
        self.know(owner);
        let state = &mut self.owners[owner as usize];
        if state.anomalous != on {
            state.anomalous = on;
            self.anomalous = if on { self.anomalous + 1 } else { self.anomalous - 1 };
        }
    }

    fn know(&mut self, owner: Owner) {
        if self.owners.len() <= owner as usize {
            self.owners.resize(owner as usize + 1, OwnerState::default());
        }
    }

    fn state(&self, frame: Frame) -> State {
        match self.flags[frame as usize] & STATE {
            0 => State::Empty,
            1 => State::Taken,
            2 => State::Active,
            3 => State::Leaving,
            4 => State::Pool,
            _ => State::Discarded,
        }
    }

    fn has(&self, frame: Frame, flag: u8) -> bool {
        self.flags[frame as usize] & flag != 0
    }
}
