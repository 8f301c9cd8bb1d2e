//! The mappings of a process as /proc/PID/maps lists them, and which of them are private memory.
//!
//! Owns: parsing, names for people, and the rule of what is looked at. Knows nothing of pages.
//! The rule: what fork has to keep apart. Shared mappings stay shared, so their writes are none of a fork's cost; the
//! kernel's own mappings ([vvar], [vdso]) are the same in every process.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub writable: bool,
    private: bool,
    offset: u64,
    inode: u64,
    /// Path or [name]; empty for anonymous memory.
    pub label: String,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?.as_bytes();
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            writable: permissions.get(1) == Some(&b'w'),
            private: permissions.get(3) == Some(&b'p'),
            offset,
            inode,
            label: words.next().unwrap_or("").trim_start().to_owned(),
        })
    }

    /// Whether a fork keeps its pages apart.
    fn counts(&self) -> bool {
        self.private && !self.label.starts_with("[v")
    }

    pub fn of_file(&self) -> bool {
        self.inode != 0
    }

    /// "anonymous", "[heap]", "libpython3.11.so.1.0 .data".
    pub fn name(&self) -> String {
        if self.label.is_empty() {
            return "anonymous".into();
        }
        if !self.of_file() {
            return self.label.clone();
        }
        let file = Path::new(&self.label)
            .file_name()
            .map_or_else(|| self.label.clone(), |name| name.to_string_lossy().into_owned());
        if self.writable {
            format!("{file} (private data)")
        } else {
            format!("{file} (read-only data)")
        }
    }

    /// Where the file holds the page at `address`.
    pub fn file_offset(&self, address: u64) -> u64 {
        self.offset + (address - self.start)
    }

    /// The file behind the mapping, if it is still the one that was mapped.
    pub fn open(&self, pid: i32) -> Option<File> {
        if !self.of_file() {
            return None;
        }
        let path = PathBuf::from(format!("/proc/{pid}/root{}", self.label));
        let about = fs::metadata(&path).ok()?;
        (about.is_file() && about.ino() == self.inode).then(|| File::open(&path).ok())?
    }
}

/// The private mappings of a process, in rising order.
pub fn private_mappings(pid: i32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let text = fs::read(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(Mapping::parse).filter(Mapping::counts).collect()
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
";

    #[test]
    fn private_mappings_are_kept_with_their_names() {
        let found = parse(TEXT);
        let names: Vec<String> = found.iter().map(Mapping::name).collect();
        assert_eq!(
            names,
            ["a program (read-only data)", "a program (private data)", "[heap]", "anonymous"]
        );
        assert_eq!(found[1].file_offset(0x55d0_c000), 0x3000);
        assert_eq!((found[0].writable, found[1].writable), (false, true));
        assert!(!found[2].of_file() && found[2].open(1).is_none());
    }

    #[test]
    fn this_process_has_a_stack_and_a_file_of_its_own() {
        let pid = std::process::id() as i32;
        let found = private_mappings(pid).unwrap();
        assert!(found.iter().any(|m| m.label == "[stack]"));
        assert!(found.iter().any(|m| m.open(pid).is_some()));
        assert!(private_mappings(-1).is_err());
    }
}
