//! fork(2): where the way of one fork begins.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use super::errno::{as_libc, get_errno, set_errno};
use super::next::Next;
use crate::{args, engine, sys};

/// fork(2), cheap. See `engine::fork`.
///
/// # Safety
/// As for fork(2).
#[no_mangle]
pub unsafe extern "C" fn fork() -> c_int {
    let errno = get_errno();
    let next = Next::Fork.get();
    // SAFETY: the C library's fork; errno is put back before it runs, so that
    // only a failure of fork itself changes it.
    unsafe {
        let real = || {
            set_errno(errno);
            call(next)
        };
        engine::fork(real, refuse)
    }
}

/// That function, or the kernel's fork where there is none.
///
/// # Safety
/// As for fork(2).
unsafe fn call(next: usize) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe {
        match next {
            0 => as_libc(sys::raw(libc::SYS_clone, args![libc::SIGCHLD])) as c_int,
            at => core::mem::transmute::<usize, extern "C" fn() -> c_int>(at)(),
        }
    }
}

fn refuse(errno: i32) -> c_int {
    set_errno(errno);
    -1
}

/// _Fork(3): fork without handlers, to be called in handlers of signals.
///
/// # Safety
/// As for fork(2).
#[no_mangle]
pub unsafe extern "C" fn _Fork() -> c_int {
    engine::before_raw_fork();
    // SAFETY: passed on to the caller.
    engine::announced(|| unsafe { call(Next::ForkOnly.get()) }, refuse)
}

/// What `pthread_atfork` calls, which is not in the shared library. In musl it is nowhere.
type RegisterForks = extern "C" fn(
    prepare: Option<extern "C" fn()>,
    parent: Option<extern "C" fn()>,
    child: Option<extern "C" fn()>,
    object: *const c_void,
) -> c_int;

/// Forks that the C library makes by itself (forkpty, daemon) come through here too.
pub fn watch_forks() {
    if engine::state().notes.tells_forks.swap(true, Relaxed) {
        return;
    }
    let (before, after) = (engine::before_libc_fork, engine::after_libc_fork);
    // SAFETY: the C library's function of this type, or none.
    let register: Option<RegisterForks> =
        unsafe { core::mem::transmute(Next::RegisterForks.get()) };
    // Functions of a library that is never unloaded.
    register.map(|register| register(Some(before), Some(after), None, core::ptr::null()));
}

/// The same for memory that is to be empty in children, once there is some.
pub fn watch_children() {
    if !engine::is_any_wiped() || engine::state().notes.tells_children.swap(true, Relaxed) {
        return;
    }
    let after = engine::after_copy;
    // SAFETY: as above.
    let register: Option<RegisterForks> =
        unsafe { core::mem::transmute(Next::RegisterForks.get()) };
    register.map(|register| register(None, None, Some(after), core::ptr::null()));
}
