//! The daemon: serves the faults of all programs under one limit.
//!
//! | thread | what it does | modules |
//! | --- | --- | --- |
//! | fault threads | serve faults; one at a time waits for messages | fault, pagein |
//! | scanner | moves the hand, unmaps by the agents, serves calls, load control | scan, calls, load |
//! | page-out | writes dirty pages that left the active list | pageout |
//! | registration | the supervisor's messages: programs, status, settings | registration, recover |
//!
//! All share `State` under one lock. The daemon maps no page of a program and must never touch
//! paged memory itself. It may be killed at any instruction: see `table` for what holds then, and
//! `recover` for what the next one does.

mod adaptive_poll;
mod calibration;
mod calls;
pub mod client;
mod fault;
mod load;
mod pagein;
mod pageout;
mod recover;
mod registration;
mod scan;
mod shmem_huge;
mod state;
mod streams;

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odfork_pager_protocol::control::Doorbell;
use odfork_pager_protocol::PAGE;
use odfork_policy::clock::{Clock, Inventory, Linear, ScanRule};
use odfork_policy::load::{Limits, LoadControl};
use odfork_sys::abi::userfaultfd;

use crate::crash_points;
use crate::jail;
use crate::stats::{count, Stats};
use crate::store::{Codec, Medium, Store};
use crate::sys::{self, check, Mapping};
use crate::token_bucket::TokenBucket;
use crate::tunables::Tunables;
use crate::uffd;
use adaptive_poll::AdaptivePoll;
use fault::Step;
use load::Load;
use pagein::Buffers;
use shmem_huge::ShmemHugePages;
use state::{ClientKey, State};

/// Of a processor, for simulated reference bits.
const SCAN_SHARE: f64 = 0.10;
/// The smallest limit: below it programs would wait for each other's frames.
pub const LEAST_FRAMES: u32 = 256;
/// Threads beyond those that wait for messages: so many reads of the store at a time.
const READERS: usize = 3;
const CONTENDED: u32 = 12;
const RETRY: u64 = u64::MAX;

/// How a daemon is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes in memory, for all programs together.
    pub limit: u64,
    pub codec: Codec,
    /// Most bytes of the store; 0: what its medium has.
    pub store_bytes: u64,
    /// Threads that wait for messages at the same time.
    pub handlers: u32,
}

#[derive(Debug)]
pub struct Daemon {
    state: Mutex<State>,
    store: Store,
    pub stats: Stats,
    pub tunables: Tunables,
    settings: Settings,
    doorbell: Mapping,
    supervisor: OwnedFd,
    epoll: OwnedFd,
    /// In the epoll set; written when `retry` has something.
    retry: OwnedFd,
    /// Wakes the page-out thread.
    dirty: Condvar,
    tokens: (Mutex<u32>, Condvar),
    load: Mutex<Load>,
    /// The supervisor is gone: end with the last program.
    orphaned: AtomicBool,
    /// The supervisor believes that a program is gone.
    gone_reported: AtomicBool,
    logged_ns: AtomicU64,
    /// Bytes from and to the store.
    traffic: (TokenBucket, TokenBucket),
    /// How often faults came while a store was read, lately.
    contention: AtomicU32,
    shmem_huge: ShmemHugePages,
    /// What a reclaim costs here, as measured at the start.
    reclaim_ns: u64,
    began_ns: u64,
}

