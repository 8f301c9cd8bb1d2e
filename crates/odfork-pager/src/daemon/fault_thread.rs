//! The fault threads: one waits for messages, the others read the store.
//!
//! Owns the token that says who waits, how long it polls before it sleeps, and whether the token is
//! handed on before a read. What a fault needs is decided in `fault`, reading is `pagein`.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::PoisonError;

use odfork_sys::abi::userfaultfd;

use super::adaptive_poll::AdaptivePoll;
use super::fault::{Job, Step};
use super::pagein::Buffers;
use super::state::ClientKey;
use super::{Daemon, RETRY};
use crate::crash_points;
use crate::stats::count;
use crate::store::Medium;
use crate::sys;
use crate::uffd;

/// From this measure of contention on, the token is handed on before a read.
const CONTENDED: u32 = 12;

impl Daemon {
    fn acquire_token(&self) {
        let mut left = self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *left == 0 {
            left = self.tokens.1.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        *left -= 1;
    }

    fn release_token(&self) {
        *self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.tokens.1.notify_one();
    }

    /// A fault thread: leader while it waits for messages and serves from memory, follower while it
    /// reads.
    pub fn run_fault_thread(&self) {
        let Ok(mut buffers) = Buffers::new() else {
            eprintln!("odfork page: no memory for a fault thread's buffers");
            std::process::abort();
        };
        let mut messages = [userfaultfd::Message::default(); 16];
        let mut poll = AdaptivePoll::new();
        self.acquire_token();
        loop {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
            let got = self.await_faults(&mut events, &mut poll);
            for event in &events[..got] {
                self.serve_event(*event, &mut messages, &mut buffers);
            }
        }
    }

    /// Waits for messages: polls while faults come in quick succession, blocks otherwise.
    fn await_faults(&self, events: &mut [libc::epoll_event], poll: &mut AdaptivePoll) -> usize {
        let began = sys::now_ns();
        // Compared with a disk read a wake is cheap, and the program may use this processor
        // meanwhile.
        let most = match self.store.medium() {
            Medium::Memory => u64::from(self.tunables.poll_us()) * 1000,
            Medium::Disk => 0,
        };
        let window = poll.window_ns(most);
        let mut sleeps = window == 0;
        loop {
            let limit = if sleeps { -1 } else { 0 };
            // SAFETY: room for as many events as said.
            let got = unsafe {
                let (room, size) = (events.as_mut_ptr(), events.len() as i32);
                libc::epoll_wait(self.epoll.as_raw_fd(), room, size, limit)
            };
            let waited = sys::now_ns() - began;
            if got > 0 {
                poll.record_gap(waited, most);
                return got as usize;
            }
            sleeps |= waited > window;
            if !sleeps {
                std::thread::yield_now();
            }
        }
    }

    fn serve_event(
        &self,
        event: libc::epoll_event,
        messages: &mut [userfaultfd::Message],
        buffers: &mut Buffers,
    ) {
        let began = sys::now_ns();
        let jobs = match event.u64 {
            RETRY => self.serve_retries(began),
            _ => self.serve_messages(event, messages, began),
        };
        if !jobs.is_empty() {
            self.read_pages(&jobs, buffers, began);
        }
    }

    /// Faults that waited for a frame or for their program; the pages to be read for them.
    fn serve_retries(&self, began: u64) -> Vec<Job> {
        let mut counter = [0u8; 8];
        // SAFETY: eight bytes of room; nothing to read is fine.
        unsafe { libc::read(self.retry.as_raw_fd(), counter.as_mut_ptr().cast(), 8) };
        let mut jobs = Vec::new();
        let mut state = self.lock();
        for _ in 0..state.retry.len() {
            let Some((key, address)) = state.retry.pop_front() else { break };
            if let Step::Read(job) = self.fault(&mut state, key, address, began) {
                jobs.push(job);
            }
        }
        jobs
    }

    /// The messages of one program; the pages to be read for them.
    fn serve_messages(
        &self,
        event: libc::epoll_event,
        messages: &mut [userfaultfd::Message],
        began: u64,
    ) -> Vec<Job> {
        let key = ClientKey { owner: (event.u64 >> 32) as u32, id: event.u64 as u32 };
        let mut jobs = Vec::new();
        // A second handle, so that the read is not under the lock.
        let handles = self.lock().by_key(key).and_then(|client| client.handles.clone());
        let Some(handles) = handles else { return jobs };
        if event.events & libc::EPOLLERR as u32 != 0 {
            uffd::unblock(handles.uffd.as_fd());
        }
        let got = uffd::read(handles.uffd.as_fd(), messages).unwrap_or(0);
        if got > 0 {
            crash_points::pass("fault.read");
        }
        close_fork_descriptors(&messages[..got]);
        let mut state = self.lock();
        let faults = messages[..got].iter().filter(|one| one.event == userfaultfd::EVENT_PAGEFAULT);
        for message in faults {
            count(&self.stats.faults);
            if let Step::Read(job) = self.fault(&mut state, key, message.address, began) {
                jobs.push(job);
            }
        }
        let short = state.is_short();
        drop(state);
        // Wake the sleeping scanner when frames are about to run out.
        if short && self.doorbell().sleeping.load(Ordering::Relaxed) == 1 {
            self.ring_rate_limited();
        }
        jobs
    }

    /// Reads pages without the lock. Waking another thread costs more than a fault (it may be on
    /// another processor), so the token is handed on only when faults have come during reads
    /// lately.
    fn read_pages(&self, jobs: &[Job], buffers: &mut Buffers, began: u64) {
        let busy = self.contention.load(Ordering::Relaxed) > CONTENDED;
        let bytes: u64 = jobs.iter().map(Job::bytes).sum();
        let pause = self.traffic.0.take(bytes, self.tunables.page_in_rate(), began);
        let hand_on = self.store.medium() == Medium::Disk && busy || !pause.is_zero();
        let before = self.stats.faults.load(Ordering::Relaxed);
        if hand_on {
            self.release_token();
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        for job in jobs {
            self.page_in(job, buffers);
        }
        let others = match hand_on {
            true => self.stats.faults.load(Ordering::Relaxed) != before,
            false => self.has_messages(),
        };
        self.update_contention(others);
        if hand_on {
            self.acquire_token();
        }
    }

    /// Whether a fault waits at this moment.
    fn has_messages(&self) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event; does not wait.
        unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &mut event, 1, 0) > 0 }
    }

    /// Contention rises quickly and decays slowly.
    fn update_contention(&self, others: bool) {
        let now = self.contention.load(Ordering::Relaxed);
        let next = if others { (now + 8).min(64) } else { now.saturating_sub(1) };
        self.contention.store(next, Ordering::Relaxed);
    }
}

/// A userfaultfd with EVENT_FORK delivers a descriptor with each fork; the daemon does not keep it.
fn close_fork_descriptors(messages: &[userfaultfd::Message]) {
    for message in messages.iter().filter(|one| one.event == userfaultfd::EVENT_FORK) {
        // SAFETY: the read that brought the message made the descriptor; nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(message.flags as u32 as i32) });
    }
}
