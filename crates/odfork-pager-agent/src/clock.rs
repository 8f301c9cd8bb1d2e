//! The monotonic clock, without the C library.

use odfork_sys::{args, raw};

/// Nanoseconds.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: room for a timespec.
    unsafe { raw(libc::SYS_clock_gettime, args![libc::CLOCK_MONOTONIC, &mut time]) };
    time[0] * 1_000_000_000 + time[1]
}
