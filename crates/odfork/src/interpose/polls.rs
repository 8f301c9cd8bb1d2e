//! poll(2), epoll_wait(2), select(2), sleeps: the program has nothing to do for a while, which is
//! the time for a slice of a pass. They are cancellation points: the C library's own are called.

use core::ffi::c_int;

use super::next::Next;
use crate::engine;

type Function = extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;

/// The next function in line, after a slice if one is due.
fn next(which: Next) -> Function {
    engine::before_wait();
    // SAFETY: arguments in registers, of which each of these functions takes the first few.
    unsafe { core::mem::transmute(which.get()) }
}

/// epoll_wait(2).
#[no_mangle]
pub unsafe extern "C" fn epoll_wait(a: usize, b: usize, c: usize, d: usize) -> c_int {
    next(Next::EpollWait)(a, b, c, d, 0, 0)
}

/// epoll_pwait(2).
#[no_mangle]
pub unsafe extern "C" fn epoll_pwait(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
    next(Next::EpollPWait)(a, b, c, d, e, 0)
}

/// poll(2).
#[no_mangle]
pub unsafe extern "C" fn poll(a: usize, b: usize, c: usize) -> c_int {
    next(Next::Poll)(a, b, c, 0, 0, 0)
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
