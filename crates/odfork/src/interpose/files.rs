//! open(2), openat(2), fcntl(2): a file or device that reaches memory behind the page tables.
//!
//! A read past the page cache that another thread makes, or a device that was told of memory, would
//! go on writing into the file of live memory after a fork, where a child sees it. So live memory
//! ends before the first file with `O_DIRECT`, and is private as long as there is a device, or a
//! file of a server (`file_kind.rs`): each pass looks for them. What is opened while memory is
//! shared is looked at here. The functions are cancellation points: the C library's own are called.

use core::ffi::c_int;

use super::errno::set_errno;
use super::next::Next;
use crate::{args, engine, file_kind, sys};

/// Opens by `call`.
fn open_beside_live(flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if is_barred(flags) {
        return refuse();
    }
    let file = call();
    if file >= 0 && engine::is_live_wanted() && file_kind::is_served(file) {
        // The program does not have it yet.
        if !engine::share_nothing() {
            // SAFETY: nobody knows of it.
            unsafe { sys::raw(libc::SYS_close, args![file]) };
            return refuse();
        }
    }
    file
}

/// Live memory must not meet such a file, and cannot end.
fn is_barred(flags: c_int) -> bool {
    flags & libc::O_DIRECT != 0 && !engine::bar_live()
}

#[cold]
fn refuse() -> c_int {
    set_errno(libc::ENOMEM);
    -1
}

type Open = extern "C" fn(usize, usize, usize, usize) -> c_int;

/// The next function in line.
fn next(which: Next) -> Open {
    // SAFETY: arguments in registers, of which each of these functions takes the first few.
    unsafe { core::mem::transmute(which.get()) }
}

macro_rules! opens {
    ($($name:ident $next:ident,)*) => {$(
        #[doc = concat!(stringify!($name), ": the C library's.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name(path: usize, flags: c_int, mode: usize) -> c_int {
            open_beside_live(flags, || next(Next::$next)(path, flags as usize, mode, 0))
        }
    )*};
}

macro_rules! opens_at {
    ($($name:ident $next:ident,)*) => {$(
        #[doc = concat!(stringify!($name), ": the C library's.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            folder: usize,
            path: usize,
            flags: c_int,
            mode: usize,
        ) -> c_int {
            open_beside_live(flags, || {
                next(Next::$next)(folder, path, flags as usize, mode)
            })
        }
    )*};
}

opens! {
    open Open,
    open64 Open,
    __open_2 OpenChecked,
    __open64_2 OpenChecked,
}

opens_at! {
    openat OpenAt,
    openat64 OpenAt,
    __openat_2 OpenAtChecked,
    __openat64_2 OpenAtChecked,
}

/// fcntl(2).
#[no_mangle]
pub unsafe extern "C" fn fcntl(fd: usize, command: c_int, argument: usize) -> c_int {
    let flags = if command == libc::F_SETFL { argument as c_int } else { 0 };
    if is_barred(flags) {
        return refuse();
    }
    next(Next::Fcntl)(fd, command as usize, argument, 0)
}

/// fcntl(2) by its other name.
#[no_mangle]
pub unsafe extern "C" fn fcntl64(fd: usize, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same function.
    unsafe { fcntl(fd, command, argument) }
}
