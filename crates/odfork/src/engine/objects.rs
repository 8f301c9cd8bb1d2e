//! Is an address in the file of a program or library, as the dynamic loader has mapped it?
//!
//! Owns the question, asked without the loader's lock. Only for memory that was frozen and that
//! the C library has unmapped since: a library loaded later may lie there now.

use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

use super::state::state;
use crate::sys::PAGE;

/// `struct dl_find_object` of glibc 2.35.
#[repr(C)]
struct Object {
    flags: u64,
    start: usize,
    end: usize,
    /// `struct link_map`, whose first word is the difference to the addresses in the file.
    map: *const usize,
    unwind: usize,
    reserved: [u64; 7],
}

type Find = unsafe extern "C" fn(*const c_void, *mut Object) -> i32;

/// That address shows a file the loader has mapped. Its `.bss` is anonymous memory and shows none.
pub fn is_file(address: usize) -> bool {
    let find = state().notes.find_object.load(Relaxed);
    if find == 0 {
        return false;
    }
    // SAFETY: the loader's function of that type, which takes no lock. An object's headers are in
    // its first page.
    unsafe {
        let find: Find = core::mem::transmute(find);
        let mut object: Object = core::mem::zeroed();
        if find(address as *const c_void, &mut object) != 0 || object.map.is_null() {
            return false;
        }
        let header = &*(object.start as *const libc::Elf64_Ehdr);
        let headers = (object.start + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        if header.e_ident[..4] != *b"\x7fELF" || header.e_phoff as usize > PAGE / 2 {
            return true;
        }
        let headers = core::slice::from_raw_parts(headers, header.e_phnum as usize);
        headers.iter().any(|ph| {
            let start = *object.map + ph.p_vaddr as usize;
            let end = (start + ph.p_filesz as usize).next_multiple_of(PAGE);
            ph.p_type == libc::PT_LOAD && (start & !(PAGE - 1)..end).contains(&address)
        })
    }
}
