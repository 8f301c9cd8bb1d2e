//! The state that the daemon's threads share under one lock: the clock, the programs, the queues
//! between threads.
//!
//! Owns frames on their way into and out of the clock. The lock is held for single ioctls and for
//! punching, never while the store is read or written (except in `snapshot`). Invariant: a page
//! that the clock believes unmapped is unmapped. It is broken only between `Action::Zap` and the
//! agent's answer; until then the page is PENDING, and the clock is told that it was touched
//! whenever it would go further with it.

use std::collections::VecDeque;

use odfork_pager_protocol::PAGE;
use odfork_policy::clock::{Action, Clock, Frame, Owner};

use super::client::{Client, Local, NEIGHBOUR, NONE, PENDING, QUEUED, UNMAP};
use crate::crash_points;
use crate::sys;
use crate::table::Page;

/// Frames taken from the pool at a time.
const BATCH: usize = 16;
/// A page that is read again within so many evictions a frame was evicted too early.
const REFAULT_DISTANCE: u32 = 4;

/// Names a program beyond its end: its place in the list is used again, its number is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientKey {
    pub owner: Owner,
    pub id: u32,
}

#[derive(Debug)]
pub struct State {
    pub clock: Clock,
    /// By owner.
    pub clients: Vec<Option<Box<Client>>>,
    /// Frames taken from the pool, punched, not used yet.
    reserve: Vec<Frame>,
    pub actions: Vec<Action>,
    /// Dirty pages that left the active list.
    pub to_clean: VecDeque<(ClientKey, Page)>,
    /// Faults for which there was no frame.
    pub starved: VecDeque<(ClientKey, u64)>,
    /// Faults to be served again by a fault thread.
    pub retry: VecDeque<(ClientKey, u64)>,
    /// Pages read that had been evicted not long before: memory is short, not just passed through.
    pub refaults: u64,
    /// When the store last refused for lack of room; 0: not since.
    pub full_since_ns: u64,
}

impl State {
    pub fn new(clock: Clock) -> State {
        State {
            clock,
            clients: Vec::new(),
            reserve: Vec::new(),
            actions: Vec::new(),
            to_clean: VecDeque::new(),
            starved: VecDeque::new(),
            retry: VecDeque::new(),
            refaults: 0,
            full_since_ns: 0,
        }
    }

    pub fn client(&mut self, owner: Owner) -> Option<&mut Client> {
        self.clients.get_mut(owner as usize)?.as_deref_mut()
    }

    pub fn by_key(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.client(key.owner).filter(|client| client.id == key.id)
    }

    pub fn key(&mut self, owner: Owner) -> Option<ClientKey> {
        self.client(owner).map(|client| ClientKey { owner, id: client.id })
    }

    pub fn owner_of(&self, id: u32) -> Option<Owner> {
        let is = |client: &Option<Box<Client>>| client.as_ref().is_some_and(|c| c.id == id);
        self.clients.iter().position(is).map(|at| at as Owner)
    }

    /// A new program's place.
    pub fn add(&mut self, client: Client) -> Owner {
        let at = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if at == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[at] = Some(Box::new(client));
        at as Owner
    }

    /// Frames that are or soon will be free.
    pub fn supply(&self) -> u32 {
        self.clock.pool_len() + self.clock.leaving() + self.reserve.len() as u32
    }

    /// Below this supply the hand moves as far as is needed, whatever the scan rule says.
    pub fn least(&self) -> u32 {
        let frames = self.clock.frames();
        (frames / 16).max(32).min(frames / 2)
    }

    /// Whether the supply is at that point or will soon be.
    pub fn is_short(&self) -> bool {
        self.supply() < self.least() * 2
    }

    /// A free frame. What it held is out: its entry was published before it could enter the pool.
    pub fn frame(&mut self) -> Option<Frame> {
        if self.reserve.is_empty() {
            self.fill_reserve();
        }
        self.reserve.pop()
    }

    /// Frames for a page and its neighbours in a row of `pages`, in one piece around `asked`: where
    /// the piece begins, and its frames. None: not even one.
    pub fn frames_around(&mut self, asked: usize, pages: usize) -> Option<(usize, Vec<Frame>)> {
        let mut frames = vec![NONE; pages];
        frames[asked] = self.frame()?;
        for at in (0..pages).filter(|&at| at != asked) {
            match self.frame() {
                Some(frame) => frames[at] = frame,
                None => break,
            }
        }
        let begin = (0..=asked).rev().take_while(|&at| frames[at] != NONE).last().unwrap_or(asked);
        let end = (asked..pages).take_while(|&at| frames[at] != NONE).count() + asked;
        for &frame in frames[..begin].iter().chain(&frames[end..]).filter(|&&f| f != NONE) {
            self.give_back(frame);
        }
        Some((begin, frames[begin..end].to_vec()))
    }

