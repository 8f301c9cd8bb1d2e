//! Which programs are left alone from the start.

use super::{asan, fork, next, symbols};
use crate::reason::Reason;
use crate::sys::{self, PAGE};

/// In the constructor, when the environment is as the program got it.
pub fn look() {
    if is_loaded(&[ASAN]) {
        asan::look();
    }
}

/// A reason never to freeze in this program. Before the first pass, so that none meets a fork that
/// the C library makes by itself.
pub fn inspect() -> Reason {
    let reason = unfit();
    if reason == Reason::None {
        if let Some(clock) = symbols::of_libc(c"clock_gettime") {
            sys::use_clock(clock);
        }
        fork::watch_forks();
    }
    reason
}

/// Such a reason that takes no look at the program's code.
fn unfit() -> Reason {
    if !next::is_glibc() {
        Reason::Libc
    // SAFETY: the kernel has told it when the program began.
    } else if unsafe { libc::getauxval(libc::AT_PAGESZ) } != PAGE as libc::c_ulong {
        Reason::PageSize
    } else if is_loaded(&SANITIZERS) || (is_loaded(&[ASAN]) && !asan::is_fit()) {
        Reason::Sanitizer
    } else if is_loaded(&[PAGER]) {
        Reason::Userfaultfd
    } else if is_go() {
        Reason::Go
    } else {
        Reason::None
    }
}

// Weak references to what sanitizers' runtimes, valgrind and the pager's agent define: the loader
// has looked them up when it loaded the library. dlsym() for a name that is not there would
// allocate the text of an error, in every process, and leave it for the program's dlerror().
core::arch::global_asm!(
    ".pushsection .data.rel.ro.odfork_others,\"aw\",@progbits",
    ".balign 8",
    ".globl odfork_others",
    ".hidden odfork_others",
    ".type odfork_others,@object",
    "odfork_others:",
    ".weak __asan_init",
    ".quad __asan_init",
    ".weak __tsan_init",
    ".quad __tsan_init",
    ".weak __msan_init",
    ".quad __msan_init",
    ".weak __hwasan_init",
    ".quad __hwasan_init",
    ".weak _vgnU_freeres",
    ".quad _vgnU_freeres",
    ".weak odfork_page_advise",
    ".quad odfork_page_advise",
    ".size odfork_others, . - odfork_others",
    ".popsection",
);

const ASAN: usize = 0;
/// A sanitizer keeps shadow memory and calls the kernel past the C library. Below valgrind, whose
/// tools do the same, a helper task is a copy of the process: it would die, and valgrind say so.
const SANITIZERS: [usize; 4] = [1, 2, 3, 4];
/// The pager has the large memory, as a shared mapping: nothing of it could be frozen, and its
/// wrappers must see every call that ours would keep from them.
const PAGER: usize = 5;

/// One of those above is in the process.
fn is_loaded(which: &[usize]) -> bool {
    extern "C" {
        static odfork_others: [usize; 6];
    }
    // SAFETY: the six words above, written by the loader before any constructor.
    unsafe { which.iter().any(|&at| odfork_others[at] != 0) }
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
