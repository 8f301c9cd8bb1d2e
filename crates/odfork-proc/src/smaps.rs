//! Mappings with what they hold: `/proc/PID/smaps`.
//!
//! Owns parsing only: which of it counts, and for what, is the caller's business. Reading the file
//! walks the page tables of the whole process, so it takes about as long as a fork of it.

use std::fmt::Display;
use std::fs;
use std::io::Result;

use crate::maps::Mapping;

/// One mapping and its lines. A line that is not there counts as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The mapping.
    pub mapping: Mapping,
    /// Bytes in memory (`Rss`).
    pub resident: u64,
    /// Of these, bytes of anonymous memory and of pages copied on write.
    pub anonymous: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Anonymous memory mapped by 2 MB entries.
    pub huge: u64,
    /// File or shared memory mapped by 2 MB entries.
    pub file_huge: u64,
    /// Its memory protection key; 0 is everybody's.
    pub protection_key: u64,
    /// The two-letter words of the line `VmFlags`; `None` without the line.
    pub flags: Option<Vec<String>>,
}

impl Usage {
    /// Whether `VmFlags` has this word.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.as_ref().is_some_and(|flags| flags.iter().any(|have| have == flag))
    }

    /// Anonymous bytes, in memory or swapped.
    pub fn content(&self) -> u64 {
        self.anonymous.saturating_add(self.swapped)
    }

    /// Watched by a userfaultfd: what is not there may be elsewhere.
    pub fn is_watched(&self) -> bool {
        ["um", "uw", "ui"].iter().any(|flag| self.has(flag))
    }

    fn detail(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(':') else { return };
        let number: u64 =
            value.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let bytes = number.saturating_mul(1024);
        match key {
            "Rss" => self.resident = bytes,
            "Anonymous" => self.anonymous = bytes,
            "Swap" => self.swapped = bytes,
            "AnonHugePages" => self.huge = bytes,
            "FilePmdMapped" | "ShmemPmdMapped" => {
                self.file_huge = self.file_huge.saturating_add(bytes)
            }
            "ProtectionKey" => self.protection_key = number,
            "VmFlags" => self.flags = Some(value.split_whitespace().map(str::to_owned).collect()),
            _ => {}
        }
    }
}

/// All mappings of a process; its number, or `self`.
///
/// # Errors
/// The process is gone, or is none that this user may look into.
pub fn of_process(pid: impl Display) -> Result<Vec<Usage>> {
    // Names of files may be no UTF-8.
    let text = fs::read(format!("/proc/{pid}/smaps"))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Lines before the first mapping, and lines nobody knows, are left out.
pub fn parse(text: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = Vec::new();
    for line in text.lines() {
        match (Mapping::parse(line), all.last_mut()) {
            (Some(mapping), _) => all.push(Usage { mapping, ..Usage::default() }),
            (None, Some(last)) => last.detail(line),
            (None, None) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_belong_to_the_mapping_above_them() {
        let text = "Rss: 9 kB\n\
            1000-3000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonymous: 4 kB\nSwap: 2 kB\n\
            ShmemPmdMapped: 2048 kB\nFilePmdMapped: 2048 kB\nVmFlags: rd wr ui\n\
            5000-6000 rw-p 00000000 00:00 0   [heap]\nProtectionKey: 3\nodd\n";
        let all = parse(text);
        assert_eq!((all.len(), all[0].mapping.bytes()), (2, 8192));
        assert_eq!((all[0].resident, all[0].anonymous, all[0].swapped), (8192, 4096, 2048));
        assert_eq!((all[0].file_huge, all[1].protection_key), (4 << 20, 3));
        assert!(all[0].is_watched() && all[0].has("wr") && !all[1].is_watched());
        assert_eq!((all[1].resident, all[1].flags.is_none()), (0, true));
    }

    #[test]
    fn this_process_has_content() {
        let all = of_process(std::process::id() as i32).unwrap();
        assert!(all.iter().any(|usage| usage.anonymous > 0 && usage.has("rd")));
        assert!(of_process(-1).is_err());
    }
}
