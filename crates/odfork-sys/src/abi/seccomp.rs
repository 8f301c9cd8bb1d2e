//! What a filter of system calls compares; the rest is in `libc`.

/// `seccomp_data.arch` of a 64-bit call.
pub const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// Set in the number of a call of the x32 ABI.
pub const X32_SYSCALL_BIT: u32 = 1 << 30;
