//! Memory of the pager's own: one mapping, given out in pieces that are never given back.
//!
//! Neither inherited by a fork nor written to core files. It is untouched until it is used.

use odfork_pager_protocol::PAGE;
use odfork_sys::{check, SysResult};

use super::made;
use crate::{kernel_madvise, kernel_mmap};

pub struct Room {
    pub start: usize,
    pub len: usize,
    used: usize,
}

/// New private memory that a fork leaves behind.
pub fn map_own(len: usize) -> SysResult<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = check(kernel_mmap(0, len, prot, flags, -1, 0))?;
    made::range(start, len);
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
        let answer = kernel_madvise(start, len, advice);
        // A kernel without huge pages does not know the last one.
        if advice != libc::MADV_NOHUGEPAGE {
            check(answer)?;
        }
    }
    Ok(start)
}

impl Room {
    pub fn new(len: usize) -> SysResult<Room> {
        Ok(Room { start: map_own(len)?, len, used: 0 })
    }

    /// Room for so many values, of zeros, at the start of a page.
    pub fn take<T>(&mut self, count: usize) -> Option<*mut T> {
        let bytes = count.checked_mul(size_of::<T>())?.next_multiple_of(PAGE);
        let end = self.used.checked_add(bytes).filter(|&end| end <= self.len)?;
        let at = self.start + self.used;
        self.used = end;
        Some(at as *mut T)
    }
}
