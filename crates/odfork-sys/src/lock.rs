//! A lock between the threads of a process that a fork does not carry along.
//!
//! Owns: the lock, which names its owner's process, and how a waiter waits. A
//! child forked while another thread holds it does not believe it: the pid in
//! it is not the child's. Held for microseconds, with signals blocked by the
//! holder: a handler that jumps away would keep the others out for ever.

use core::sync::atomic::{AtomicI32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::{args, getpid, raw};

/// Looks before naps: a thread of real-time priority must not keep the one it waits for from
/// running.
const EAGER: u32 = 100;
const NAP: [i64; 2] = [0, 100_000];

/// Pid of the process in which a thread holds it, or 0.
pub struct ProcessLock(AtomicI32);

impl ProcessLock {
    /// Nobody holds it.
    pub const fn new() -> Self {
        ProcessLock(AtomicI32::new(0))
    }

    /// Waits for it. Not to be taken twice by a thread.
    pub fn take(&self) {
        let me = getpid();
        let mut looks = 0;
        loop {
            let owner = self.0.load(Relaxed);
            if owner != me && self.0.compare_exchange(owner, me, Acquire, Relaxed).is_ok() {
                return;
            }
            looks = pause(looks);
        }
    }

    /// Gives it back; by its holder only.
    pub fn give(&self) {
        self.0.store(0, Release);
    }
}

impl Default for ProcessLock {
    fn default() -> Self {
        Self::new()
    }
}

/// Lets others run, longer after many looks; the looks so far. Raw calls: the C library's would end
/// a cancelled thread.
pub fn pause(looks: u32) -> u32 {
    // SAFETY: no arguments, or a time that is read.
    unsafe {
        match looks < EAGER {
            true => raw(libc::SYS_sched_yield, [0; 6]),
            false => raw(libc::SYS_nanosleep, args![&NAP, 0]),
        }
    };
    looks.saturating_add(1)
}
