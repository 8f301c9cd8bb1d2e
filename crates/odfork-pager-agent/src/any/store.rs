//! The store: slots of one page, in a file without a name or packed in memory, and the checksum of
//! each.

use core::ffi::{c_int, CStr};

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, call, Errno, SysResult};
use xxhash_rust::xxh3::xxh3_64;

use super::layered::Layered;
use super::packed::Packed;
use super::room::Room;

/// Most pages written or read by one call.
pub const MOST: usize = 256;
/// 16 GB.
pub const SLOTS: u64 = 4 << 20;

enum Medium {
    File(c_int),
    Memory(Packed),
    Both(Layered),
}

pub struct Store {
    medium: Medium,
    used: *mut u64,
    sums: *mut u64,
    next: u64,
    /// Behind the last slot that was ever used.
    end: u64,
    /// Slots given out since the search last began anew.
    given: u64,
    pub taken: u64,
    /// The last write failed: it is tried again later.
    pub is_full: bool,
}

impl Store {
    /// In this folder, behind so many bytes of memory in which pages are compressed; "memory" is
    /// memory, "lz4" memory in which pages are compressed.
    pub fn new(place: &CStr, pool: u64, room: &mut Room) -> SysResult<Store> {
        let medium = match place.to_bytes() {
            name @ (b"memory" | b"lz4") => {
                Medium::Memory(Packed::new(SLOTS, name == b"lz4", room)?)
            }
            _ if pool > 0 => Medium::Both(Layered::new(SLOTS, file_in(place)?, pool, room)?),
            _ => Medium::File(file_in(place)?),
        };
        let (used, sums) = (room.take(SLOTS as usize / 64), room.take(SLOTS as usize));
        let (Some(used), Some(sums)) = (used, sums) else { return Err(Errno(libc::ENOMEM)) };
        Ok(Store { medium, used, sums, next: 0, end: 0, given: 0, taken: 0, is_full: false })
    }

    /// The file in which a slot is; None: it is in memory.
    pub fn file_of(&self, slot: u64) -> Option<c_int> {
        match &self.medium {
            Medium::File(fd) => Some(*fd),
            Medium::Memory(_) => None,
            Medium::Both(layered) => layered.file_of(slot),
        }
    }

    /// Its descriptors; -1: none.
    pub fn fds(&self) -> [c_int; 2] {
        match &self.medium {
            Medium::File(fd) => [*fd, -1],
            Medium::Memory(packed) => [packed.fd(), -1],
            Medium::Both(layered) => layered.fds(),
        }
    }

    fn is_used(&self, slot: u64) -> bool {
        // SAFETY: slots are below SLOTS.
        unsafe { *self.used.add(slot as usize / 64) >> (slot % 64) & 1 == 1 }
    }

    /// A run of free slots, marked as used. Where half of all that were used are free again, the
    /// file does not grow; a search that found few does not begin anew for each page.
    fn take(&mut self, count: u64) -> Option<u64> {
        let is_worth_it = self.taken < self.end / 2 && self.given >= self.end / 4;
        if self.next >= self.end && is_worth_it {
            self.begin_anew();
        }
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
                self.end = self.end.max(at);
                self.given += count;
                self.taken += count;
                return Some(at - count);
            }
        }
        None
    }

    fn begin_anew(&mut self) {
        (self.next, self.given) = (0, 0);
    }

    pub fn free(&mut self, slot: u64) {
        if self.is_used(slot) {
            // SAFETY: below SLOTS.
            unsafe { *self.used.add(slot as usize / 64) &= !(1 << (slot % 64)) };
            self.taken -= 1;
            match &mut self.medium {
                Medium::File(_) => {}
                Medium::Memory(packed) => packed.free(slot),
                Medium::Both(layered) => layered.free(slot),
            }
        }
    }

    /// The content of a page is that of the slot.
    pub fn holds(&self, slot: u64, content: &[u8]) -> bool {
        // SAFETY: below SLOTS.
        self.is_used(slot) && unsafe { *self.sums.add(slot as usize) } == xxh3_64(content)
    }

    /// Writes pages side by side; the first slot.
    pub fn write(&mut self, pages: &[&[u8]]) -> Option<u64> {
        self.put(pages).or_else(|| {
            // It cannot grow. There may be room between what is in it.
            self.begin_anew();
            self.put(pages)
        })
    }

    fn put(&mut self, pages: &[&[u8]]) -> Option<u64> {
        let count = pages.len() as u64;
        let first = self.take(count)?;
        let is_done = match &mut self.medium {
            Medium::File(fd) => write(*fd, first, pages),
            Medium::Memory(packed) => {
                (first..).zip(pages).all(|(slot, page)| packed.write(slot, page))
            }
            Medium::Both(layered) => {
                let end = self.end;
                (first..).zip(pages).all(|(slot, page)| layered.write(slot, page, end))
            }
        };
        self.is_full = !is_done;
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
    pub fn read(&mut self, first: u64, room: &mut [u8]) -> usize {
        let got = match &mut self.medium {
            Medium::File(fd) => {
                let read = args![*fd, room.as_mut_ptr(), room.len(), first as usize * PAGE];
                // SAFETY: the room is as large as said.
                unsafe { call(libc::SYS_pread64, read) }.unwrap_or(0).min(room.len())
            }
            Medium::Both(layered) => layered.read(first, room),
            Medium::Memory(packed) => {
                let pages = room.chunks_exact_mut(PAGE).zip(first..);
                pages.map_while(|(page, slot)| packed.read(slot, page).then_some(PAGE)).sum()
            }
        };
        let pages = room[..got].chunks_exact(PAGE);
        pages.zip(first..).take_while(|(page, slot)| self.holds(*slot, page)).count()
    }
}

/// A file without a name in this folder, past the page cache where the file system allows it.
pub fn file_in(folder: &CStr) -> SysResult<c_int> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    let open = |flags: c_int| {
        let arguments = args![libc::AT_FDCWD, folder.as_ptr(), flags, 0o600];
        // SAFETY: a valid path.
        unsafe { call(libc::SYS_openat, arguments) }
    };
    match open(flags | libc::O_DIRECT) {
        Err(Errno(libc::EINVAL)) => open(flags),
        other => other,
    }
    .map(|fd| fd as c_int)
}

/// Writes pages side by side, at most MOST.
fn write(fd: c_int, first: u64, pages: &[&[u8]]) -> bool {
    let mut parts = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MOST];
    for (part, page) in parts.iter_mut().zip(pages) {
        *part = libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: PAGE };
    }
    let write = args![fd, parts.as_ptr(), pages.len(), first as usize * PAGE, 0];
    // SAFETY: as many valid parts as said.
    unsafe { call(libc::SYS_pwritev, write) == Ok(pages.len() * PAGE) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// Pages come and go in turn, as they do of a program that walks over its memory.
    #[test]
    fn what_is_free_again_is_used_again() {
        const LIVE: u64 = 1000;
        let mut room = Room::new(256 << 20).unwrap();
        let mut store = Store::new(c"/tmp", 0, &mut room).unwrap();
        let page = room.take::<[u8; PAGE]>(1).unwrap();
        // SAFETY: it was just made, and stays.
        let page = unsafe { &(&*page)[..] };
        let mut slots = std::collections::VecDeque::new();
        for _ in 0..20 * LIVE {
            slots.push_back(store.write(&[page]).unwrap());
            if slots.len() as u64 > LIVE {
                store.free(slots.pop_front().unwrap());
            }
        }
        assert!(store.end < 3 * LIVE, "{} slots for {LIVE} pages", store.end);
        assert_eq!(store.taken, LIVE);
    }
}
