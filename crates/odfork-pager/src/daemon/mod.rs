//! The daemon: serves the faults of all programs under one limit.
//!
//! | thread | what it does | modules |
//! | --- | --- | --- |
//! | fault threads | serve faults; one at a time waits for messages | fault, pagein |
//! | scanner | moves the hand, zaps by the agents, calls, load control | scan, calls, load |
//! | page-out | writes dirty pages that left the active list | pageout |
//! | registration | the supervisor's messages: programs, status, settings | registration, recover |
//!
//! All share `State` under one lock. The daemon maps no page of a program and must never touch
//! paged memory itself. It may be killed at any instruction: see `table` for what holds then, and
//! `recover` for what the next one does.

mod adaptive_poll;
mod calibration;
mod calls;
mod client;
mod fault;
mod fault_thread;
mod load;
mod pagein;
mod pageout;
mod recover;
mod registration;
mod scan;
mod shmem_huge;
mod state;
mod status;
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

use crate::jail;
use crate::stats::{count, Stats};
use crate::store::{Codec, Store};
use crate::sys::{self, check, Mapping};
use crate::token_bucket::TokenBucket;
use crate::tunables::Tunables;
use load::Load;
use shmem_huge::ShmemHugePages;
use state::State;

/// Share of one processor that simulated reference bits may take.
const SCAN_SHARE: f64 = 0.10;
/// The smallest limit: below it programs would wait for each other's frames.
pub const LEAST_FRAMES: u32 = 256;
/// Threads beyond those that wait for messages: as many store reads run at a time.
const READERS: usize = 3;
const RETRY: u64 = u64::MAX;

/// Configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes in memory, for all programs together.
    pub limit: u64,
    /// How pages in the store are packed.
    pub codec: Codec,
    /// Most bytes of the store; 0: what its medium has.
    pub store_bytes: u64,
    /// Threads that wait for messages at the same time.
    pub handlers: u32,
}

/// Serves the page faults of all programs of one supervisor, from one memory limit.
#[derive(Debug)]
pub struct Daemon {
    state: Mutex<State>,
    store: Store,
    /// What it counts.
    pub stats: Stats,
    /// What an operator may change while it runs.
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
    /// The supervisor is gone: exit with the last program.
    orphaned: AtomicBool,
    /// The supervisor believes that a program is gone.
    gone_reported: AtomicBool,
    logged_ns: AtomicU64,
    /// Bytes from and to the store.
    traffic: (TokenBucket, TokenBucket),
    /// Recent frequency of faults during store reads.
    contention: AtomicU32,
    shmem_huge: ShmemHugePages,
    /// What a reclaim costs here, as measured at the start.
    reclaim_ns: u64,
    began_ns: u64,
}

impl Daemon {
    /// A daemon that serves nobody yet.
    ///
    /// # Errors
    /// The store or a descriptor cannot be used.
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
        // All threads exist before the jail is entered, since it allows no new ones; none serves
        // before.
        let gate = &Barrier::new(handlers + 3);
        std::thread::scope(|scope| {
            // Programs of the daemon before are registered first: their slots must not be
            // allocated.
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
            // The other threads wait for ever; nothing is left to save.
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

    /// Closing our descriptor would not remove it: the supervisor keeps the description open.
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
