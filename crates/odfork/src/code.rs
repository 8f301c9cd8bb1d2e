//! Program code that calls the kernel past the C library: which was searched, and the search. Pure.
//!
//! Owns what is remembered of each object's code, and the pattern looked for: a `syscall`
//! instruction shortly after `mov $number, %eax`. Of madvise and mremap no frozen memory may hear;
//! of [`UNFIT`] none that is live. Code that keeps the number in a variable is not found.

/// Objects whose code is remembered as searched; the code of more is searched again.
pub const MAX_OBJECTS: usize = 1024;

/// Bytes before a `syscall` instruction in which its number is looked for.
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

/// Calls that copy the process, change mappings, pin memory or wait on a word of it.
const UNFIT: [i64; 20] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_shmat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mbind,
    libc::SYS_mseal,
    libc::SYS_pkey_mprotect,
    libc::SYS_remap_file_pages,
    libc::SYS_process_madvise,
    libc::SYS_vmsplice,
    libc::SYS_io_setup,
    libc::SYS_io_uring_setup,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
];

/// What code does past the C library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unseen {
    Nothing,
    /// Calls that live memory must not meet.
    Unfit,
    /// Calls that no frozen memory may meet.
    Gives,
}

/// The worst that the code does.
pub fn unseen(code: &[u8]) -> Unseen {
    let (mut from, mut worst) = (0, Unseen::Nothing);
    while let Some(at) = next_syscall(code, from) {
        for words in code[at.saturating_sub(BEFORE)..at].windows(5) {
            worst = worst.max(loads(words));
        }
        if worst == Unseen::Gives {
            break;
        }
        from = at + 1;
    }
    worst
}

/// Which kind of call an instruction prepares.
fn loads(words: &[u8]) -> Unseen {
    let [0xb8 | 0xc0, low, high, 0, 0] = *words else { return Unseen::Nothing };
    match i64::from(u16::from_le_bytes([low, high])) {
        libc::SYS_mremap | libc::SYS_madvise => Unseen::Gives,
        number if UNFIT.contains(&number) => Unseen::Unfit,
        _ => Unseen::Nothing,
    }
}

/// The next `0f 05`, 16 bytes at a time.
fn next_syscall(code: &[u8], mut at: usize) -> Option<usize> {
    use core::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    while at + 17 <= code.len() {
        // SAFETY: SSE2 is in every x86-64; 17 bytes are there from `at` on.
        let found = unsafe {
            let (first, second) = (_mm_set1_epi8(0x0f), _mm_set1_epi8(0x05));
            let here = _mm_loadu_si128(code.as_ptr().add(at).cast());
            let next = _mm_loadu_si128(code.as_ptr().add(at + 1).cast());
            let both = _mm_and_si128(_mm_cmpeq_epi8(here, first), _mm_cmpeq_epi8(next, second));
            _mm_movemask_epi8(both)
        };
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += 16;
    }
    let rest = code.get(at..)?.windows(2).position(|w| w == [0x0f, 0x05])?;
    Some(at + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADVISE: [u8; 7] = [0xb8, 28, 0, 0, 0, 0x0f, 0x05];

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes there")]
    fn a_call_is_found_wherever_it_is() {
        for len in 7..120 {
            for at in 0..=len - 7 {
                let mut code = vec![0x90u8; len];
                code[at..at + 7].copy_from_slice(&MADVISE);
                assert_eq!(unseen(&code), Unseen::Gives, "{at} of {len}");
                code[at + 1] = 29;
                assert_eq!(unseen(&code), Unseen::Nothing, "{at} of {len}");
            }
        }
    }

    #[test]
    fn the_number_may_stand_a_little_before() {
        let mut code = vec![0x0fu8; 100];
        code[..5].copy_from_slice(&MADVISE[..5]);
        code[BEFORE + 1] = 0x05;
        assert_eq!(unseen(&code), Unseen::Gives);
        code[BEFORE + 1] = 0x0f;
        code[BEFORE + 2] = 0x05;
        assert_eq!(unseen(&code), Unseen::Nothing);
    }

    #[test]
    fn the_worst_call_is_told() {
        let fork = [0xb8, 57, 0, 0, 0, 0x0f, 0x05];
        let clone3 = [0x48, 0xc7, 0xc0, 0xb3, 0x01, 0, 0, 0x0f, 0x05];
        assert_eq!((unseen(&fork), unseen(&clone3)), (Unseen::Unfit, Unseen::Unfit));
        assert_eq!(unseen(&[&fork[..], &[0x90; 50], &MADVISE].concat()), Unseen::Gives);
        assert_eq!(unseen(&[&MADVISE[..], &[0x90; 50], &fork].concat()), Unseen::Gives);
    }

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
