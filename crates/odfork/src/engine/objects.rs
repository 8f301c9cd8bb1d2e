//! Does an address belong to a program or library that the dynamic loader has mapped?
//!
//! Owns the question, asked without the loader's lock. Memory of an object shows its file, or a
//! backing file where it was frozen; and where frozen memory was, which the C library has unmapped
//! since, a library loaded later may lie now. Only the kernel can tell these apart.

use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

use super::state::{state, FIND_OBJECT};
use crate::sys::PAGE;

/// `struct dl_find_object` of glibc 2.35.
#[repr(C)]
struct Object {
    flags: u64,
    start: usize,
    end: usize,
    map: *const usize,
    unwind: usize,
    reserved: [u64; 7],
}

type Find = unsafe extern "C" fn(*const c_void, *mut Object) -> i32;

/// Some page of the range is an object's; supposed so where the loader cannot be asked.
pub fn touches(start: usize, end: usize) -> bool {
    let find = state().notes.next[FIND_OBJECT].load(Relaxed);
    if find == 0 {
        return true;
    }
    // SAFETY: the loader's function of that type, which takes no lock.
    let find: Find = unsafe { core::mem::transmute(find) };
    (start..end).step_by(PAGE).any(|address| {
        // SAFETY: all zeros is valid; the function fills it or fails.
        unsafe {
            let mut object: Object = core::mem::zeroed();
            find(address as *const c_void, &mut object) == 0
        }
    })
}
