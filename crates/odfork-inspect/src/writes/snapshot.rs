//! Method "compare": a snapshot of the memory is kept and the memory compared with it, byte by byte.
//!
//! This is the method of Smith and Maguire 1988, who compared core dumps. It needs nothing of the kernel, and is the
//! only one that counts bytes. Owns the snapshot: every page with content, except pages of zeros and pages of a file
//! never written, which cost nothing. The snapshot is brought up to date in place, page by page, so it is held once.
//! A page written with the bytes it held does not count as changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{bail, Result};

use super::change::{Change, Counts};
use super::pages::{Run, FILE, PAGE};
use super::scan::{Area, Scan};

const PAGE_BYTES: usize = PAGE as usize;
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
/// Pages read by one call.
const BATCH: usize = 256;
/// Pages of one allocation of the snapshot.
const CHUNK: usize = 1024;

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Zeros,
    /// As in the file that is mapped there.
    File,
    Slot(u32),
}

/// Copies of pages, in numbered slots.
#[derive(Debug, Default)]
struct PageStore {
    store: Vec<Vec<u8>>,
    free: Vec<u32>,
    used: u32,
}

impl PageStore {
    fn page(&self, slot: u32) -> &[u8] {
        let at = slot as usize % CHUNK * PAGE_BYTES;
        &self.store[slot as usize / CHUNK][at..at + PAGE_BYTES]
    }

    fn put(&mut self, slot: u32, content: &[u8]) {
        let at = slot as usize % CHUNK * PAGE_BYTES;
        self.store[slot as usize / CHUNK][at..at + PAGE_BYTES].copy_from_slice(content);
    }

    fn take(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        let slot = self.used;
        self.used += 1;
        if slot as usize / CHUNK == self.store.len() {
            self.store.push(vec![0; CHUNK * PAGE_BYTES]);
        }
        slot
    }

    fn bytes(&self) -> u64 {
        u64::from(self.used) * PAGE
    }
}

/// The snapshot of a process.
#[derive(Debug)]
pub struct Snapshot {
    /// (address, what is kept), in rising order.
    index: Vec<(u64, Kept)>,
    store: PageStore,
    /// Bytes the copies may take.
    limit: u64,
}

impl Snapshot {
    pub fn new(limit: u64) -> Snapshot {
        Snapshot { index: Vec::new(), store: PageStore::default(), limit }
    }

    /// Compares with the process as it stands, and becomes its snapshot. The first time all is new.
    pub fn update(&mut self, scan: &Scan) -> Result<Change> {
        let mut pass = Pass {
            old: std::mem::take(&mut self.index).into_iter().peekable(),
            new: Vec::new(),
            store: &mut self.store,
            limit: self.limit,
            change: Change::default(),
        };
        for area in &scan.areas {
            pass.area(scan, area)?;
        }
        pass.skip_to(u64::MAX);
        self.index = pass.new;
        Ok(pass.change)
    }
}

/// One walk through the old snapshot and the process, both in rising order.
struct Pass<'a> {
    old: std::iter::Peekable<std::vec::IntoIter<(u64, Kept)>>,
    new: Vec<(u64, Kept)>,
    store: &'a mut PageStore,
    limit: u64,
    change: Change,
}

impl Pass<'_> {
    fn area(&mut self, scan: &Scan, area: &Area) -> Result<()> {
        let mut counts = Counts::default();
        let file = area.mapping.open(scan.pid);
        let mut buffer = vec![0; BATCH * PAGE_BYTES];
        for run in &area.runs {
            if run.has(FILE) {
                self.clean_run(run, &mut counts);
                continue;
            }
            for start in (run.start..run.end).step_by(BATCH * PAGE_BYTES) {
                let end = run.end.min(start + (BATCH * PAGE_BYTES) as u64);
                self.batch(scan, (start, end), &mut buffer, |pass, address, content| {
                    let before = file
                        .as_ref()
                        .and_then(|file| page_of_file(file, area.mapping.file_offset(address)));
                    pass.page(address, content, before.as_deref(), &mut counts)
                })?;
            }
        }
        self.change.add(&area.mapping, counts);
        Ok(())
    }

    /// Pages as the file has them: they have not been written.
    fn clean_run(&mut self, run: &Run, counts: &mut Counts) {
        for address in (run.start..run.end).step_by(PAGE_BYTES) {
            if let Some(Kept::Slot(slot)) = self.old_at(address) {
                self.store.free.push(slot);
            }
            counts.pages += 1;
            self.new.push((address, Kept::File));
        }
    }

    /// Reads a batch, page by page where it is not given as a whole.
    fn batch(
        &mut self,
        scan: &Scan,
        (start, end): (u64, u64),
        buffer: &mut [u8],
        mut each: impl FnMut(&mut Self, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let buffer = &mut buffer[..(end - start) as usize];
        let whole = scan.read(start, buffer);
        for (page, address) in (start..end).step_by(PAGE_BYTES).enumerate() {
            let content = &mut buffer[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
            if whole || scan.read(address, content) {
                each(self, address, content)?;
            } else {
                self.change.unreadable += 1;
            }
        }
        Ok(())
    }

    /// `file`: what the mapped file holds there, for a page of a file mapping.
    fn page(
        &mut self,
        address: u64,
        content: &[u8],
        file: Option<&[u8]>,
        counts: &mut Counts,
    ) -> Result<()> {
        let old = self.old_at(address);
        counts.pages += 1;
        match (old, file) {
            (Some(Kept::Slot(slot)), _) => {
                counts.add_difference(differing(self.store.page(slot), content));
            }
            (Some(Kept::Zeros), _) => counts.add_difference(differing(&ZEROS, content)),
            (Some(Kept::File) | None, Some(file)) => {
                counts.add_difference(differing(file, content));
            }
            (Some(Kept::File) | None, None) => counts.add_new_page(),
        }
        self.keep(address, content, old)
    }

    fn keep(&mut self, address: u64, content: &[u8], old: Option<Kept>) -> Result<()> {
        let kept = if *content == ZEROS {
            if let Some(Kept::Slot(slot)) = old {
                self.store.free.push(slot);
            }
            Kept::Zeros
        } else {
            let slot = match old {
                Some(Kept::Slot(slot)) => slot,
                _ => self.store.take(),
            };
            if self.store.bytes() > self.limit {
                bail!(
                    "the snapshot of its memory needs more than {} MB; give more by --memory MB, or \
                     count pages without a snapshot by --method scan",
                    self.limit >> 20
                );
            }
            self.store.put(slot, content);
            Kept::Slot(slot)
        };
        self.new.push((address, kept));
        Ok(())
    }

    /// What was kept of a page; those before it are gone.
    fn old_at(&mut self, address: u64) -> Option<Kept> {
        self.skip_to(address);
        self.old.next_if(|(at, _)| *at == address).map(|(_, kept)| kept)
    }

    fn skip_to(&mut self, address: u64) {
        while let Some((_, kept)) = self.old.next_if(|(at, _)| *at < address) {
            self.change.gone += 1;
            if let Kept::Slot(slot) = kept {
                self.store.free.push(slot);
            }
        }
    }
}

/// A page of a file; what lies behind its end reads as zeros. None when nothing can be read.
fn page_of_file(file: &File, offset: u64) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE_BYTES];
    let count = file.read_at(&mut page, offset).ok()?;
    (count > 0).then_some(page)
}

