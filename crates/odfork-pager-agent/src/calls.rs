//! Calls to the daemon through the shared control pages, and the doorbell that wakes it.
//!
//! The caller of [`ask`] holds the lock, so a program has one call under way at a time. While there
//! is no daemon, the call waits for the next one.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::state::{control, Locked, STATE};
use crate::{futex_wait, futex_wake};

/// Wakes the daemon's scanner.
pub fn ring() {
    // SAFETY: null or the mapping of the doorbell, which is never unmapped.
    let Some(doorbell) = (unsafe { STATE.doorbell.load(Acquire).as_ref() }) else { return };
    doorbell.rung.fetch_add(1, SeqCst);
    if doorbell.sleeping.load(SeqCst) != 0 {
        futex_wake(&doorbell.rung);
    }
}

/// Writes the region list where the daemon reads it.
pub fn publish(locked: &mut Locked) {
    let Some(control) = control() else { return };
    control.regions.publish(locked.regions().list());
}

/// Makes a call and waits for the answer: zero or a negative error number. While there is no
/// daemon, it waits.
pub fn ask(_held: &Locked, what: u32, arguments: [u64; 2]) -> i32 {
    let Some(control) = control() else { return -libc::ENOTCONN };
    let call = &control.call;
    call.op.store(what, Relaxed);
    call.args[0].store(arguments[0], Relaxed);
    call.args[1].store(arguments[1], Relaxed);
    let number = call.answered.load(Acquire).wrapping_add(1);
    call.asked.store(number, Release);
    ring();
    loop {
        let answered = call.answered.load(Acquire);
        if answered == number {
            return call.result.load(Acquire);
        }
        futex_wait(&call.answered, answered);
    }
}
