//! fork(2): where the way of one fork begins.

use core::ffi::c_int;

use super::errno::{as_libc, get_errno, set_errno};
use super::next::Next;
use crate::{engine, sys};

/// fork(2), cheap. See [`engine::fork`].
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
        engine::fork(|| {
            set_errno(errno);
            match next {
                0 => as_libc(sys::raw(libc::SYS_fork, [0; 6])) as c_int,
                at => core::mem::transmute::<usize, extern "C" fn() -> c_int>(at)(),
            }
        })
    }
}
