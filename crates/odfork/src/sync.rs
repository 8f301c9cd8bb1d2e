//! What the lock takes from outside: atomics, the signal mask, a pause.
//!
//! Owns nothing else. It is a file of its own so that the lock's model test can put others in
//! their place, and because Miri knows no system calls.

pub use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

#[cfg(not(all(miri, test)))]
pub use crate::sys::{block_more_signals, restore_signals};

/// Rounds that spin.
pub const SPINS: u32 = 50;

/// Rounds for which a free lock is left to whom has waited longer: more than its longest sleep.
pub const PATIENCE: u32 = 200;

/// After so many rounds, 0.1 s or more have passed.
pub const LONG: u32 = 1100;

/// Waits before the next look: spins at first, then sleeps longer.
#[cfg(not(all(miri, test)))]
pub fn pause(rounds: u32) {
    if rounds < SPINS {
        core::hint::spin_loop();
        return;
    }
    let ns = if rounds < 1000 { 10_000 } else { 1_000_000 };
    let t = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: sleeps; an early return only means another look.
    unsafe { crate::sys::raw(libc::SYS_nanosleep, crate::args![&t, 0]) };
}

#[cfg(all(miri, test))]
mod without_kernel {
    /// Miri delivers no signals.
    pub fn block_more_signals(_more: u64) -> u64 {
        0
    }

    pub fn restore_signals(_mask: u64) {}

    pub fn pause(_rounds: u32) {
        std::thread::yield_now();
    }
}
#[cfg(all(miri, test))]
pub use without_kernel::{block_more_signals, pause, restore_signals};
