//! Since when a thread is in a call with a limit of time, for whoever begins that call again.
//!
//! Owns a word of each thread's own, which wrappers set around such calls. The kernel does not tell
//! it: a thread may have slept, woken up for nothing and slept again in one call. Whoever holds the
//! thread finds the word by the thread's descriptor. It counts only for a call that is made from
//! below the wrapper's frame: one that was left by `longjmp` is not believed.

use core::arch::{asm, global_asm};
use core::cell::Cell;

use crate::frame::bytes_of;
use crate::held::Pipe;
use crate::{sys, threads};

// Of the kind that lies at the same distance from each thread's descriptor: no call, no allocation.
global_asm!(
    ".pushsection .tbss.odfork_begun, \"awT\", @nobits",
    ".balign 8",
    ".hidden odfork_begun",
    ".type odfork_begun, @object",
    ".size odfork_begun, 24",
    "odfork_begun:",
    ".zero 24",
    ".popsection",
    ".pushsection .text.odfork_begun_distance, \"ax\", @progbits",
    ".hidden odfork_begun_distance",
    ".globl odfork_begun_distance",
    ".type odfork_begun_distance, @function",
    "odfork_begun_distance:",
    "mov rax, qword ptr [rip + odfork_begun@GOTTPOFF]",
    "ret",
    ".size odfork_begun_distance, . - odfork_begun_distance",
    ".popsection",
);

extern "C" {
    fn odfork_begun_distance() -> usize;
}

/// A call under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Begun {
    /// 0: none.
    call: u64,
    /// A frame above that of the call.
    frame: u64,
    since_ns: u64,
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

/// The calling thread's word.
fn own() -> &'static Cell<Begun> {
    // SAFETY: the thread's own, there as long as it runs.
    unsafe { &*(descriptor().wrapping_add(odfork_begun_distance()) as *const Cell<Begun>) }
}

/// Makes a call with a limit of time, whose beginning is known meanwhile.
pub fn timed<T>(number: i64, call: impl FnOnce() -> T) -> T {
    let (word, mark) = (own(), 0u64);
    let outer = word.get();
    let frame = (&raw const mark) as u64;
    let begun = Begun { call: number as u64, frame, since_ns: sys::now_ns() };
    set(word, begun);
    let answer = call();
    set(word, outer);
    answer
}

/// For another task to see, whole: it looks while this thread sleeps in the call or is stopped.
fn set(word: &Cell<Begun>, value: Begun) {
    // SAFETY: the thread's own.
    unsafe { word.as_ptr().write_volatile(value) };
}

/// When that thread, a sleeper or a stopped one, began the call it is in. `None` if it did so past
/// the wrappers.
pub fn since(pipe: Pipe, this: i32, tid: i32, call: u64, stack: u64) -> Option<u64> {
    // Lists of robust locks are at the same distance from the descriptors too.
    let (mine, its) = (threads::list_of(this).ok()?, threads::list_of(tid).ok()?);
    if mine == 0 || its == 0 {
        return None;
    }
    let at = descriptor().wrapping_sub(mine).wrapping_add(its);
    let mut begun = Begun::default();
    // SAFETY: only computes.
    let at = at.wrapping_add(unsafe { odfork_begun_distance() }) as u64;
    let there = pipe.read(at, bytes_of(&mut begun));
    let is_it = begun.call == call && begun.frame.wrapping_sub(stack) < NEAR;
    (there && is_it).then_some(begun.since_ns)
}
