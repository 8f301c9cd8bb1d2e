//! Which programs are left alone from the start.

use core::ffi::{c_int, c_void};

use crate::reason::Reason;

/// A reason never to freeze in this program. What takes no lock is looked at in any
/// process; the code itself only in the one that was `executed`, because that takes
/// the loader's lock, which a child may have inherited held.
pub fn inspect(executed: bool) -> Reason {
    if has_sanitizer() {
        Reason::Sanitizer
    } else if is_go() {
        Reason::Go
    } else if executed {
        inspect_code()
    } else {
        Reason::None
    }
}

// Weak references to what every sanitizer's runtime defines: the loader has looked them
// up when it loaded the library. dlsym() for a name that is not there would allocate the
// text of an error, in every process, and leave it for the program's dlerror().
core::arch::global_asm!(
    ".pushsection .data.rel.ro.odfork_sanitizers,\"aw\",@progbits",
    ".balign 8",
    ".globl odfork_sanitizers",
    ".hidden odfork_sanitizers",
    ".type odfork_sanitizers,@object",
    "odfork_sanitizers:",
    ".weak __asan_init",
    ".quad __asan_init",
    ".weak __tsan_init",
    ".quad __tsan_init",
    ".weak __msan_init",
    ".quad __msan_init",
    ".weak __hwasan_init",
    ".quad __hwasan_init",
    ".size odfork_sanitizers, . - odfork_sanitizers",
    ".popsection",
);

/// A sanitizer keeps shadow memory and calls the kernel past the C library.
fn has_sanitizer() -> bool {
    extern "C" {
        static odfork_sanitizers: [usize; 4];
    }
    // SAFETY: the four words above, written by the loader before any constructor.
    unsafe { odfork_sanitizers.iter().any(|&at| at != 0) }
}

/// A Go program has a note of owner "Go"; its runtime makes system calls itself.
/// The program's own headers, which the kernel says where to find: no lock.
fn is_go() -> bool {
    // SAFETY: headers of the running program, mapped as long as it is; its notes are
    // in its read-only memory.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        if headers.is_null() {
            return false;
        }
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        let headers = core::slice::from_raw_parts(headers, count);
        let own = headers.iter().find(|ph| ph.p_type == libc::PT_PHDR);
        let moved = own.map_or(0, |ph| headers.as_ptr() as usize - ph.p_vaddr as usize);
        headers.iter().any(|ph| {
            let note = (moved + ph.p_vaddr as usize) as *const u32;
            let is_note = ph.p_type == libc::PT_NOTE && ph.p_memsz >= 16;
            is_note && *note == 4 && (*note.add(3)).to_le_bytes() == *b"Go\0\0"
        })
    }
}

/// Looks through the program's code, and its libraries' but the C library's, for
/// system calls that would break frozen memory unseen.
fn inspect_code() -> Reason {
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
