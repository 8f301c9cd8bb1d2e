//! Program code that calls the kernel past the C library: which was searched, and the search. Pure.
//!
//! Owns what is remembered of each object's code, and the pattern looked for: an instruction that
//! enters the kernel, shortly after one that loads the number (`instructions/`). Of madvise and
//! mremap no frozen memory may hear; of [`UNFIT`] none that is live. Code that keeps the number in
//! a variable is not found.

use crate::instructions::{next_call, numbers};
use crate::sys::abi::calls as old;

/// Objects whose code is remembered as searched; the code of more is searched again.
pub const MAX_OBJECTS: usize = 1024;

/// Bytes before an instruction that enters the kernel in which its number is looked for.
pub const BEFORE: usize = 40;

/// A mapping of code; `end` moves on while it is searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Code {
    pub start: usize,
    pub end: usize,
    pub inode: u64,
}

/// How far each mapping of code was searched.
pub struct Searched {
    objects: [Code; MAX_OBJECTS],
    count: usize,
}

impl Searched {
    /// Nothing yet.
    pub const fn new() -> Self {
        let nothing = Code { start: 0, end: 0, inode: 0 };
        Searched { objects: [nothing; MAX_OBJECTS], count: 0 }
    }

    /// All of it has to be searched again.
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// Where to go on in that mapping: its start if it is not known.
    pub fn reached(&self, code: &Code) -> usize {
        let known = self.objects[..self.count].iter();
        let same = |o: &&Code| o.start == code.start && o.inode == code.inode;
        known.rev().find(same).map_or(code.start, |o| o.end.min(code.end))
    }

    /// A mapping was searched up to `end`. What was known of its addresses is forgotten.
    pub fn note(&mut self, code: Code) {
        let mut i = 0;
        while i < self.count {
            let old = self.objects[i];
            if old.start < code.end && old.end > code.start || old.start == code.start {
                self.count -= 1;
                self.objects[i] = self.objects[self.count];
            } else {
                i += 1;
            }
        }
        if let Some(slot) = self.objects.get_mut(self.count) {
            *slot = code;
            self.count += 1;
        }
    }
}

/// The C library and loader (their calls are known), and ourselves: code that is not searched.
pub fn is_known(path: &[u8]) -> bool {
    let file = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    // Before glibc 2.34 the files are called libc-2.31.so and ld-2.31.so.
    [&b"libc.so"[..], b"libc-2", b"ld-linux", b"ld-2", b"libodfork", b"libpthread"]
        .iter()
        .any(|k| file.starts_with(k))
}

/// Calls by which the kernel keeps pages beyond their mappings.
const KEEPING: [i64; 2] = [libc::SYS_vmsplice, libc::SYS_io_uring_setup];

/// Calls that copy the process, change mappings, pin memory or wait on a word of it.
const UNFIT: [i64; 18] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_clone,
    libc::SYS_clone3,
    old::SYS_fork,
    libc::SYS_shmat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mbind,
    libc::SYS_mseal,
    libc::SYS_pkey_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_process_madvise,
    libc::SYS_io_setup,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
];

/// What code does past the C library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unseen {
    Nothing,
    /// Calls that live memory must not meet.
    Unfit,
    /// The same, and no file may be overwritten any more.
    Keeps,
    /// Calls that no frozen memory may meet.
    Gives,
}

/// The worst that the code does.
pub fn unseen(code: &[u8]) -> Unseen {
    let (mut from, mut worst) = (0, Unseen::Nothing);
    while let Some(at) = next_call(code, from) {
        let before = &code[at.saturating_sub(BEFORE)..at];
        worst = numbers(before).map(kind).fold(worst, Unseen::max);
        if worst == Unseen::Gives {
            break;
        }
        from = at + 1;
    }
    worst
}

fn kind(call: i64) -> Unseen {
    match call {
        libc::SYS_mremap | libc::SYS_madvise => Unseen::Gives,
        number if KEEPING.contains(&number) => Unseen::Keeps,
        number if UNFIT.contains(&number) => Unseen::Unfit,
        _ => Unseen::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searched_code_is_known_by_place_size_and_file() {
        let mut searched = Searched::new();
        let code = Code { start: 0x1000, end: 0x9000, inode: 7 };
        assert_eq!(searched.reached(&code), 0x1000);
        searched.note(Code { end: 0x5000, ..code });
        assert_eq!(searched.reached(&code), 0x5000);
        assert_eq!(searched.reached(&Code { inode: 8, ..code }), 0x1000);
        assert_eq!(searched.reached(&Code { end: 0x2000, ..code }), 0x2000);
        searched.note(code);
        assert_eq!((searched.reached(&code), searched.count), (0x9000, 1));
        searched.note(Code { start: 0x8000, end: 0xa000, inode: 9 });
        assert_eq!((searched.reached(&code), searched.count), (0x1000, 1));
        (0..2 * MAX_OBJECTS).for_each(|i| {
            searched.note(Code { start: i << 20, end: (i << 20) + 1, inode: 1 });
        });
        assert_eq!(searched.count, MAX_OBJECTS);
    }

    #[test]
    fn known_code_is_known_by_its_file() {
        assert!(is_known(b"/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(is_known(b"/lib64/ld-linux-x86-64.so.2"));
        assert!(is_known(b"/lib/x86_64-linux-gnu/libc-2.31.so") && is_known(b"/lib/ld-2.31.so"));
        assert!(!is_known(b"/usr/lib/libcurl.so.4") && !is_known(b"/usr/bin/python3"));
    }
}
