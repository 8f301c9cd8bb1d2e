//! poll(2), epoll_wait(2), select(2), sleeps: the program has nothing to do for a while, which is
//! the time for a slice of a pass. They are cancellation points: the C library's own are called.
//!
//! And what is needed where a thread is interrupted in one to be held: since when it waits, for
//! those that the kernel would begin anew (sigtimedwait(2) and semtimedop(2) too). What a sleep
//! still has to go is told to the program only where it ended early.

use core::ffi::{c_int, c_long};

use super::errno::get_errno;
use super::next::Next;
use crate::begun::timed;
use crate::sys::abi::calls as old;
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
    if limit != 0 && engine::is_pass_under_way() {
        return wait_between_slices(limit, &call);
    }
    call(limit as usize)
}

#[cold]
fn wait_between_slices(limit: c_int, call: &dyn Fn(usize) -> c_int) -> c_int {
    let (mut left, began_ns) = (limit, sys::now_ns());
    while let Some(pause) = engine::until_slice(left) {
        let answer = call(pause as usize);
        if answer != 0 {
            return answer;
        }
        engine::before_wait();
        let spent = (sys::now_ns() - began_ns) / 1_000_000;
        left = if limit < 0 { limit } else { limit.saturating_sub(spent as c_int).max(0) };
    }
    call(left as usize)
}

/// A call with or without a limit of time.
fn limited(number: c_long, is_limited: bool, call: impl FnOnce() -> c_int) -> c_int {
    if is_limited && engine::is_interrupting() {
        timed(number, call)
    } else {
        call()
    }
}

/// epoll_wait(2).
#[no_mangle]
pub unsafe extern "C" fn epoll_wait(a: usize, b: usize, c: usize, d: usize) -> c_int {
    let next = next(Next::EpollWait);
    let call =
        |limit| limited(old::SYS_epoll_wait, limit as c_int > 0, || next(a, b, c, limit, 0, 0));
    wait(d as c_int, call)
}

/// epoll_pwait(2).
#[no_mangle]
pub unsafe extern "C" fn epoll_pwait(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
    let next = next(Next::EpollPWait);
    let call =
        |limit| limited(libc::SYS_epoll_pwait, limit as c_int > 0, || next(a, b, c, limit, e, 0));
    wait(d as c_int, call)
}

/// sigtimedwait(2).
#[no_mangle]
pub unsafe extern "C" fn sigtimedwait(a: usize, b: usize, c: usize) -> c_int {
    let next = next(Next::SigTimedWait);
    limited(libc::SYS_rt_sigtimedwait, c != 0, || next(a, b, c, 0, 0, 0))
}

/// semtimedop(2).
#[no_mangle]
pub unsafe extern "C" fn semtimedop(a: usize, b: usize, c: usize, d: usize) -> c_int {
    let next = next(Next::SemTimedOp);
    limited(libc::SYS_semtimedop, d != 0, || next(a, b, c, d, 0, 0))
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

/// A sleep that tells at `rest` what it had to go, where it ended early. The kernel writes that
/// whenever a sleep is interrupted, also where it goes on.
fn sleep(rest: usize, ended_early: impl Fn(c_int) -> bool, call: impl Fn(usize) -> c_int) -> c_int {
    if rest == 0 || !engine::is_interrupting() {
        return call(rest);
    }
    let mut left = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let answer = call((&raw mut left) as usize);
    if ended_early(answer) {
        // SAFETY: the caller's place for it.
        unsafe { (rest as *mut libc::timespec).write(left) };
    }
    answer
}

/// nanosleep(2).
#[no_mangle]
pub unsafe extern "C" fn nanosleep(time: usize, rest: usize) -> c_int {
    let next = next(Next::Nanosleep);
    let ended_early = |answer| answer == -1 && get_errno() == libc::EINTR;
    sleep(rest, ended_early, |rest| next(time, rest, 0, 0, 0, 0))
}

/// clock_nanosleep(2).
#[no_mangle]
pub unsafe extern "C" fn clock_nanosleep(a: usize, flags: c_int, c: usize, rest: usize) -> c_int {
    let next = next(Next::ClockNanosleep);
    let rest = if flags & libc::TIMER_ABSTIME == 0 { rest } else { 0 };
    let call = |rest| next(a, flags as usize, c, rest, 0, 0);
    sleep(rest, |answer| answer == libc::EINTR, call)
}

/// usleep(3).
#[no_mangle]
pub unsafe extern "C" fn usleep(a: usize) -> c_int {
    next(Next::USleep)(a, 0, 0, 0, 0, 0)
}
