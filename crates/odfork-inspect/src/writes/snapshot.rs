//! Method "compare": a snapshot of the memory is kept and the memory compared with it, byte by
//! byte.
//!
//! This is the method of Smith and Maguire 1988, who compared core dumps. It needs nothing of the
//! kernel, and is the only one that counts bytes. Owns the snapshot: every page with content,
//! except pages of zeros and pages of a file never written, which cost nothing. It is brought up to
//! date in place, page by page, so it is held once. A page written with the bytes it held does not
//! count as changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{bail, Result};

use super::change::{Change, Counts};
use super::scan::{Area, Scan};
use odfork_proc::pagemap::{Run, FILE, PAGE};

const PAGE_BYTES: usize = PAGE as usize;
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
/// Bytes read by one call.
const BATCH: usize = 256 * PAGE_BYTES;

/// What is known of a page.
#[derive(Debug)]
enum Kept {
    Zeros,
    /// As in the file that is mapped there.
    File,
    Copy(Box<[u8; PAGE_BYTES]>),
}

/// The snapshot of a process.
#[derive(Debug)]
pub struct Snapshot {
    /// (address, what is kept), in rising order.
    index: Vec<(u64, Kept)>,
    copies: u64,
    /// Bytes the copies may take.
    limit: u64,
}

impl Snapshot {
    pub fn new(limit: u64) -> Snapshot {
        Snapshot { index: Vec::new(), copies: 0, limit }
    }

    /// Compares with the process as it stands, and becomes its snapshot. The first time all is new.
    pub fn update(&mut self, scan: &Scan) -> Result<Change> {
        self.pass(|pass| scan.areas.iter().try_for_each(|area| pass.area(scan, area)))
    }

    fn pass(&mut self, walk: impl FnOnce(&mut Pass) -> Result<()>) -> Result<Change> {
        let old = std::mem::take(&mut self.index).into_iter().peekable();
        let Snapshot { index: new, copies, limit } = self;
        let mut pass = Pass { old, new, copies, limit: *limit, change: Change::default() };
        walk(&mut pass)?;
        pass.skip_to(u64::MAX);
        Ok(pass.change)
    }
}

/// One walk through the old snapshot and the process, both in rising order.
struct Pass<'a> {
    old: std::iter::Peekable<std::vec::IntoIter<(u64, Kept)>>,
    new: &'a mut Vec<(u64, Kept)>,
    copies: &'a mut u64,
    limit: u64,
    change: Change,
}

impl Pass<'_> {
    fn area(&mut self, scan: &Scan, area: &Area) -> Result<()> {
        let mut counts = Counts::default();
        let file = area.mapping.open(scan.pid);
        let mut buffer = vec![0; BATCH];
        for run in &area.runs {
            if run.has(FILE) {
                self.clean_run(run, &mut counts);
                continue;
            }
            for start in (run.start..run.end).step_by(BATCH) {
                let buffer = &mut buffer[..(run.end - start).min(BATCH as u64) as usize];
                let whole = scan.read(start, buffer);
                for (content, address) in
                    buffer.chunks_mut(PAGE_BYTES).zip((start..).step_by(PAGE_BYTES))
                {
                    // Page by page where the kernel does not give the batch as a whole.
                    if !whole && !scan.read(address, content) {
                        self.change.unreadable += 1;
                        continue;
                    }
                    let offset = || area.mapping.file_offset(address);
                    let before = file.as_ref().and_then(|file| page_of_file(file, offset()));
                    self.page(address, content, before.as_deref(), &mut counts)?;
                }
            }
        }
        self.change.add(&area.mapping, counts);
        Ok(())
    }

    /// Pages as the file has them: they have not been written.
    fn clean_run(&mut self, run: &Run, counts: &mut Counts) {
        for address in (run.start..run.end).step_by(PAGE_BYTES) {
            let old = self.old_at(address);
            self.forget(old);
            counts.pages += 1;
            self.new.push((address, Kept::File));
        }
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
        let before = match &old {
            Some(Kept::Copy(page)) => Some(&page[..]),
            Some(Kept::Zeros) => Some(&ZEROS[..]),
            Some(Kept::File) | None => file,
        };
        counts.pages += 1;
        match before {
            Some(before) => counts.add_difference(differing(before, content)),
            None => counts.add_new_page(),
        }
        let kept = self.keep(content, old)?;
        self.new.push((address, kept));
        Ok(())
    }

    fn keep(&mut self, content: &[u8], old: Option<Kept>) -> Result<Kept> {
        if *content == ZEROS {
            self.forget(old);
            return Ok(Kept::Zeros);
        }
        let mut page = match old {
            Some(Kept::Copy(page)) => page,
            _ => {
                *self.copies += 1;
                Box::new(ZEROS)
            }
        };
        if *self.copies * PAGE > self.limit {
            bail!(
                "the snapshot of its memory needs more than {} MB; give more by --memory MB, or \
                 count pages without a snapshot by --method scan",
                self.limit >> 20
            );
        }
        page.copy_from_slice(content);
        Ok(Kept::Copy(page))
    }

    fn forget(&mut self, old: Option<Kept>) {
        *self.copies -= u64::from(matches!(old, Some(Kept::Copy(_))));
    }

    /// What was kept of a page; those before it are gone.
    fn old_at(&mut self, address: u64) -> Option<Kept> {
        self.skip_to(address);
        self.old.next_if(|(at, _)| *at == address).map(|(_, kept)| kept)
    }

    fn skip_to(&mut self, address: u64) {
        while let Some((_, kept)) = self.old.next_if(|(at, _)| *at < address) {
            self.change.gone += 1;
            self.forget(Some(kept));
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
        let mut counts = Counts::default();
        let change = snapshot.pass(|pass| {
            let mut page = |&(page, byte): &(u64, u8)| {
                pass.page(page * PAGE, &[byte; PAGE_BYTES], None, &mut counts)
            };
            pages.iter().try_for_each(&mut page)
        })?;
        Ok((counts, change.gone))
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
    fn copies_given_back_count_no_more() {
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
        let mut counts = Counts::default();
        let mut content = [3; PAGE_BYTES];
        content[5] = 4;
        let walk = |pass: &mut Pass| {
            pass.clean_run(&Run { start: 0, end: PAGE, bits: FILE }, &mut counts);
            pass.page(PAGE, &content, Some(&[3; PAGE_BYTES]), &mut counts)
        };
        Snapshot::new(1 << 20).pass(walk).unwrap();
        assert_eq!(counts, Counts { pages: 2, changed: 1, new: 0, bytes: 1 });
    }
}
