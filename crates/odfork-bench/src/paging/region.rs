//! The memory of the workload: anonymous, a mapped file, or a region of the umap library if the
//! user has one.
//!
//! Owns how it is obtained, and the one place where its pages are touched.

use std::ffi::{c_int, c_void, CString};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use super::page::{self, PAGE, WORDS};
use crate::mapping::Mapping;

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

/// Pages by number. Threads may read the same page; whoever writes is alone (the workload sees to
/// it).
#[derive(Debug)]
pub struct Region {
    base: *mut [u64; WORDS],
    pages: u64,
    /// None: the library's, which stays until the process ends.
    _mapping: Option<Mapping>,
}

// SAFETY: plain memory; the workload lets threads read only (see the type).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

type Umap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

impl Region {
    /// Maps `bytes`, rounded up to whole pages.
    pub fn map(source: &Source, bytes: u64) -> Result<Region> {
        let pages = bytes.div_ceil(PAGE).max(1);
        let bytes = pages * PAGE;
        let mapping = match source {
            Source::Anonymous => Mapping::anonymous(bytes),
            Source::File(path) => Mapping::of_file(&open(path, 0)?, bytes),
            Source::Umap { library, file } => {
                let base = umap(library, bytes as usize, open(file, libc::O_DIRECT)?)?;
                return Ok(Region { base: base.cast(), pages, _mapping: None });
            }
        };
        let mapping = mapping.with_context(|| {
            format!("{} MB cannot be mapped; take a smaller --region", bytes >> 20)
        })?;
        Ok(Region { base: mapping.base().cast(), pages, _mapping: Some(mapping) })
    }

    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn page(&self, number: u64) -> *mut [u64; WORDS] {
        assert!(number < self.pages, "page {number} of {}", self.pages);
        // SAFETY: inside the mapping, which lives as long as `self`.
        unsafe { self.base.add(number as usize) }
    }

    /// Whether the page holds its content of that version.
    pub fn check(&self, number: u64, version: u8) -> bool {
        // SAFETY: readable memory; nobody writes it meanwhile (see the type). Files are ours alone.
        page::holds(unsafe { &*self.page(number) }, number, version)
    }

    pub fn fill(&self, number: u64, version: u8) {
        // SAFETY: writable memory, and the writer is alone.
        page::write(unsafe { &mut *self.page(number) }, number, version);
    }

    /// Reads one word: what a fault costs, and no more.
    pub fn touch(&self, number: u64) -> u64 {
        // SAFETY: readable memory; volatile, so that the read happens.
        unsafe { self.page(number).cast::<u64>().read_volatile() }
    }
}

fn open(path: &Path, flags: c_int) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.with_context(|| {
        format!("cannot open {}; name another folder with --store-dir", path.display())
    })
}

/// A file of `bytes`, rounded up to pages, that hold version 0 and are on disk, not in memory.
pub fn write_file(path: &Path, bytes: u64) -> Result<()> {
    let pages = bytes.div_ceil(PAGE).max(1);
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        let mut page = [0; WORDS];
        for number in 0..pages {
            page::write(&mut page, number, 0);
            page.iter().try_for_each(|word| out.write_all(&word.to_ne_bytes()))?;
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    };
    write().with_context(|| {
        let (megabytes, path) = (pages >> 8, path.display());
        format!("cannot write {megabytes} MB to {path}; name another folder with --store-dir")
    })
}

/// The region stays, and with it the descriptor.
fn umap(library: &Path, length: usize, file: File) -> Result<*mut c_void> {
    let name = CString::new(library.as_os_str().as_bytes())?;
    // SAFETY: a valid name; the library's constructors are its own business, the user named it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: a valid handle and name, or no call.
    let symbol =
        if handle.is_null() { handle } else { unsafe { libc::dlsym(handle, c"umap".as_ptr()) } };
    if symbol.is_null() {
        bail!(
            "{} cannot be loaded or has no function umap; build umap 2 and give the folder of \
             libumap.so",
            library.display()
        );
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let file = file.into_raw_fd();
    // SAFETY: the C function of umap.h: (addr, length, prot, flags, fd, offset), as mmap.
    let base = unsafe {
        let umap: Umap = std::mem::transmute::<*mut c_void, Umap>(symbol);
        umap(std::ptr::null_mut(), length, protection, libc::MAP_PRIVATE, file, 0)
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
