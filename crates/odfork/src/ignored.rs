//! Signals that the program ignores stay without effect while a pass holds the lock.
//!
//! Owns which of three they are: those that are ignored unless they have a handler. The kernel
//! drops such a signal when it is sent, but not if the thread that it is for blocks it: a handler
//! might come. Then it looks for another thread that does not, and wakes it, so that its call
//! answers EINTR or is cut short. So who makes a pass leaves them open from before it takes the
//! lock, all but those that have handlers. One that gets a handler is closed first:
//!
//! ```text
//! thread A: a pass                     thread B: sigaction
//!   the lock's word, then `set`          changes += 1, under way += 1, out of `set`
//!   blocked: all but those               the lock's word += 1
//!   lock, if the word is as it was       locked? -> wait
//!   handlers as the kernel tells them:   the program's own call
//!     into `set` what has none, and      under way -= 1
//!     all out if B was here meanwhile
//!   unlock, all as before
//! ```
//! Where A takes the lock after B has looked at it, it finds another word, and looks again: then
//! the signal is out. The first pass knows none. A handler that was set past the wrappers is known
//! from the next pass on, and then no signal is left open any more. A call that never ends (its
//! task was killed, a handler has jumped out of it, or fork has copied it from another thread)
//! stays under way: from then on all are blocked, as in the first pass.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

/// As bits: `n - 1` for signal `n`.
const WATCHED: u64 = bit(libc::SIGCHLD) | bit(libc::SIGURG) | bit(libc::SIGWINCH);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What is known of them.
pub struct Ignored {
    set: AtomicU64,
    /// The process whose they are: a child's handlers were copied before this memory was, perhaps
    /// while they changed. Its first fork does not write here, which would copy a page.
    process: AtomicI32,
    changes: AtomicU32,
    under_way: AtomicU32,
    /// 1: a handler was set past the wrappers. None is left open any more.
    bypassed: AtomicU32,
}

impl Ignored {
    /// Nothing yet.
    pub const fn new() -> Self {
        Ignored {
            set: AtomicU64::new(0),
            process: AtomicI32::new(0),
            changes: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            bypassed: AtomicU32::new(0),
        }
    }

    /// It is one of those.
    pub fn concerns(signal: i32) -> bool {
        matches!(signal, 1..=64) && WATCHED & bit(signal) != 0
    }

    /// Those that are ignored for certain, in that process.
    pub fn set(&self, process: i32) -> u64 {
        if self.process.load(SeqCst) == process {
            self.set.load(SeqCst)
        } else {
            0
        }
    }

    /// The same, of whichever process.
    pub fn all(&self) -> u64 {
        self.set.load(SeqCst)
    }

    /// That one is about to get a handler. Who holds the lock must have let go before it does.
    pub fn begin(&self, signal: i32) {
        self.under_way.fetch_add(1, SeqCst);
        self.changes.fetch_add(1, SeqCst);
        self.set.fetch_and(!bit(signal), SeqCst);
    }

    /// It has one, or not.
    pub fn end(&self) {
        self.under_way.fetch_sub(1, SeqCst);
    }

    /// Before the kernel is asked, under the lock. `None`: handlers are being set.
    pub fn changes(&self) -> Option<u32> {
        let changes = self.changes.load(SeqCst);
        (self.under_way.load(SeqCst) == 0).then_some(changes)
    }

    /// What the kernel has said since, under the lock: signals with handlers, if it was asked.
    pub fn learn(&self, process: i32, before: Option<u32>, caught: Option<u64>) {
        let Some(caught) = caught else { return };
        if self.set(process) & caught != 0 {
            self.bypassed.store(1, SeqCst);
        }
        self.set.store(WATCHED & !caught, SeqCst);
        self.process.store(process, SeqCst);
        // Asked after that: who begins later takes its signal out of what was stored.
        let is_doubtful = before.is_none() || self.changes() != before;
        if is_doubtful || self.bypassed.load(SeqCst) != 0 {
            self.set.store(0, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gets_a_handler_meanwhile_is_not_open() {
        let ignored = Ignored::new();
        ignored.learn(1, ignored.changes(), Some(0));
        assert_eq!((ignored.set(1), ignored.set(2)), (WATCHED, 0));
        // Begun before the kernel was asked, or since; ended before it has said, or not.
        for (first, last) in [(true, false), (false, false), (true, true), (false, true)] {
            let begin = |now: bool| {
                if now {
                    ignored.begin(libc::SIGCHLD)
                }
            };
            begin(first);
            let before = ignored.changes();
            begin(!first);
            let end = |now: bool| {
                if now {
                    ignored.end()
                }
            };
            end(last);
            ignored.learn(1, before, Some(0));
            assert_eq!(ignored.set(1) & bit(libc::SIGCHLD), 0);
            end(!last);
            ignored.learn(1, ignored.changes(), Some(0));
            assert_eq!(ignored.set(1), WATCHED);
        }
        ignored.begin(libc::SIGURG);
        ignored.end();
        ignored.learn(1, ignored.changes(), Some(bit(libc::SIGURG)));
        assert_eq!(ignored.set(1), WATCHED & !bit(libc::SIGURG));
        // Past the wrappers.
        ignored.learn(1, ignored.changes(), Some(bit(libc::SIGWINCH)));
        ignored.learn(1, ignored.changes(), Some(0));
        assert_eq!(ignored.set(1), 0);
        assert!(!Ignored::concerns(libc::SIGUSR1) && Ignored::concerns(libc::SIGWINCH));
    }
}
