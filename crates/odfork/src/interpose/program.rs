//! Which programs are left alone from the start.

use core::ffi::{c_int, c_void};

use crate::reason::Reason;

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

/// Looks through the program's code, and its libraries' but the C library's, for
/// system calls that would break frozen memory unseen.
pub fn inspect() -> Reason {
    let mut found = false;
    // SAFETY: the callback gets a pointer to `found`, alive during the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at_code), (&raw mut found).cast()) };
    if found {
        Reason::RawCalls
    } else {
        Reason::None
    }
}

unsafe extern "C" fn look_at_code(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes valid headers of a loaded object, whose
    // executable segments are readable or are skipped.
    unsafe {
        let info = &*info;
        if is_known(info.dlpi_name) {
            return 0;
        }
        for i in 0..info.dlpi_phnum as usize {
            let ph = &*info.dlpi_phdr.add(i);
            if ph.p_type == libc::PT_LOAD && ph.p_flags == libc::PF_X | libc::PF_R {
                let start = (info.dlpi_addr as usize + ph.p_vaddr as usize) as *const u8;
                let code = core::slice::from_raw_parts(start, ph.p_memsz as usize);
                *(found as *mut bool) |= calls_unseen(code);
            }
        }
        c_int::from(*(found as *mut bool))
    }
}

/// The C library and loader (their calls are known), the vDSO, and ourselves.
unsafe fn is_known(name: *const core::ffi::c_char) -> bool {
    if name.is_null() {
        return true;
    }
    // SAFETY: a string of the loader's.
    let path = unsafe { core::ffi::CStr::from_ptr(name) }.to_bytes();
    let file = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    [&b"libc.so"[..], b"ld-linux", b"linux-vdso", b"libodfork", b"libpthread"]
        .iter()
        .any(|known| file.starts_with(known))
}

/// A `syscall` instruction shortly after `mov $number, %eax` for madvise (28) or
/// mremap (25). Code that keeps the number in a variable is not found.
fn calls_unseen(code: &[u8]) -> bool {
    const BEFORE: usize = 40;
    let moves = |w: &[u8]| matches!(w, [0xb8 | 0xc0, 25 | 28, 0, 0, 0]);
    (0..code.len().saturating_sub(1)).any(|i| {
        code[i] == 0x0f
            && code[i + 1] == 0x05
            && code[i.saturating_sub(BEFORE)..i].windows(5).any(moves)
    })
}
