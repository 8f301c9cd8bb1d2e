//! What a thread is in, for whoever holds it by ptrace: since when, for a call with a limit of time
//! that is to be begun again; and that it must not be interrupted, where nothing mends the call.
//!
//! Owns a few words of each thread's own, which wrappers set around such calls. The kernel does not
//! tell: a thread may have slept, woken up for nothing and slept again in one call. Whoever holds
//! the thread finds them by the thread's descriptor. They count only for a call that is made from
//! below the wrapper's frame: one that was left by `longjmp` is not believed.

use core::arch::{asm, global_asm};
use core::cell::Cell;
use core::sync::atomic::{fence, Ordering::SeqCst};

use crate::frame::bytes_of;
use crate::held::Pipe;
use crate::{sys, threads};

// Of the kind that lies at the same distance from each thread's descriptor: no call, no allocation.
global_asm!(
    ".pushsection .tbss.odfork_begun, \"awT\", @nobits",
    ".balign 8",
    ".globl odfork_begun",
    ".hidden odfork_begun",
    ".type odfork_begun, @object",
    ".size odfork_begun, 32",
    "odfork_begun:",
    ".zero 32",
    ".popsection",
);

/// What a thread is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Begun {
    /// A call with a limit of time; 0: none.
    call: u64,
    /// A frame above that of the call.
    frame: u64,
    since_ns: u64,
    /// The same of a call that must not be interrupted; 0: none.
    unmended: u64,
}

/// A wrapper's frame is not further above the stack pointer of the call: the C library's frame of
/// such a function lies between.
const NEAR: u64 = 2048;

fn descriptor() -> usize {
    let at: usize;
    // SAFETY: reads the first word of the thread's descriptor, its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) at, options(nostack, readonly, preserves_flags)) };
    at
}

/// From there to the words.
fn distance() -> usize {
    let bytes: usize;
    // SAFETY: reads what the loader has computed.
    unsafe {
        asm!("mov {}, qword ptr [rip + odfork_begun@GOTTPOFF]", out(reg) bytes,
             options(nostack, readonly, preserves_flags));
    }
    bytes
}

/// The calling thread's word.
fn own() -> &'static Cell<Begun> {
    // SAFETY: the thread's own, there as long as it runs.
    unsafe { &*(descriptor().wrapping_add(distance()) as *const Cell<Begun>) }
}

/// Makes a call with a limit of time, whose beginning is known meanwhile.
pub fn timed<T>(number: i64, call: impl FnOnce() -> T) -> T {
    let (word, mark) = (own(), 0u64);
    let outer = word.get();
    let frame = (&raw const mark) as u64;
    set(word, Begun { call: number as u64, frame, since_ns: sys::now_ns(), ..outer });
    let answer = call();
    set(word, outer);
    answer
}

/// Makes a call that must not be interrupted; `wait` waits until nobody is held.
pub fn unmended<T>(wait: impl FnOnce(), call: impl FnOnce() -> T) -> T {
    let (word, mark) = (own(), 0u64);
    let outer = word.get();
    set(word, Begun { unmended: (&raw const mark) as u64, ..outer });
    // Who holds threads takes the lock, then reads this; here it is the other way round.
    fence(SeqCst);
    wait();
    let answer = call();
    set(word, outer);
    answer
}

/// For another task to see, whole: it looks while this thread sleeps in the call or is stopped.
fn set(word: &Cell<Begun>, value: Begun) {
    // SAFETY: the thread's own.
    unsafe { word.as_ptr().write_volatile(value) };
}

impl Begun {
    /// Of a thread of the same memory. One that begins or ends has none.
    pub fn of(pipe: Pipe, this: i32, tid: i32) -> Option<Begun> {
        // Lists of robust locks are at the same distance from the descriptors too.
        let (mine, its) = (threads::list_of(this).ok()?, threads::list_of(tid).ok()?);
        let at = descriptor().wrapping_sub(mine).wrapping_add(its);
        let mut begun = Begun::default();
        let at = at.wrapping_add(distance()) as u64;
        let known = mine != 0 && its != 0 && pipe.read(at, bytes_of(&mut begun));
        known.then_some(begun)
    }

    /// When it began that call. `None` if it did so past the wrappers.
    pub fn since(&self, call: u64, stack: u64) -> Option<u64> {
        let is_it = self.call == call && self.frame.wrapping_sub(stack) < NEAR;
        is_it.then_some(self.since_ns)
    }

    /// It must not be interrupted, in a call from this stack pointer or, where that is not known,
    /// in any.
    pub fn is_unmended(&self, stack: Option<u64>) -> bool {
        let is_near = stack.is_none_or(|stack| self.unmended.wrapping_sub(stack) < NEAR);
        self.unmended != 0 && is_near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_says_what_it_is_in() {
        let mark = 0u64;
        let stack = (&raw const mark) as u64;
        let inner = || own().get();
        let begun = timed(7, || unmended(|| {}, inner));
        assert!(begun.since(7, stack - 1000).is_some() && begun.since(8, stack).is_none());
        assert!(begun.is_unmended(None) && !begun.is_unmended(Some(stack.wrapping_sub(1 << 20))));
        assert_eq!(own().get(), Begun::default());
    }
}
