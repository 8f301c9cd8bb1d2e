//! vmsplice(2), setsockopt(2): a page may stay in a pipe or a socket beyond its mappings.

use core::ffi::c_int;

use super::errno::answer;
use crate::{args, engine, sys};

/// vmsplice(2): pages of ours may go into a pipe and outlive their mappings.
#[no_mangle]
pub unsafe extern "C" fn vmsplice(fd: c_int, iov: usize, count: usize, flags: u32) -> isize {
    engine::never_overwrite();
    // SAFETY: the caller's own call.
    answer(|| unsafe { sys::raw(libc::SYS_vmsplice, args![fd, iov, count, flags]) })
}

/// setsockopt(2): so may they by MSG_ZEROCOPY.
#[no_mangle]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: usize,
    len: u32,
) -> c_int {
    if level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY {
        engine::never_overwrite();
    }
    // SAFETY: the caller's own call.
    answer(|| unsafe { sys::raw(libc::SYS_setsockopt, args![fd, level, name, value, len]) })
        as c_int
}
