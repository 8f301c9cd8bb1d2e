//! malloc_trim(3): gives free parts of the heap back by `madvise` inside the C library, where no
//! wrapper reaches. On frozen memory old content would come back: it is thawed first.

use core::ffi::c_int;

use super::errno::{get_errno, set_errno};
use super::next::Next;
use crate::engine;

/// malloc_trim(3). Where memory cannot be thawed nothing is released, as it may answer.
#[no_mangle]
pub unsafe extern "C" fn malloc_trim(pad: usize) -> c_int {
    let errno = get_errno();
    let released = engine::beside_no_pass(|| {
        if engine::is_any_frozen() && engine::thaw_all().is_err() {
            return 0;
        }
        match Next::MallocTrim.get() {
            0 => 0,
            // SAFETY: the next function in line, with the caller's argument.
            at => unsafe { core::mem::transmute::<usize, extern "C" fn(usize) -> c_int>(at)(pad) },
        }
    });
    set_errno(errno);
    released
}
