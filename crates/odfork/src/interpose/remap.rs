//! mremap(2), realloc(3): a mapping of a backing file would grow into the file instead of zeros.

use core::ffi::{c_int, c_void};

use super::errno::{as_libc, get_errno, set_errno};
use super::next::{realloc_is_glibc, Next};
use crate::sys::{self, PAGE};
use crate::thaw::Content;
use crate::{args, engine};

/// mremap by the kernel. Growing, duplicating and leaving behind need anonymous
/// memory; shrinking and moving whole do not.
pub fn remap(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> isize {
    let a = args![old, old_len, new_len, flags, new];
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_mremap, a) };
    let moves = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    let (Some(len), Some(new_pages)) =
        (old_len.max(PAGE).checked_next_multiple_of(PAGE), new_len.checked_next_multiple_of(PAGE))
    else {
        return call();
    };
    let grows = new_pages > len || old_len == 0;
    if !(grows || moves) || old % PAGE != 0 {
        return call();
    }
    if let Some(answer) = engine::call_if_plain(old, len, true, call) {
        return answer;
    }
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    engine::with_thawed(old, len, Content::Join, may_move, |thawed| match thawed {
        Ok(_) => call(),
        // Rather no room, as when the addresses behind are taken, than wrong bytes.
        Err(_) => -(libc::ENOMEM as isize),
    })
}

/// mremap(2).
#[no_mangle]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let errno = get_errno();
    let ret = remap(old as usize, old_len, new_len, flags, new as usize);
    set_errno(errno);
    as_libc(ret) as *mut c_void
}

/// glibc marks a chunk that has a mapping of its own in the size before it.
const IS_MMAPPED: usize = 2;

/// realloc(3): glibc grows a mapped chunk by an internal mremap, which would
/// run into the image's file; such a chunk is copied instead.
#[no_mangle]
pub unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the next realloc in line, with the caller's arguments.
    let next: extern "C" fn(*mut c_void, usize) -> *mut c_void =
        unsafe { core::mem::transmute(Next::Realloc.get()) };
    if p.is_null() || size == 0 || !engine::anything_frozen() || !realloc_is_glibc() {
        return next(p, size);
    }
    // SAFETY: a glibc chunk has its size in the word before it.
    let header = unsafe { *(p as *const usize).sub(1) };
    let usable = (header & !7).saturating_sub(16);
    if header & IS_MMAPPED == 0 || !engine::may_be_frozen(p as usize - 16, usable + 16) {
        return next(p, size);
    }
    // SAFETY: malloc and free of the same allocator; both blocks are valid for
    // the smaller of the two sizes.
    unsafe {
        let fresh = libc::malloc(size);
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(p as *const u8, fresh as *mut u8, usable.min(size));
            libc::free(p);
        }
        fresh
    }
}
