//! POSIX thread cancellation, switched off for a while.
//!
//! A cancelled thread unwinds from inside the C library's functions. Rust's frames must not be
//! unwound that way, and whatever they hold would be lost.

/// `PTHREAD_CANCEL_DISABLE` of <pthread.h>, glibc and musl.
const DISABLE: i32 = 1;

extern "C" {
    fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
}

/// The calling thread is not cancelled until this is dropped; a request that comes meanwhile acts
/// at its next cancellation point.
#[derive(Debug)]
pub struct CancellationGuard {
    before: i32,
}

impl CancellationGuard {
    /// Switches cancellation off for the calling thread.
    pub fn enter() -> CancellationGuard {
        let mut before = 0;
        // SAFETY: concerns this thread; the state is valid for writing.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        CancellationGuard { before }
    }
}

impl Drop for CancellationGuard {
    fn drop(&mut self) {
        // SAFETY: as above; a null pointer asks for no answer (glibc, musl). With asynchronous
        // cancellation the thread may end here.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