fn differing(old: &[u8], new: &[u8]) -> u64 {
    if old == new {
        return 0;
    }
    old.iter().zip(new).filter(|(a, b)| a != b).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(snapshot: &mut Snapshot, pages: &[(u64, u8)]) -> Result<(Counts, u64)> {
        let mut pass = Pass {
            old: std::mem::take(&mut snapshot.index).into_iter().peekable(),
            new: Vec::new(),
            store: &mut snapshot.store,
            limit: snapshot.limit,
            change: Change::default(),
        };
        let mut counts = Counts::default();
        for &(page, byte) in pages {
            pass.page(page * PAGE, &[byte; PAGE_BYTES], None, &mut counts)?;
        }
        pass.skip_to(u64::MAX);
        snapshot.index = pass.new;
        Ok((counts, pass.change.gone))
    }

    #[test]
    fn growing_shrinking_and_changing_are_told_apart() {
        let mut snapshot = Snapshot::new(1 << 30);
        pass(&mut snapshot, &[(1, 7), (2, 0), (3, 7), (9, 7)]).unwrap();
        let (counts, gone) = pass(&mut snapshot, &[(1, 7), (2, 5), (3, 8), (4, 7)]).unwrap();
        let expected = Counts { pages: 4, changed: 3, new: 1, bytes: 3 * PAGE };
        assert_eq!((counts, gone), (expected, 1));
        let (quiet, gone) = pass(&mut snapshot, &[(1, 7), (2, 5), (3, 8), (4, 7)]).unwrap();
        assert_eq!((quiet.changed, quiet.bytes, gone), (0, 0, 0));
        let (_, gone) = pass(&mut snapshot, &[]).unwrap();
        assert_eq!(gone, 4);
    }

    #[test]
    fn slots_given_back_are_used_again() {
        let mut snapshot = Snapshot::new(3 * PAGE);
        for round in 0..50 {
            let pages: Vec<(u64, u8)> = (0..3).map(|n| (round * 7 + n, 1 + n as u8)).collect();
            // Half of them is there again: the snapshot must neither grow nor mix them up.
            let (counts, gone) = pass(&mut snapshot, &pages).unwrap();
            assert_eq!((counts.new, gone), (3, if round == 0 { 0 } else { 3 }));
            assert_eq!(pass(&mut snapshot, &pages).unwrap().0.changed, 0);
        }
    }

    #[test]
    fn a_picture_that_grows_too_large_is_refused_in_one_line() {
        let error = pass(&mut Snapshot::new(PAGE), &[(1, 1), (2, 2)]).unwrap_err().to_string();
        assert!(error.contains("--memory") && !error.contains('\n'), "{error}");
        assert!(pass(&mut Snapshot::new(PAGE), &[(1, 1), (2, 0)]).is_ok(), "zeros cost nothing");
    }

    #[test]
    fn bytes_are_counted_one_by_one() {
        let (old, mut new) = ([1; PAGE_BYTES], [1; PAGE_BYTES]);
        assert_eq!(differing(&old, &new), 0);
        (new[0], new[4095], new[77]) = (2, 0, 9);
        assert_eq!(differing(&old, &new), 3);
    }

    #[test]
    fn a_copied_page_of_a_file_is_compared_with_the_file() {
        let mut snapshot = Snapshot::new(1 << 20);
        let mut pass = Pass {
            old: Vec::new().into_iter().peekable(),
            new: Vec::new(),
            store: &mut snapshot.store,
            limit: 1 << 20,
            change: Change::default(),
        };
        let mut counts = Counts::default();
        pass.clean_run(&Run { start: 0, end: PAGE, bits: FILE }, &mut counts);
        let mut content = [3; PAGE_BYTES];
        content[5] = 4;
        pass.page(PAGE, &content, Some(&[3; PAGE_BYTES]), &mut counts).unwrap();
        assert_eq!(counts, Counts { pages: 2, changed: 1, new: 0, bytes: 1 });
    }
}
