//! A store in two layers: pages packed in memory, and a file behind them.
//!
//! Every page is packed first. When that takes more memory than it may, the oldest ones go to their
//! slots of the file. Slots are given out in order, so the oldest are found by going round.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, call, Errno, SysResult};

use super::packed::Packed;
use super::room::Room;

/// Most pages that go to the file by one call.
const MOST: usize = 64;

pub struct Layered {
    packed: Packed,
    file: c_int,
    /// Bytes that packed pages may take.
    most: u64,
    slots: u64,
    /// Where the search for the oldest goes on.
    oldest: u64,
    /// The file could not take a page: what is freed in it makes room.
    is_full: bool,
    buffer: *mut u8,
}

impl Layered {
    pub fn new(slots: u64, file: c_int, most: u64, room: &mut Room) -> SysResult<Layered> {
        let packed = Packed::new(slots, true, room)?;
        let buffer = room.take(MOST * PAGE).ok_or(Errno(libc::ENOMEM))?;
        Ok(Layered { packed, file, most, slots, oldest: 0, is_full: false, buffer })
    }

    pub fn fds(&self) -> [c_int; 2] {
        [self.packed.fd(), self.file]
    }

    pub fn file_of(&self, slot: u64) -> Option<c_int> {
        (!self.packed.holds(slot)).then_some(self.file)
    }

    pub fn free(&mut self, slot: u64) {
        if self.is_full && !self.packed.holds(slot) {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a file of ours; on failure its blocks stay.
            let _ = unsafe {
                call(libc::SYS_fallocate, args![self.file, how, slot as usize * PAGE, PAGE])
            };
        }
        self.packed.free(slot);
    }

    /// Keeps a page; false: neither layer has room. Slots from `end` on were never used.
    pub fn write(&mut self, slot: u64, page: &[u8], end: u64) -> bool {
        while !self.has_room() {
            if !self.push_out(end) {
                return false;
            }
        }
        self.packed.write(slot, page)
    }

    /// Pieces are of many sizes, and one keeps a block. So the memory may be half as much again.
    fn has_room(&self) -> bool {
        let (pages, memory) = self.packed.bytes();
        pages + PAGE as u64 <= self.most && memory < self.most + self.most / 2
    }

    /// The oldest packed pages, side by side, go to the file. False: there are none, or it is full.
    fn push_out(&mut self, end: u64) -> bool {
        let mut looked = 0;
        while self.oldest >= self.slots || !self.packed.holds(self.oldest) {
            self.oldest = if self.oldest + 1 < end.min(self.slots) { self.oldest + 1 } else { 0 };
            looked += 1;
            if looked > end {
                return false;
            }
        }
        let first = self.oldest;
        let mut count = 0;
        while count < MOST && first + (count as u64) < self.slots {
            let slot = first + count as u64;
            // SAFETY: below MOST pages of a buffer that nobody else uses.
            let page =
                unsafe { core::slice::from_raw_parts_mut(self.buffer.add(count * PAGE), PAGE) };
            if !self.packed.holds(slot) || !self.packed.read(slot, page) {
                break;
            }
            count += 1;
        }
        let write = args![self.file, self.buffer, count * PAGE, first as usize * PAGE];
        // SAFETY: as many valid bytes as said.
        if count == 0 || unsafe { call(libc::SYS_pwrite64, write) } != Ok(count * PAGE) {
            self.is_full = true;
            // Others may lie where the file has blocks already.
            self.oldest += count.max(1) as u64;
            return false;
        }
        (first..first + count as u64).for_each(|slot| self.packed.free(slot));
        true
    }

    /// Reads slots that lie side by side; how many bytes, until one cannot be read.
    pub fn read(&mut self, first: u64, room: &mut [u8]) -> usize {
        let mut done = 0;
        while done < room.len() {
            let slot = first + (done / PAGE) as u64;
            let rest = &mut room[done..];
            if self.packed.holds(slot) {
                if !self.packed.read(slot, &mut rest[..PAGE]) {
                    break;
                }
                done += PAGE;
                continue;
            }
            let pages = rest.len() / PAGE;
            let is_in_file = |at: &usize| !self.packed.holds(slot + *at as u64);
            let run = (0..pages).take_while(is_in_file).count() * PAGE;
            let read = args![self.file, rest.as_mut_ptr(), run, slot as usize * PAGE];
            // SAFETY: the room is as large as said.
            let got = unsafe { call(libc::SYS_pread64, read) }.unwrap_or(0).min(run);
            done += got / PAGE * PAGE;
            if got < run {
                break;
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::os::fd::AsRawFd;
    use std::vec;

    use super::*;

    fn page(number: u64) -> vec::Vec<u8> {
        (0..PAGE as u64).map(|at| (number * 31 + at / 512) as u8).collect()
    }

    #[test]
    fn the_oldest_go_to_the_file_and_all_come_back() {
        const COUNT: u64 = 2000;
        let mut room = Room::new(super::super::OWN).unwrap();
        let file = tempfile();
        let mut store = Layered::new(1 << 16, file.as_raw_fd(), 256 << 10, &mut room).unwrap();
        for slot in 0..COUNT {
            assert!(store.write(slot, &page(slot), slot));
        }
        let (pages, memory) = store.packed.bytes();
        assert!(pages <= 256 << 10 && memory <= 400 << 10, "{pages} {memory}");
        let in_memory = (0..COUNT).filter(|&slot| store.packed.holds(slot)).count();
        assert!((100..1100).contains(&in_memory), "{in_memory}");
        assert!(!store.packed.holds(0) && store.packed.holds(COUNT - 1));
        // Across both layers, in one go.
        let mut back = vec![0; COUNT as usize * PAGE];
        assert_eq!(store.read(0, &mut back), back.len());
        for (slot, found) in back.chunks(PAGE).enumerate() {
            assert!(found == page(slot as u64), "{slot}");
        }
        (0..COUNT).for_each(|slot| store.free(slot));
        assert_eq!(store.packed.bytes(), (0, 0));
        // A file that is full: what does not fit is refused, and what is there stays.
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut store = Layered::new(1 << 16, full.as_raw_fd(), 256 << 10, &mut room).unwrap();
        let kept = (0..COUNT).take_while(|&slot| store.write(slot, &page(slot), slot)).count();
        assert!((100..1100).contains(&kept), "{kept}");
        let mut back = vec![0; kept * PAGE];
        assert_eq!(store.read(0, &mut back), back.len());
        assert!(back.chunks(PAGE).enumerate().all(|(slot, found)| found == page(slot as u64)));
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(std::format!("odlayered-{}", std::process::id()));
        let options = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(path).unwrap();
        options.unwrap()
    }
}
