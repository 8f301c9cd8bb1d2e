//! `clone3` (Linux 5.3): its structure, and the flags that do not fit into the `int` of `libc`.

/// Handlers of signals go back to their defaults (Linux 5.5).
pub const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// The child starts in the cgroup of [`CloneArgs::cgroup`] (Linux 5.7).
pub const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// `struct clone_args`, at its size of Linux 5.7.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct CloneArgs {
    /// `CLONE_` flags, without the exit signal that clone(2) has in them.
    pub flags: u64,
    /// Where the kernel stores the pidfd (`CLONE_PIDFD`).
    pub pidfd: u64,
    /// Where the kernel stores the thread's id in the child (`CLONE_CHILD_SETTID`,
    /// `CLONE_CHILD_CLEARTID`).
    pub child_tid: u64,
    /// Where it stores the same in the parent (`CLONE_PARENT_SETTID`).
    pub parent_tid: u64,
    /// Sent to the parent when the task ends; 0 for none.
    pub exit_signal: u64,
    /// Lowest address of the task's stack.
    pub stack: u64,
    /// Bytes of the stack: the task begins at its upper end.
    pub stack_size: u64,
    /// The value of the register for thread-local storage (`CLONE_SETTLS`).
    pub tls: u64,
    /// Address of an array of pids to take, one for each pid namespace (Linux 5.5).
    pub set_tid: u64,
    /// Entries of that array.
    pub set_tid_size: u64,
    /// Descriptor of a cgroup v2 directory (`CLONE_INTO_CGROUP`).
    pub cgroup: u64,
}
