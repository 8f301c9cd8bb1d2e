//! The `prctl` of the kernel engine: numbers of the patches in `kernel/`, of no released Linux.

/// Sets the mode: 0 off, 1 until exec, 2 over exec.
pub const PR_SET_COW_FORK: i32 = 0x4357_4601;
/// Gives the mode; EINVAL from a kernel without the patches.
pub const PR_GET_COW_FORK: i32 = 0x4357_4602;
