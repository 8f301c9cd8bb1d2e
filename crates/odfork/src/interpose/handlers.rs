//! sigaction(2), signal(2) and their kin: a signal that was ignored may get a handler.
//!
//! While the lock is held such a signal is not blocked (`engine::with_handler`). The C library
//! has some of them under more than one name.

use core::ffi::c_int;

use super::next::Next;
use crate::engine;

macro_rules! actions {
    ($($name:ident $next:ident,)*) => {$(
        #[doc = concat!(stringify!($name), ": the C library's.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name(signal: c_int, action: usize, old: usize) -> c_int {
            // SAFETY: the next function in line, with the caller's arguments.
            let next: extern "C" fn(c_int, usize, usize) -> c_int =
                unsafe { core::mem::transmute(Next::$next.get()) };
            match action {
                0 => next(signal, action, old),
                _ => engine::with_handler(signal, || next(signal, action, old)),
            }
        }
    )*};
}

actions! {
    sigaction SigAction,
    __sigaction SigAction,
}

macro_rules! handlers {
    ($($name:ident $next:ident,)*) => {$(
        #[doc = concat!(stringify!($name), ": the C library's.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            // SAFETY: the next function in line, with the caller's arguments.
            let next: extern "C" fn(c_int, usize) -> usize =
                unsafe { core::mem::transmute(Next::$next.get()) };
            engine::with_handler(signal, || next(signal, handler))
        }
    )*};
}

handlers! {
    signal Signal,
    sysv_signal SysVSignal,
    __sysv_signal SysVSignal,
    bsd_signal Signal,
    ssignal Signal,
    sigset SigSet,
}
