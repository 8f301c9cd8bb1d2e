//! Which pages of a range are populated, or privately dirtied: the page tables
//! as the kernel shows them.
//!
//! Uses the PAGEMAP_SCAN ioctl (Linux 6.7) and, where that is missing, the
//! 64-bit entries of `/proc/self/pagemap`.

use crate::args;
use crate::sys::abi::pagemap::{self as abi, Region, ScanArg};
use crate::sys::{Errno, Kernel, SysResult, PAGE};

/// What to look for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Pages with content of their own in an anonymous mapping.
    Populated,
    /// Pages of a private file mapping that the process has copied on write.
    Dirty,
    /// The same while markers of quiescing are in the page tables, which look
    /// like swap entries to PAGEMAP_SCAN: read entry by entry.
    DirtyMarked,
}

/// Number of regions one call returns at most.
pub const REGIONS: usize = 1024;

/// Pages of one mapping whose being dirty can be noted (4 GB).
const NOTED: usize = 1 << 20;

/// Buffers of a scan; lives in the helper's scratch memory.
#[repr(C)]
pub struct Buffers {
    regions: [Region; REGIONS],
    entries: [u64; REGIONS],
    /// PAGEMAP_SCAN was refused once: do not ask again.
    old_kernel: bool,
    /// The range whose dirty pages `noted` has, a bit each.
    noted_range: (usize, usize),
    noted: [u64; NOTED / 64],
}

impl Buffers {
    /// The dirty pages of no mapping are known.
    pub fn forget(&mut self) {
        self.noted_range = (0, 0);
    }

    fn notes(&self, (start, end): (usize, usize)) -> bool {
        self.noted_range.0 <= start && end <= self.noted_range.1
    }

    fn is_noted(&self, at: usize) -> bool {
        let page = (at - self.noted_range.0) / PAGE;
        self.noted[page / 64] >> (page % 64) & 1 != 0
    }
}

/// Reads the page tables of this address space through an open
/// `/proc/self/pagemap`.
pub struct Pagemap<'a> {
    pub fd: i32,
    pub buf: &'a mut Buffers,
}

