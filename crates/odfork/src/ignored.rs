//! Signals that the program ignores stay without effect while the lock is held.
//!
//! Owns which of three they are: those that have no handler. The kernel drops such a signal when it
//! is sent, but not if the thread that it is for blocks it: a handler might come. Then it looks for
//! another thread that does not, and wakes it, so that its call answers EINTR or is cut short. So
//! who takes the lock leaves them open from before it does. One that gets a handler is closed
//! first:
//!
//! ```text
//! thread A: takes the lock             thread B: sigaction
//!   the lock's word                      under way += 1
//!   under way? -> all are blocked        the lock's word += 1
//!   handlers, as the kernel tells them   locked? -> wait
//!   blocked: all but what has none       the program's own call
//!   lock, if the word is as it was       under way -= 1
//! ```
//! Either A sees B under way, or B has ended and the kernel tells A of the handler, or B changes
//! the word after A has read it: before A takes the lock, A looks again; after that, B waits.
//!
//! A handler that another thread sets past the wrappers while the lock is held is not known. A call
//! that never ends (its task was killed, or a handler has jumped out of it) stays under way: from
//! then on all signals are blocked, in this process.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::args;
use crate::sys;

const WATCHED: [i32; 3] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH];

/// The kernel's `struct sigaction`, on any architecture: its handler comes first.
type Action = [usize; 4];

/// Calls that give one of them a handler.
pub struct Ignored {
    under_way: AtomicU32,
}

impl Ignored {
    /// None.
    pub const fn new() -> Self {
        Ignored { under_way: AtomicU32::new(0) }
    }

    /// It is one of those.
    pub fn concerns(signal: i32) -> bool {
        WATCHED.contains(&signal)
    }

    /// Those that this process ignores for certain, as bits: `n - 1` for signal `n`.
    pub fn set(&self) -> u64 {
        if self.under_way.load(SeqCst) != 0 {
            return 0;
        }
        let ignored = WATCHED.into_iter().filter(|&signal| !has_handler(signal));
        ignored.fold(0, |set, signal| set | 1 << (signal - 1))
    }

    /// One of them is about to get a handler. Who holds the lock must have let go before it does.
    pub fn begin(&self) {
        self.under_way.fetch_add(1, SeqCst);
    }

    /// It has one, or not. In a child it may be the only thread's call, and forgotten.
    pub fn end(&self) {
        let _ = self.under_way.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// In a child, which has none of the threads that made such calls. A page that says so already
    /// is left alone.
    pub fn begin_child(&self) {
        if self.under_way.load(SeqCst) != 0 {
            self.under_way.store(0, SeqCst);
        }
    }
}

/// Of one that cannot be asked about it is supposed; so it is where a filter answers 0 and asks
/// nobody.
fn has_handler(signal: i32) -> bool {
    let mut action: Action = [usize::MAX; 4];
    let a = args![signal, 0, &mut action, size_of::<u64>()];
    // SAFETY: only asks; the kernel writes no more than that.
    let answer = unsafe { sys::raw(libc::SYS_rt_sigaction, a) };
    answer != 0 || !matches!(action[0], libc::SIG_DFL | libc::SIG_IGN)
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    extern "C" fn handler(_signal: i32) {}

    #[test]
    fn what_gets_a_handler_is_not_open() {
        let (ignored, urgent) = (Ignored::new(), 1 << (libc::SIGURG - 1));
        let has = || ignored.set() & urgent != 0;
        assert!(has() && Ignored::concerns(libc::SIGURG) && !Ignored::concerns(libc::SIGUSR1));
        ignored.begin();
        assert_eq!(ignored.set(), 0);
        ignored.end();
        let handler = handler as extern "C" fn(i32) as usize;
        for (action, is_open) in [(handler, false), (libc::SIG_IGN, true), (libc::SIG_DFL, true)] {
            // SAFETY: a handler that does nothing, of a signal that no other test uses.
            unsafe { libc::signal(libc::SIGURG, action) };
            assert_eq!(has(), is_open);
        }
    }
}
