//! The faulted form: anonymous memory whose pages are put in place by a thread when they are
//! touched.
//!
//! Owns the life of that thread: start, the bell by which it is called, fork, end. What it does is
//! in `server`; the userfaultfd in `kernel`. The rules that bind it:
//! - It holds its descriptors in a table of its own (`unshare(CLONE_FILES)`), where the program can
//!   neither see nor close them: the last close of a userfaultfd would turn untouched pages into
//!   zeros.
//! - Inside of a page fault the toucher may hold any lock of the program, the allocator's too: no
//!   heap, no locks, no stdio.
//! - A page that cannot be had is a SIGBUS and never zeros.
//! - fork() brings in everything first: a child has no thread and no userfaultfd and would read
//!   zeros. What forks past the C library (raw system calls) finds nothing there (MADV_DONTFORK)
//!   and gets SIGSEGV instead of zeros.

mod complaint;
mod fork;
mod fresh;
mod grave;
mod kernel;
mod mappings;
mod server;
mod slots;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::format::Region;
use crate::image::{Image, Lost};
use crate::memory::Memory;
use crate::options::MapOptions;
use server::Server;

/// How far the loading of a faulted image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Page faults served.
    pub faults: u64,
    /// Pages put in place with content.
    pub pages: u64,
    /// Pages put in place as zeros.
    pub zero_pages: u64,
    /// Pages that are lost: touching one is a SIGBUS.
    pub lost_pages: u64,
    /// Address and reason of the first of them.
    pub first_lost: Option<(u64, Lost)>,
    /// Everything is in; the thread has ended.
    pub complete: bool,
}

/// Orders to the thread, given before the bell is rung; the greater one wins.
const POPULATE: u32 = 1;
const STOP: u32 = 2;

/// What the thread and the program share.
#[derive(Debug)]
struct Shared {
    /// A page that is served by the thread as well: who touches it calls it, and waits until it has
    /// answered.
    bell: Memory,
    order: AtomicU32,
    complete: AtomicBool,
    pid: i32,
    faults: AtomicU64,
    pages: AtomicU64,
    zero_pages: AtomicU64,
    lost_pages: AtomicU64,
    lost_at: AtomicU64,
    lost_why: AtomicU32,
    /// Whether the thread serves, once it knows.
    started: Mutex<Option<Result<()>>>,
    told: Condvar,
}

impl Shared {
    /// Gives an order and waits until it is carried out.
    fn ring(&self, order: u32) {
        // A child by a raw fork has neither the thread nor the memory.
        if self.complete.load(Relaxed) || self.pid != std::process::id() as i32 {
            return;
        }
        self.order.fetch_max(order, Relaxed);
        // SAFETY: ours; the thread puts a page there once it has done what the order says.
        unsafe { self.bell.as_ptr().read_volatile() };
    }

    fn tell(&self, started: Result<()>) {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        self.told.notify_all();
    }

    fn answer(&self) -> Result<()> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match started.take() {
                Some(answer) => return answer,
                None => started = self.told.wait(started).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn status(&self) -> Status {
        let why = Lost::from_number(self.lost_why.load(Relaxed));
        Status {
            faults: self.faults.load(Relaxed),
            pages: self.pages.load(Relaxed),
            zero_pages: self.zero_pages.load(Relaxed),
            lost_pages: self.lost_pages.load(Relaxed),
            first_lost: why.map(|why| (self.lost_at.load(Relaxed), why)),
            complete: self.complete.load(Relaxed),
        }
    }
}

/// A thread that serves some regions.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

impl Session {
    /// Starts serving `now`, which is anonymous memory nobody has touched, with what the image has
    /// at `saved`.
    ///
    /// # Errors
    /// `Refused` when userfaultfd is forbidden; no memory, no thread.
    pub fn start(
        image: &Image,
        saved: &[Region],
        now: &[Region],
        options: &MapOptions,
    ) -> Result<Session> {
        fork::listen()?;
        let bell = Memory::new(crate::PAGE).map_err(|e| Error::io("memory for a bell", e))?;
        let shared = Arc::new(Shared {
            bell,
            order: AtomicU32::new(0),
            complete: AtomicBool::new(false),
            pid: std::process::id() as i32,
            faults: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            zero_pages: AtomicU64::new(0),
            lost_pages: AtomicU64::new(0),
            lost_at: AtomicU64::new(0),
            lost_why: AtomicU32::new(0),
            started: Mutex::new(None),
            told: Condvar::new(),
        });
        let theirs = (image.clone(), saved.to_vec(), now.to_vec(), *options, shared.clone());
        let thread = std::thread::Builder::new().name("odfork-image".to_owned());
        with_signals_blocked(|| thread.spawn(move || serve(theirs)))
            .map_err(|e| Error::io("cannot start the thread that serves page faults", e))?;
        shared.answer()?;
        fork::add(&shared);
        Ok(Session { shared })
    }

    pub fn status(&self) -> Status {
        self.shared.status()
    }

    pub fn populate(&self) {
        self.shared.ring(POPULATE);
    }

    /// The thread goes on until everything is in or the process ends.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.ring(STOP);
        fork::remove(&self.shared);
    }
}

/// The thread. After its answer it asks for no memory and gives none back until everything is in.
fn serve(
    (image, saved, now, options, shared): (
        Image,
        Vec<Region>,
        Vec<Region>,
        MapOptions,
        Arc<Shared>,
    ),
) {
    let made = Server::new(&image, &saved, &now, &options, shared.clone());
    // The caller still has it and waits: this closes no descriptor.
    drop((image, saved, now));
    match made {
        Ok(server) => {
            shared.tell(Ok(()));
            server.run();
        }
        Err(error) => shared.tell(Err(error)),
    }
}

/// Runs with all signals blocked, so that the new thread never runs a handler of the program's.
fn with_signals_blocked<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: the masks are valid; only the calling thread's mask changes, and is put back.
    unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}
