//! The memory the workload works on: anonymous, a mapped file, or a region of the umap library if the user has one.
//!
//! Owns how it is obtained and the one place where its pages are touched. It stays until the process ends.

use std::ffi::{c_int, c_void, CString};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use super::pattern::{self, PAGE, WORDS};

/// Where the memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Anonymous,
    /// This file, mapped shared; `write_file` made it.
    File(PathBuf),
    /// The same by `umap()` of this shared library.
    Umap {
        library: PathBuf,
        file: PathBuf,
    },
}

/// Pages by number. Two threads may read the same page; whoever writes is alone (the acts see to it).
#[derive(Clone, Copy, Debug)]
pub struct Region {
    base: *mut [u64; WORDS],
    pages: u64,
}

// SAFETY: plain memory that is never unmapped; the acts let threads read only (see the type).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

type Umap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

impl Region {
    /// Maps `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// No memory, a file that cannot be made or is too large for its disk, a library without `umap`.
    pub fn map(source: &Source, bytes: u64) -> Result<Region> {
        let pages = bytes.div_ceil(PAGE).max(1);
        let length =
            usize::try_from(pages * PAGE).context("the region does not fit this processor")?;
        let base = match source {
            Source::Anonymous => {
                mmap(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?
            }
            Source::File(path) => {
                let file = open(path, 0)?;
                mmap(length, libc::MAP_SHARED, file.as_raw_fd())?
            }
            Source::Umap { library, file } => {
                let file = open(file, libc::O_DIRECT)?;
                umap(library, length, file.into_raw_fd())?
            }
        };
        Ok(Region { base: base.cast(), pages })
    }

    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn page(&self, number: u64) -> *mut [u64; WORDS] {
        assert!(number < self.pages, "page {number} of {}", self.pages);
        // SAFETY: inside the mapping, which stays.
        unsafe { self.base.add(number as usize) }
    }

    /// Whether the page holds its pattern of that version.
    pub fn check(&self, number: u64, version: u8) -> bool {
        // SAFETY: readable memory; nobody writes it meanwhile (see the type). Shared files are ours alone.
        pattern::holds(unsafe { &*self.page(number) }, number, version)
    }

    pub fn fill(&self, number: u64, version: u8) {
        // SAFETY: writable memory, and the writer is alone.
        pattern::write(unsafe { &mut *self.page(number) }, number, version);
    }

    /// Reads one word: what a fault costs, and no more.
    pub fn touch(&self, number: u64) -> u64 {
        // SAFETY: readable memory; volatile, so that the read happens.
        unsafe { self.page(number).cast::<u64>().read_volatile() }
    }
}

fn mmap(length: usize, flags: c_int, descriptor: c_int) -> Result<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel likes.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, descriptor, 0) };
    if base == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        bail!("{} MB cannot be mapped: {error}; take a smaller --region", length >> 20);
    }
    Ok(base)
}

fn open(path: &Path, flags: c_int) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).with_context(|| {
        format!("cannot open {}; name another folder with --store-dir", path.display())
    })
}

/// A file of `bytes`, rounded up to pages, that hold version 0 and are on disk, not in memory.
///
/// # Errors
/// It cannot be made, or the disk is full.
pub fn write_file(path: &Path, bytes: u64) -> Result<()> {
    let pages = bytes.div_ceil(PAGE).max(1);
    let told = || {
        format!(
            "cannot write {} MB to {}; name another folder with --store-dir",
            pages >> 8,
            path.display()
        )
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path).with_context(told)?;
    let mut out = BufWriter::with_capacity(1 << 20, &file);
    let mut page = [0; WORDS];
    for number in 0..pages {
        pattern::write(&mut page, number, 0);
        for word in page {
            out.write_all(&word.to_ne_bytes()).with_context(told)?;
        }
    }
    out.flush().with_context(told)?;
    drop(out);
    file.sync_all().with_context(told)?;
    // SAFETY: a valid descriptor; advice.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

/// The region stays, and with it the descriptor.
fn umap(library: &Path, length: usize, descriptor: c_int) -> Result<*mut c_void> {
    let name = CString::new(library.as_os_str().as_bytes())?;
    // SAFETY: a valid name; the library's constructors are its own business, the user named it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: a valid handle and name, or no call.
    let symbol =
        if handle.is_null() { handle } else { unsafe { libc::dlsym(handle, c"umap".as_ptr()) } };
    if symbol.is_null() {
        bail!("{} cannot be loaded or has no function umap; build umap 2 and give the folder of libumap.so", library.display());
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the C function of umap.h: (addr, length, prot, flags, fd, offset), the shape of mmap.
    let base = unsafe {
        let umap: Umap = std::mem::transmute::<*mut c_void, Umap>(symbol);
        umap(std::ptr::null_mut(), length, protection, libc::MAP_PRIVATE, descriptor, 0)
    };
    if base == libc::MAP_FAILED {
        bail!("umap() refused {} MB: {}", length >> 20, std::io::Error::last_os_error());
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_and_file_memory_hold_their_pages() {
        let path = std::env::temp_dir().join(format!("odfork-region-{}", std::process::id()));
        write_file(&path, 5 * PAGE - 1).unwrap();
        for source in [Source::Anonymous, Source::File(path.clone())] {
            let region = Region::map(&source, 5 * PAGE - 1).unwrap();
            assert_eq!(region.pages(), 5);
            assert_eq!(region.check(2, 0), source != Source::Anonymous, "a file is full");
            region.fill(4, 9);
            assert!(region.check(4, 9) && !region.check(4, 8) && !region.check(3, 1));
            assert_ne!(region.touch(4), 0);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_library_that_is_none_is_named() {
        let file = std::env::temp_dir().join(format!("odfork-umap-{}", std::process::id()));
        write_file(&file, PAGE).unwrap();
        let source = Source::Umap { library: "/no/libumap.so".into(), file: file.clone() };
        let error = Region::map(&source, PAGE).unwrap_err().to_string();
        // A file system without O_DIRECT says so first.
        assert!(error.contains("/no/libumap.so") || error.contains("odfork-umap"), "{error}");
        std::fs::remove_file(file).unwrap();
    }
}
