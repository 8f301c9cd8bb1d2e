//! A fault, under the lock: reclaim, zeros, or a read job.
//!
//! One fault goes this way: message (`fault.read`), page of the address; page in memory: touch and
//! map (reclaim); never written: zeros; in the store: a job for `pagein`. Faults of a suspended
//! program are parked. Without a free frame a fault starves until the scanner has freed some.
//! Nothing here waits.

use std::os::fd::AsFd;
use std::sync::Arc;

use odfork_pager_protocol::PAGE;
use odfork_policy::clock::{List, Owner, Touch};

use super::client::{Client, Handles, Place, FILLING, NEIGHBOUR, NONE, WANTED};
use super::state::{ClientKey, State};
use super::streams::Reach;
use super::Daemon;
use crate::crash_points;
use crate::stats::{add, count};
use crate::store::{Slot, MOST_PAGES};
use crate::table::{Entry, Page};
use crate::uffd;

/// Most zero pages mapped at a time for a program that walks through fresh memory.
const MOST_ZEROS: u32 = 16;
/// From so many pages on, a cluster read ahead is mapped in runs.
const STREAM: u64 = 8;
static ZEROS: [u8; MOST_ZEROS as usize * PAGE] = [0; MOST_ZEROS as usize * PAGE];

/// Pages to be read: `slots` adjoin, as do the pages. One of them was asked for.
#[derive(Debug)]
pub struct Job {
    pub key: ClientKey,
    pub handles: Arc<Handles>,
    pub first: Page,
    pub slots: Vec<Slot>,
    pub frames: Vec<u32>,
    /// Index of the page that faulted, and its address.
    pub asked: usize,
    pub address: u64,
    /// A stream is being read: the page asked for comes with the others, and so many are mapped
    /// with it.
    pub run: u64,
    pub began_ns: u64,
}

impl Job {
    /// Bytes to be read.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.len)).sum()
    }
}

/// What became of a fault.
#[derive(Debug)]
pub enum Step {
    Done,
    Read(Job),
}

impl Daemon {
    /// Serves one fault as far as that is possible without I/O.
    pub fn fault(&self, state: &mut State, key: ClientKey, address: u64, now_ns: u64) -> Step {
        let address = address & !(PAGE as u64 - 1);
        let Some(client) = state.by_key(key) else { return Step::Done };
        if client.is_suspended() {
            client.parked.push(address);
            return Step::Done;
        }
        let Some(handles) = client.handles.clone() else { return Step::Done };
        client.counts.faults += 1;
        let Some(place) = client.place(address) else {
            // A mapping that is gone or not yet known: the fault comes again if it was meant.
            let _ = uffd::wake(handles.uffd.as_fd(), address, PAGE as u64);
            return Step::Done;
        };
        let local = client.local(place.page);
        if local.flags & FILLING != 0 {
            client.local_mut(place.page).flags |= WANTED;
            return Step::Done;
        }
        if local.frame != NONE {
            self.reclaim(state, key.owner, place, address);
            self.stats.reclaim_time.add(crate::sys::now_ns().saturating_sub(now_ns));
            return Step::Done;
        }
        match client.table.get(place.page) {
            Entry::Zero => {
                self.give_zeros(state, key, place, address);
                Step::Done
            }
            Entry::Stored(_) => self.plan(state, key, place, (address, now_ns)),
            // Recovery leaves no `Filling` behind; a page that is neither here nor there is lost.
            Entry::Filling(_) | Entry::Poisoned => {
                let _ = uffd::poison(handles.uffd.as_fd(), address);
                Step::Done
            }
        }
    }

