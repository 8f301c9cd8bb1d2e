//! The store: where pages are while they are out.
//!
//! One file without a name (on disk, bypassing the page cache; or in memory). `allocator` manages
//! its units, `codec` compresses pages. Every page has a checksum of its uncompressed content,
//! which travels in its [`Slot`] and is compared when the page comes back. A slot that nobody
//! shares is overwritten in place. That is safe, because the page is in memory meanwhile, and
//! memory is authoritative (`table`). All methods may be called from several threads.

mod allocator;
mod codec;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::SealFlags;
use xxhash_rust::xxh3::xxh3_64;

use allocator::Allocator;
pub use codec::Codec;
use odfork_pager_protocol::PAGE;

use crate::sys::{self, Buffer};

/// `Slot::at` counts these, whatever the unit of a store.
const GRAIN: u64 = 64;
/// What direct I/O is aligned to.
const SECTOR: u64 = 512;
/// Pages read or written at a time.
pub const MOST_PAGES: usize = 64;
/// Left free on the disk: other programs' files.
const DISK_FLOOR: u64 = 256 << 20;
/// A store with less room would be full at once, and programs would wait for ever.
const LEAST: u64 = 16 << 20;

/// Where a page is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// In units of 64 bytes.
    pub at: u64,
    /// Bytes; less than a page means compressed.
    pub len: u16,
    /// xxh3 of the plain content.
    pub sum: u64,
}

/// Why a page was not stored or not read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No room for so many pages; nothing was written.
    #[error("the store is full")]
    Full,
    /// The file could not be read or written.
    #[error("the store cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// What was read is not what was written.
    #[error("a page in the store does not match its checksum")]
    Damaged,
}

/// What the file is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A file on a disk: read and written past the page cache where the file system allows it.
    Disk,
    /// A memory file.
    Memory,
}

/// Where pages go that are out of memory: one file, packed, each page with its checksum.
#[derive(Debug)]
pub struct Store {
    file: OwnedFd,
    medium: Medium,
    codec: Codec,
    /// Bytes of the smallest piece of scratch.
    unit: u64,
    allocator: Mutex<Allocator>,
}

/// Makes a store of memory of at most so many bytes.
pub fn create_in_memory(bytes: u64) -> io::Result<OwnedFd> {
    sys::memory_file(c"odfork-page-store", bytes)
}

/// Makes the store's file: without a name in a folder, or under a name that is removed at once. It
/// is gone with the last process that has it open, however that ended.
///
/// # Errors
/// A file of that name exists, the folder cannot be written, or the disk is as good as full.
pub fn create_on_disk(path: &Path) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let is_folder = path.is_dir();
    let open = |direct: i32| {
        let mut options = options.clone();
        if is_folder {
            options.custom_flags(libc::O_TMPFILE | direct).open(path)
        } else {
            options.create_new(true).custom_flags(direct).open(path)
        }
    };
    // Not every file system knows direct I/O (tmpfs before 6.6).
    let file = match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0)?,
        other => other?,
    };
    if !is_folder {
        std::fs::remove_file(path)?;
    }
    let file = OwnedFd::from(file);
    if free_on_disk(file.as_fd()) < LEAST {
        let (least, floor) = (LEAST >> 20, DISK_FLOOR >> 20);
        return Err(io::Error::other(format!(
            "its file system has less than {least} MB of room beside the {floor} MB that stay free \
             for others: name another place, or 'memory'"
        )));
    }
    Ok(file)
}

/// Bytes a store on this file may grow to.
fn free_on_disk(file: BorrowedFd) -> u64 {
    let free = rustix::fs::fstatvfs(file).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    free.saturating_sub(DISK_FLOOR)
}

