//! waitpid(2) and its kin: a wait for children of every kind could reap our helper task.
//!
//! The helper has no exit signal, so that only `__WALL` and `__WCLONE` find it. While a thread
//! waits so, no pass runs. The functions are cancellation points: the C library's own are called.

use core::ffi::c_int;

use super::errno::{get_errno, set_errno};
use super::next::Next;
use crate::engine;

/// A wait with these options finds children that have no exit signal.
pub fn finds_helpers(options: c_int) -> bool {
    options & (libc::__WALL | libc::__WCLONE) != 0
}

/// The wait, beside which no helper is started where it could find one.
pub fn wait<T>(options: c_int, call: impl FnOnce() -> T) -> T {
    engine::before_wait();
    if finds_helpers(options) {
        engine::away_from_passes(call)
    } else {
        call()
    }
}

/// The answer of a wait. Who has heard of a child's end may have memory shared again.
pub fn heard<T>(heard: bool, answer: T) -> T {
    if heard {
        let errno = get_errno();
        engine::hear();
        engine::after_wait();
        engine::before_wait();
        set_errno(errno);
    }
    answer
}

type Wait = extern "C" fn(usize, usize, usize, usize, usize) -> c_int;

/// The next function in line.
fn next(which: Next) -> Wait {
    // SAFETY: arguments in registers, of which each of these functions takes the first few.
    unsafe { core::mem::transmute(which.get()) }
}

/// wait(2).
#[export_name = "wait"]
pub unsafe extern "C" fn wait_any(status: usize) -> c_int {
    let pid = wait(0, || next(Next::Wait)(status, 0, 0, 0, 0));
    heard(pid > 0, pid)
}

/// waitpid(2).
#[no_mangle]
pub unsafe extern "C" fn waitpid(pid: c_int, status: usize, options: c_int) -> c_int {
    let pid = wait(options, || next(Next::WaitPid)(pid as usize, status, options as usize, 0, 0));
    heard(pid > 0, pid)
}

/// wait3(2).
#[no_mangle]
pub unsafe extern "C" fn wait3(status: usize, options: c_int, usage: usize) -> c_int {
    let pid = wait(options, || next(Next::Wait3)(status, options as usize, usage, 0, 0));
    heard(pid > 0, pid)
}

/// wait4(2).
#[no_mangle]
pub unsafe extern "C" fn wait4(pid: c_int, status: usize, options: c_int, usage: usize) -> c_int {
    let call = || next(Next::Wait4)(pid as usize, status, options as usize, usage, 0);
    let pid = wait(options, call);
    heard(pid > 0, pid)
}

/// waitid(2).
#[no_mangle]
pub unsafe extern "C" fn waitid(kind: c_int, id: u32, info: usize, options: c_int) -> c_int {
    let call = || next(Next::WaitId)(kind as usize, id as usize, info, options as usize, 0);
    let answer = wait(options, call);
    heard(answer == 0, answer)
}
