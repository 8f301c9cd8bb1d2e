//! Two pages that are never there, by which a forked child knows that it has everything.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::REGISTER_MODE_MISSING;
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{check, SysResult};

use crate::messages::die;
use crate::{kernel_madvise, kernel_mmap, kernel_munmap};

/// A child gets the first page last of all: its handler of fork waits for it. Shut, that is
/// watched, from the moment on in which pages may be away. The second one it gets first of all:
/// see `children`.
pub struct Gate {
    page: AtomicUsize,
    is_shut: AtomicBool,
}

impl Gate {
    pub const fn none() -> Gate {
        Gate { page: AtomicUsize::new(0), is_shut: AtomicBool::new(false) }
    }

    /// New pages that stay untouched. Their mapping is of another kind than the program's: it must
    /// not become one with a neighbour.
    pub fn make(&self) -> SysResult<u64> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = check(kernel_mmap(0, 2 * PAGE, prot, flags, -1, 0))?;
        check(kernel_madvise(page, 2 * PAGE, libc::MADV_DONTDUMP))?;
        self.page.store(page, Relaxed);
        Ok(page as u64)
    }

    /// From now on pages may be away: a child of libc's fork waits until it has them.
    pub fn shut(&self, uffd: Userfaultfd) -> bool {
        if !self.is_shut.load(Relaxed) {
            let (start, len) = (self.page.load(Relaxed) as u64, 2 * PAGE as u64);
            // In this order: a child that finds it shut finds it watched.
            let shut = uffd.register(start, len, REGISTER_MODE_MISSING).is_ok();
            self.is_shut.store(shut, Relaxed);
        }
        self.is_shut.load(Relaxed)
    }

    /// In a forked child: everything is there when this returns.
    pub fn pass(&self) {
        let page = self.page.swap(0, Relaxed);
        if page == 0 {
            return;
        }
        // SAFETY: a page of ours, inherited.
        if self.is_shut.swap(false, Relaxed) && unsafe { (page as *const u8).read_volatile() } == 0
        {
            die(b"odfork page: the pager ended before this child had its memory: ending\n");
        }
        kernel_munmap(page, 2 * PAGE);
    }
}
