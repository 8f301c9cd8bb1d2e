//! Memory with a known pattern, files to save it to, and children to touch it in.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use odfork_image::{reserve, save, Codec, Image, Process, Region, SaveOptions, Saved, PAGE};

pub const RW: u32 = 3;

/// Some pages: zeros, noise, and text-like ones that pack well; seeded by their number.
pub fn page(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    match seed % 5 {
        0 => vec![0; PAGE],
        1 | 2 => (0..PAGE / 8).flat_map(|_| next().to_le_bytes()).collect(),
        _ => (0..PAGE)
            .map(|at| b"node: key, value; "[at % 18] ^ (at / 1024) as u8 ^ seed as u8)
            .collect(),
    }
}

/// Memory of our own, unmapped when dropped.
pub struct Built {
    pub at: *mut u8,
    pub bytes: usize,
}

impl Built {
    pub fn new(pages: usize) -> Built {
        let bytes = pages * PAGE;
        Built { at: reserve(bytes).unwrap(), bytes }
    }

    /// With pages `seed`, `seed + 1` ...
    pub fn filled(pages: usize, seed: u64) -> Built {
        let mut built = Built::new(pages);
        for at in 0..pages {
            // Pages of zeros stay untouched, but for some.
            let page = page(seed + at as u64);
            if (seed + at as u64) % 10 != 0 {
                built.memory()[at * PAGE..][..PAGE].copy_from_slice(&page);
            }
        }
        built
    }

    pub fn memory(&mut self) -> &mut [u8] {
        // SAFETY: ours, mapped, writable.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    pub fn region(&self, name: &str) -> Region {
        Region {
            name: name.to_owned(),
            address: self.at as u64,
            bytes: self.bytes as u64,
            prot: RW,
        }
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody refers to it.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

/// A folder for files, and the right to the addresses that `reserve` gives: tests that save and
/// load go one by one.
pub struct Folder(pub tempfile::TempDir, Option<MutexGuard<'static, ()>>);

static ADDRESSES: Mutex<()> = Mutex::new(());

impl Folder {
    pub fn new() -> Folder {
        let turn = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        Folder(tempfile::tempdir().unwrap(), Some(turn))
    }

    /// For a test that has its turn already.
    pub fn another() -> Folder {
        Folder(tempfile::tempdir().unwrap(), None)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

pub fn options<'a>(codec: Codec, cluster_pages: u32) -> SaveOptions<'a> {
    SaveOptions { codec, cluster_pages, sync: false, ..SaveOptions::default() }
}

pub fn save_own(path: &Path, regions: &[Region], options: SaveOptions) -> Saved {
    save(path, &mut Process::this().unwrap(), regions, options).unwrap()
}

/// An image of so many pages from `seed` on; the memory is given back.
pub fn image(path: &Path, pages: usize, seed: u64, options: SaveOptions) -> Region {
    let built = Built::filled(pages, seed);
    let region = built.region("state");
    save_own(path, std::slice::from_ref(&region), options);
    region
}

/// # Panics
/// When the memory is not the pages from `seed` on.
pub fn expect(at: *const u8, pages: usize, seed: u64) {
    for n in 0..pages {
        expect_page(at, n, &page(seed + n as u64));
    }
}

pub fn expect_page(at: *const u8, n: usize, content: &[u8]) {
    // SAFETY: mapped by the caller.
    let found = unsafe { std::slice::from_raw_parts(at.add(n * PAGE), PAGE) };
    assert!(found == content, "page {n} differs");
}

pub fn open(path: &Path) -> Image {
    Image::open(path).unwrap()
}

/// Runs in a forked child; its wait status. The closure may only touch memory.
pub fn in_child(raw: bool, act: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child touches memory and leaves by _exit.
    unsafe {
        let pid = if raw {
            libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32
        } else {
            libc::fork()
        };
        assert!(pid >= 0);
        if pid == 0 {
            let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &limit);
            for signal in [libc::SIGBUS, libc::SIGSEGV] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::_exit(if act() { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    }
}

/// Runs one test of this program in a process of its own, which knows by the variable.
pub fn run_alone(test: &str, variable: &str, value: impl AsRef<OsStr>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(variable, value).output().unwrap()
}

/// True when userfaultfd can be had; else says what is skipped.
pub fn can_fault(test: &str) -> bool {
    // SAFETY: flags only; a descriptor that is ours.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if fd >= 0 {
        // SAFETY: ours.
        unsafe { libc::close(fd as i32) };
        return true;
    }
    eprintln!("skipped: {test}: userfaultfd is forbidden here");
    false
}
