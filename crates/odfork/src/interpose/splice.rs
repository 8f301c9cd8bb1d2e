//! vmsplice(2), setsockopt(2): a page may stay in a pipe or a socket beyond its mappings; a wait on
//! a socket may have a limit.

use core::ffi::c_int;

use super::errno::answer;
use crate::{args, engine, sys};

/// vmsplice(2): pages of ours may go into a pipe and outlive their mappings.
#[no_mangle]
pub unsafe extern "C" fn vmsplice(fd: c_int, iov: usize, count: usize, flags: u32) -> isize {
    engine::never_overwrite();
    engine::bar_live();
    // SAFETY: the caller's own call.
    answer(|| unsafe { sys::raw(libc::SYS_vmsplice, args![fd, iov, count, flags]) })
}

/// An option of a socket that a pass must know about.
pub fn note_option(level: c_int, name: c_int) {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => engine::never_overwrite(),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO..=libc::SO_SNDTIMEO | 66..=67) => {
            engine::note_timed_socket();
        }
        _ => {}
    }
}

/// Sockets that keep a hold of memory: by `MSG_ZEROCOPY`, a ring of packets, a cipher's result.
pub fn reaches_memory(level: c_int, name: c_int) -> bool {
    const SOL_ALG: c_int = 279;
    const SOL_XDP: c_int = 283;
    matches!((level, name), (libc::SOL_SOCKET, libc::SO_ZEROCOPY) | (SOL_ALG | SOL_XDP, _))
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
    note_option(level, name);
    if reaches_memory(level, name) {
        engine::bar_live();
    }
    // SAFETY: the caller's own call.
    answer(|| unsafe { sys::raw(libc::SYS_setsockopt, args![fd, level, name, value, len]) })
        as c_int
}
