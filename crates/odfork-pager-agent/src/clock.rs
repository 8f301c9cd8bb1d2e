//! The monotonic clock, without the C library.

use odfork_sys::{args, raw};

/// Nanoseconds.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: room for a timespec.
    unsafe { raw(libc::SYS_clock_gettime, args![libc::CLOCK_MONOTONIC, &mut time]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Nanoseconds of processor time that a process has used; 0: it is gone.
pub fn used_by(process: i32) -> u64 {
    // As clock_getcpuclockid makes it.
    const OF_PROCESS: i32 = 2;
    let clock = !process << 3 | OF_PROCESS;
    let mut time = [0u64; 2];
    // SAFETY: room for a timespec.
    unsafe { raw(libc::SYS_clock_gettime, args![clock, &mut time]) };
    time[0] * 1_000_000_000 + time[1]
}
