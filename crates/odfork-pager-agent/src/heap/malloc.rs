//! malloc(3) and its relatives, as programs call them: large blocks are ours, all others the next
//! allocator's.

use core::ffi::{c_int, c_void};

use odfork_pager_protocol::PAGE;

use super::{allocate, free_list, header, is_ours, release, wants, HEADER};
use crate::any::growth;
use crate::next_symbol::NextSymbol;
use crate::{set_errno, unlimited};

macro_rules! next {
    ($name:literal, $kind:ty $(, $argument:expr)*) => {{
        static NEXT: NextSymbol = NextSymbol::named($name);
        // SAFETY: the C library's function of this type; the arguments are the caller's.
        unsafe { core::mem::transmute::<usize, $kind>(NEXT.get())($($argument),*) }
    }};
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Size = unsafe extern "C" fn(*mut c_void) -> usize;
type Allocate2 = unsafe extern "C" fn(usize, usize) -> *mut c_void;

/// malloc(3).
///
/// # Safety
/// As for malloc(3).
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    if wants(size) {
        let (block, _) = allocate(size, HEADER);
        if !block.is_null() {
            return block;
        }
    }
    let block = next!(c"malloc", Allocate, size);
    unlimited::look(block as usize);
    counted(block, size)
}

/// calloc(3).
///
/// # Safety
/// As for calloc(3).
#[no_mangle]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if let Some(bytes) = count.checked_mul(size).filter(|&bytes| wants(bytes)) {
        let (block, zero) = allocate(bytes, HEADER);
        if !block.is_null() {
            if !zero {
                // SAFETY: a block of ours of that size.
                unsafe { core::ptr::write_bytes(block.cast::<u8>(), 0, bytes) };
            }
            return block;
        }
    }
    counted(next!(c"calloc", Allocate2, count, size), count.wrapping_mul(size))
}

/// free(3).
///
/// # Safety
/// As for free(3).
#[no_mangle]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if is_ours(block) {
        // SAFETY: errno always exists; free keeps it.
        let errno = unsafe { *libc::__errno_location() };
        release(block);
        return set_errno(errno);
    }
    next!(c"free", unsafe extern "C" fn(*mut c_void), block)
}

/// realloc(3).
///
/// # Safety
/// As for realloc(3).
#[no_mangle]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: passed on.
        return unsafe { malloc(size) };
    }
    if !is_ours(block) {
        if !wants(size) {
            type Resize = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
            if !growth::is_on() {
                return next!(c"realloc", Resize, block, size);
            }
            let old = (block as usize, next!(c"malloc_usable_size", Size, block));
            let block = next!(c"realloc", Resize, block, size);
            growth::resized(old, block as usize, size);
            return block;
        }
        let old = next!(c"malloc_usable_size", Size, block);
        // SAFETY: a block of the next allocator's.
        return unsafe { move_block(block, old, size) };
    }
    if size == 0 {
        release(block);
        return core::ptr::null_mut();
    }
    let (start, len) = header(block);
    let room = start + len - block as usize;
    if size <= room && size >= room / 2 {
        return block;
    }
    let end = (block as usize).checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE));
    if let Some(more) = end.map(|end| end.saturating_sub(start + len)).filter(|&more| more > 0) {
        if free_list().take_at(start + len, more).is_some() {
            // SAFETY: the header of this block.
            unsafe { block.cast::<[usize; 2]>().sub(1).write([start, len + more]) };
            return block;
        }
    }
    // SAFETY: a block of ours.
    unsafe { move_block(block, room, size) }
}

/// # Safety
/// `block` has `old` bytes and is freed.
unsafe fn move_block(block: *mut c_void, old: usize, size: usize) -> *mut c_void {
    // SAFETY: two different blocks, each with as many bytes.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(size));
            free(block);
        }
        new
    }
}

/// memalign(3).
///
/// # Safety
/// As for memalign(3).
#[no_mangle]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    let block = aligned(align, size);
    match block.is_null() {
        true => counted(next!(c"memalign", Allocate2, align, size), size),
        false => block,
    }
}

/// aligned_alloc(3).
///
/// # Safety
/// As for aligned_alloc(3).
#[no_mangle]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    let block = aligned(align, size);
    match block.is_null() {
        true => counted(next!(c"aligned_alloc", Allocate2, align, size), size),
        false => block,
    }
}

/// posix_memalign(3).
///
/// # Safety
/// As for posix_memalign(3).
#[no_mangle]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let block =
        if align % size_of::<usize>() == 0 { aligned(align, size) } else { core::ptr::null_mut() };
    if block.is_null() {
        type Place = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
        let answer = next!(c"posix_memalign", Place, to, align, size);
        if answer == 0 {
            // SAFETY: there the block is.
            counted(unsafe { *to }, size);
        }
        return answer;
    }
    // SAFETY: the caller's place for the answer.
    unsafe { to.write(block) };
    0
}

/// The next allocator's block.
fn counted(block: *mut c_void, size: usize) -> *mut c_void {
    growth::handed_out(block as usize, size);
    block
}

fn aligned(align: usize, size: usize) -> *mut c_void {
    match wants(size) {
        true => allocate(size, align).0,
        false => core::ptr::null_mut(),
    }
}

/// malloc_usable_size(3).
///
/// # Safety
/// As for malloc_usable_size(3).
#[no_mangle]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if is_ours(block) {
        let (start, len) = header(block);
        return start + len - block as usize;
    }
    next!(c"malloc_usable_size", Size, block)
}