impl Store {
    /// A store on a file made by this module. `most`: bytes; 0 for what the disk has (all of a
    /// memory file).
    pub fn on(file: OwnedFd, codec: Codec, most: u64) -> io::Result<Store> {
        let meta = std::fs::File::from(file.try_clone()?).metadata()?;
        // What `create_in_memory` made is sealed. Files of a tmpfs know seals, too, but not this
        // one.
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        let medium = if seals.contains(SealFlags::GROW) { Medium::Memory } else { Medium::Disk };
        let whole = match medium {
            Medium::Memory => meta.size(),
            Medium::Disk => free_on_disk(file.as_fd()) + meta.blocks() * 512,
        };
        let bytes = if most == 0 { whole } else { most.min(whole) };
        let unit = match (codec, medium) {
            (Codec::None, _) => PAGE as u64,
            (_, Medium::Disk) => SECTOR,
            (_, Medium::Memory) => GRAIN,
        };
        let allocator = Mutex::new(Allocator::new(bytes / unit));
        Ok(Store { file, medium, codec, unit, allocator })
    }

    /// What its file is made of.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// How its pages are packed.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Bytes in use, and bytes there may be.
    pub fn usage(&self) -> (u64, u64) {
        let allocator = self.allocator();
        (allocator.taken() * self.unit, allocator.capacity() * self.unit)
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn units(&self, len: usize) -> u64 {
        (len as u64).div_ceil(self.unit)
    }

    fn unit_of(&self, slot: Slot) -> u64 {
        slot.at * GRAIN / self.unit
    }

    /// Whether `next` lies right behind `slot`.
    pub fn adjoin(&self, slot: Slot, next: Slot) -> bool {
        slot.at + self.units(usize::from(slot.len)) * self.unit / GRAIN == next.at
    }

    /// A table names this slot: it is in use. For a daemon that takes over.
    pub fn claim(&self, slot: Slot) {
        self.allocator().claim(self.unit_of(slot), self.units(usize::from(slot.len)));
    }

    /// One more page has its content here.
    pub fn share(&self, slot: Slot) {
        self.allocator().share(self.unit_of(slot));
    }

    /// One page less has its content here.
    pub fn release(&self, slot: Slot) {
        let (at, units) = (self.unit_of(slot), self.units(usize::from(slot.len)));
        let mut allocator = self.allocator();
        if !allocator.release(at, units) || self.medium != Medium::Memory {
            return;
        }
        // Memory goes back in whole pages.
        let per = PAGE as u64 / self.unit;
        let (first, last) = (at / per, (at + units - 1) / per);
        for page in first..=last {
            if allocator.is_free(page * per, per) {
                let _ = sys::punch(self.file.as_fd(), page * PAGE as u64, PAGE as u64);
            }
        }
    }

    /// Writes pages, in place where `old` is given and nobody shares it, else where there is
    /// scratch, in one piece if possible. `room`: at least `2 * pages` pages, aligned. The old
    /// slots that are not in the answer are still in use.
    pub fn write(
        &self,
        pages: &[(&[u8], Option<Slot>)],
        scratch: &mut [u8],
    ) -> Result<Vec<Slot>, StoreError> {
        // 1 encode, each piece beginning at a unit
        let mut pieces = Vec::with_capacity(pages.len());
        let mut end = 0;
        for (page, _) in pages {
            let len = self.codec.encode(page, &mut scratch[end..]);
            pieces.push((end, len));
            let next = end + self.units(len) as usize * self.unit as usize;
            scratch[end + len..next].fill(0);
            end = next;
        }
        // 2 room for each
        let fresh = self.place(pages, &pieces)?;
        // 3 write runs that adjoin in memory and in the store
        let mut from = 0;
        while from < pieces.len() {
            let mut to = from + 1;
            while to < pieces.len() && fresh[to] == fresh[to - 1] + self.units(pieces[to - 1].1) {
                to += 1;
            }
            let stop = pieces.get(to).map_or(end, |piece| piece.0);
            let bytes = &scratch[pieces[from].0..stop];
            if let Err(error) = sys::write_all(self.file.as_fd(), bytes, fresh[from] * self.unit) {
                self.undo_place(pages, &pieces, &fresh);
                return Err(match error.raw_os_error() {
                    Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::ENOMEM) => {
                        StoreError::Full
                    }
                    _ => error.into(),
                });
            }
            from = to;
        }
        let slot = |n: usize| Slot {
            at: fresh[n] * self.unit / GRAIN,
            len: pieces[n].1 as u16,
            sum: xxh3_64(pages[n].0),
        };
        Ok((0..pages.len()).map(slot).collect())
    }

