//! Advice of madvise(2) that `libc` does not name.

/// Makes a range fault on every access, by markers in the page tables (Linux 6.13).
pub const MADV_GUARD_INSTALL: i32 = 102;
/// Takes the markers away.
pub const MADV_GUARD_REMOVE: i32 = 103;
