//! execve(2) and its kin: the thread that waits for a helper task would be killed by another
//! thread's call, and the new program would have a dead child that none of its waits finds.
//!
//! So none is executed during a pass, and no pass begins meanwhile. A child of a fork, or of a
//! vfork, ends nobody's threads. Not wrapped are the forms with a list of arguments (`execl`).

use core::ffi::c_int;

use super::next::Next;
use crate::engine;

/// A new program takes the place of this one, unless the call fails.
pub fn execute<T>(call: impl FnOnce() -> T) -> T {
    if engine::is_state_of_this_process() {
        engine::away_from_passes(call)
    } else {
        call()
    }
}

macro_rules! forms {
    ($($name:ident $next:ident ($($arg:ident),*),)*) => {$(
        #[doc = concat!(stringify!($name), ": the C library's, beside no pass.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> c_int {
            // SAFETY: the next function in line, with the caller's arguments.
            let next: extern "C" fn($(forms!(@word $arg)),*) -> c_int =
                unsafe { core::mem::transmute(Next::$next.get()) };
            execute(|| next($($arg),*))
        }
    )*};
    (@word $arg:ident) => { usize };
}

forms! {
    execve ExecVe (path, words, settings),
    execv ExecV (path, words),
    execvp ExecVp (file, words),
    execvpe ExecVpe (file, words, settings),
    fexecve FExecVe (descriptor, words, settings),
    execveat ExecVeAt (descriptor, path, words, settings, flags),
}
