//! The mappings of a process, as `/proc/PID/maps` lists them.
//!
//! Owns parsing, names for people, and which mappings a fork keeps apart. Sizes and flags of a
//! mapping are in [`smaps`](crate::smaps), its pages in [`pagemap`](crate::pagemap).
//!
//! An own parser, not the `procfs` crate: that one gives up the whole file at one line it does not
//! know, and drops every flag of memory that it has no name for (userfaultfd's `ui`, those of new
//! kernels), while here an unknown flag has to count as a reason against freezing.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// `PROT_` bits.
    pub prot: u32,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Major and minor number.
    pub device: (u32, u32),
    /// Number of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Path or `[name]`, as the kernel writes it; empty for anonymous memory.
    pub name: String,
}

impl Mapping {
    /// `start-end perms offset major:minor inode   name`; `None` for a line of another kind.
    pub fn parse(line: &str) -> Option<Mapping> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            word
        };
        let (start, end) = word().split_once('-')?;
        let access = word().as_bytes();
        let offset = hex(word())?;
        let (major, minor) = word().split_once(':')?;
        let inode = word().parse().ok()?;
        if access.len() != 4 {
            return None;
        }
        let bit = |at: usize, letter: u8, bit: i32| (access[at] == letter) as u32 * bit as u32;
        let prot = bit(0, b'r', libc::PROT_READ)
            | bit(1, b'w', libc::PROT_WRITE)
            | bit(2, b'x', libc::PROT_EXEC);
        Some(Mapping {
            start: hex(start)?,
            end: hex(end).filter(|&end| Some(end) >= hex(start))?,
            prot,
            shared: access[3] == b's',
            offset,
            device: (hex(major)? as u32, hex(minor)? as u32),
            inode,
            name: rest.trim_start().to_owned(),
        })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.prot & libc::PROT_WRITE as u32 != 0
    }

    /// Memory of the kernel's own, the same in every process: `[vvar]`, `[vdso]` and the like.
    pub fn is_of_kernel(&self) -> bool {
        ["[vvar", "[vdso", "[vsyscall", "[uprobes"].iter().any(|name| self.name.starts_with(name))
    }

    /// Whether a file is behind it; shared anonymous memory has one.
    pub fn is_of_file(&self) -> bool {
        self.inode != 0
    }

    /// "anonymous", `[heap]`, "libpython3.11.so.1.0 (private data)".
    pub fn title(&self) -> String {
        if self.name.is_empty() {
            return "anonymous".into();
        }
        if !self.is_of_file() {
            return self.name.clone();
        }
        let file = Path::new(&self.name)
            .file_name()
            .map_or_else(|| self.name.clone(), |name| name.to_string_lossy().into_owned());
        let kind = if self.is_writable() { "private data" } else { "read-only data" };
        format!("{file} ({kind})")
    }

    /// Where the file holds the page at `address`.
    pub fn file_offset(&self, address: u64) -> u64 {
        self.offset + (address - self.start)
    }

    /// The file behind the mapping, if it is still the one that was mapped.
    pub fn open(&self, pid: i32) -> Option<File> {
        if !self.is_of_file() {
            return None;
        }
        let path = PathBuf::from(format!("/proc/{pid}/root{}", self.name));
        let about = fs::metadata(&path).ok()?;
        (about.is_file() && about.ino() == self.inode).then(|| File::open(&path).ok())?
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// All mappings of a process (its number, or `self`), in rising order.
///
/// # Errors
/// The process is gone, or is none that this user may look into.
pub fn of_process(pid: impl Display) -> Result<Vec<Mapping>> {
    // Names of files may be no UTF-8.
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// What a fork has to keep apart: shared mappings stay shared, so their writes are none of its
/// cost.
///
/// # Errors
/// As for [`of_process`].
pub fn private_of_process(pid: i32) -> Result<Vec<Mapping>> {
    let mut maps = of_process(pid)?;
    maps.retain(|mapping| !mapping.shared && !mapping.is_of_kernel());
    Ok(maps)
}

/// Lines that are no mapping are left out.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(Mapping::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0a000-55d0b000 r-xp 00001000 fe:00 77                         /usr/bin/a program
55d0b000-55d0d000 rw-p 00002000 fe:00 77                         /usr/bin/a program
55d0d000-55d2e000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000010000 rw-s 00000000 00:05 9                  /dev/zero (deleted)
7f0000010000-7f0000020000 rw-p 00000000 00:00 0 
7ffd0000-7ffd4000 r--p 00000000 00:00 0                          [vvar]
broken line
9000-8000 rw-p 00000000 00:00 0
";

    #[test]
    fn lines_become_mappings_with_their_names() {
        let found = parse(TEXT);
        let names: Vec<String> = found.iter().map(Mapping::title).collect();
        let expected = [
            "a program (read-only data)",
            "a program (private data)",
            "[heap]",
            "zero (deleted) (private data)",
            "anonymous",
            "[vvar]",
        ];
        assert_eq!(names, expected);
        assert_eq!(found[1].file_offset(0x55d0_c000), 0x3000);
        assert_eq!((found[0].prot, found[1].prot, found[0].device), (5, 3, (0xfe, 0)));
        assert_eq!((found[0].is_writable(), found[1].is_writable()), (false, true));
        assert!(found[3].shared && !found[4].shared && found[5].is_of_kernel());
        assert!(!found[2].is_of_file() && found[2].open(1).is_none());
    }

    #[test]
    fn this_process_has_a_stack_and_a_file_of_its_own() {
        let pid = std::process::id() as i32;
        let found = private_of_process(pid).unwrap();
        assert!(found.iter().any(|mapping| mapping.name == "[stack]"));
        assert!(found.iter().any(|mapping| mapping.open(pid).is_some()));
        assert!(found.iter().all(|mapping| !mapping.shared && !mapping.is_of_kernel()));
        assert!(private_of_process(-1).is_err());
    }
}
