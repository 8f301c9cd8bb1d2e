//! Page-in: read a cluster, give the page that was asked for, put the rest at the bottom of the
//! pool.
//!
//! 1 read and check, 2 copy the page asked for into place (atomic, wakes the program), 3 write the
//! others into the file: their entries say `Filling`, so that a new daemon does not take half of
//! one for the truth, 4 under the lock: entries back to `Stored`, frames into the clock, faults
//! that came meanwhile served. Without the lock until step 4. In a stream, step 2 is left out: all
//! pages go through the file, and half of them are mapped at once in step 4, which saves the
//! program a fault on the page behind the first while that is still on its way.

use std::os::fd::AsFd;

use odfork_pager_protocol::PAGE;
use odfork_policy::clock::List;

use super::client::{FILLING, WANTED};
use super::fault::Job;
use super::state::State;
use super::Daemon;
use crate::crash_points;
use crate::stats::{add, count};
use crate::store::StoreError;
use crate::sys::{self, Buffer};
use crate::table::Entry;
use crate::uffd;

/// Buffers of one fault thread.
#[derive(Debug)]
pub struct Buffers {
    pub pages: Buffer,
    pub raw: Buffer,
}

impl Buffers {
    pub fn new() -> std::io::Result<Buffers> {
        Ok(Buffers { pages: crate::store::io_buffer()?, raw: crate::store::io_buffer()? })
    }
}

/// What became of the page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Yes,
    /// It was in the file all the time, which is the truth: the entry is stale.
    Found,
    /// It comes by the file.
    Later,
    /// Nobody waits any more (unmapped, program gone).
    No,
    /// Its content cannot be had.
    Lost,
}

impl Daemon {
    /// Reads the pages of a job, checks them, puts them in place and wakes who waits.
    pub fn page_in(&self, job: &Job, buffers: &mut Buffers) {
        let good = self.read(job, buffers);
        crash_points::pass("pagein.read");
        // The page asked for can come alone; the others only where a page written is a page.
        let others = job.slots.len() > 1 && self.shmem_huge.are_off();
        let outcome = match good[job.asked] {
            false => Outcome::Lost,
            true if others && job.run > 0 => Outcome::Later,
            true => self.give(job, &buffers.pages),
        };
        crash_points::pass("pagein.copied");
        let filled = match others {
            true => fill(job, &buffers.pages, &good),
            false => vec![false; good.len()],
        };
        crash_points::pass("pagein.filled");
        count(&self.stats.read_calls);
        add(&self.stats.page_ins, 1);
        add(&self.stats.prefetched, filled.iter().filter(|&&yes| yes).count() as u64);
        let mut state = self.lock();
        self.finish(&mut state, job, outcome, &filled);
        drop(state);
        self.stats.page_in_time.add(sys::now_ns().saturating_sub(job.began_ns));
    }

    /// Which pages were read well. When the cluster cannot be read, the page asked for is tried
    /// alone.
    fn read(&self, job: &Job, buffers: &mut Buffers) -> Vec<bool> {
        let mut good = vec![false; job.slots.len()];
        match self.store.read(&job.slots, &mut buffers.pages, &mut buffers.raw) {
            Ok(answers) => {
                for (good, answer) in good.iter_mut().zip(&answers) {
                    *good = answer.is_ok();
                }
            }
            Err(error) => {
                self.log_store_error("reading a cluster", &error);
                let place = &mut buffers.pages[job.asked * PAGE..(job.asked + 1) * PAGE];
                let alone = &job.slots[job.asked..=job.asked];
                let answer = self.store.read(alone, place, &mut buffers.raw);
                good[job.asked] = answer.is_ok_and(|pages| pages.iter().all(Result::is_ok));
            }
        }
        if !good[job.asked] {
            self.log_store_error("reading a page that is needed", &StoreError::Damaged);
        }
        good
    }

