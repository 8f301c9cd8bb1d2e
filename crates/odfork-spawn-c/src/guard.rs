//! Calls that a C program makes as if nothing of them were Rust.
//!
//! Owns: the cancellation state and `errno` around a call. A thread that is cancelled unwinds from inside
//! libc's functions; Rust's frames must not be unwound, so no function of this interface is a cancellation
//! point, and a request that comes meanwhile acts at the caller's next one. `errno` changes only where a
//! function says so.

use core::ffi::c_int;

/// PTHREAD_CANCEL_DISABLE of <pthread.h>, glibc and musl.
const DISABLE: c_int = 1;

extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// From its making to its end the calling thread is not cancelled; then `errno` is as before or as said.
/// The first variable of a function, so that nothing is left to clean up when it ends.
pub struct Calm {
    state: c_int,
    errno: c_int,
}

impl Calm {
    pub fn enter() -> Calm {
        let mut state = 0;
        // SAFETY: changes only the calling thread's own state; `state` is writable.
        unsafe { pthread_setcancelstate(DISABLE, &mut state) };
        Calm { state, errno: errno() }
    }

    /// The answer -1, with this errno.
    pub fn fail(&mut self, errno: c_int) -> c_int {
        self.errno = errno;
        -1
    }
}

impl Drop for Calm {
    fn drop(&mut self) {
        // SAFETY: the thread's own errno and state; a null pointer asks for no answer (glibc, musl).
        unsafe {
            *libc::__errno_location() = self.errno;
            pthread_setcancelstate(self.state, core::ptr::null_mut());
        }
    }
}

fn errno() -> c_int {
    // SAFETY: libc's thread-local errno always exists.
    unsafe { *libc::__errno_location() }
}
