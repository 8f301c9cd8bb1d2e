//! The calling thread's `errno`, and results as the C library gives them.

use crate::sys;

/// Sets it. Not written where it is so already: after each fork the first write into a page is a
/// fault, and this may be the only one there.
pub fn set_errno(e: i32) {
    if get_errno() != e {
        // SAFETY: libc's thread-local errno always exists.
        unsafe { *libc::__errno_location() = e };
    }
}

/// Reads it.
pub fn get_errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// As libc's wrappers return: -1 and errno, or the value.
pub fn as_libc(ret: isize) -> isize {
    match sys::check(ret) {
        Ok(v) => v as isize,
        Err(e) => {
            set_errno(e.0);
            -1
        }
    }
}

/// Makes a call of the kernel's in place of a function of the C library: `errno` changes only where
/// the call fails.
pub fn answer(call: impl FnOnce() -> isize) -> isize {
    let errno = get_errno();
    let ret = call();
    set_errno(errno);
    as_libc(ret)
}