    /// The page is in memory: set its reference bit and map it.
    fn reclaim(&self, state: &mut State, owner: Owner, place: Place, address: u64) {
        let Some(client) = state.clients[owner as usize].as_deref_mut() else { return };
        let Some(handles) = client.handles.clone() else { return };
        let local = client.local(place.page);
        let touch = state.clock.touch(local.frame, false);
        client.counts.reclaims += 1;
        let mut pages = 1;
        if touch == Touch::Prefetched {
            if local.flags & NEIGHBOUR != 0 {
                client.local_mut(place.page).flags &= !NEIGHBOUR;
                client.streams.judge(true);
            } else {
                // A stream is being read: the next ones will be touched at once.
                let most = u64::from(client.streams.around(place.page));
                let most = most.min(place.end - place.page);
                while pages < most {
                    let next = client.local(place.page + pages);
                    if next.frame == NONE
                        || next.flags != 0
                        || !state.clock.is_prefetched(next.frame)
                    {
                        break;
                    }
                    state.clock.touch(next.frame, false);
                    pages += 1;
                }
            }
        }
        let uffd = handles.uffd.as_fd();
        match uffd::map(uffd, address, pages) {
            // Mapping wakes who waits.
            Ok(_) => {
                if touch == Touch::Valid || local.flags & super::client::PENDING != 0 {
                    // Somebody else unmapped it: whether it was written is not known.
                    state.clock.mark_dirty(local.frame);
                }
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EFAULT) => self.lost(state, owner, place.page, address),
                _ => drop(uffd::wake(uffd, address, PAGE as u64)),
            },
        }
    }

    /// In memory as far as we know, but not in the file: somebody punched the file. Never zeros.
    fn lost(&self, state: &mut State, owner: Owner, page: Page, address: u64) {
        let Some(client) = state.client(owner) else { return };
        let local = client.local(page);
        client.table.set(page, Entry::Poisoned);
        client.local_mut(page).frame = NONE;
        if let Some(handles) = client.handles.clone() {
            let _ = uffd::poison(handles.uffd.as_fd(), address);
        }
        state.discard(local.frame);
        count(&self.stats.poisoned);
    }

    /// Never written, or zeros when it left: no I/O. Who walks through fresh memory gets several
    /// pages.
    fn give_zeros(&self, state: &mut State, key: ClientKey, place: Place, address: u64) {
        let spare = state.spare(64).clamp(1, MOST_ZEROS);
        let Some(client) = state.clients[key.owner as usize].as_deref_mut() else { return };
        let Some(handles) = client.handles.clone() else { return };
        let wanted = match client.streams.miss(place.page, spare) {
            Reach::Ahead(pages) => u64::from(pages),
            Reach::Around(_) => 1,
        };
        let mut frames = Vec::with_capacity(wanted as usize);
        for page in place.page..(place.page + wanted).min(place.end) {
            let Some(client) = state.client(key.owner) else { break };
            let local = client.local(page);
            let fresh = local.frame == NONE && local.flags == 0;
            if !fresh || client.table.get(page) != Entry::Zero {
                break;
            }
            let Some(frame) = state.frame() else { break };
            frames.push(frame);
        }
        if frames.is_empty() {
            return self.starve(state, key, address);
        }
        let uffd = handles.uffd.as_fd();
        let mut found = false;
        let done = match uffd::copy(uffd, address, &ZEROS[..frames.len() * PAGE]) {
            Ok(done) => done,
            // It was in the file all the time: the file is the truth.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                let _ = uffd::map(uffd, address, 1);
                let _ = uffd::wake(uffd, address, PAGE as u64);
                found = true;
                1
            }
            Err(_) => 0,
        };
        crash_points::pass("zero.copied");
        for (at, &frame) in frames.iter().enumerate() {
            let page = place.page + at as u64;
            if at < done {
                state.clock.insert(frame, key.owner, page, List::Active);
                if found {
                    state.clock.mark_dirty(frame);
                }
                if let Some(client) = state.client(key.owner) {
                    client.local_mut(page).frame = frame;
                    client.counts.zeros += 1;
                }
            } else {
                state.give_back(frame);
            }
        }
        if done == 0 {
            let _ = uffd::wake(uffd, address, PAGE as u64);
        }
        add(&self.stats.zero_fills, done as u64);
    }

    /// The fault waits for a frame.
    fn starve(&self, state: &mut State, key: ClientKey, address: u64) {
        state.starved.push_back((key, address));
        if let Some(client) = state.by_key(key) {
            client.counts.waits += 1;
        }
        count(&self.stats.starved);
        self.ring();
    }

    /// Chooses what is read with the page that faulted, and takes frames for it.
    fn plan(
        &self,
        state: &mut State,
        key: ClientKey,
        place: Place,
        (address, began_ns): (u64, u64),
    ) -> Step {
        state.count_refault(key.owner, place.page);
        let most = self.tunables.cluster_in().min(MOST_PAGES as u32);
        // Pre-paging must not drain the pool.
        let most = most.min(1 + state.spare(32) / 2);
        let Some(client) = state.client(key.owner) else { return Step::Done };
        let Some(handles) = client.handles.clone() else { return Step::Done };
        let (from, to, flag) = match client.streams.miss(place.page, most) {
            Reach::Ahead(pages) => (place.page, place.page + u64::from(pages), 0),
            Reach::Around(pages) => {
                let from = place.page / u64::from(pages) * u64::from(pages);
                (from, from + u64::from(pages), NEIGHBOUR)
            }
        };
        let (first, slots) = self.adjoining(client, place, (from, to));
        let asked = (place.page - first) as usize;
        let Some((begin, frames)) = state.frames_around(asked, slots.len()) else {
            self.starve(state, key, address);
            return Step::Done;
        };
        let end = begin + frames.len();
        let Some(client) = state.client(key.owner) else { return Step::Done };
        let ahead = (end - asked) as u64;
        let run = if flag == 0 && ahead >= STREAM { ahead / 2 } else { 0 };
        for (at, &slot) in slots.iter().enumerate().take(end).skip(begin) {
            let page = first + at as u64;
            let neighbour = if at == asked { 0 } else { flag };
            client.local_mut(page).flags |= FILLING | neighbour;
            if at != asked || run > 0 {
                client.table.set(page, Entry::Filling(slot));
            }
        }
        client.begin();
        client.counts.reads += 1;
        crash_points::pass("pagein.filling");
        Step::Read(Job {
            key,
            handles,
            first: first + begin as u64,
            slots: slots[begin..end].to_vec(),
            frames,
            asked: asked - begin,
            address,
            run,
            began_ns,
        })
    }

    /// The pages around this one, within `[from, to)`, that are out and whose slots adjoin.
    fn adjoining(
        &self,
        client: &Client,
        place: Place,
        (from, to): (Page, Page),
    ) -> (Page, Vec<Slot>) {
        let slot = |page: Page| {
            let local = client.local(page);
            let out = local.frame == NONE && local.flags == 0;
            match client.table.get(page) {
                Entry::Stored(slot) if out => Some(slot),
                _ => None,
            }
        };
        let mut slots: Vec<Slot> = slot(place.page).into_iter().collect();
        let mut first = place.page;
        while first > from.max(place.begin) && !slots.is_empty() {
            match slot(first - 1).filter(|&before| self.store.adjoin(before, slots[0])) {
                Some(before) => slots.insert(0, before),
                None => break,
            }
            first -= 1;
        }
        for page in place.page + 1..to.min(place.end) {
            let Some(&last) = slots.last() else { break };
            match slot(page).filter(|&next| self.store.adjoin(last, next)) {
                Some(next) => slots.push(next),
                None => break,
            }
        }
        (first, slots)
    }
}
