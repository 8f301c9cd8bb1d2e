//! setrlimit(2), prlimit(2): below a limit of address space or data, live memory could not become
//! private again. So it ends before one is set.

use core::ffi::c_int;

use super::errno::answer;
use crate::{args, engine, sys};

/// The limit is one of those, and about to be set.
pub fn ends_live(resource: c_int, new: usize) -> bool {
    let resource = resource as u32;
    new != 0 && matches!(resource, libc::RLIMIT_AS | libc::RLIMIT_DATA)
}

/// prlimit by the kernel.
fn limit(pid: c_int, resource: c_int, new: usize, old: usize) -> isize {
    if ends_live(resource, new) && !engine::bar_live() {
        return -(libc::EPERM as isize);
    }
    // SAFETY: the program's own call.
    unsafe { sys::raw(libc::SYS_prlimit64, args![pid, resource, new, old]) }
}

/// setrlimit(2).
#[no_mangle]
pub unsafe extern "C" fn setrlimit(resource: c_int, new: usize) -> c_int {
    answer(|| limit(0, resource, new, 0)) as c_int
}

/// setrlimit(2) by its other name.
#[no_mangle]
pub unsafe extern "C" fn setrlimit64(resource: c_int, new: usize) -> c_int {
    // SAFETY: the same function.
    unsafe { setrlimit(resource, new) }
}

/// prlimit(2).
#[no_mangle]
pub unsafe extern "C" fn prlimit(pid: c_int, resource: c_int, new: usize, old: usize) -> c_int {
    answer(|| limit(pid, resource, new, old)) as c_int
}

/// prlimit(2) by its other name.
#[no_mangle]
pub unsafe extern "C" fn prlimit64(pid: c_int, resource: c_int, new: usize, old: usize) -> c_int {
    // SAFETY: the same function.
    unsafe { prlimit(pid, resource, new, old) }
}
