//! pthread_mutexattr_setpshared(3) and its kin, sem_init(3): objects whose waiters the kernel knows
//! by their place in a file, not by their address.
//!
//! In live memory that place changes with every switch, and a waiter would not be woken. So live
//! memory ends before the first such object is made. Robust mutexes are of this kind: the kernel
//! itself wakes their waiters.

use core::ffi::c_int;

use super::next::Next;
use crate::engine;

macro_rules! settings {
    ($($name:ident $next:ident,)*) => {$(
        #[doc = concat!(stringify!($name), "(3): the C library's.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name(attributes: usize, value: c_int) -> c_int {
            if value != 0 && !engine::bar_live() {
                return libc::ENOMEM;
            }
            // SAFETY: the next function in line, with the caller's arguments.
            let next: extern "C" fn(usize, c_int) -> c_int =
                unsafe { core::mem::transmute(Next::$next.get()) };
            next(attributes, value)
        }
    )*};
}

settings! {
    pthread_mutexattr_setpshared MutexShared,
    pthread_mutexattr_setrobust MutexRobust,
    pthread_condattr_setpshared CondShared,
    pthread_rwlockattr_setpshared RwLockShared,
    pthread_barrierattr_setpshared BarrierShared,
}

/// sem_init(3).
#[no_mangle]
pub unsafe extern "C" fn sem_init(at: usize, shared: c_int, value: u32) -> c_int {
    if shared != 0 && !engine::bar_live() {
        super::errno::set_errno(libc::ENOSPC);
        return -1;
    }
    // SAFETY: the next function in line, with the caller's arguments.
    let next: extern "C" fn(usize, c_int, u32) -> c_int =
        unsafe { core::mem::transmute(Next::SemInit.get()) };
    next(at, shared, value)
}
