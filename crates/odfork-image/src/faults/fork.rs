//! fork() and images whose pages have not all come.
//!
//! Owns the list of running sessions and what happens around a fork of the C library: before it
//! every session brings in what is missing and ends, so that parent and child go on with plain
//! anonymous memory. The list is locked over the fork, so that it is whole in the child.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::{Shared, POPULATE};
use crate::error::{Error, Result};

struct Sessions {
    /// Not a mutex: it is taken before a fork and given back in both processes.
    locked: AtomicBool,
    list: UnsafeCell<Vec<Arc<Shared>>>,
}

// SAFETY: the list is only touched by who has the lock.
unsafe impl Sync for Sessions {}

static SESSIONS: Sessions =
    Sessions { locked: AtomicBool::new(false), list: UnsafeCell::new(Vec::new()) };
static LISTENING: AtomicBool = AtomicBool::new(false);

impl Sessions {
    fn lock(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn with(&self, change: impl FnOnce(&mut Vec<Arc<Shared>>)) {
        self.lock();
        // SAFETY: locked.
        change(unsafe { &mut *self.list.get() });
        self.unlock();
    }
}

extern "C" fn before() {
    SESSIONS.lock();
    // SAFETY: locked.
    for session in unsafe { &*SESSIONS.list.get() } {
        session.ring(POPULATE);
    }
}

extern "C" fn after() {
    SESSIONS.unlock();
}

extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}

/// From now on forks are seen.
pub fn listen() -> Result<()> {
    if LISTENING.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: the functions live as long as the program.
    match unsafe { pthread_atfork(Some(before), Some(after), Some(after)) } {
        0 => Ok(()),
        code => {
            LISTENING.store(false, Ordering::Release);
            Err(Error::io("pthread_atfork", std::io::Error::from_raw_os_error(code)))
        }
    }
}

pub fn add(session: &Arc<Shared>) {
    SESSIONS.with(|list| {
        list.retain(|known| !known.status().complete);
        list.push(session.clone());
    });
}

pub fn remove(session: &Arc<Shared>) {
    SESSIONS.with(|list| list.retain(|known| !Arc::ptr_eq(known, session)));
}
