//! One program as the daemon sees it: descriptors, regions, its pages in memory, its parked faults.
//!
//! Owns the translation between addresses, page numbers in the backing memfd, and frames. Decides
//! nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use odfork_pager_protocol::control::{op, Control, Span, CONTROL_BYTES};
use odfork_pager_protocol::{BACKING_BYTES, PAGE};

use super::streams::Streams;
use crate::sys::{self, Mapping};
use crate::table::{Page, Table};

/// No frame.
pub const NONE: u32 = u32::MAX;

/// A page's content is on its way from the store.
pub const FILLING: u8 = 1;
/// A fault waits for a page that is being filled.
pub const WANTED: u8 = 2;
/// The agent was asked to unmap it and has not answered.
pub const PENDING: u8 = 4;
/// The answer goes to the clock (`Action::Unmap`).
pub const UNMAP: u8 = 8;
/// It waits to be written.
pub const QUEUED: u8 = 16;
/// Read along with another page by mere neighbourhood, not as part of a stream.
pub const NEIGHBOUR: u8 = 32;

/// What the daemon knows of a page beside its table entry.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Its frame, or [`NONE`] when it is out.
    pub frame: u32,
    /// The number of its eviction (of all pages' evictions), when it has been evicted.
    pub evicted: u32,
    pub flags: u8,
}

const NOWHERE: Local = Local { frame: NONE, evicted: 0, flags: 0 };
const CHUNK: usize = 512;
/// An agent that has not answered for so long is not waited for.
const UNRESPONSIVE_NS: u64 = 100_000_000;

/// The parts that outlive the state's lock while a page is on its way.
#[derive(Debug)]
pub struct Handles {
    pub uffd: OwnedFd,
    pub backing: OwnedFd,
}

/// Counts of one program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub faults: u64,
    pub reads: u64,
    pub zeros: u64,
    pub reclaims: u64,
    pub waits: u64,
    pub stops: u64,
}

#[derive(Debug)]
pub struct Client {
    /// The supervisor's number.
    pub id: u32,
    pub pid: i32,
    /// The program that may give it its memory, by a fork; 0: none.
    pub parent: u32,
    pub name: String,
    /// None between a fork's snapshot and the child's registration.
    pub handles: Option<Arc<Handles>>,
    backing: OwnedFd,
    pub table: Table,
    pub table_file: OwnedFd,
    control: Mapping,
    /// By address.
    regions: Vec<Span>,
    /// By offset.
    places: Vec<Span>,
    local: Vec<Option<Box<[Local; CHUNK]>>>,
    /// Operations on its pages that run without the lock.
    inflight: u32,
    /// A fork is taking a snapshot. As in the control pages, where the next daemon finds it.
    frozen: bool,
    /// Since when a snapshot waits for the supervisor's word about the child.
    pub child_awaited_ns: Option<u64>,
    /// A call waits for `inflight` to be zero: nothing new is begun.
    pub draining: bool,
    /// Swapped out by load control: since when, and how many pages it had.
    pub out: Option<(u64, u32)>,
    /// Start or last return.
    pub since_ns: u64,
    /// Addresses of faults not served because of the above.
    pub parked: Vec<u64>,
    /// Pages to unmap, not sent yet; and those the agent has.
    pub zaps: VecDeque<Page>,
    pub sent: Vec<Page>,
    pub sent_ns: u64,
    /// [`Client::is_unresponsive`] when the scanner looked last, which is at each of its turns.
    pub unresponsive: bool,
    pub streams: Streams,
    pub counts: Counts,
    /// Its memory is gone; it waits for the operations under way.
    pub gone: bool,
}

/// Where an address is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub page: Page,
    /// First page of the region.
    pub begin: Page,
    /// First page behind the region.
    pub end: Page,
}

impl Client {
    pub fn new(
        id: u32,
        pid: i32,
        name: &str,
        (backing, table_file, control): (OwnedFd, OwnedFd, OwnedFd),
    ) -> io::Result<Client> {
        Ok(Client {
            id,
            pid,
            parent: 0,
            name: name.to_owned(),
            handles: None,
            table: Table::map(table_file.as_fd())?,
            control: Mapping::of(control.as_fd(), CONTROL_BYTES)?,
            backing,
            table_file,
            regions: Vec::new(),
            places: Vec::new(),
            local: Vec::new(),
            inflight: 0,
            frozen: false,
            child_awaited_ns: None,
            draining: false,
            out: None,
            since_ns: sys::now_ns(),
            parked: Vec::new(),
            zaps: VecDeque::new(),
            sent: Vec::new(),
            sent_ns: 0,
            unresponsive: false,
            streams: Streams::default(),
            counts: Counts::default(),
            gone: false,
        })
    }

    /// It is the child that this program is about to have, and has not begun to live.
    pub fn awaits(&self, parent: Option<u32>) -> bool {
        self.handles.is_none() && self.parent != 0 && Some(self.parent) == parent
    }

    pub fn attach(&mut self, uffd: OwnedFd) -> io::Result<()> {
        self.handles = Some(Arc::new(Handles { uffd, backing: self.backing.try_clone()? }));
        Ok(())
    }

    pub fn control(&self) -> &Control {
        // SAFETY: the file has this size for ever (sealed), and all that others write is atomic or
        // copied and checked.
        unsafe { &*self.control.as_ptr().cast::<Control>() }
    }

    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Told to the next daemon before the call is answered: the program takes the answer for done.
    pub fn freeze(&mut self, frozen: bool) {
        self.control().frozen.store(u32::from(frozen), Ordering::Release);
        self.frozen = frozen;
    }

