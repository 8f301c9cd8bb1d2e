//! poll(2), epoll_wait(2), select(2), sleeps: the program has nothing to do for a while, which is
//! the time for a slice of a pass. They are cancellation points: the C library's own are called.

use core::ffi::c_int;

use super::next::Next;
use crate::{engine, sys};

type Function = extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;

/// The next function in line, after a slice if one is due.
fn next(which: Next) -> Function {
    engine::before_wait();
    // SAFETY: arguments in registers, of which each of these functions takes the first few.
    unsafe { core::mem::transmute(which.get()) }
}

/// A wait of so many milliseconds (negative: without end), slices meanwhile: the program waits for
/// as long as it runs until the next one, unless something happens before.
fn wait(limit: c_int, call: impl Fn(usize) -> c_int) -> c_int {
    let mut left = limit;
    if limit != 0 && engine::is_pass_under_way() {
        let began_ns = sys::now_ns();
        while let Some(pause) = engine::until_slice(left) {
            let answer = call(pause as usize);
            if answer != 0 {
                return answer;
            }
            engine::before_wait();
            let spent = (sys::now_ns() - began_ns) / 1_000_000;
            left = if limit < 0 { limit } else { limit.saturating_sub(spent as c_int).max(0) };
        }
    }
    call(left as usize)
}

/// epoll_wait(2).
#[no_mangle]
pub unsafe extern "C" fn epoll_wait(a: usize, b: usize, c: usize, d: usize) -> c_int {
    let next = next(Next::EpollWait);
    wait(d as c_int, |limit| next(a, b, c, limit, 0, 0))
}

/// epoll_pwait(2).
#[no_mangle]
pub unsafe extern "C" fn epoll_pwait(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
    let next = next(Next::EpollPWait);
    wait(d as c_int, |limit| next(a, b, c, limit, e, 0))
}

/// poll(2).
#[no_mangle]
pub unsafe extern "C" fn poll(a: usize, b: usize, c: usize) -> c_int {
    let next = next(Next::Poll);
    wait(c as c_int, |limit| next(a, b, limit, 0, 0, 0))
}

/// ppoll(2).
#[no_mangle]
pub unsafe extern "C" fn ppoll(a: usize, b: usize, c: usize, d: usize) -> c_int {
    next(Next::PPoll)(a, b, c, d, 0, 0)
}

/// select(2).
#[no_mangle]
pub unsafe extern "C" fn select(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
    next(Next::Select)(a, b, c, d, e, 0)
}

/// clock_nanosleep(2).
#[no_mangle]
pub unsafe extern "C" fn clock_nanosleep(a: usize, b: usize, c: usize, d: usize) -> c_int {
    next(Next::ClockNanosleep)(a, b, c, d, 0, 0)
}

/// usleep(3).
#[no_mangle]
pub unsafe extern "C" fn usleep(a: usize) -> c_int {
    next(Next::USleep)(a, 0, 0, 0, 0, 0)
}
