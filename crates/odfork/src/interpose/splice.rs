//! vmsplice(2), setsockopt(2): a page may stay in a pipe or a socket beyond its mappings; a wait on
//! a socket may have a limit. recvmmsg(2), sendmmsg(2): nothing mends them if they are interrupted.

use core::ffi::c_int;

use super::errno::answer;
use super::next::Next;
use crate::{args, engine, sys};

type Splice = extern "C" fn(c_int, usize, usize, u32) -> isize;

/// vmsplice(2): pages of ours may go into a pipe and outlive their mappings. A cancellation point,
/// as the two below: the C library's own is called.
#[no_mangle]
pub unsafe extern "C" fn vmsplice(fd: c_int, iov: usize, count: usize, flags: u32) -> isize {
    engine::never_overwrite();
    engine::bar_live();
    // SAFETY: the next function in line, with the caller's arguments.
    let next: Splice = unsafe { core::mem::transmute(Next::VmSplice.get()) };
    engine::unmended(|| next(fd, iov, count, flags))
}

type Messages = extern "C" fn(c_int, usize, u32, c_int, usize) -> c_int;

/// recvmmsg(2): after a part of the messages the rest would be lost with an error.
#[no_mangle]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: usize,
    count: u32,
    flags: c_int,
    limit: usize,
) -> c_int {
    // SAFETY: the next function in line, with the caller's arguments.
    let next: Messages = unsafe { core::mem::transmute(Next::RecvMMsg.get()) };
    engine::unmended(|| next(fd, messages, count, flags, limit))
}

/// sendmmsg(2).
#[no_mangle]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: usize, count: u32, flags: c_int) -> c_int {
    // SAFETY: the next function in line, which takes the first four.
    let next: Messages = unsafe { core::mem::transmute(Next::SendMMsg.get()) };
    engine::unmended(|| next(fd, messages, count, flags, 0))
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

/// An option that was set: of a socket that keeps back what it has received until there is enough,
/// or that waits when it is closed.
pub fn note_value(level: c_int, name: c_int, value: usize, len: u32) {
    let word = |at: usize| {
        // SAFETY: the kernel has read as much there.
        (len as usize >= (at + 1) * 4).then(|| unsafe { *(value as *const c_int).add(at) })
    };
    let is_delicate = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => word(0).is_some_and(|least| least > 1),
        (libc::SOL_SOCKET, libc::SO_LINGER) => word(0) != Some(0) && word(1) != Some(0),
        _ => false,
    };
    if is_delicate {
        engine::note_delicate_socket();
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
    let call = || unsafe { sys::raw(libc::SYS_setsockopt, args![fd, level, name, value, len]) };
    let set = answer(call) as c_int;
    if set == 0 {
        note_value(level, name, value, len);
    }
    set
}