    /// The old place of a page, when it may be written over.
    fn in_place(&self, allocator: &Allocator, old: Option<Slot>) -> Option<u64> {
        let slot = old.filter(|_| self.codec == Codec::None)?;
        Some(self.unit_of(slot)).filter(|&unit| !allocator.is_shared(unit))
    }

    fn place(
        &self,
        pages: &[(&[u8], Option<Slot>)],
        pieces: &[(usize, usize)],
    ) -> Result<Vec<u64>, StoreError> {
        let mut allocator = self.allocator();
        let mut places: Vec<Option<u64>> =
            pages.iter().map(|&(_, old)| self.in_place(&allocator, old)).collect();
        let needed = |at: usize| self.units(pieces[at].1);
        let missing: Vec<usize> = (0..pages.len()).filter(|&at| places[at].is_none()).collect();
        let total = missing.iter().map(|&at| needed(at)).sum();
        if let Some(mut start) = allocator.take(total) {
            for &at in &missing {
                places[at] = Some(start);
                start += needed(at);
            }
        } else {
            let mut taken = Vec::new();
            for &at in &missing {
                let Some(start) = allocator.take(needed(at)) else {
                    taken.iter().for_each(|&(start, units)| {
                        allocator.release(start, units);
                    });
                    return Err(StoreError::Full);
                };
                taken.push((start, needed(at)));
                places[at] = Some(start);
            }
        }
        Ok(places.into_iter().flatten().collect())
    }

    fn undo_place(
        &self,
        pages: &[(&[u8], Option<Slot>)],
        pieces: &[(usize, usize)],
        places: &[u64],
    ) {
        let mut allocator = self.allocator();
        for (at, &place) in places.iter().enumerate() {
            if self.in_place(&allocator, pages[at].1) != Some(place) {
                allocator.release(place, self.units(pieces[at].1));
            }
        }
    }

    /// Reads slots that adjoin, into as many pages of `pages`. `room`: at least as long and a page
    /// more, aligned. The answer is one for each page; an error outside is one of the read itself.
    pub fn read(
        &self,
        slots: &[Slot],
        pages: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else {
            return Ok(Vec::new());
        };
        let start = first.at * GRAIN;
        let end = last.at * GRAIN + self.units(usize::from(last.len)) * self.unit;
        let from = start / SECTOR * SECTOR;
        let uncompressed = self.codec == Codec::None;
        if uncompressed {
            let target = &mut pages[..slots.len() * PAGE];
            sys::read_all(self.file.as_fd(), target, start)?;
        } else {
            // The end of a memory file is a page's end as well.
            let to = end.next_multiple_of(SECTOR);
            let target = &mut scratch[..(to - from) as usize];
            sys::read_all(self.file.as_fd(), target, from)?;
        }
        let check = |(at, slot): (usize, &Slot)| {
            let page = &mut pages[at * PAGE..(at + 1) * PAGE];
            let begin = (slot.at * GRAIN - from) as usize;
            let fits = uncompressed
                || self.codec.decode(&scratch[begin..begin + usize::from(slot.len)], page);
            if fits && xxh3_64(page) == slot.sum {
                Ok(())
            } else {
                Err(StoreError::Damaged)
            }
        };
        Ok(slots.iter().enumerate().map(check).collect())
    }
}

/// Room for reading or writing [`MOST_PAGES`] pages.
pub fn io_buffer() -> io::Result<Buffer> {
    Buffer::new((2 * MOST_PAGES + 2) * PAGE)
}

#[cfg(test)]
mod tests;
