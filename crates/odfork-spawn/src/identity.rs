//! What a child's change of user does to the parent whose memory it shares.
//!
//! The kernel marks memory undumpable when one of its users changes identity, the
//! parent's memory too. That protects the parent: for the length of the window
//! the new user may not look into the child by ptrace or /proc. Afterwards the
//! parent shall be what it was before. Owns: giving that back, once the child has
//! left the memory, and one such spawn at a time, so that none ends the protection
//! of another.

use std::sync::atomic::{AtomicI32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use odfork_sys::{args, call, raw};

/// Pid of the process in which such a spawn is under way. A pid that is not ours was copied by a fork.
static CHANGING: AtomicI32 = AtomicI32::new(0);
const DUMPABLE: usize = 1;
/// Set by fork, cleared by exec after the memory was changed (include/linux/sched.h).
const PF_FORKNOEXEC: u64 = 0x40;
/// exec is microseconds from leaving the memory when the parent goes on.
const LOOKS: u32 = 10_000;

pub struct Identity {
    before: usize,
}

impl Identity {
    /// Waits for other spawns of this kind in this process (microseconds each).
    pub fn enter() -> Identity {
        let me = odfork_sys::getpid();
        loop {
            let owner = CHANGING.load(Relaxed);
            if owner != me && CHANGING.compare_exchange(owner, me, Acquire, Relaxed).is_ok() {
                return Identity { before: dumpable() };
            }
            std::thread::yield_now();
        }
    }

    /// `child`: the one that is in its program; `None` when there is none left.
    pub fn leave(self, child: Option<i32>) {
        let lost = self.before == DUMPABLE && dumpable() != DUMPABLE;
        if lost && child.is_none_or(has_left) {
            // SAFETY: gives this process back what it had.
            unsafe { raw(libc::SYS_prctl, args![libc::PR_SET_DUMPABLE, DUMPABLE, 0, 0, 0]) };
        }
        CHANGING.store(0, Release);
    }
}

fn dumpable() -> usize {
    // SAFETY: reads a property of this process.
    unsafe { call(libc::SYS_prctl, args![libc::PR_GET_DUMPABLE, 0, 0, 0, 0]) }.unwrap_or(0)
}

/// The parent goes on a moment before the child's exec has replaced the memory. Without /proc nobody can tell: then the
/// parent stays undumpable, which is safe.
fn has_left(child: i32) -> bool {
    for _ in 0..LOOKS {
        match std::fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) if flags(&stat).is_some_and(|flags| flags & PF_FORKNOEXEC == 0) => {
                return true
            }
            Ok(_) => std::thread::yield_now(),
            // Ended and reaped already, by another thread or the kernel; or no /proc.
            Err(_) => return std::path::Path::new("/proc/self/stat").exists(),
        }
    }
    false
}

/// Field 9; the name before it may hold blanks and brackets.
fn flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_behind_any_name() {
        let line = "17 (a) b (c) S 1 17 17 0 -1 4194368 0 0";
        assert_eq!(flags(line), Some(4_194_368));
        assert_eq!(flags("17 (a"), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(flags(&own).map(|f| f & PF_FORKNOEXEC), Some(0), "this test was executed");
    }

    #[test]
    fn what_was_dumpable_is_again() {
        let _alone = crate::tests::one_at_a_time();
        let before = dumpable();
        let guard = Identity::enter();
        // SAFETY: this process's own property.
        unsafe { raw(libc::SYS_prctl, args![libc::PR_SET_DUMPABLE, 0, 0, 0, 0]) };
        guard.leave(None);
        assert_eq!(dumpable(), before);
    }
}
