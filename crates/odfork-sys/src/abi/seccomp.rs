//! What a filter of system calls compares; the rest is in `libc`.

/// `seccomp_data.arch` of a 64-bit call of this architecture.
#[cfg(target_arch = "x86_64")]
pub const AUDIT_ARCH: u32 = 0xC000_003E;
/// The same.
#[cfg(target_arch = "aarch64")]
pub const AUDIT_ARCH: u32 = 0xC000_00B7;
/// Set in the number of a call of the x32 ABI.
pub const X32_SYSCALL_BIT: u32 = 1 << 30;
