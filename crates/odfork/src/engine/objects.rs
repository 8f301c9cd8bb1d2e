//! Which program or library, of those that the loader has mapped, does an address belong to?
//!
//! Owns the question, asked without the loader's lock. Memory of an object shows its file, or a
//! backing file where it was frozen; and where frozen memory was, which the C library has unmapped
//! since, a library loaded later may lie now. Only the kernel can tell these apart.

use core::ffi::{c_char, c_void, CStr};
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
    can_be_asked()
        .is_none_or(|find| (start..end).step_by(PAGE).any(|address| about(find, address).is_some()))
}

fn can_be_asked() -> Option<Find> {
    let find = state().notes.next[FIND_OBJECT].load(Relaxed);
    // SAFETY: the loader's function of that type, which takes no lock.
    (find != 0).then(|| unsafe { core::mem::transmute::<usize, Find>(find) })
}

fn about(find: Find, address: usize) -> Option<Object> {
    // SAFETY: all zeros is valid; the function fills it or fails.
    unsafe {
        let mut object: Object = core::mem::zeroed();
        (find(address as *const c_void, &mut object) == 0).then_some(object)
    }
}

/// Code at that address belongs to an object that the loader searches after this library. False
/// where it cannot be asked.
pub fn is_behind(address: usize) -> bool {
    const PREVIOUS: usize = 4;
    let here = is_behind as *const () as usize;
    let objects = can_be_asked().and_then(|find| Some((about(find, address)?, about(find, here)?)));
    let Some((object, own)) = objects else { return false };
    let mut map = own.map;
    // SAFETY: the loader's list (`struct link_map`): what lies before this library was there when
    // the program began, and stays.
    while !map.is_null() && map != object.map {
        map = unsafe { *map.add(PREVIOUS) } as *const usize;
    }
    map.is_null()
}

/// The function is the C library's; supposed so where the loader cannot be asked.
pub fn is_libcs(function: usize) -> bool {
    const PATH: usize = 1;
    can_be_asked().is_none_or(|find| {
        about(find, function).is_some_and(|object| {
            // SAFETY: the loader's text in its list.
            let path = unsafe { CStr::from_ptr(*object.map.add(PATH) as *const c_char) };
            path.to_bytes().ends_with(b"/libc.so.6")
        })
    })
}
