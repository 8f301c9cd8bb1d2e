//! `/proc/PID/status` and the sums of `/proc/PID/smaps_rollup`, as far as fork is concerned.
//!
//! Owns parsing, and the `Key: value` lines that many files of `/proc` have. A line that is not
//! there, or cannot be read, counts as zero.

use std::fs;

use serde::{Deserialize, Serialize};

/// What anybody may read of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the task, at most 15 bytes.
    pub name: String,
    /// "S (sleeping)"
    pub state: String,
    /// Its process (`Tgid`).
    pub process: i32,
    /// Its parent (`PPid`).
    pub parent: i32,
    /// Who traces it; 0 for nobody.
    pub tracer: i32,
    /// Its real user id.
    pub user_id: u32,
    /// Threads of the process.
    pub threads: u64,
    /// Bytes of address space (`VmSize`).
    pub mapped: u64,
    /// Bytes in memory (`VmRSS`).
    pub resident: u64,
    /// Of these, bytes of anonymous memory.
    pub anonymous: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Bytes of its page tables, which fork copies (`VmPTE`).
    pub page_tables: u64,
    /// No VmSize line: a kernel thread or a zombie.
    pub has_memory: bool,
    /// It has CAP_SYS_PTRACE, which userfaultfd asks for.
    pub may_userfaultfd: bool,
    /// A filter of system calls is on it.
    pub filtered: bool,
}

/// The trimmed value of the first line of this key.
pub fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

/// The number of a `Key:  123 kB` line in bytes.
pub fn bytes_of(text: &str, key: &str) -> u64 {
    number_of(text, key).saturating_mul(1024)
}

fn number_of(text: &str, key: &str) -> u64 {
    word_of(text, key).parse().unwrap_or(0)
}

fn word_of<'a>(text: &'a str, key: &str) -> &'a str {
    value_of(text, key).and_then(|value| value.split_whitespace().next()).unwrap_or("")
}

/// A userfaultfd that catches faults of the kernel needs this capability.
const CAP_SYS_PTRACE: u32 = 19;

impl Status {
    /// `None` when there is no such task.
    pub fn of_process(pid: i32) -> Option<Status> {
        // A name may be no UTF-8.
        let bytes = fs::read(format!("/proc/{pid}/status")).ok()?;
        Some(Status::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Reads the text of `/proc/PID/status`.
    pub fn parse(text: &str) -> Status {
        let effective = u64::from_str_radix(word_of(text, "CapEff"), 16).unwrap_or(0);
        Status {
            name: value_of(text, "Name").unwrap_or("").to_owned(),
            state: value_of(text, "State").unwrap_or("").to_owned(),
            process: number_of(text, "Tgid") as i32,
            parent: number_of(text, "PPid") as i32,
            tracer: number_of(text, "TracerPid") as i32,
            user_id: number_of(text, "Uid") as u32,
            threads: number_of(text, "Threads"),
            mapped: bytes_of(text, "VmSize"),
            resident: bytes_of(text, "VmRSS"),
            anonymous: bytes_of(text, "RssAnon"),
            swapped: bytes_of(text, "VmSwap"),
            page_tables: bytes_of(text, "VmPTE"),
            has_memory: value_of(text, "VmSize").is_some(),
            may_userfaultfd: effective >> CAP_SYS_PTRACE & 1 == 1,
            filtered: number_of(text, "Seccomp") == 2,
        }
    }

    /// It has ended and was not waited for.
    pub fn is_zombie(&self) -> bool {
        self.state.starts_with('Z') || self.state.starts_with('X')
    }
}

/// Sums over all mappings of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rollup {
    /// Bytes in memory.
    pub resident: u64,
    /// Of these, bytes of anonymous memory and of pages copied on write.
    pub anonymous: u64,
    /// Of these, bytes mapped by 2 MB entries.
    pub huge: u64,
    /// Bytes in swap.
    pub swapped: u64,
}

impl Rollup {
    /// Walks the page tables, so it takes about as long as a fork.
    pub fn of_process(pid: i32) -> Option<Rollup> {
        Rollup::parse(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
    }

    /// `None` for a text without the sums (a process without memory).
    pub fn parse(text: &str) -> Option<Rollup> {
        value_of(text, "Rss")?;
        Some(Rollup {
            resident: bytes_of(text, "Rss"),
            anonymous: bytes_of(text, "Anonymous"),
            huge: bytes_of(text, "AnonHugePages"),
            swapped: bytes_of(text, "Swap"),
        })
    }
}

/// Bytes that a process holds, each shared page by its share; `None` without a right to look.
pub fn proportional(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    value_of(&text, "Pss").map(|_| bytes_of(&text, "Pss"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tredis server\nUmask:\t0022\nState:\tS \
                          (sleeping)\nTgid:\t4711\nPid:\t4711\nPPid:\t1\n\
        TracerPid:\t0\nUid:\t1000\t0\t0\t0\nVmPeak:\t 2000000 kB\nVmSize:\t 1900000 kB\nVmRSS:\t \
                          1060000 kB\n\
        RssAnon:\t 1050000 kB\nRssFile:\t  10000 kB\nVmPTE:\t    2108 kB\nVmSwap:\t      4 \
                          kB\nThreads:\t5\n\
                          CapEff:\t0000000000080000\nSeccomp:\t2\n";

    #[test]
    fn status_is_read() {
        let status = Status::parse(STATUS);
        assert_eq!(
            (status.name.as_str(), status.process, status.parent),
            ("redis server", 4711, 1)
        );
        assert_eq!((status.anonymous, status.swapped), (1_050_000 * 1024, 4096));
        assert_eq!((status.page_tables, status.threads, status.user_id), (2108 * 1024, 5, 1000));
        assert!(status.has_memory && status.may_userfaultfd && status.filtered);
        let kernel = Status::parse("Name:\tkthreadd\nState:\tS (sleeping)\nPid:\t2\nThreads:\t1\n");
        assert!(!kernel.has_memory && !kernel.may_userfaultfd && !kernel.is_zombie());
        assert!(Status::parse("State:\tZ (zombie)\n").is_zombie());
    }

    #[test]
    fn the_rollup_is_read_and_an_empty_one_is_none() {
        let text = "7ffe-7fff ---p 00000000 00:00 0  [rollup]\nRss:  1058000 kB\nPss: 1 \
                    kB\nPss_Anon: 9 kB\n\
            Anonymous:   1050624 kB\nAnonHugePages:  1048576 kB\nSwap:   8 kB\nSwapPss: 8 kB\n";
        let sums = Rollup::parse(text).unwrap();
        assert_eq!((sums.anonymous, sums.huge, sums.swapped), (1_050_624 << 10, 1 << 30, 8192));
        assert_eq!(Rollup::parse(""), None);
    }
}