    /// Counts the page-in of a page that was evicted not long ago.
    pub fn count_refault(&mut self, owner: Owner, page: Page) {
        let (frames, evictions) = (self.clock.frames(), self.clock.counts().evicted as u32);
        let Some(client) = self.client(owner) else { return };
        let number = client.local(page).evicted;
        let distance = evictions.wrapping_sub(number);
        let lately = number != 0 && distance < frames.saturating_mul(REFAULT_DISTANCE);
        self.refaults += u64::from(lately);
    }

    pub fn give_back(&mut self, frame: Frame) {
        self.clock.give_back(frame);
    }

    /// Frames that can be had at once, besides `keep` that should stay reclaimable.
    pub fn spare(&self, keep: u32) -> u32 {
        (self.clock.pool_len() + self.reserve.len() as u32).saturating_sub(keep)
    }

    fn fill_reserve(&mut self) {
        let mut evicted: Vec<(Owner, Page)> = Vec::new();
        while self.reserve.len() < BATCH {
            let Some(taken) = self.clock.take_frame() else { break };
            self.reserve.push(taken.frame);
            let Some((owner, page)) = taken.evicted else { continue };
            let number = self.clock.counts().evicted as u32;
            evicted.push((owner, page));
            if let Some(client) = self.client(owner) {
                let local = client.local_mut(page);
                if taken.wasted && local.flags & NEIGHBOUR != 0 {
                    client.streams.judge(false);
                }
                *client.local_mut(page) = Local { frame: NONE, evicted: number, flags: 0 };
            }
        }
        evicted.sort_unstable();
        self.punch(&evicted);
    }

    /// Gives the memory of pages back, runs in one call.
    fn punch(&mut self, pages: &[(Owner, Page)]) {
        let mut from = 0;
        while from < pages.len() {
            let mut to = from + 1;
            while to < pages.len() && pages[to] == (pages[to - 1].0, pages[to - 1].1 + 1) {
                to += 1;
            }
            let (owner, page) = pages[from];
            if let Some(client) = self.client(owner) {
                let bytes = (to - from) as u64 * PAGE as u64;
                // If this fails the pages stay, and stay the truth: the next fault finds them in
                // the file.
                let _ = sys::punch(client.backing(), page * PAGE as u64, bytes);
            }
            crash_points::pass("evict.punched");
            from = to;
        }
    }

    /// Carries out what the clock asked for.
    pub fn apply_actions(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                self.apply(action);
            }
        }
    }

    fn apply(&mut self, action: Action) {
        let (Action::Zap(frame)
        | Action::Unmap(frame)
        | Action::Clean(frame)
        | Action::Left(frame)) = action;
        let Some((owner, page)) = self.clock.content(frame) else { return };
        let Some(key) = self.key(owner) else { return };
        let Some(client) = self.clients[owner as usize].as_deref_mut() else { return };
        let unresponsive = client.unresponsive;
        let local = client.local_mut(page);
        let pending = local.flags & PENDING != 0;
        match action {
            // Who does not answer unmaps nothing: its page stays.
            Action::Unmap(_) if !pending && !unresponsive => {
                local.flags |= UNMAP | PENDING;
                client.zaps.push_back(page);
            }
            Action::Unmap(_) => drop(self.clock.touch(frame, false)),
            Action::Zap(_) if !pending => {
                local.flags |= PENDING;
                client.zaps.push_back(page);
            }
            // It may be mapped still: back to where it was.
            Action::Zap(_) => drop(self.clock.touch(frame, false)),
            Action::Left(_) if pending => drop(self.clock.touch(frame, false)),
            Action::Clean(_) if pending => {
                self.clock.touch(frame, false);
                self.clock.not_written(frame);
            }
            Action::Left(_) => {}
            Action::Clean(_) => {
                local.flags |= QUEUED;
                self.to_clean.push_back((key, page));
            }
        }
    }

    /// A page that waits to be written goes back to the hand, dirty as it is.
    pub fn put_back(&mut self, key: ClientKey, page: Page) {
        let Some(client) = self.by_key(key) else { return };
        let local = client.local_mut(page);
        if local.flags & QUEUED != 0 && local.frame != NONE {
            local.flags &= !QUEUED;
            let frame = local.frame;
            self.clock.not_written(frame);
        }
    }

    /// A program has ceased to answer: what was to leave memory as soon as it is unmapped does not,
    /// and is no supply.
    pub fn cancel_unmaps(&mut self, owner: Owner) {
        let Some(client) = self.client(owner) else { return };
        let pages: Vec<Page> = client.sent.iter().chain(&client.zaps).copied().collect();
        let mut frames = Vec::new();
        for page in pages.into_iter().filter(|&page| page != Page::MAX) {
            let local = client.local_mut(page);
            if local.flags & UNMAP != 0 && local.frame != NONE {
                local.flags &= !UNMAP;
                frames.push(local.frame);
            }
        }
        for frame in frames {
            self.clock.touch(frame, false);
        }
    }

    /// A page's content is forgotten.
    pub fn discard(&mut self, frame: Frame) {
        self.clock.discard(frame);
    }
}