    /// Whether the daemon before us had it frozen. A snapshot that was not answered is taken again,
    /// so its pages must not have moved, even if the old daemon was done with it.
    pub fn recall_frozen(&mut self) {
        let control = self.control();
        let call = &control.call;
        let waits = call.answered.load(Ordering::Acquire) != call.asked.load(Ordering::Acquire);
        let again = waits && call.op.load(Ordering::Acquire) == op::SNAPSHOT;
        self.frozen = again || control.frozen.load(Ordering::Acquire) != 0;
    }

    /// A fault is not served now.
    pub fn is_suspended(&self) -> bool {
        self.frozen || self.draining || self.out.is_some() || self.gone
    }

    /// Its agent has a batch and does not answer.
    pub fn is_unresponsive(&self, now_ns: u64) -> bool {
        !self.sent.is_empty() && now_ns.saturating_sub(self.sent_ns) > UNRESPONSIVE_NS
    }

    pub fn begin(&mut self) {
        self.inflight += 1;
    }

    pub fn end(&mut self) {
        self.inflight -= 1;
    }

    pub fn is_quiet(&self) -> bool {
        self.inflight == 0
    }

    pub fn backing(&self) -> BorrowedFd<'_> {
        self.backing.as_fd()
    }

    /// Takes over the list the agent wrote. False, and nothing changed: it is no list of regions.
    pub fn read_regions(&mut self) -> bool {
        let control = self.control();
        let mut regions: Vec<Span> = Vec::new();
        let read = control.regions.read(|at, span| {
            regions.truncate(at);
            regions.push(span);
        });
        let Some(count) = read else { return false };
        regions.truncate(count);
        let page = PAGE as u64;
        let sound = |span: &Span| {
            span.len > 0
                && [span.address, span.offset, span.len].iter().all(|word| word % page == 0)
                && span.address < 1 << 47
                && span.offset <= BACKING_BYTES
                && span.len <= BACKING_BYTES - span.offset
        };
        if !regions.iter().all(sound) {
            return false;
        }
        let mut places = regions.clone();
        regions.sort_unstable_by_key(|span| span.address);
        places.sort_unstable_by_key(|span| span.offset);
        let apart = regions.windows(2).all(|two| two[0].address + two[0].len <= two[1].address)
            && places.windows(2).all(|two| two[0].offset + two[0].len <= two[1].offset);
        if apart {
            (self.regions, self.places) = (regions, places);
        }
        apart
    }

    /// By offset.
    pub fn places(&self) -> &[Span] {
        &self.places
    }

    /// The page at an address.
    pub fn place(&self, address: u64) -> Option<Place> {
        let after = self.regions.partition_point(|span| span.address <= address);
        let span = self.regions.get(after.checked_sub(1)?)?;
        let into = address - span.address;
        let page = PAGE as u64;
        (into < span.len).then(|| Place {
            page: (span.offset + into) / page,
            begin: span.offset / page,
            end: (span.offset + span.len) / page,
        })
    }

    /// The address of a page.
    pub fn address(&self, page: Page) -> Option<u64> {
        let offset = page * PAGE as u64;
        let after = self.places.partition_point(|span| span.offset <= offset);
        let span = self.places.get(after.checked_sub(1)?)?;
        (offset - span.offset < span.len).then(|| span.address + (offset - span.offset))
    }

    pub fn local(&self, page: Page) -> Local {
        let chunk = self.local.get(page as usize / CHUNK).and_then(Option::as_ref);
        chunk.map_or(NOWHERE, |chunk| chunk[page as usize % CHUNK])
    }

    pub fn local_mut(&mut self, page: Page) -> &mut Local {
        let at = page as usize / CHUNK;
        if self.local.len() <= at {
            self.local.resize_with(at + 1, || None);
        }
        let chunk = self.local[at].get_or_insert_with(|| Box::new([NOWHERE; CHUNK]));
        &mut chunk[page as usize % CHUNK]
    }

    /// Forgets the pages of `[first, end)`; returns those that had a frame.
    pub fn take_local(&mut self, first: Page, end: Page) -> Vec<(Page, Local)> {
        let mut taken = Vec::new();
        let mut page = first;
        while page < end && (page as usize / CHUNK) < self.local.len() {
            let stop = ((page / CHUNK as u64 + 1) * CHUNK as u64).min(end);
            let at = page as usize / CHUNK;
            if let Some(chunk) = &mut self.local[at] {
                for page in page..stop {
                    let local = &mut chunk[page as usize % CHUNK];
                    if local.frame != NONE {
                        taken.push((page, *local));
                    }
                    *local = NOWHERE;
                }
                if stop - page == CHUNK as u64 {
                    self.local[at] = None;
                }
            }
            page = stop;
        }
        taken
    }

    /// Pages that have a frame.
    pub fn resident(&self) -> Vec<(Page, Local)> {
        let chunks = self.local.iter().enumerate();
        chunks
            .filter_map(|(at, chunk)| chunk.as_ref().map(|chunk| (at, chunk)))
            .flat_map(|(at, chunk)| {
                let page = move |n: usize| (at * CHUNK + n) as Page;
                chunk.iter().enumerate().map(move |(n, local)| (page(n), *local))
            })
            .filter(|(_, local)| local.frame != NONE)
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A program without regions and without a userfaultfd.
    pub fn blank(id: u32) -> Client {
        let file = |name, bytes| sys::memory_file(name, bytes).unwrap();
        let backing = file(c"backing", BACKING_BYTES);
        let table = file(c"table", crate::table::TABLE_BYTES);
        let control = file(c"control", CONTROL_BYTES as u64);
        Client::new(id, 0, "", (backing, table, control)).unwrap()
    }
}
