//! The store: a file without a name, in slots of one page, and the checksum of each.

use core::ffi::{c_int, CStr};

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, call, Errno, SysResult};
use xxhash_rust::xxh3::xxh3_64;

use super::room::Room;

/// Most pages written or read by one call.
pub const MOST: usize = 256;
/// 16 GB.
pub const SLOTS: u64 = 4 << 20;

pub struct Store {
    fd: c_int,
    used: *mut u64,
    sums: *mut u64,
    next: u64,
    pub taken: u64,
    /// The last write failed: it is tried again later.
    pub is_full: bool,
}

impl Store {
    /// In this folder.
    pub fn new(folder: &CStr, room: &mut Room) -> SysResult<Store> {
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
        let open = |flags: c_int| {
            let arguments = args![libc::AT_FDCWD, folder.as_ptr(), flags, 0o600];
            // SAFETY: a valid path.
            unsafe { call(libc::SYS_openat, arguments) }
        };
        let fd = match open(flags | libc::O_DIRECT) {
            Err(Errno(libc::EINVAL)) => open(flags)?,
            other => other?,
        } as c_int;
        let (used, sums) = (room.take(SLOTS as usize / 64), room.take(SLOTS as usize));
        let (Some(used), Some(sums)) = (used, sums) else { return Err(Errno(libc::ENOMEM)) };
        Ok(Store { fd, used, sums, next: 0, taken: 0, is_full: false })
    }

    pub fn fd(&self) -> c_int {
        self.fd
    }

    fn is_used(&self, slot: u64) -> bool {
        // SAFETY: slots are below SLOTS.
        unsafe { *self.used.add(slot as usize / 64) >> (slot % 64) & 1 == 1 }
    }

    /// A run of free slots, marked as used.
    fn take(&mut self, count: u64) -> Option<u64> {
        let (mut at, mut run, mut looked) = (self.next, 0, 0);
        while looked < SLOTS + count {
            if at == SLOTS {
                (at, run) = (0, 0);
            }
            run = if self.is_used(at) { 0 } else { run + 1 };
            at += 1;
            looked += 1;
            if run == count {
                for slot in at - count..at {
                    // SAFETY: below SLOTS.
                    unsafe { *self.used.add(slot as usize / 64) |= 1 << (slot % 64) };
                }
                self.next = at;
                self.taken += count;
                return Some(at - count);
            }
        }
        None
    }

    pub fn free(&mut self, slot: u64) {
        if self.is_used(slot) {
            // SAFETY: below SLOTS.
            unsafe { *self.used.add(slot as usize / 64) &= !(1 << (slot % 64)) };
            self.taken -= 1;
        }
    }

    /// The content of a page is that of the slot.
    pub fn holds(&self, slot: u64, content: &[u8]) -> bool {
        // SAFETY: below SLOTS.
        self.is_used(slot) && unsafe { *self.sums.add(slot as usize) } == xxh3_64(content)
    }

    /// Writes pages side by side; the first slot.
    pub fn write(&mut self, pages: &[&[u8]]) -> Option<u64> {
        let count = pages.len() as u64;
        let first = self.take(count)?;
        let mut parts = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MOST];
        for (part, page) in parts.iter_mut().zip(pages) {
            *part = libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: PAGE };
        }
        let at = first as usize * PAGE;
        let write = args![self.fd, parts.as_ptr(), pages.len(), at, 0];
        // SAFETY: as many valid parts as said.
        let done = unsafe { call(libc::SYS_pwritev, write) };
        self.is_full = done != Ok(pages.len() * PAGE);
        if self.is_full {
            (first..first + count).for_each(|slot| self.free(slot));
            return None;
        }
        for (slot, page) in (first as usize..).zip(pages) {
            // SAFETY: below SLOTS.
            unsafe { *self.sums.add(slot) = xxh3_64(page) };
        }
        Some(first)
    }

    /// Reads slots that lie side by side; how many pages are whole.
    pub fn read(&self, first: u64, room: &mut [u8]) -> usize {
        let at = first as usize * PAGE;
        // SAFETY: the room is as large as said.
        let got =
            unsafe { call(libc::SYS_pread64, args![self.fd, room.as_mut_ptr(), room.len(), at]) };
        let pages = room[..got.unwrap_or(0).min(room.len())].chunks_exact(PAGE);
        pages.zip(first..).take_while(|(page, slot)| self.holds(*slot, page)).count()
    }
}
