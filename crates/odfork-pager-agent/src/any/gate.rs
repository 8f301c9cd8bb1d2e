//! Pages by which a forked child learns that it has all of its memory.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use odfork_pager_protocol::PAGE;
use odfork_sys::{check, SysResult};

use super::made;
use crate::messages::die;
use crate::{kernel_madvise, kernel_mmap, kernel_munmap};

/// Two pages that are never there. A child gets the first one last of all: its handler of fork
/// waits for it. Shut, that is watched, from the moment on in which pages may be away. The second
/// one it gets first of all: see `children`.
pub struct Gate {
    page: AtomicUsize,
    pub is_shut: AtomicBool,
}

impl Gate {
    pub const fn none() -> Gate {
        Gate { page: AtomicUsize::new(0), is_shut: AtomicBool::new(false) }
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

    /// Two pages that stay untouched. Their mapping is of another kind than the program's: it must
    /// not become one with a neighbour.
    pub fn make(&self) -> SysResult<u64> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = check(kernel_mmap(0, 2 * PAGE, prot, flags, -1, 0))?;
        made::range(page, 2 * PAGE);
        check(kernel_madvise(page, 2 * PAGE, libc::MADV_DONTDUMP))?;
        self.page.store(page, Relaxed);
        Ok(page as u64)
    }
}
