//! Calls of fork that wait for their outcome: the handlers of a fork can neither refuse it nor
//! answer its caller.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use odfork_sys::gettid;

const MOST: usize = 32;

/// A call of fork that waits for its outcome.
pub struct PendingFork {
    /// 0: free.
    thread: AtomicI32,
    broken: AtomicU32,
    number: AtomicU64,
}

static PENDING: [PendingFork; MOST] = [const {
    PendingFork { thread: AtomicI32::new(0), broken: AtomicU32::new(0), number: AtomicU64::new(0) }
}; MOST];
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl PendingFork {
    /// None: too many threads fork at this moment.
    pub fn claim() -> Option<&'static PendingFork> {
        let me = gettid();
        let mut all = PENDING.iter();
        let free =
            |one: &&PendingFork| one.thread.compare_exchange(0, me, Acquire, Relaxed).is_ok();
        let found = all.find(free)?;
        found.broken.store(0, Relaxed);
        found.number.store(NUMBERS.fetch_add(1, Relaxed), Relaxed);
        Some(found)
    }

    /// The fork is over; whether it was marked.
    pub fn end(&self) -> bool {
        let is_broken = self.broken.load(Relaxed) != 0;
        self.thread.store(0, Release);
        is_broken
    }
}

/// The handlers could not do what the child needs. True: the caller of fork will be told.
pub fn mark_broken() -> bool {
    let me = gettid();
    let mine = PENDING.iter().filter(|pending| pending.thread.load(Relaxed) == me);
    // The innermost: a handler of a signal may fork while a fork begins.
    let Some(pending) = mine.max_by_key(|pending| pending.number.load(Relaxed)) else {
        return false;
    };
    pending.broken.store(1, Relaxed);
    true
}

/// In a child: those are of other threads, which are not here.
pub fn forget() {
    PENDING.iter().for_each(|pending| pending.thread.store(0, Release));
}
