//! Functions of the library behind this one, most often the C library's.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::life;

/// A function of the next library in line.
pub struct Next(&'static CStr, AtomicUsize);

impl Next {
    pub const fn named(name: &'static CStr) -> Next {
        Next(name, AtomicUsize::new(0))
    }

    pub fn get(&self) -> usize {
        match self.1.load(Relaxed) {
            0 => {
                // SAFETY: a valid name.
                let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) } as usize;
                if at == 0 {
                    life::die(b"odfork page: no C library behind ours\n");
                }
                self.1.store(at, Relaxed);
                at
            }
            at => at,
        }
    }
}
