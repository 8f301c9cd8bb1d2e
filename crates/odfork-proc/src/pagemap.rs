//! Which pages of a process hold content, and what the page tables say about them.
//!
//! Asks PAGEMAP_SCAN (Linux 6.7) or, where that is missing, reads the entries of
//! `/proc/PID/pagemap`. Owns merging pages into runs; what the bits mean is the caller's business.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use anyhow::{bail, Context, Result};
use odfork_sys::abi::pagemap::{self, Region, ScanArg};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

pub use pagemap::{IS_FILE as FILE, IS_SOFT_DIRTY as SOFT_DIRTY, IS_WRITTEN as WRITTEN};

const REGIONS: usize = 1024;

/// Consecutive pages with the same properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Its properties: [`FILE`], [`SOFT_DIRTY`], [`WRITTEN`].
    pub bits: u64,
}

impl Run {
    /// Its size in pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }

    /// Whether it has this property.
    pub fn has(&self, bit: u64) -> bool {
        self.bits & bit != 0
    }
}

/// The page tables of one process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    scans: bool,
}

impl Pagemap {
    /// Opens `/proc/PID/pagemap`.
    ///
    /// # Errors
    /// There is no such process, or it may not be traced.
    pub fn open(pid: i32) -> Result<Pagemap> {
        let path = format!("/proc/{pid}/pagemap");
        let file = File::open(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(Pagemap { file, scans: true })
    }

    /// Runs of pages with content in `start..end`, in rising order; the shared page of zeros is no
    /// content.
    pub fn runs(&mut self, start: u64, end: u64) -> Result<Vec<Run>> {
        let mut found = Vec::new();
        let mut at = start;
        while at < end {
            at = match self.scan(at, end, 0, &mut found) {
                Ok(next) => next,
                Err(Some(libc::ENOTTY | libc::EINVAL)) if self.scans => {
                    self.scans = false;
                    at
                }
                Err(_) if !self.scans => self.read_entries(at, end, &mut found)?,
                Err(code) => bail!("the kernel refuses PAGEMAP_SCAN (errno {code:?})"),
            };
        }
        Ok(found)
    }

    /// The same, and write-protects what it finds, so that the next scan shows new writes only.
    pub fn runs_and_protect(&mut self, start: u64, end: u64) -> Result<Vec<Run>> {
        let mut found = Vec::new();
        let mut at = start;
        while at < end {
            match self.scan(at, end, pagemap::SCAN_WP_MATCHING, &mut found) {
                Ok(next) => at = next,
                Err(code) => bail!("the kernel cannot write-protect by PAGEMAP_SCAN ({code:?})"),
            }
        }
        Ok(found)
    }

    /// One call; gives where the next one goes on, or the errno.
    fn scan(
        &mut self,
        start: u64,
        end: u64,
        flags: u64,
        found: &mut Vec<Run>,
    ) -> Result<u64, Option<i32>> {
        if !self.scans {
            return Err(None);
        }
        let mut regions = [Region::default(); REGIONS];
        let mut request = ScanArg {
            size: size_of::<ScanArg>() as u64,
            flags,
            start,
            end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            category_inverted: pagemap::IS_PFNZERO,
            category_mask: pagemap::IS_PFNZERO,
            category_anyof_mask: pagemap::IS_PRESENT | pagemap::IS_SWAPPED,
            return_mask: WRITTEN | FILE | SOFT_DIRTY,
            ..ScanArg::default()
        };
        // SAFETY: the request and the regions it points to are valid for the kernel to fill.
        let count = unsafe {
            libc::ioctl(self.file.as_raw_fd(), pagemap::SCAN, std::ptr::from_mut(&mut request))
        };
        let count =
            usize::try_from(count).map_err(|_| std::io::Error::last_os_error().raw_os_error())?;
        let new = &regions[..count.min(REGIONS)];
        // The kernel may give a walk_end that lies before regions it has returned (seen on 6.18).
        let reached = new.last().map_or(request.walk_end, |run| run.end.max(request.walk_end));
        if reached <= start {
            return Err(Some(libc::EIO));
        }
        for run in new {
            join(found, Run { start: run.start, end: run.end, bits: run.categories });
        }
        Ok(reached)
    }

    fn read_entries(&mut self, start: u64, end: u64, found: &mut Vec<Run>) -> Result<u64> {
        let pages = ((end - start) / PAGE).min(REGIONS as u64) as usize;
        let mut bytes = vec![0; pages * 8];
        let count =
            self.file.read_at(&mut bytes, start / PAGE * 8).context("cannot read pagemap")?;
        if count < 8 {
            bail!("/proc/PID/pagemap ended: the process is gone");
        }
        for (index, entry) in bytes[..count / 8 * 8].chunks_exact(8).enumerate() {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            if let Some(bits) = meaning(entry) {
                let at = start + index as u64 * PAGE;
                join(found, Run { start: at, end: at + PAGE, bits });
            }
        }
        Ok(start + (count as u64 / 8) * PAGE)
    }
}

/// Appends a run, or lengthens the last one.
fn join(found: &mut Vec<Run>, run: Run) {
    match found.last_mut() {
        Some(last) if last.end == run.start && last.bits == run.bits => last.end = run.end,
        _ => found.push(run),
    }
}

/// The bits of a scan for an entry; `None` when the page has no content of its own.
fn meaning(entry: u64) -> Option<u64> {
    let if_set = |flag: u64, bit: u64| if entry & flag != 0 { bit } else { 0 };
    (entry & (pagemap::ENTRY_PRESENT | pagemap::ENTRY_SWAPPED) != 0).then(|| {
        if_set(pagemap::ENTRY_FILE, FILE)
            | if_set(pagemap::ENTRY_SOFT_DIRTY, SOFT_DIRTY)
            | (WRITTEN - if_set(pagemap::ENTRY_UFFD_WP, WRITTEN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of six pages of which 1, 2 and 4 are written.
    fn written() -> (u64, Box<dyn FnOnce()>) {
        let size = 6 * PAGE as usize;
        // SAFETY: a fresh private mapping; the pages written lie in it; it is unmapped once, by the
        // closure.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, size, libc::MADV_NOHUGEPAGE);
            for page in [1, 2, 4] {
                at.cast::<u8>().add(page * PAGE as usize).write_volatile(1);
            }
            let _zero = at.cast::<u8>().add(5 * PAGE as usize).read_volatile();
            (at as u64, Box::new(move || assert_eq!(libc::munmap(at, size), 0)))
        }
    }

    #[test]
    fn written_pages_are_found_by_both_ways() {
        let (start, unmap) = written();
        let mut pagemap = Pagemap::open(std::process::id() as i32).unwrap();
        let spans = |runs: Vec<Run>| -> Vec<(u64, u64)> {
            runs.iter().map(|r| ((r.start - start) / PAGE, r.pages())).collect()
        };
        let scanned = spans(pagemap.runs(start, start + 6 * PAGE).unwrap());
        if pagemap.scans {
            assert_eq!(scanned, [(1, 2), (4, 1)]);
        } else {
            eprintln!("skipped: this kernel has no PAGEMAP_SCAN (Linux 6.7)");
        }
        pagemap.scans = false;
        // Entries do not tell the page of zeros from others: page 5 was read.
        assert_eq!(spans(pagemap.runs(start, start + 6 * PAGE).unwrap()), [(1, 2), (4, 2)]);
        unmap();
    }

    #[test]
    fn entries_become_bits() {
        assert_eq!(meaning(0), None);
        assert_eq!(meaning(1 << 63 | 1 << 57), Some(0));
        assert_eq!(meaning(1 << 62 | 1 << 55), Some(WRITTEN | SOFT_DIRTY));
        assert_eq!(meaning(1 << 63 | 1 << 61), Some(FILE | WRITTEN));
    }

    #[test]
    fn equal_neighbours_are_one_run() {
        let mut found = Vec::new();
        for (start, bits) in [(0, 0), (PAGE, 0), (2 * PAGE, FILE), (4 * PAGE, FILE)] {
            join(&mut found, Run { start, end: start + PAGE, bits });
        }
        assert_eq!(found.iter().map(Run::pages).collect::<Vec<_>>(), [2, 1, 1]);
    }
}