impl Pagemap<'_> {
    /// Calls `each(kernel, start, end)` for every wanted run in `start..end`, in rising order.
    pub fn runs(
        &mut self,
        k: &Kernel,
        range: (usize, usize),
        want: Want,
        each: &mut dyn FnMut(&Kernel, usize, usize) -> SysResult<()>,
    ) -> SysResult<()> {
        let mut at = range.0;
        while at < range.1 {
            at = if self.buf.old_kernel || want == Want::DirtyMarked {
                self.entries(k, (at, range.1), want, each)?
            } else {
                match self.scan(k, (at, range.1), want, each) {
                    Err(Errno(libc::ENOTTY | libc::EINVAL)) => {
                        self.buf.old_kernel = true;
                        at
                    }
                    other => other?,
                }
            };
        }
        Ok(())
    }

    fn scan(
        &mut self,
        k: &Kernel,
        (start, end): (usize, usize),
        want: Want,
        each: &mut dyn FnMut(&Kernel, usize, usize) -> SysResult<()>,
    ) -> SysResult<usize> {
        let unwanted = if want == Want::Dirty { abi::IS_FILE } else { abi::IS_PFNZERO };
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: start as u64,
            end: end as u64,
            vec: self.buf.regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            category_inverted: unwanted,
            category_mask: unwanted,
            category_anyof_mask: abi::IS_PRESENT | abi::IS_SWAPPED,
            return_mask: abi::IS_PRESENT,
            ..ScanArg::default()
        };
        // SAFETY: `arg` and the region buffer are valid for the kernel to fill.
        let n = unsafe { k.call(libc::SYS_ioctl, args![self.fd, abi::SCAN, &mut arg]) }?;
        let found = &self.buf.regions[..n.min(REGIONS)];
        let reached = reached(found, arg.walk_end as usize);
        if reached <= start {
            return Err(Errno(libc::EIO));
        }
        for r in found {
            each(k, r.start as usize, r.end as usize)?;
        }
        Ok(reached)
    }

    fn entries(
        &mut self,
        k: &Kernel,
        (start, end): (usize, usize),
        want: Want,
        each: &mut dyn FnMut(&Kernel, usize, usize) -> SysResult<()>,
    ) -> SysResult<usize> {
        let is_noted = want == Want::DirtyMarked && self.buf.notes((start, end));
        let n = match is_noted {
            true => ((end - start) / PAGE).min(REGIONS),
            false => self.read_entries(k, start, end)?,
        };
        let mut run: Option<usize> = None;
        for i in 0..n {
            let at = start + i * PAGE;
            let wanted = match is_noted {
                true => self.buf.is_noted(at),
                false => wanted(self.buf.entries[i], want),
            };
            match (wanted, run) {
                (true, None) => run = Some(at),
                (false, Some(from)) => {
                    run = None;
                    each(k, from, at)?;
                }
                _ => {}
            }
        }
        if let Some(from) = run {
            each(k, from, start + n * PAGE)?;
        }
        Ok(start + n * PAGE)
    }

    /// Notes the dirty pages of a quiesced mapping, of which smaps counts so many bytes, for
    /// [`Want::DirtyMarked`]. A marker looks like a page that is swapped out or on its way to
    /// another place: to ordinary users always, on 6.1 to all, where its type has another number.
    /// Every clean page would be written back. Where the pages that are surely the process's own
    /// are as many as smaps counts, none is elsewhere: what is present is all there is. The zero
    /// page, which smaps does not count, is in the place of a page that was given up.
    pub fn note_dirty(
        &mut self,
        k: &Kernel,
        (start, end): (usize, usize),
        bytes: usize,
    ) -> SysResult<()> {
        self.buf.forget();
        if (end - start) / PAGE > NOTED {
            return Ok(());
        }
        let (mut at, mut count) = (start, 0);
        while at < end {
            let n = self.read_entries(k, at, end)?;
            for i in 0..n {
                let entry = self.buf.entries[i];
                let page = (at - start) / PAGE + i;
                let bit = 1 << (page % 64);
                let word = &mut self.buf.noted[page / 64];
                let is_here = entry & (abi::ENTRY_PRESENT | abi::ENTRY_FILE) == abi::ENTRY_PRESENT;
                *word = if is_here { *word | bit } else { *word & !bit };
                count += usize::from(is_here && entry & abi::ENTRY_EXCLUSIVE != 0);
            }
            at += n * PAGE;
        }
        if count * PAGE == bytes {
            self.buf.noted_range = (start, end);
        }
        Ok(())
    }

    /// Bytes of wanted pages that nobody else maps. A page that is swapped out may be anybody's.
    /// EFAULT where an access would fail: a file could not keep that.
    pub fn own_bytes(
        &mut self,
        k: &Kernel,
        (start, end): (usize, usize),
        want: Want,
    ) -> SysResult<usize> {
        let (mut at, mut own) = (start, 0);
        while at < end {
            let n = self.read_entries(k, at, end)?;
            if self.buf.entries[..n].iter().any(|&entry| fails(entry)) {
                return Err(Errno(libc::EFAULT));
            }
            let ours = |e: &&u64| wanted(**e, want) && **e & abi::ENTRY_EXCLUSIVE != 0;
            own += self.buf.entries[..n].iter().filter(ours).count() * PAGE;
            at += n * PAGE;
        }
        Ok(own)
    }

    /// Reads the entries from `start` on, as many as fit; gives their number.
    fn read_entries(&mut self, k: &Kernel, start: usize, end: usize) -> SysResult<usize> {
        let pages = ((end - start) / PAGE).min(REGIONS);
        let buf = self.buf.entries.as_mut_ptr();
        let (bytes, offset) = (pages * abi::ENTRY_BYTES, start / PAGE * abi::ENTRY_BYTES);
        // SAFETY: the buffer holds REGIONS entries of 8 bytes.
        let n = unsafe { k.call(libc::SYS_pread64, args![self.fd, buf, bytes, offset]) }?;
        match n / abi::ENTRY_BYTES {
            0 => Err(Errno(libc::EIO)),
            n => Ok(n),
        }
    }

    /// True if the two pages from `addr` on are present and mapped by nobody else.
    pub fn exclusive(&mut self, k: &Kernel, addr: usize) -> SysResult<bool> {
        let mut entries = [0u64; 2];
        let a = args![self.fd, &mut entries, size_of_val(&entries), addr / PAGE * 8];
        // SAFETY: the entries are valid for the kernel to fill; what it leaves says no.
        unsafe { k.call(libc::SYS_pread64, a) }?;
        let own = abi::ENTRY_PRESENT | abi::ENTRY_EXCLUSIVE;
        Ok(entries.iter().all(|entry| entry & own == own))
    }
}

