//! The backing files this process has.
//!
//! Owns the list of these files, which the lock guards. Where the program's memory shows them is
//! in the sets of `addresses.rs`.

use crate::addresses::Addresses;
use crate::parts::{Part, Parts};
use crate::plan::{part_len, Kind, Piece};
use crate::sys::PAGE;

/// Backing files at most; more memory than fits is left anonymous.
pub const MAX_FILES: usize = 1024;
/// One backing file and the two one-page mappings that stand for it.
///
/// ```text
/// file:   | page 0 | hole | content at DATA + start % 2 MB ... |
/// anchors: private and shared mapping of page 0, never touched
/// ```
/// No descriptor stays open. `mremap` duplicates an anchor into a view of the whole
/// file: shared to write into it, private to map it afresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct BackingFile {
    /// Device as `major << 32 | minor`.
    pub dev: u64,
    pub inode: u64,
    /// Address range it was made for.
    pub start: usize,
    pub end: usize,
    /// Bytes of file from offset 0 to the end of content.
    pub span: usize,
    /// Anchor mappings; 0 in a process that inherited the backing file.
    pub anchor_private: usize,
    pub anchor_shared: usize,
    /// The page whose exclusiveness tells that no relative shows this backing file.
    pub probe: usize,
    /// Bytes written into it.
    pub bytes: usize,
    /// 1 = huge pages, 0 = 4 KB pages.
    pub huge: u32,
    /// 1 = made of anonymous memory, 0 = of another backing file.
    pub fresh: u32,
    /// In use.
    pub live: u32,
    /// Properties of the memory it was made of (`kept.rs`).
    pub kept: u32,
}

impl BackingFile {
    fn piece(&self) -> Piece {
        let (start, end) = (self.start, self.end);
        Piece { start, end, pages: (end - start) / PAGE, kind: self.kind() }
    }

    /// Which kind of piece it holds.
    pub fn kind(&self) -> Kind {
        if self.huge == 1 {
            Kind::Huge
        } else {
            Kind::Small
        }
    }
}

/// What the process owes the memory budget: bytes that exist twice, in its own memory and in old
/// backing files, as long as descendants may show those.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Debt {
    pub bytes: usize,
    /// Probes of the old files, 0 for none. Once all are exclusive, nothing is owed.
    pub probes: [usize; DEBT_PROBES],
}

/// Generations of old files that can be owed for at a time.
pub const DEBT_PROBES: usize = 4;

impl Debt {
    /// Owes so much more for files with that probe, if that stays within the limit.
    pub fn charge(&mut self, probe: usize, bytes: usize, limit: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let known = self.probes.iter().position(|&p| p == probe && p != 0);
        let Some(slot) = known.or(self.probes.iter().position(|&p| p == 0)) else { return false };
        // Without a probe nobody will ever know that it is paid back.
        if probe == 0 || self.bytes.saturating_add(bytes) > limit {
            return false;
        }
        self.probes[slot] = probe;
        self.bytes += bytes;
        true
    }

    /// Forgets probes that are exclusive again, and with the last of them what is owed.
    pub fn settle(&mut self, mut exclusive: impl FnMut(usize) -> bool) {
        for probe in self.probes.iter_mut().filter(|p| **p != 0) {
            if exclusive(*probe) {
                *probe = 0;
            }
        }
        if self.probes == [0; DEBT_PROBES] {
            self.bytes = 0;
        }
    }
}

/// All backing files of the process. Who has it mutably holds the lock, and so may change
/// [`Addresses`].
pub struct Registry {
    files: [BackingFile; MAX_FILES],
    /// Slots from here on were never used.
    used: usize,
    debt: Debt,
    /// What of their memory may be mapped shared (`live.rs`).
    shared: Parts,
    /// What a fork made private of it, and nothing has mapped again since.
    pub unmapped: Parts,
}

