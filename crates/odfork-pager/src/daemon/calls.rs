//! Calls of the agents: regions come and go, content is discarded, a fork takes a snapshot, advice.
//!
//! The scanner serves each call to its end under the lock. Calls are repeatable: a daemon that dies
//! in one finds it again. A call that takes pages away waits until no operation on this program's
//! pages is under way; new faults are parked until then.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use odfork_pager_protocol::control::{op, Span, REGION_DONTFORK, REGION_WIPEONFORK};
use odfork_pager_protocol::{BACKING_BYTES, PAGE};

use super::client::NONE;
use super::state::State;
use super::Daemon;
use crate::crash_points;
use crate::stats::count;
use crate::store::{Slot, StoreError, MOST_PAGES};
use crate::sys;
use crate::table::{Entry, Page, Table};

const CHILD_TIMEOUT_NS: u64 = 5_000_000_000;

impl Daemon {
    /// Serves the call of a program, if it has made one and may be served now.
    pub fn serve_call(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        let call = &client.control().call;
        let asked = call.asked.load(Ordering::Acquire);
        if call.answered.load(Ordering::Acquire) == asked || client.gone {
            return;
        }
        let what = call.op.load(Ordering::Acquire);
        let args = [0, 1].map(|at| call.args[at].load(Ordering::Acquire));
        if what != op::ADVISE && what != op::REGIONS && !client.is_quiet() {
            client.draining = true;
            return;
        }
        client.draining = false;
        if what == op::SNAPSHOT && self.is_early(state, owner, args[0]) {
            return;
        }
        crash_points::pass("call.begun");
        let result = self.call(state, owner, what, args);
        crash_points::pass("call.done");
        if let Some(client) = state.client(owner) {
            let call = &client.control().call;
            call.result.store(result, Ordering::Release);
            call.answered.store(asked, Ordering::Release);
            crash_points::pass("call.answered");
            if what == op::SNAPSHOT {
                crash_points::pass("snapshot.answered");
            }
            sys::futex_wake(&call.answered);
        }
        self.unpark(state, owner);
    }

    /// The supervisor's message about the child may come after its parent's call: the registration
    /// rings then. A child that does not come is not waited for long.
    fn is_early(&self, state: &mut State, owner: u32, child: u64) -> bool {
        let known = state.owner_of(child as u32).is_some();
        let Some(client) = state.client(owner) else { return false };
        let now = sys::now_ns();
        let since = *client.child_awaited_ns.get_or_insert(now);
        if known || now.saturating_sub(since) > CHILD_TIMEOUT_NS {
            client.child_awaited_ns = None;
            return false;
        }
        true
    }

    fn call(&self, state: &mut State, owner: u32, what: u32, args: [u64; 2]) -> i32 {
        let Some(client) = state.client(owner) else { return -libc::ESRCH };
        match what {
            op::REGIONS | op::RELEASE if !client.read_regions() => return -libc::EINVAL,
            op::REGIONS => return 0,
            op::RELEASE | op::DISCARD => return self.give_up(state, owner, args),
            op::FREEZE => client.freeze(true),
            op::THAW => {
                client.freeze(false);
                for (_, local) in client.resident() {
                    state.clock.mark_dirty(local.frame);
                }
            }
            op::ADVISE => state.clock.set_anomalous(owner, args[0] == 1),
            op::SNAPSHOT => {
                let Some(child) = state.owner_of(args[0] as u32) else { return -libc::ECHILD };
                let parent = state.client(owner).map(|client| client.id);
                if !state.client(child).is_some_and(|child| child.awaits(parent)) {
                    return -libc::EPERM;
                }
                let result = match self.snapshot(state, owner, child) {
                    Ok(()) => 0,
                    Err(StoreError::Full) => -libc::ENOMEM,
                    Err(_) => -libc::EIO,
                };
                if let Some(client) = state.client(owner) {
                    client.freeze(false);
                }
                return result;
            }
            op::PREFETCH => {}
            _ => return -libc::ENOSYS,
        }
        0
    }

    /// A range becomes zeros: frames, slots, entries, file.
    fn give_up(&self, state: &mut State, owner: u32, [offset, len]: [u64; 2]) -> i32 {
        let page = PAGE as u64;
        if offset % page != 0
            || len % page != 0
            || len > BACKING_BYTES
            || offset > BACKING_BYTES - len
        {
            return -libc::EINVAL;
        }
        self.forget(state, owner, offset / page, len / page);
        state.apply_actions();
        0
    }

