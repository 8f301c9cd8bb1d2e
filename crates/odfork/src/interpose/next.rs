//! The functions that the wrappers stand before: the next of that name in the search order.
//!
//! Owns looking them up, once; where they are is remembered in the engine's
//! [`Notes`](engine::Notes).

use core::ffi::{c_char, CStr};
use core::sync::atomic::Ordering::Relaxed;

use crate::engine;

/// A function of the next library in line.
#[derive(Clone, Copy)]
pub enum Next {
    Fork,
    Realloc,
    Clone,
    PthreadCreate,
    SetProtocol,
}

impl Next {
    const fn name(self) -> &'static CStr {
        match self {
            Next::Fork => c"fork",
            Next::Realloc => c"realloc",
            Next::Clone => c"clone",
            Next::PthreadCreate => c"pthread_create",
            Next::SetProtocol => c"pthread_mutexattr_setprotocol",
        }
    }

    /// Its address; 0 where there is none.
    pub fn get(self) -> usize {
        let place = &engine::state().notes.next[self as usize];
        match place.load(Relaxed) {
            0 => {
                let name: *const c_char = self.name().as_ptr();
                // SAFETY: a valid name; dlsym is callable from constructors on.
                let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name) } as usize;
                place.store(at, Relaxed);
                at
            }
            at => at,
        }
    }
}

/// Looks up what is called on paths where a lookup is unwelcome (signal
/// handlers, a fork that interrupted the allocator).
pub fn resolve() {
    Next::Fork.get();
    Next::Realloc.get();
}