const EMPTY: BackingFile = BackingFile {
    dev: 0,
    inode: 0,
    start: 0,
    end: 0,
    span: 0,
    anchor_private: 0,
    anchor_shared: 0,
    probe: 0,
    bytes: 0,
    huge: 0,
    fresh: 0,
    live: 0,
    kept: 0,
};

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// No backing file.
    pub const fn new() -> Self {
        Registry {
            files: [EMPTY; MAX_FILES],
            used: 0,
            debt: Debt { bytes: 0, probes: [0; DEBT_PROBES] },
            shared: Parts::new(),
            unmapped: Parts::new(),
        }
    }

    /// Adds a backing file; false when the list is full.
    pub fn add(&mut self, addresses: &Addresses, file: BackingFile) -> bool {
        let Some(slot) = self.files.iter().position(|i| i.live == 0) else { return false };
        self.files[slot] = BackingFile { live: 1, ..file };
        self.used = self.used.max(slot + 1);
        if file.fresh == 1 {
            addresses.freeze_anew(file.start, file.end, file.kept);
        } else {
            addresses.freeze(file.start, file.end);
        }
        true
    }

    /// Room for `n` more backing files.
    pub fn room(&self) -> usize {
        self.files.iter().filter(|i| i.live == 0).count()
    }

    /// Backing files in use, with their slots.
    pub fn live(&self) -> impl Iterator<Item = (usize, &BackingFile)> {
        self.files[..self.used].iter().enumerate().filter(|(_, i)| i.live == 1)
    }

    /// What is probably one mapping around `at`: a part of the smallest range a file was made for.
    pub fn mapping_around(&self, at: usize) -> Option<(usize, usize)> {
        let here = self.live().filter(|(_, i)| i.start <= at && at < i.end);
        let (_, file) = here.min_by_key(|(_, i)| i.end - i.start)?;
        let Piece { start, end, .. } = file.piece();
        let part = part_len(&file.piece());
        let from = start + (at - start) / part * part;
        Some((from, (from + part).min(end)))
    }

    /// The backing file in a slot.
    pub fn get(&self, slot: usize) -> Option<&BackingFile> {
        self.files.get(slot).filter(|i| i.live == 1)
    }

    /// The slot of the backing file `dev:inode`.
    pub fn find(&self, dev: u64, inode: u64) -> Option<usize> {
        self.live().find(|(_, i)| i.dev == dev && i.inode == inode).map(|(n, _)| n)
    }

    /// Takes a backing file off the list.
    pub fn remove(&mut self, slot: usize) -> Option<BackingFile> {
        let file = self.files.get_mut(slot).filter(|i| i.live == 1)?;
        let was = *file;
        file.live = 0;
        self.shared.forget(slot);
        Some(was)
    }

    /// What is owed to the memory budget.
    pub fn debt(&self) -> Debt {
        self.debt
    }

    pub fn set_debt(&mut self, debt: Debt) {
        self.debt = debt;
    }

    /// The file in that slot holds so much at most.
    pub fn set_bytes(&mut self, slot: usize, most: usize) {
        if let Some(file) = self.files.get_mut(slot).filter(|i| i.live == 1) {
            file.bytes = file.bytes.min(most);
        }
    }

    /// Memory that may be mapped shared.
    pub fn shared(&self) -> &[Part] {
        self.shared.all()
    }

    /// The first part of it that touches the range, and its file.
    pub fn first_shared(&self, range: (usize, usize)) -> Option<(Part, BackingFile)> {
        let part = self.shared.first(range)?;
        self.files.get(part.slot).map(|file| (part, *file))
    }

    /// That part may be mapped shared; who made it so has asked whether there is room.
    pub fn set_shared(&mut self, part: Part) {
        self.shared.add(part);
    }

    /// It is private.
    pub fn set_private(&mut self, part: &Part) {
        self.shared.remove(part);
    }

    /// The file in that slot has taken more memory, up to `end`, with so many bytes. `place` is
    /// where its content begins.
    pub fn grow(
        &mut self,
        addresses: &Addresses,
        (slot, place): (usize, usize),
        (end, bytes): (usize, usize),
    ) {
        if let Some(file) = self.files.get_mut(slot).filter(|i| i.live == 1 && i.end < end) {
            addresses.freeze_anew(file.end, end, file.kept);
            file.span = file.span.max(place + (end - file.start));
            file.end = end;
            file.bytes += bytes;
        }
    }

    /// After fork, in the child: the backing files belong to the parent; the anchors
    /// were not inherited (`MADV_DONTFORK`). The probes were: they tell when the parent and its
    /// other descendants are gone.
    pub fn inherit(&mut self, addresses: &Addresses) {
        addresses.recover();
        for i in self.files.iter_mut().filter(|i| i.live == 1) {
            i.anchor_private = 0;
            i.anchor_shared = 0;
        }
        self.shared.clear();
        self.unmapped.clear();
        self.debt = Debt::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_end_with_the_last_reader() {
        let mut debt = Debt::default();
        assert!(debt.charge(7, 60, 100) && debt.charge(8, 40, 100) && !debt.charge(7, 1, 100));
        assert!(debt.charge(0, 0, 100) && !debt.charge(0, 1, 1000));
        debt.settle(|probe| probe == 7);
        assert_eq!(debt, Debt { bytes: 100, probes: [0, 8, 0, 0] });
        assert!([9, 10, 11].iter().all(|&probe| debt.charge(probe, 1, 1000)));
        assert!(!debt.charge(12, 1, 1000));
        debt.settle(|_| true);
        assert_eq!(debt, Debt::default());
    }

    #[test]
    fn slots_are_reused() {
        let (mut reg, addresses) = (Box::new(Registry::new()), Box::new(Addresses::new()));
        let file = BackingFile { inode: 5, dev: 7, start: 0, end: 10, ..BackingFile::default() };
        assert!(reg.add(&addresses, file));
        assert!(addresses.may_be_frozen(9, 20) && !addresses.may_be_frozen(10, 20));
        let slot = reg.find(7, 5).unwrap();
        assert_eq!(reg.remove(slot).map(|i| i.inode), Some(5));
        assert_eq!((reg.find(7, 5), reg.room()), (None, MAX_FILES));
    }
}
