//! Page-out: dirty pages that left the active list go to the store in clusters, by one thread.
//!
//! 1 under the lock: take the oldest waiting page and its dirty, unmapped neighbours, 2 read them
//! from the file, 3 zeros are only noted, the rest is written, 4 under the lock: publish the
//! entries, tell the clock. The pages are unmapped and stay so unless they fault; a page that
//! faults meanwhile is mapped with the mark, so what is written to it later is noticed, and the
//! copy in the store is as good as the page was when it was mapped.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use odfork_pager_protocol::PAGE;
use odfork_policy::clock::{Frame, State as FrameState};

use super::client::{Client, Handles, NONE, PENDING, QUEUED};
use super::state::{ClientKey, State};
use super::Daemon;
use crate::crash_points;
use crate::stats::{add, count};
use crate::store::{Slot, StoreError, MOST_PAGES};
use crate::sys::{self, Buffer};
use crate::table::{Entry, Page};

/// How long a page may wait for neighbours.
const GATHER: Duration = Duration::from_millis(20);
/// After the store refused, before it is asked again.
const FULL_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Batch {
    key: ClientKey,
    handles: Arc<Handles>,
    first: Page,
    frames: Vec<Frame>,
    /// Their slots of before.
    old: Vec<Option<Slot>>,
}

impl Daemon {
    /// The page-out thread.
    pub fn run_page_out(&self) {
        let Ok(mut pages) = Buffer::new(MOST_PAGES * PAGE) else { return };
        let Ok(mut scratch) = crate::store::io_buffer() else { return };
        loop {
            let mut state = self.lock();
            while state.to_clean.is_empty() {
                state = self.wait(&self.dirty, state, None);
            }
            let hurry = state.spare(0) < state.clock.frames() / 16;
            if !hurry && state.to_clean.len() < MOST_PAGES {
                state = self.wait(&self.dirty, state, Some(GATHER));
            }
            let Some(batch) = self.gather(&mut state) else {
                // All that waits belongs to programs that must stand still for now.
                drop(self.wait(&self.dirty, state, Some(GATHER)));
                continue;
            };
            drop(state);
            let bytes = (batch.frames.len() * PAGE) as u64;
            let rate = self.tunables.page_out_rate();
            let pause = self.traffic.1.take(bytes, rate, sys::now_ns());
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            if !self.page_out(&batch, &mut pages, &mut scratch) {
                std::thread::sleep(FULL_PAUSE);
            }
        }
    }

    /// Step 1.
    fn gather(&self, state: &mut State) -> Option<Batch> {
        // Each of those that wait now is looked at once.
        for _ in 0..state.to_clean.len() {
            let (key, page) = state.to_clean.pop_front()?;
            let Some(client) = state.by_key(key) else { continue };
            if client.is_frozen() || client.draining {
                // A fork or an unmapping wants this program's pages to stand still. Who is frozen
                // may be so for long (it is stopped, or lies), and what waits here counts as soon
                // free: then it goes back to the hand.
                match client.is_frozen() {
                    true => state.put_back(key, page),
                    false => state.to_clean.push_back((key, page)),
                }
                continue;
            }
            let local = client.local(page);
            if local.flags & QUEUED == 0 || local.frame == NONE || client.gone {
                continue;
            }
            let handles = client.handles.clone()?;
            let most = u64::from(self.tunables.cluster_out().clamp(1, MOST_PAGES as u32));
            let block = page / most * most;
            let mut first = page;
            while first > block && ready(state, key, first - 1) {
                first -= 1;
            }
            let mut end = page + 1;
            while end < block + most && ready(state, key, end) {
                end += 1;
            }
            let client = state.by_key(key)?;
            let (mut frames, mut old) = (Vec::new(), Vec::new());
            for page in first..end {
                let local = client.local_mut(page);
                local.flags &= !QUEUED;
                frames.push(local.frame);
                old.push(match client.table.get(page) {
                    Entry::Stored(slot) => Some(slot),
                    _ => None,
                });
            }
            client.begin();
            return Some(Batch { key, handles, first, frames, old });
        }
        None
    }

    /// Steps 2 to 4; false when the store had no room.
    fn page_out(&self, batch: &Batch, pages: &mut [u8], scratch: &mut [u8]) -> bool {
        let content = &mut pages[..batch.frames.len() * PAGE];
        let offset = batch.first * PAGE as u64;
        let read = sys::read_all(batch.handles.backing.as_fd(), content, offset);
        crash_points::pass("pageout.read");
        let written = match read {
            Ok(()) => self.write(content, &batch.old, scratch),
            Err(error) => Err(StoreError::Io(error)),
        };
        crash_points::pass("pageout.written");
        if let Err(error) = &written {
            self.log_store_error("writing pages", error);
        }
        let mut state = self.lock();
        self.publish(&mut state, batch, written.as_deref().ok());
        state.apply_actions();
        self.after_page_out(&mut state);
        let full = matches!(written, Err(StoreError::Full));
        state.full_since_ns = if full { sys::now_ns() } else { 0 };
        written.is_ok()
    }

