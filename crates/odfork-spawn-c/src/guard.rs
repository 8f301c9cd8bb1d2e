//! Calls that a C program makes: the thread is not cancelled, and `errno` changes only where a
//! function says so.
//!
//! A cancelled thread unwinds from inside libc's functions; Rust's frames must not be unwound. So
//! no function of this interface is a cancellation point, and a request that comes meanwhile acts
//! at the caller's next one.

use core::ffi::c_int;

use odfork_spawn::CancellationGuard;

/// From its making to its end the calling thread is not cancelled; then `errno` is as before or as
/// said. The first variable of a function, so that nothing is left to clean up when it ends.
pub struct CallGuard {
    errno: c_int,
    // Dropped after `errno` was written: a cancelled thread may end there.
    _cancellation: CancellationGuard,
}

impl CallGuard {
    pub fn enter() -> CallGuard {
        let _cancellation = CancellationGuard::enter();
        CallGuard { errno: errno(), _cancellation }
    }

    /// The answer -1, with this errno.
    pub fn fail(&mut self, errno: c_int) -> c_int {
        self.errno = errno;
        -1
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        // SAFETY: the thread's own errno always exists.
        unsafe { *libc::__errno_location() = self.errno };
    }
}

fn errno() -> c_int {
    // SAFETY: libc's thread-local errno always exists.
    unsafe { *libc::__errno_location() }
}
