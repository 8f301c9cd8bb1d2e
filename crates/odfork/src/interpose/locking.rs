//! mlock(2) and its kin: memory is thawed first, a lock would stay behind with the backing file.

use core::ffi::{c_int, c_long, c_void};

use super::errno::answer;
use crate::sys::{self, PAGE};
use crate::{args, engine};

/// Locks memory, thawed before: a lock would stay behind with the image.
pub fn lock(nr: c_long, addr: usize, len: usize, flags: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(nr, args![addr, len, flags]) };
    let start = addr & !(PAGE - 1);
    let pages = len.checked_add(addr - start).and_then(|n| n.checked_next_multiple_of(PAGE));
    let Some(pages) = pages.filter(|&n| n > 0 && start.checked_add(n).is_some()) else {
        return call();
    };
    engine::on_private(start, pages, || engine::with_property(start, pages, |_| call()))
}

/// mlock(2).
#[no_mangle]
pub unsafe extern "C" fn mlock(addr: *const c_void, len: usize) -> c_int {
    answer(|| lock(libc::SYS_mlock, addr as usize, len, 0)) as c_int
}

/// mlock2(2).
#[no_mangle]
pub unsafe extern "C" fn mlock2(
    addr: *const c_void,
    len: usize,
    flags: core::ffi::c_uint,
) -> c_int {
    answer(|| lock(libc::SYS_mlock2, addr as usize, len, flags as usize)) as c_int
}

/// Locks all memory, thawed before.
pub fn lock_all(flags: usize) -> isize {
    if engine::anything_frozen() {
        let _ = engine::thaw_all();
    }
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_mlockall, args![flags]) };
    engine::on_private(0, usize::MAX, || engine::with_property(0, usize::MAX, |_| call()))
}

/// mlockall(2).
#[no_mangle]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    answer(|| lock_all(flags as usize)) as c_int
}
