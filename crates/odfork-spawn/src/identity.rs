//! What a child's change of user does to the parent whose memory it shares.
//!
//! The kernel marks memory as /proc/sys/fs/suid_dumpable says (0: undumpable) when
//! one of its users changes identity, the parent's memory too. That protects the
//! parent: between clone and exec the new user may not look into the child by
//! ptrace or /proc. Afterwards the parent shall be what it was before. Owns: giving
//! that back, once the child has left the memory, and one such spawn at a time, so
//! that none ends the protection of another. Signals are blocked by the caller all
//! that time: a handler that jumps away would keep the others out for ever.

use odfork_sys::{args, call, pause, raw, Errno, ProcessLock, SysResult};

/// Held while such a spawn is under method.
static CHANGING: ProcessLock = ProcessLock::new();
const DUMPABLE: usize = 1;
/// Set by fork, cleared by exec after the memory was changed (include/linux/sched.h).
const PF_FORKNOEXEC: u64 = 0x40;
/// exec is microseconds from leaving the memory when the parent goes on.
const MOST_POLLS: u32 = 10_000;

pub struct Identity {
    before: usize,
}

impl Identity {
    /// Waits for other spawns of this kind in this process (microseconds each).
    pub fn enter() -> Identity {
        CHANGING.take();
        Identity { before: dumpable() }
    }

    /// `child`: the one that is in its program; `None` when there is none left.
    pub fn leave(self, child: Option<i32>) {
        // Any other value (2) cannot be set by prctl.
        let lost = self.before <= DUMPABLE && dumpable() != self.before;
        // To close again needs no waiting: only to open does.
        if lost && (self.before != DUMPABLE || child.is_none_or(has_left)) {
            // SAFETY: gives this process back what it had.
            unsafe { raw(libc::SYS_prctl, args![libc::PR_SET_DUMPABLE, self.before, 0, 0, 0]) };
        }
        CHANGING.give();
    }
}

fn dumpable() -> usize {
    // SAFETY: reads a property of this process.
    unsafe { call(libc::SYS_prctl, args![libc::PR_GET_DUMPABLE, 0, 0, 0, 0]) }.unwrap_or(0)
}

/// The parent goes on a moment before the child's exec has replaced the memory. Without /proc
/// nobody can tell: then the parent stays undumpable, which is safe.
fn has_left(child: i32) -> bool {
    let mut polls = 0;
    while polls < MOST_POLLS {
        let mut text = [0; 512];
        match read_stat(child, &mut text) {
            Ok(stat) if flags(stat).is_some_and(|flags| flags & PF_FORKNOEXEC == 0) => return true,
            Ok(_) => {}
            // Ended and reaped already, by another thread or the kernel; or no /proc.
            Err(_) => return read_stat(odfork_sys::getpid(), &mut text).is_ok(),
        }
        polls = pause(polls);
    }
    false
}

/// `/proc/PID/stat` by raw calls, without heap: no point where a cancelled thread would end.
fn read_stat(pid: i32, text: &mut [u8; 512]) -> SysResult<&[u8]> {
    let mut path = [0; 32];
    // One byte is left: the path ends with a zero.
    let mut rest = &mut path[..31];
    std::io::Write::write_fmt(&mut rest, format_args!("/proc/{pid}/stat"))
        .map_err(|_| Errno(libc::ENAMETOOLONG))?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a string that ends with a zero byte, a buffer and its length, a descriptor of ours.
    unsafe {
        let file = call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), flags, 0])?;
        let length = call(libc::SYS_read, args![file, text.as_mut_ptr(), text.len()]);
        raw(libc::SYS_close, args![file]);
        length.map(|length| text.get(..length).unwrap_or(&[]))
    }
}

/// Field 9; the name before it may hold blanks, brackets and bytes that are no text.
fn flags(stat: &[u8]) -> Option<u64> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let fields = stat.get(after..)?.split(|&b| b == b' ').filter(|field| !field.is_empty());
    std::str::from_utf8(fields.into_iter().nth(6)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_behind_any_name() {
        let line = "17 (a) b (c) S 1 17 17 0 -1 4194368 0 0";
        assert_eq!(flags(line.as_bytes()), Some(4_194_368));
        assert_eq!(flags(b"17 (a\xff) S 1 17 17 0 -1 64 0 0"), Some(64));
        assert_eq!(flags(b"17 (a"), None);
        let mut text = [0; 512];
        let own = read_stat(odfork_sys::getpid(), &mut text).unwrap();
        assert_eq!(flags(own).map(|f| f & PF_FORKNOEXEC), Some(0), "this test was executed");
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
