//! `clone3` (Linux 5.3): its structure, and the flags that do not fit into the `int` of `libc`.

/// Handlers of signals go back to their defaults (Linux 5.5).
pub const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// The child starts in the cgroup of [`CloneArgs::cgroup`] (Linux 5.7).
pub const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// `struct clone_args`, at its size of Linux 5.7.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct CloneArgs {
    pub flags: u64,
    /// Where the kernel stores the pidfd (`CLONE_PIDFD`).
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    /// Sent to the parent when the task ends; 0 for none.
    pub exit_signal: u64,
    /// Lowest address of the task's stack.
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    /// Descriptor of a cgroup v2 directory (`CLONE_INTO_CGROUP`).
    pub cgroup: u64,
}
