//! Functions of the next library in symbol order, usually the C library's; and whether ours come
//! first.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::messages;

/// A function of the next library in line.
pub struct NextSymbol(&'static CStr, AtomicUsize);

impl NextSymbol {
    pub const fn named(name: &'static CStr) -> NextSymbol {
        NextSymbol(name, AtomicUsize::new(0))
    }

    /// For a library that the loader does not know.
    pub fn set(&self, at: usize) {
        self.1.store(at, Relaxed);
    }

    pub fn get(&self) -> usize {
        match self.1.load(Relaxed) {
            0 => {
                // SAFETY: a valid name.
                let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) } as usize;
                if at == 0 {
                    messages::die(b"odfork page: no C library behind ours\n");
                }
                self.1.store(at, Relaxed);
                at
            }
            at => at,
        }
    }
}

/// Calls that must not pass us by once memory is paged: what would be left of it are wrong bytes.
const OURS: [&CStr; 4] = [c"mmap", c"munmap", c"mremap", c"madvise"];

static FIRST: AtomicBool = AtomicBool::new(false);

/// Whether the program's calls come to us, and not to another library that may ask the kernel
/// itself (libodfork.so does). For the constructor: later, the loader's lock may be held.
pub fn look_who_is_first() {
    let own = library_of(look_who_is_first as *const () as usize);
    let is_first = OURS.iter().all(|name| {
        // SAFETY: a valid name.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        library_of(at) == own
    });
    FIRST.store(is_first, Relaxed);
}

pub fn is_first() -> bool {
    FIRST.load(Relaxed)
}

/// Where the library or program begins that has this function.
fn library_of(function: usize) -> usize {
    // SAFETY: a structure of numbers and pointers; dladdr fills it in.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: as above; any address may be asked for.
    unsafe { libc::dladdr(function as *const core::ffi::c_void, &mut found) };
    found.dli_fbase as usize
}
