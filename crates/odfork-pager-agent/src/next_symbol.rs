//! Functions of the next library in symbol order, usually the C library's.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::messages;

/// A function of the next library in line.
pub struct NextSymbol(&'static CStr, AtomicUsize);

impl NextSymbol {
    pub const fn named(name: &'static CStr) -> NextSymbol {
        NextSymbol(name, AtomicUsize::new(0))
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
