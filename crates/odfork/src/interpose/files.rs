//! open(2), openat(2), fcntl(2): a file or device that reaches memory behind the page tables.
//!
//! A read past the page cache (`O_DIRECT`) that another thread makes, or a device that was told of
//! memory, would go on writing into the file of live memory after a fork, where a child sees it.
//! So live memory ends before the first of these. Only with `ODFORK_PROFILE=live` anything is
//! looked at. The functions are cancellation points: the C library's own are called.

use core::ffi::{c_int, CStr};

use super::errno::set_errno;
use super::next::Next;
use crate::engine;

/// Devices that only copy.
const HARMLESS: [&[u8]; 9] =
    [b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"ptmx", b"pts/", b"shm/"];

/// May memory stay live beside a file opened so?
fn is_harmless(path: usize, flags: c_int) -> bool {
    if flags & libc::O_DIRECT != 0 {
        return false;
    }
    if path == 0 {
        return true;
    }
    // SAFETY: the caller's path, which the kernel would read as well.
    let path = unsafe { CStr::from_ptr(path as *const _) }.to_bytes();
    let device = path.strip_prefix(b"/dev/");
    device.is_none_or(|name| HARMLESS.iter().any(|known| name.starts_with(known)))
}

/// Opens by `call`, with no live memory beside what is not harmless.
pub fn open_beside_live(path: usize, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if engine::is_live_wanted() && !is_harmless(path, flags) && !engine::bar_live() {
        set_errno(libc::ENOMEM);
        return -1;
    }
    call()
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
            open_beside_live(path, flags, || next(Next::$next)(path, flags as usize, mode, 0))
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
            open_beside_live(path, flags, || {
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
    open_beside_live(0, flags, || next(Next::Fcntl)(fd, command as usize, argument, 0))
}

/// fcntl(2) by its other name.
#[no_mangle]
pub unsafe extern "C" fn fcntl64(fd: usize, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same function.
    unsafe { fcntl(fd, command, argument) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_by_their_path() {
        let harmless = |path: &CStr| is_harmless(path.as_ptr() as usize, libc::O_RDWR);
        assert!(harmless(c"/dev/null") && harmless(c"/dev/shm/x") && harmless(c"/device"));
        assert!(!harmless(c"/dev/infiniband/uverbs0") && !harmless(c"/dev/kvm"));
        assert!(!is_harmless(c"/x".as_ptr() as usize, libc::O_DIRECT) && is_harmless(0, 0));
    }
}