impl Daemon {
    pub fn new(
        settings: Settings,
        store: OwnedFd,
        doorbell: BorrowedFd,
        supervisor: OwnedFd,
    ) -> io::Result<Daemon> {
        let frames = (settings.limit / PAGE as u64).clamp(u64::from(LEAST_FRAMES), 1 << 30) as u32;
        let reclaim_ns = calibration::reclaim_ns();
        let rule = Linear::paper(frames, reclaim_ns, SCAN_SHARE);
        let limits = Limits::for_low_watermark(rule.low_watermark / 4);
        // SAFETY: two new descriptors, owned by nobody else.
        let (epoll, retry) = unsafe {
            (
                OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?),
                OwnedFd::from_raw_fd(check(libc::eventfd(
                    0,
                    libc::EFD_CLOEXEC | libc::EFD_NONBLOCK,
                ))?),
            )
        };
        let daemon = Daemon {
            state: Mutex::new(State::new(Clock::new(frames, ScanRule::Linear(rule)))),
            store: Store::on(store, settings.codec, settings.store_bytes)?,
            stats: Stats::default(),
            tunables: Tunables::default(),
            doorbell: Mapping::of(doorbell, PAGE)?,
            supervisor,
            epoll,
            retry,
            dirty: Condvar::new(),
            tokens: (Mutex::new(settings.handlers.max(1)), Condvar::new()),
            load: Mutex::new(Load::new(LoadControl::new(limits))),
            settings,
            orphaned: AtomicBool::new(false),
            gone_reported: AtomicBool::new(false),
            logged_ns: AtomicU64::new(0),
            traffic: Default::default(),
            contention: AtomicU32::new(0),
            shmem_huge: ShmemHugePages::open(),
            reclaim_ns,
            began_ns: sys::now_ns(),
        };
        daemon.watch(daemon.retry.as_fd(), RETRY)?;
        Ok(daemon)
    }

    /// Runs until the supervisor and all programs are gone.
    pub fn run(&self) {
        let handlers = self.settings.handlers.max(1) as usize + READERS;
        // All threads are there before the jail closes, for it allows no new ones; none serves
        // before.
        let gate = &Barrier::new(handlers + 3);
        std::thread::scope(|scope| {
            // Nothing is served before everybody who was here is known: slots in use must not be
            // outcome away.
            self.register_existing();
            let pass = || {
                gate.wait();
                gate.wait();
            };
            for _ in 0..handlers {
                scope.spawn(move || {
                    pass();
                    self.run_fault_thread();
                });
            }
            scope.spawn(move || {
                pass();
                self.run_page_out();
            });
            scope.spawn(move || {
                pass();
                self.run_registration();
            });
            gate.wait();
            if let Err(error) = jail::enter() {
                eprintln!("odfork page: the daemon runs without its jail: {error}");
            }
            gate.wait();
            self.run_scanner();
            // The other threads wait for ever; there is nothing left to lose.
            std::process::exit(0);
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        on: &Condvar,
        state: MutexGuard<'a, State>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match most {
            None => on.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(most) => on.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
        }
    }

    fn doorbell(&self) -> &Doorbell {
        // SAFETY: a page of a sealed memory file, used through atomics only.
        unsafe { &*self.doorbell.as_ptr().cast::<Doorbell>() }
    }

    /// Wakes the scanner.
    fn ring(&self) {
        let doorbell = self.doorbell();
        doorbell.rung.fetch_add(1, Ordering::SeqCst);
        if doorbell.sleeping.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&doorbell.rung);
        }
    }

    fn watch(&self, fd: BorrowedFd, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
        let (epoll, add) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: valid descriptors and a valid event.
        check(unsafe { libc::epoll_ctl(epoll, add, fd.as_raw_fd(), &mut event) }).map(drop)
    }

    /// The supervisor keeps the description open, so closing our descriptor would not do.
    fn unwatch(&self, fd: BorrowedFd) {
        let (epoll, del) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL);
        // SAFETY: valid descriptors; no event is needed.
        unsafe { libc::epoll_ctl(epoll, del, fd.as_raw_fd(), std::ptr::null_mut()) };
    }

    fn wake_fault_thread(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight valid bytes; a full counter is as good as a written one.
        unsafe { libc::write(self.retry.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// One line about the store, at most one a second: a full disk would repeat it for every page.
    fn log_store_error(&self, what: &str, why: &dyn Display) {
        count(&self.stats.store_errors);
        let now = sys::now_ns();
        let last = self.logged_ns.swap(now, Ordering::Relaxed);
        if now.saturating_sub(last) > 1_000_000_000 {
            eprintln!("odfork page: {what}: {why}");
        } else {
            self.logged_ns.store(last, Ordering::Relaxed);
        }
    }

    /// The scan rule of the hand, from the tunables.
    pub fn scan_rule(&self, frames: u32) -> ScanRule {
        let paper = Linear::paper(frames, self.reclaim_ns, SCAN_SHARE);
        if self.tunables.inventory() {
            return ScanRule::Inventory(Inventory::for_frames(frames, paper.fastest));
        }
        let low_watermark =
            (u64::from(frames) * u64::from(self.tunables.low_watermark()) / 100) as u32;
        ScanRule::Linear(Linear { low_watermark: low_watermark.max(1), ..paper })
    }

    fn is_over(&self, state: &State) -> bool {
        self.orphaned.load(Ordering::Relaxed) && state.clients.iter().all(Option::is_none)
    }

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
    fn run_fault_thread(&self) {
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

    /// Waits for messages: looking while faults come closely, asleep otherwise.
    fn await_faults(&self, events: &mut [libc::epoll_event], poll: &mut AdaptivePoll) -> usize {
        let began = sys::now_ns();
        // Beside a read of a disk a wake is cheap, and the program may have this processor
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
        let data = event.u64;
        let mut jobs = Vec::new();
        if data == RETRY {
            let mut counter = [0u8; 8];
            // SAFETY: eight bytes of room; nothing to read is fine.
            unsafe { libc::read(self.retry.as_raw_fd(), counter.as_mut_ptr().cast(), 8) };
            let mut state = self.lock();
            for _ in 0..state.retry.len() {
                let Some((key, address)) = state.retry.pop_front() else { break };
                if let Step::Read(job) = self.fault(&mut state, key, address, began) {
                    jobs.push(job);
                }
            }
        } else {
            let key = ClientKey { owner: (data >> 32) as u32, id: data as u32 };
            // A second handle, so that the read is not under the lock.
            let handles = self.lock().by_key(key).and_then(|client| client.handles.clone());
            let Some(handles) = handles else { return };
            if event.events & libc::EPOLLERR as u32 != 0 {
                uffd::unblock(handles.uffd.as_fd());
            }
            let got = uffd::read(handles.uffd.as_fd(), messages).unwrap_or(0);
            if got > 0 {
                crash_points::pass("fault.read");
            }
            close_fork_descriptors(&messages[..got]);
            let mut state = self.lock();
            let faults =
                messages[..got].iter().filter(|one| one.event == userfaultfd::EVENT_PAGEFAULT);
            for message in faults {
                count(&self.stats.faults);
                if let Step::Read(job) = self.fault(&mut state, key, message.address, began) {
                    jobs.push(job);
                }
            }
            let short = state.is_short();
            drop(state);
            // A sleeping scanner looks up when frames are about to run out.
            if short && self.doorbell().sleeping.load(Ordering::Relaxed) == 1 {
                self.ring_rate_limited();
            }
        }
        if jobs.is_empty() {
            return;
        }
        // Waking another thread costs more than a fault (it may be on another processor), so the
        // token is handed on only when faults have come during reads lately.
        let busy = self.contention.load(Ordering::Relaxed) > CONTENDED;
        let bytes: u64 = jobs.iter().map(fault::Job::bytes).sum();
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
            self.page_in(&job, buffers);
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

    /// Quick to believe in contention, slow to forget it.
    fn update_contention(&self, others: bool) {
        let now = self.contention.load(Ordering::Relaxed);
        let next = if others { (now + 8).min(64) } else { now.saturating_sub(1) };
        self.contention.store(next, Ordering::Relaxed);
    }

    /// Rings, but not for every fault: the scanner has its own tick while the pool is low.
    fn ring_rate_limited(&self) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let now = sys::now_ns();
        if now.saturating_sub(LAST.load(Ordering::Relaxed)) > 2_000_000 {
            LAST.store(now, Ordering::Relaxed);
            self.ring();
        }
    }
}

/// Programs that asked their userfaultfd for forks send a descriptor with each: not ours to keep.
fn close_fork_descriptors(messages: &[userfaultfd::Message]) {
    for message in messages.iter().filter(|one| one.event == userfaultfd::EVENT_FORK) {
        // SAFETY: the read that brought the message made the descriptor; nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(message.flags as u32 as i32) });
    }
}