/// Where the next call goes on. A kernel whose own buffer (512 regions) ran full just as the
/// caller's did gives a `walk_end` that lies BEFORE regions it has already returned (seen on 6.18):
/// going on from there would report them twice.
fn reached(found: &[Region], walk_end: usize) -> usize {
    found.last().map_or(walk_end, |last| walk_end.max(last.end as usize))
}

fn wanted(entry: u64, want: Want) -> bool {
    let has = |bit: u64| entry & bit != 0;
    let marker = want == Want::DirtyMarked && is_marker(entry);
    let there = has(abi::ENTRY_PRESENT) || has(abi::ENTRY_SWAPPED);
    there && !marker && (want == Want::Populated || !has(abi::ENTRY_FILE))
}

fn is_marker(entry: u64) -> bool {
    entry & abi::ENTRY_PRESENT == 0
        && entry & abi::ENTRY_SWAPPED != 0
        && entry & abi::ENTRY_SWAP_TYPE == abi::SWAP_TYPE_MARKER
}

/// A guard (smaps tells of those since 6.18 only), or poison. What a marker says is shown to the
/// privileged only; others learn of guards since 6.15.
fn fails(entry: u64) -> bool {
    let guard = entry & abi::ENTRY_PRESENT == 0 && entry & abi::ENTRY_GUARD != 0;
    guard || is_marker(entry) && entry & abi::MARKER_FAILS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_call_never_goes_back() {
        let region = |start: u64| Region { start, end: start + 1, categories: 0 };
        assert_eq!(reached(&[region(3), region(7)], 5), 8);
        assert_eq!(reached(&[region(3)], 5), 5);
        assert_eq!(reached(&[], 5), 5);
    }

    #[test]
    fn entry_bits() {
        assert!(wanted(1 << 63, Want::Populated));
        assert!(wanted(1 << 62, Want::Dirty), "a swapped private page is dirty");
        assert!(!wanted(1 << 63 | 1 << 61, Want::Dirty), "a page of the file is clean");
        assert!(!wanted(0, Want::Populated));
        // As 6.18 shows a guard, and a page write-protected by a userfaultfd.
        let (guard, protected) = (0x4400_0000_0000_009f, 0x4200_0000_0000_003f);
        assert!(fails(guard) && !fails(protected) && !fails(1 << 63 | guard));
        // The same for an ordinary user.
        assert!(fails(0x4400_0000_0000_0000) && !fails(0x4200_0000_0000_0000));
        assert!(!wanted(protected, Want::DirtyMarked) && wanted(protected, Want::Dirty));
    }

    /// As while the kernel moves pages: one seems to be ours alone.
    #[test]
    fn a_relative_with_one_of_the_pages_counts() {
        use crate::sys::{Fault, Trace};
        let (trace, len) = (Trace::new(), 2 * PAGE);
        let k = Kernel::new(&trace, Fault::None);
        // SAFETY: a mapping of this test, which it writes; the child makes system calls only.
        unsafe {
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(core::ptr::null_mut(), len, libc::PROT_WRITE, how, -1, 0) as usize;
            core::ptr::write_bytes(at as *mut u8, 1, len);
            let fd = libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let mut buf: Box<Buffers> = Box::new(core::mem::zeroed());
            let mut is_ours = || Pagemap { fd, buf: &mut buf }.exclusive(&k, at).unwrap();
            assert!(is_ours());
            for kept in [at, at + PAGE] {
                let mut ends = [0; 2];
                assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                let child = libc::fork();
                if child == 0 {
                    libc::munmap((2 * at + PAGE - kept) as *mut _, PAGE);
                    libc::write(ends[1], [0u8].as_ptr().cast(), 1);
                    libc::pause();
                    libc::_exit(0);
                }
                assert_eq!(libc::read(ends[0], [0u8].as_mut_ptr().cast(), 1), 1);
                assert!(!is_ours());
                libc::kill(child, libc::SIGKILL);
                assert_eq!(libc::waitpid(child, core::ptr::null_mut(), 0), child);
                assert!(is_ours());
                libc::close(ends[0]);
                libc::close(ends[1]);
            }
            libc::munmap(at as *mut _, len);
            libc::close(fd);
        }
    }
}