    /// Step 3: a slot for each page, or none for zeros.
    pub fn write(
        &self,
        content: &[u8],
        old: &[Option<Slot>],
        scratch: &mut [u8],
    ) -> Result<Vec<Option<Slot>>, StoreError> {
        let pages: Vec<&[u8]> = content.chunks_exact(PAGE).collect();
        let is_zero: Vec<bool> = pages.iter().map(|page| is_zero(page)).collect();
        let some = (0..pages.len()).filter(|&at| !is_zero[at]);
        let list: Vec<(&[u8], Option<Slot>)> = some.map(|at| (pages[at], old[at])).collect();
        let mut slots = self.store.write(&list, scratch)?.into_iter();
        count(&self.stats.write_calls);
        add(&self.stats.page_outs, list.len() as u64);
        add(&self.stats.zero_outs, (pages.len() - list.len()) as u64);
        Ok(is_zero.iter().map(|&zero| if zero { None } else { slots.next() }).collect())
    }

    /// One page's new entry; its old slot is free unless it was written over.
    pub fn publish_one(&self, client: &Client, page: Page, slot: Option<Slot>) {
        let before = client.table.get(page);
        client.table.set(page, slot.map_or(Entry::Zero, Entry::Stored));
        if let Entry::Stored(old) | Entry::Filling(old) = before {
            if slot.is_none_or(|new| new.at != old.at) {
                self.store.release(old);
            }
        }
    }

    /// Step 4.
    fn publish(&self, state: &mut State, batch: &Batch, slots: Option<&[Option<Slot>]>) {
        for (at, &frame) in batch.frames.iter().enumerate() {
            let page = batch.first + at as u64;
            let Some(client) = state.client(batch.key.owner) else { return };
            match slots {
                Some(slots) => {
                    self.publish_one(client, page, slots[at]);
                    crash_points::pass("pageout.published");
                    let mut actions = std::mem::take(&mut state.actions);
                    state.clock.written(frame, &mut actions);
                    state.actions = actions;
                }
                None => state.clock.not_written(frame),
            }
        }
        if let Some(client) = state.client(batch.key.owner) {
            client.end();
            if client.draining || client.gone {
                self.ring();
            }
        }
    }
}

/// Whether this page can be written along: it waits itself, or the clock lets it.
fn ready(state: &mut State, key: ClientKey, page: Page) -> bool {
    let Some(client) = state.by_key(key) else { return false };
    let local = client.local(page);
    if local.frame == NONE || local.flags & PENDING != 0 || client.address(page).is_none() {
        return false;
    }
    let waits = local.flags & QUEUED != 0
        && state.clock.is_writing(local.frame)
        && state.clock.state_of(local.frame) == Some(FrameState::Leaving);
    waits || state.clock.clean_along(local.frame)
}

/// Word by word; the first one that is not zero ends it.
fn is_zero(page: &[u8]) -> bool {
    page.chunks_exact(8).all(|word| word == [0; 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::client::tests::blank;
    use crate::daemon::Settings;
    use crate::socket;
    use crate::store::{create_in_memory, Codec};
    use odfork_policy::clock::List;

    /// Two programs whose only page waits to be written.
    fn two(daemon: &Daemon) {
        let mut state = daemon.lock();
        for id in 1..=2 {
            let owner = state.add(blank(id));
            let frame = state.frame().unwrap();
            state.clock.insert(frame, owner, 0, List::Active);
            state.clock.mark_dirty(frame);
            state.client(owner).unwrap().local_mut(0).frame = frame;
            let mut actions = Vec::new();
            state.clock.swap_out(owner, &mut actions);
            actions.clear();
            state.clock.unmapped(frame, &mut actions);
            state.actions = actions;
            state.apply_actions();
        }
        assert_eq!((state.to_clean.len(), state.clock.leaving()), (2, 2));
    }

    #[test]
    fn two_programs_that_stand_still_hold_up_nobody() {
        let settings = Settings { limit: 4 << 20, codec: Codec::None, store_bytes: 0, handlers: 1 };
        let (store, doorbell) =
            (create_in_memory(1 << 20).unwrap(), sys::memory_file(c"doorbell", 4096));
        let supervisor = socket::socket_pair().unwrap().0;
        let daemon = Daemon::new(settings, store, doorbell.unwrap().as_fd(), supervisor).unwrap();
        two(&daemon);
        let mut state = daemon.lock();
        state.clients.iter_mut().flatten().for_each(|client| client.draining = true);
        assert!(daemon.gather(&mut state).is_none());
        assert_eq!((state.to_clean.len(), state.clock.leaving()), (2, 2), "soon");
        state.clients.iter_mut().flatten().for_each(|client| client.freeze(true));
        assert!(daemon.gather(&mut state).is_none());
        assert_eq!((state.to_clean.len(), state.clock.leaving()), (0, 0), "perhaps never");
        let dirty = (0..2).map(|owner| state.client(owner).unwrap().local(0));
        let dirty: Vec<Frame> = dirty.filter(|local| local.flags == 0).map(|l| l.frame).collect();
        assert!(dirty.len() == 2 && dirty.iter().all(|&frame| state.clock.is_dirty(frame)));
    }
}