    fn give(&self, job: &Job, pages: &[u8]) -> Outcome {
        let uffd = job.handles.uffd.as_fd();
        match uffd::copy(uffd, job.address, &pages[job.asked * PAGE..(job.asked + 1) * PAGE]) {
            Ok(_) => Outcome::Yes,
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                let _ = uffd::map(uffd, job.address, 1);
                let _ = uffd::wake(uffd, job.address, PAGE as u64);
                Outcome::Found
            }
            Err(_) => {
                let _ = uffd::wake(uffd, job.address, PAGE as u64);
                Outcome::No
            }
        }
    }

    /// Step 4.
    fn finish(&self, state: &mut State, job: &Job, outcome: Outcome, filled: &[bool]) {
        let owner = job.key.owner;
        for (at, &frame) in job.frames.iter().enumerate() {
            let page = job.first + at as u64;
            let Some(client) = state.clients[owner as usize].as_deref_mut() else { return };
            let local = client.local_mut(page);
            let wanted = local.flags & WANTED != 0;
            local.flags &= !(FILLING | WANTED);
            let is_asked = at == job.asked;
            let is_given = is_asked && matches!(outcome, Outcome::Yes | Outcome::Found);
            let is_asked = is_asked && outcome != Outcome::Later;
            if is_given || filled[at] {
                local.frame = frame;
                client.table.set(page, Entry::Stored(job.slots[at]));
                let place = if is_asked { List::Active } else { List::Pool };
                state.clock.insert(frame, owner, page, place);
                if is_asked && outcome == Outcome::Found {
                    state.clock.mark_dirty(frame);
                }
                if wanted && !is_asked {
                    self.serve_wanted(state, job, page, frame);
                }
                continue;
            }
            local.flags = 0;
            if is_asked && outcome == Outcome::Lost {
                client.table.set(page, Entry::Poisoned);
                let _ = uffd::poison(job.handles.uffd.as_fd(), job.address);
                self.store.release(job.slots[at]);
                count(&self.stats.poisoned);
            } else {
                client.table.set(page, Entry::Stored(job.slots[at]));
                if wanted {
                    if let Some(address) = client.address(page) {
                        let _ = uffd::wake(job.handles.uffd.as_fd(), address, PAGE as u64);
                    }
                }
            }
            state.give_back(frame);
        }
        if outcome == Outcome::Later {
            self.map_run(state, job, filled);
        }
        if let Some(client) = state.client(owner) {
            client.end();
            if client.draining || client.gone {
                self.ring();
            }
        }
    }

    /// The page asked for and those behind it that came with it.
    fn map_run(&self, state: &mut State, job: &Job, filled: &[bool]) {
        let uffd = job.handles.uffd.as_fd();
        let wanted = filled[job.asked..].iter().take(job.run as usize);
        let run = wanted.take_while(|&&yes| yes).count();
        for &frame in &job.frames[job.asked..job.asked + run] {
            state.clock.touch(frame, false);
        }
        if run > 0 {
            let _ = uffd::map(uffd, job.address, run as u64);
        }
        // Not filled for lack of memory: the fault comes again.
        let _ = uffd::wake(uffd, job.address, PAGE as u64);
    }

    fn serve_wanted(&self, state: &mut State, job: &Job, page: u64, frame: u32) {
        state.clock.touch(frame, false);
        let Some(address) = state.client(job.key.owner).and_then(|c| c.address(page)) else {
            return;
        };
        let uffd = job.handles.uffd.as_fd();
        let _ = uffd::map(uffd, address, 1);
        let _ = uffd::wake(uffd, address, PAGE as u64);
    }
}

/// Step 3: which of the others are in the file now.
fn fill(job: &Job, pages: &[u8], good: &[bool]) -> Vec<bool> {
    let mut filled = vec![false; good.len()];
    let mut from = 0;
    while from < good.len() {
        let apart = |at: usize| at == job.asked && job.run == 0;
        if !good[from] || apart(from) {
            from += 1;
            continue;
        }
        let mut to = from + 1;
        while to < good.len() && good[to] && !apart(to) {
            to += 1;
        }
        let offset = (job.first + from as u64) * PAGE as u64;
        let backing = job.handles.backing.as_fd();
        if sys::write_all(backing, &pages[from * PAGE..to * PAGE], offset).is_ok() {
            filled[from..to].fill(true);
        } else {
            // No memory: these stay out.
            let _ = sys::punch(backing, offset, ((to - from) * PAGE) as u64);
        }
        from = to;
    }
    filled
}
