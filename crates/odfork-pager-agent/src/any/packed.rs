//! Pages packed in memory: LZ4 blocks, in pieces of a memory file that nobody maps.
//!
//! The file is cut into blocks, each of pieces of one size. So a piece that is given back takes the
//! next page of about its length, and a block without any gives its memory to the kernel.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, call, Errno, SysResult};

use super::room::Room;

/// Lengths of pieces are counted in these.
const UNIT: usize = 256;
/// Units of a block: which of its pieces are used is one word.
const UNITS: u32 = 64;
const BLOCK: usize = UNIT * UNITS as usize;
/// As many blocks as pages take that do not get smaller, times this: blocks of another size may
/// stay empty.
const SPARE: usize = 2;
/// Sizes of pieces, in units, from 1 on.
const SIZES: usize = PAGE / UNIT + 1;
/// A page that does not get smaller than this is kept as it is.
const WORTH_IT: usize = PAGE * 7 / 8;
/// No block.
const NONE: u32 = u32::MAX;

/// Where the page of a slot is: in units from the start of the file. Of a length of 0: nowhere.
#[derive(Clone, Copy)]
struct Piece {
    at: u32,
    len: u32,
}

#[derive(Clone, Copy)]
struct Block {
    /// Which pieces are used.
    used: u64,
    /// Of a piece, in units.
    size: u32,
    /// Behind this one in the list of blocks of that size with room.
    next: u32,
}

pub struct Packed {
    fd: c_int,
    /// Pages are compressed, not only kept.
    compresses: bool,
    pieces: *mut Piece,
    blocks: *mut Block,
    /// Blocks that were made so far, and most.
    made: u32,
    most: u32,
    /// For each size, the first block with room.
    with_room: [u32; SIZES],
    /// Bytes of all pieces that are used, and blocks that have memory.
    bytes: u64,
    live: u64,
    /// Two pages.
    scratch: *mut u8,
}

impl Packed {
    /// For so many slots.
    pub fn new(slots: u64, compresses: bool, room: &mut Room) -> SysResult<Packed> {
        let most = slots as usize * PAGE / BLOCK * SPARE;
        let name = c"odfork-page-store";
        // SAFETY: a constant name.
        let fd = unsafe {
            call(libc::SYS_memfd_create, args![name.as_ptr(), libc::MFD_CLOEXEC])? as c_int
        };
        let short = Errno(libc::ENOMEM);
        Ok(Packed {
            fd,
            compresses,
            pieces: room.take(slots as usize).ok_or(short)?,
            blocks: room.take(most).ok_or(short)?,
            made: 0,
            most: most as u32,
            with_room: [NONE; SIZES],
            bytes: 0,
            live: 0,
            scratch: room.take(2 * PAGE).ok_or(short)?,
        })
    }

    pub fn fd(&self) -> c_int {
        self.fd
    }

