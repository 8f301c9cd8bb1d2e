//! Which programs are left alone from the start.

use core::ffi::{c_int, c_void};

use odfork_runtime::reason::Reason;

/// A reason never to freeze in this program.
pub fn barred() -> Reason {
    if has_sanitizer() {
        Reason::Sanitizer
    } else if is_go() {
        Reason::Go
    } else {
        Reason::None
    }
}

/// A sanitizer keeps shadow memory and calls the kernel past the C library.
fn has_sanitizer() -> bool {
    [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init"].iter().any(|name| {
        // SAFETY: looks up a name.
        unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
    })
}

/// A Go program has a note of owner "Go"; its runtime makes system calls itself.
fn is_go() -> bool {
    let mut found = false;
    // SAFETY: the callback gets a pointer to `found`, alive during the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes valid headers of a loaded object; notes are in
    // its read-only memory.
    unsafe {
        let info = &*info;
        for i in 0..info.dlpi_phnum as usize {
            let ph = &*info.dlpi_phdr.add(i);
            if ph.p_type == libc::PT_NOTE && ph.p_memsz >= 16 {
                let note = (info.dlpi_addr as usize + ph.p_vaddr as usize) as *const u32;
                let (owner_len, owner) = (*note, *note.add(3));
                if owner_len == 4 && owner.to_le_bytes() == *b"Go\0\0" {
                    *(found as *mut bool) = true;
                }
            }
        }
    }
    // Only the first object, which is the program itself.
    1
}
