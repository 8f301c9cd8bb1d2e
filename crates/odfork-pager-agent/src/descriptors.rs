//! The agent's descriptors inside somebody else's program.
//!
//! They get high numbers, out of the program's way, and are never trusted: a program may close what
//! it does not know. They are compared by inode before they are mapped, written to or closed; an
//! ioctl fails on anything else.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use odfork_sys::{args, call};

use crate::close;

/// Descriptors are moved here and above.
const HIGH_FD: c_int = 700;

/// A descriptor and what it was when we made it: a program may close it, and make another one of
/// the same number.
pub struct KeptFd {
    fd: AtomicI32,
    inode: AtomicU64,
}

impl KeptFd {
    pub const fn none() -> KeptFd {
        KeptFd { fd: AtomicI32::new(-1), inode: AtomicU64::new(0) }
    }

    pub fn keep(&self, fd: c_int) {
        self.fd.store(fd, Relaxed);
        self.inode.store(inode(fd), Relaxed);
    }

    /// The number, whatever it is by now: for calls that fail on anything else.
    pub fn number(&self) -> c_int {
        self.fd.load(Relaxed)
    }

    pub fn inode(&self) -> u64 {
        self.inode.load(Relaxed)
    }

    /// It still is what it was.
    pub fn is_there(&self) -> bool {
        inode(self.number()) == self.inode()
    }

    /// Closes it, if it still is what it was.
    pub fn close(&self) {
        let is_there = self.is_there();
        let fd = self.fd.swap(-1, Relaxed);
        if is_there {
            close(fd);
        }
    }
}

/// What was moved so while notes were made: if it comes to nothing, all of it is closed.
struct Noted {
    is_on: AtomicBool,
    files: [KeptFd; MOST_NOTED],
    count: AtomicUsize,
}

const MOST_NOTED: usize = 24;

static NOTED: Noted = Noted {
    is_on: AtomicBool::new(false),
    files: [const { KeptFd::none() }; MOST_NOTED],
    count: AtomicUsize::new(0),
};

pub fn note(is_on: bool) {
    NOTED.is_on.store(is_on, Relaxed);
}

/// One that was closed, and whose number is another file's by now, is left.
pub fn close_noted() {
    NOTED.files.iter().filter(|file| file.number() >= 0).for_each(KeptFd::close);
}

/// Moves a descriptor out of the program's way, where there is room.
pub fn high(fd: c_int) -> c_int {
    // SAFETY: plain arguments; on failure the descriptor stays where it is.
    let moved = unsafe { call(libc::SYS_fcntl, args![fd, libc::F_DUPFD_CLOEXEC, HIGH_FD]) };
    let fd = match moved {
        Ok(moved) => {
            close(fd);
            moved as c_int
        }
        Err(_) => fd,
    };
    if NOTED.is_on.load(Relaxed) {
        if let Some(place) = NOTED.files.get(NOTED.count.fetch_add(1, Relaxed)) {
            place.keep(fd);
        }
    }
    fd
}

/// A file to read; -1 when it cannot be had.
pub fn open_high(path: &CStr) -> c_int {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    let opened = unsafe { call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), flags, 0]) };
    opened.map_or(-1, |fd| high(fd as c_int))
}

fn inode(fd: c_int) -> u64 {
    // SAFETY: a zeroed stat is a valid buffer.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        match call(libc::SYS_fstat, args![fd, &mut stat]) {
            Ok(_) => stat.st_ino,
            Err(_) => 0,
        }
    }
}