    /// Bytes of the pages, and of the memory that they lie in.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.live * BLOCK as u64)
    }

    /// The page of this slot is here.
    pub fn holds(&self, slot: u64) -> bool {
        // SAFETY: below the count of slots.
        unsafe { (*self.pieces.add(slot as usize)).len != 0 }
    }

    fn piece(&mut self, slot: u64) -> &mut Piece {
        // SAFETY: below the count of slots.
        unsafe { &mut *self.pieces.add(slot as usize) }
    }

    fn block(&mut self, number: u32) -> &mut Block {
        // SAFETY: below `most`.
        unsafe { &mut *self.blocks.add(number as usize) }
    }

    /// A free piece for so many bytes: where it is, in units.
    fn take(&mut self, len: usize) -> Option<u32> {
        let size = len.div_ceil(UNIT);
        if self.with_room[size] == NONE {
            if self.made == self.most {
                return None;
            }
            *self.block(self.made) = Block { used: 0, size: size as u32, next: NONE };
            self.with_room[size] = self.made;
            self.made += 1;
        }
        let number = self.with_room[size];
        let block = self.block(number);
        let is_first = block.used == 0;
        let index = block.used.trailing_ones();
        block.used |= 1 << index;
        if block.used == all(block.size) {
            self.with_room[size] = self.block(number).next;
        }
        self.live += u64::from(is_first);
        self.bytes += (size * UNIT) as u64;
        Some(number * UNITS + index * size as u32)
    }

    /// Gives the piece of a slot back, if it has one.
    pub fn free(&mut self, slot: u64) {
        let Piece { at, len } = core::mem::replace(self.piece(slot), Piece { at: 0, len: 0 });
        if len == 0 {
            return;
        }
        let number = at / UNITS;
        let Block { used, size, .. } = *self.block(number);
        self.bytes -= u64::from(size) * UNIT as u64;
        let left = used & !(1 << (at % UNITS / size));
        self.block(number).used = left;
        if used == all(size) {
            self.block(number).next = self.with_room[size as usize];
            self.with_room[size as usize] = number;
        }
        if left == 0 {
            self.live -= 1;
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let hole = args![self.fd, how, number as usize * BLOCK, BLOCK];
            // SAFETY: a file of ours; on failure its memory stays.
            let _ = unsafe { call(libc::SYS_fallocate, hole) };
        }
    }

    /// Keeps a page; false: there is no room.
    pub fn write(&mut self, slot: u64, page: &[u8]) -> bool {
        // SAFETY: two pages, of this task only.
        let scratch = unsafe { core::slice::from_raw_parts_mut(self.scratch, 2 * PAGE) };
        let packed = match self.compresses {
            true => lz4_flex::block::compress_into(page, scratch).ok(),
            false => None,
        };
        let content = match packed.filter(|&len| len <= WORTH_IT) {
            Some(len) => &scratch[..len],
            None => page,
        };
        let Some(at) = self.take(content.len()) else { return false };
        *self.piece(slot) = Piece { at, len: content.len() as u32 };
        let write = args![self.fd, content.as_ptr(), content.len(), at as usize * UNIT];
        // SAFETY: as many valid bytes as said.
        let is_done = unsafe { call(libc::SYS_pwrite64, write) } == Ok(content.len());
        if !is_done {
            self.free(slot);
        }
        is_done
    }

    /// Brings a page; false: it is not what was written.
    pub fn read(&mut self, slot: u64, page: &mut [u8]) -> bool {
        let Piece { at, len } = *self.piece(slot);
        let len = len as usize;
        let to = if len == PAGE { page.as_mut_ptr() } else { self.scratch };
        // SAFETY: as much room as said: a piece is no longer than a page.
        let got = unsafe { call(libc::SYS_pread64, args![self.fd, to, len, at as usize * UNIT]) };
        if got != Ok(len) || len == PAGE {
            return got == Ok(PAGE);
        }
        // SAFETY: it was just read.
        let packed = unsafe { core::slice::from_raw_parts(self.scratch, len) };
        lz4_flex::block::decompress_into(packed, page).is_ok_and(|len| len == PAGE)
    }
}

/// All pieces of a block of this size are used.
fn all(size: u32) -> u64 {
    u64::MAX >> (64 - UNITS / size)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Its first bytes are noise, the rest one byte.
    fn page(number: u64, noise: usize) -> Vec<u8> {
        let mut seed = number + 1;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..PAGE).map(|at| if at < noise { next() } else { number as u8 }).collect()
    }

    fn memory_of(packed: &Packed) -> u64 {
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: room for one.
        assert_eq!(unsafe { libc::fstat(packed.fd, &mut stat) }, 0);
        stat.st_blocks as u64 * 512
    }

    #[test]
    fn pages_of_all_lengths_come_back_and_their_memory_goes() {
        const COUNT: u64 = 2000;
        let mut room = Room::new(super::super::OWN).unwrap();
        for compresses in [true, false] {
            let mut packed = Packed::new(COUNT, compresses, &mut room).unwrap();
            let noise = |slot: u64, round: u64| ((slot * 37 + round * 1009) % 4097) as usize;
            for round in 0..3 {
                for slot in (0..COUNT).filter(|slot| round == 0 || slot % (round + 1) == 0) {
                    packed.free(slot);
                    assert!(packed.write(slot, &page(slot + round, noise(slot, round))));
                }
                for slot in 0..COUNT {
                    let last = (0..=round).rev().find(|last| slot % (last + 1) == 0).unwrap();
                    let mut back = [0; PAGE];
                    assert!(packed.read(slot, &mut back));
                    assert!(back[..] == page(slot + last, noise(slot, last)), "{slot} {round}");
                }
            }
            let used = memory_of(&packed);
            assert!(used < COUNT * PAGE as u64 * if compresses { 8 } else { 12 } / 10, "{used}");
            (0..COUNT).for_each(|slot| packed.free(slot));
            assert_eq!(memory_of(&packed), 0);
            let made = packed.made;
            (0..COUNT).for_each(|slot| assert!(packed.write(slot, &page(slot, noise(slot, 0)))));
            assert!(packed.made <= made + 3, "{made} {}", packed.made);
            crate::close(packed.fd);
        }
    }

    #[test]
    fn nothing_is_nowhere_and_cut_off_bytes_are_no_page() {
        let mut packed = Packed::new(8, true, &mut Room::new(super::super::OWN).unwrap()).unwrap();
        let mut back = [0; PAGE];
        assert!(!packed.read(3, &mut back));
        packed.free(3);
        assert!(packed.write(3, &page(3, 1000)));
        packed.piece(3).len -= 1;
        assert!(!packed.read(3, &mut back));
        crate::close(packed.fd);
    }
}
