//! A new daemon takes over programs that were running: pages in memory are found, everything else
//! is in the tables.
//!
//! 1 every slot that a table names is in use (named several times: shared), 2 pages half filled by
//! pre-paging are punched, 3 every page in the backing memfd gets a frame on the active list,
//! dirty, since nobody knows whether it was written, 4 all faults are woken, because those the old
//! daemon had read would never come again, 5 the scanner finds calls and zaps under way. Steps 1
//! and 2 are done for all programs before anything is written.

use std::os::fd::AsFd;

use odfork_pager_protocol::PAGE;
use odfork_policy::clock::List;

use super::client::Client;
use super::state::State;
use super::Daemon;
use crate::sys;
use crate::table::{Entry, Table};
use crate::uffd;

impl Daemon {
    /// Steps 1 and 2 for one program.
    pub fn claim(&self, client: &Client) {
        let all = odfork_pager_protocol::BACKING_BYTES / PAGE as u64;
        for (from, to) in Table::used(client.table_file.as_fd(), 0, all) {
            for page in from..to {
                match client.table.get(page) {
                    Entry::Stored(slot) => self.store.claim(slot),
                    Entry::Filling(slot) => {
                        self.store.claim(slot);
                        let _ = sys::punch(client.backing(), page * PAGE as u64, PAGE as u64);
                        client.table.set(page, Entry::Stored(slot));
                    }
                    Entry::Zero | Entry::Poisoned => {}
                }
            }
        }
    }

    /// Steps 3 and 4. Also for a program that has just come: it has nothing yet.
    pub fn recover_resident(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        client.read_regions();
        client.recall_frozen();
        // The daemon before us may have died between an answer and the wake for it.
        sys::futex_wake(&client.control().call.answered);
        let mut at = 0;
        loop {
            let Some(client) = state.client(owner) else { return };
            let Some((start, end)) = sys::next_data(client.backing(), at) else { break };
            let (first, last) = (start / PAGE as u64, end.div_ceil(PAGE as u64));
            for page in first..last {
                self.insert_resident(state, owner, page);
            }
            at = last * PAGE as u64;
        }
        self.wake_all(state, owner);
    }

    fn insert_resident(&self, state: &mut State, owner: u32, page: u64) {
        let Some(client) = state.client(owner) else { return };
        if client.address(page).is_none() {
            // Of a region that was released: the call is still pending and will do the rest.
            let _ = sys::punch(client.backing(), page * PAGE as u64, PAGE as u64);
            return;
        }
        let frame = state.frame().or_else(|| {
            // More in memory than the limit: operations that were under way had their frames twice.
            state.clock.add_frames(1);
            state.frame()
        });
        let Some(frame) = frame else { return };
        state.clock.insert(frame, owner, page, List::Active);
        state.clock.mark_dirty(frame);
        if let Some(client) = state.client(owner) {
            client.local_mut(page).frame = frame;
        }
    }

    fn wake_all(&self, state: &mut State, owner: u32) {
        let Some(client) = state.client(owner) else { return };
        let Some(handles) = client.handles.clone() else { return };
        for span in client.places() {
            let _ = uffd::wake(handles.uffd.as_fd(), span.address, span.len);
        }
    }
}