    fn forget(&self, state: &mut State, owner: u32, first: Page, pages: u64) {
        let Some(client) = state.client(owner) else { return };
        let taken = client.take_local(first, first + pages);
        for page in client.sent.iter_mut().filter(|page| (first..first + pages).contains(*page)) {
            *page = Page::MAX;
        }
        let mut actions = std::mem::take(&mut state.actions);
        for (_, local) in taken {
            state.discard(local.frame);
            // Nothing of this program is under way, so nobody else ends a write that was only asked
            // for.
            state.clock.written(local.frame, &mut actions);
        }
        state.actions = actions;
        let Some(client) = state.client(owner) else { return };
        for (from, to) in Table::used(client.table_file.as_fd(), first, pages) {
            for page in from..to {
                if let Entry::Stored(slot) | Entry::Filling(slot) = client.table.get(page) {
                    self.store.release(slot);
                }
            }
        }
        let _ = client.table.forget(client.table_file.as_fd(), first, pages);
        let _ = sys::punch(client.backing(), first * PAGE as u64, pages * PAGE as u64);
    }

    /// The program is gone: nothing of it stays.
    pub fn remove(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        let id = client.id;
        self.forget(state, owner, 0, BACKING_BYTES / PAGE as u64);
        state.clock.discard_owner(owner);
        state.clock.set_anomalous(owner, false);
        if let Some(client) = state.clients[owner as usize].take() {
            if let Some(handles) = &client.handles {
                self.unwatch(handles.uffd.as_fd());
            }
        }
        self.send_gone(id);
    }

    /// Gives a child its parent's memory: what is only in memory goes to the store, then both have
    /// the same slots. The parent's faults are parked and all its pages unmapped, so that nothing
    /// changes meanwhile.
    fn snapshot(&self, state: &mut State, owner: u32, child: u32) -> Result<(), StoreError> {
        count(&self.stats.snapshots);
        self.flush(state, owner)?;
        crash_points::pass("snapshot.half");
        let Some(parent) = state.clients[owner as usize].take() else { return Ok(()) };
        for span in parent.places().iter().filter(is_inherited) {
            let (first, pages) = (span.offset / PAGE as u64, span.len / PAGE as u64);
            for (from, to) in Table::used(parent.table_file.as_fd(), first, pages) {
                for page in from..to {
                    self.inherit(state, child, page, parent.table.get(page));
                }
            }
        }
        state.clients[owner as usize] = Some(parent);
        Ok(())
    }

    fn inherit(&self, state: &mut State, child: u32, page: Page, entry: Entry) {
        let Some(child) = state.client(child) else { return };
        let (before, now) = match (child.table.get(page), entry) {
            // A daemon that died had come so far.
            (before, now) if before == now => return,
            both => both,
        };
        if let Entry::Stored(slot) = now {
            self.store.share(slot);
        }
        if now != Entry::Zero || before != Entry::Zero {
            child.table.set(page, now);
        }
        if let Entry::Stored(slot) | Entry::Filling(slot) = before {
            self.store.release(slot);
        }
    }

    /// Writes every page in memory that the store does not have; they stay in memory. Which of them
    /// are written is not known at this moment (they were unmapped without asking): all that may
    /// be.
    fn flush(&self, state: &mut State, owner: u32) -> Result<(), StoreError> {
        let Some(client) = state.client(owner) else { return Ok(()) };
        let mut pages = client.resident();
        pages.retain(|(_, local)| {
            local.frame != NONE
                && (state.clock.is_valid(local.frame)
                    || state.clock.is_dirty(local.frame)
                    || state.clock.is_writing(local.frame)
                    || local.flags != 0)
        });
        let mut content = sys::Buffer::new(MOST_PAGES * PAGE)?;
        let mut scratch = crate::store::io_buffer()?;
        let mut from = 0;
        while from < pages.len() {
            let mut to = from + 1;
            while to < pages.len() && to - from < MOST_PAGES && pages[to].0 == pages[to - 1].0 + 1 {
                to += 1;
            }
            let Some(client) = state.client(owner) else { return Ok(()) };
            let bytes = &mut content[..(to - from) * PAGE];
            let first = pages[from].0;
            sys::read_all(client.backing(), bytes, first * PAGE as u64)?;
            let old: Vec<Option<Slot>> = (first..first + (to - from) as u64)
                .map(|page| match client.table.get(page) {
                    Entry::Stored(slot) => Some(slot),
                    _ => None,
                })
                .collect();
            let slots = self.write(bytes, &old, &mut scratch)?;
            for (at, slot) in slots.into_iter().enumerate() {
                self.publish_one(client, first + at as u64, slot);
            }
            from = to;
        }
        Ok(())
    }
}

fn is_inherited(span: &&Span) -> bool {
    span.flags & (REGION_DONTFORK | REGION_WIPEONFORK) == 0
}
