//! What the text of /proc/PID/{status,smaps_rollup,smaps} says, as values. Pure: no file is opened here.
//!
//! Owns the classes of mappings: what the runtime could freeze and why not the rest. The rule is the runtime's
//! (crates/odfork, vma.rs: `can_freeze`, `HARMLESS`), told once more because the lab reaches the engine only as a user
//! does; a change there is a change here. A line that cannot be read counts as not there.

use std::collections::BTreeMap;

use serde::Serialize;

/// Mappings with less content than this stay anonymous (the runtime's MIN_BYTES).
const MIN_BYTES: u64 = 1 << 20;
pub const PAGE: u64 = 4096;
pub const HUGE: u64 = 2 << 20;

/// /proc/PID/status, as far as fork is concerned. Anybody may read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    pub name: String,
    /// "S (sleeping)"
    pub state: String,
    pub process: i32,
    pub parent: i32,
    pub tracer: i32,
    pub user_id: u32,
    pub threads: u64,
    pub mapped: u64,
    pub resident: u64,
    pub anonymous: u64,
    pub swapped: u64,
    pub page_tables: u64,
    /// No VmSize line: a kernel thread or a zombie.
    pub has_memory: bool,
    pub may_userfaultfd: bool,
    pub filtered: bool,
}

/// The number of a `Key:  123 kB` line in bytes.
fn bytes_of(text: &str, key: &str) -> u64 {
    number_of(text, key).saturating_mul(1024)
}

fn number_of(text: &str, key: &str) -> u64 {
    word_of(text, key).parse().unwrap_or(0)
}

fn word_of<'a>(text: &'a str, key: &str) -> &'a str {
    value_of(text, key).and_then(|value| value.split_whitespace().next()).unwrap_or("")
}

fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value.trim())
}

/// A userfaultfd that catches faults of the kernel needs this capability.
const CAP_SYS_PTRACE: u32 = 19;

impl Status {
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

    pub fn is_zombie(&self) -> bool {
        self.state.starts_with('Z') || self.state.starts_with('X')
    }
}

/// Sums over all mappings: /proc/PID/smaps_rollup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rollup {
    pub resident: u64,
    pub anonymous: u64,
    pub huge: u64,
    pub swapped: u64,
}

impl Rollup {
    /// None for a text without the sums (a process without memory).
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

/// What fork has to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Entries {
    /// Page-table entries of 4 KB pages in private mappings that hold anonymous pages.
    pub small: u64,
    /// Entries that map 2 MB of anonymous memory at once.
    pub huge: u64,
}

impl Entries {
    pub fn of(anonymous: u64, swapped: u64, huge: u64) -> Entries {
        let small = anonymous.saturating_sub(huge).saturating_add(swapped) / PAGE;
        Entries { small, huge: huge / HUGE }
    }

    /// As many as there would be without huge pages.
    pub fn as_small(&self) -> u64 {
        self.small.saturating_add(self.huge.saturating_mul(HUGE / PAGE))
    }

    fn add(&mut self, more: Entries) {
        self.small = self.small.saturating_add(more.small);
        self.huge = self.huge.saturating_add(more.huge);
    }

    pub fn bytes(&self) -> u64 {
        self.as_small().saturating_mul(PAGE)
    }
}

/// The map of a process, summed up: /proc/PID/smaps.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Map {
    pub mappings: u64,
    pub entries: Entries,
    /// What of these entries is in mappings that the runtime would freeze.
    pub freezable: Entries,
    /// Anonymous bytes in mappings that stay, by the reason.
    pub kept: BTreeMap<&'static str, u64>,
    /// libodfork.so is mapped.
    pub loaded: bool,
    /// Mappings that show an image, their length, and their rewritten (anonymous) bytes. What is resident says
    /// nothing: a clean page of an image is mapped when it is next read.
    pub image_mappings: u64,
    pub image_bytes: u64,
    pub image_rewritten: u64,
    /// A mapping by which a device writes to memory: nothing is frozen then.
    pub pinned: bool,
}

/// The runtime keeps pages of an image mapped for itself; they are no frozen memory.
const SEED: u64 = 64 << 10;

/// One mapping while its lines are read.
#[derive(Debug, Default)]
struct Mapping {
    length: u64,
    perms: String,
    device: String,
    inode: u64,
    path: String,
    resident: u64,
    anonymous: u64,
    swapped: u64,
    huge: u64,
    /// File or shared memory mapped by 2 MB entries, which fork leaves out.
    file_huge: u64,
    key: u64,
    flags: Option<Vec<String>>,
}

const HARMLESS: [&str; 13] =
    ["rd", "wr", "mr", "mw", "me", "ac", "nr", "hg", "nh", "sd", "ms", "um", "uw"];
const RINGS: [&str; 5] =
    ["/[aio]", "anon_inode:[io_uring]", "/dev/infiniband", "/dev/vfio", "anon_inode:kvm"];

impl Map {
    pub fn parse(text: &str) -> Map {
        let (mut map, mut open) = (Map::default(), None);
        for line in text.lines() {
            match Mapping::head(line) {
                Some(head) => {
                    if let Some(done) = open.replace(head) {
                        map.add(&done);
                    }
                }
                None => {
                    if let Some(mapping) = open.as_mut() {
                        mapping.detail(line);
                    }
                }
            }
        }
        if let Some(done) = open {
            map.add(&done);
        }
        map
    }

    pub fn is_frozen(&self) -> bool {
        self.image_mappings > 0
    }

    fn add(&mut self, mapping: &Mapping) {
        self.mappings += 1;
        self.pinned |= RINGS.iter().any(|ring| mapping.path.starts_with(ring));
        self.loaded |= mapping.path.contains("/libodfork.so");
        if mapping.shows_image() && mapping.length > SEED {
            self.image_mappings += 1;
            self.image_bytes = self.image_bytes.saturating_add(mapping.length);
            self.image_rewritten = self.image_rewritten.saturating_add(mapping.anonymous);
        }
        let entries = mapping.copied();
        self.entries.add(entries);
        let content = mapping.content();
        match mapping.why_kept(content) {
            None => self.freezable.add(entries),
            Some(why) if content > 0 => {
                let kept = self.kept.entry(why).or_default();
                *kept = kept.saturating_add(content);
            }
            Some(_) => {}
        }
    }
}

impl Mapping {
    /// `start-end perms offset major:minor inode path`
    fn head(line: &str) -> Option<Mapping> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let length = hex(end)?.checked_sub(hex(start)?)?;
        let perms = words.next().filter(|perms| perms.len() == 4)?.to_owned();
        hex(words.next()?)?;
        let device = words.next()?.to_owned();
        let inode = words.next()?.parse().ok()?;
        let path = words.collect::<Vec<_>>().join(" ");
        Some(Mapping { length, perms, device, inode, path, ..Mapping::default() })
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
            "ShmemPmdMapped" | "FilePmdMapped" => {
                self.file_huge = self.file_huge.saturating_add(bytes)
            }
            "ProtectionKey" => self.key = number,
            "VmFlags" => {
                self.flags = Some(value.split_whitespace().map(str::to_owned).collect());
            }
            _ => {}
        }
    }

    fn shows_image(&self) -> bool {
        let private = self.perms.ends_with('p');
        // A file of the runtime's own tmpfs, which is mounted nowhere, has no name but its number.
        let unnamed = self.device.starts_with("00:")
            && self.path.strip_prefix("/#").is_some_and(|rest| {
                rest.strip_suffix(" (deleted)").is_some_and(|number| number.parse::<u64>().is_ok())
            });
        private && (unnamed || self.path.starts_with("/memfd:odfork"))
    }

    /// Fork skips a mapping without anonymous pages and copies all that is present in any other private one.
    fn copied(&self) -> Entries {
        let private = self.perms.ends_with('p') && !self.has("dc");
        if !private || self.content() == 0 {
            return Entries::default();
        }
        let huge = self.huge.saturating_add(self.file_huge);
        Entries {
            small: self.resident.saturating_sub(huge).saturating_add(self.swapped) / PAGE,
            huge: self.huge / HUGE,
        }
    }

    /// Anonymous bytes, in memory or swapped.
    fn content(&self) -> u64 {
        self.anonymous.saturating_add(self.swapped)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.as_ref().is_some_and(|flags| flags.iter().any(|have| have == flag))
    }

    /// The first reason for which the runtime leaves this mapping as it is.
    fn why_kept(&self, content: u64) -> Option<&'static str> {
        let special =
            self.path.starts_with('[') && self.path != "[heap]" && !self.path.starts_with("[anon:");
        let flags_harmless = self
            .flags
            .as_ref()
            .is_some_and(|flags| flags.iter().all(|flag| HARMLESS.contains(&flag.as_str())));
        match () {
            () if self.shows_image() => Some("image, rewritten"),
            () if self.perms.ends_with('s') => Some("shared"),
            () if self.has("ht") => Some("hugetlb"),
            () if self.inode != 0 || self.device != "00:00" => Some("file"),
            () if special || self.has("gd") => Some("stack or special"),
            () if self.perms != "rw-p" => Some("not readable and writable"),
            () if self.has("lo") => Some("locked"),
            () if self.key != 0 || !flags_harmless => Some("special flag"),
            () if content < MIN_BYTES => Some("below 1 MB"),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tredis server\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nPid:\t4711\nPPid:\t1\n\
        TracerPid:\t0\nUid:\t1000\t0\t0\t0\nVmPeak:\t 2000000 kB\nVmSize:\t 1900000 kB\nVmRSS:\t 1060000 kB\n\
        RssAnon:\t 1050000 kB\nRssFile:\t  10000 kB\nVmPTE:\t    2108 kB\nVmSwap:\t      4 kB\nThreads:\t5\n\
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
        let text = "7ffe-7fff ---p 00000000 00:00 0  [rollup]\nRss:  1058000 kB\nPss: 1 kB\nPss_Anon: 9 kB\n\
            Anonymous:   1050624 kB\nAnonHugePages:  1048576 kB\nSwap:   8 kB\nSwapPss: 8 kB\n";
        let sums = Rollup::parse(text).unwrap();
        assert_eq!((sums.anonymous, sums.huge, sums.swapped), (1_050_624 << 10, 1 << 30, 8192));
        assert_eq!(
            Entries::of(sums.anonymous, sums.swapped, sums.huge),
            Entries { small: 514, huge: 512 }
        );
        assert_eq!(Rollup::parse(""), None);
    }

    fn mapping(head: &str, details: &str) -> String {
        format!("{head}\nRss: 4096 kB\nAnonymous: 4096 kB\n{details}\n")
    }

    #[test]
    fn mappings_are_classed_as_the_runtime_does() {
        let plain = "VmFlags: rd wr mr mw me ac sd";
        let text = [
            mapping("7f0000000000-7f0000400000 rw-p 00000000 00:00 0 ", plain),
            mapping("550000000000-550000400000 rw-p 00000000 00:00 0   [heap]", plain),
            mapping(
                "7f1000000000-7f1000400000 rw-p 00000000 00:00 0",
                "VmFlags: rd wr mr mw me lo",
            ),
            mapping("7f2000000000-7f2000400000 rw-s 00000000 00:01 99  /dev/zero (deleted)", plain),
            mapping("7f3000000000-7f3000400000 rw-p 00000000 08:01 12  /usr/lib/x y.so", plain),
            mapping(
                "7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0   [stack]",
                "VmFlags: rd wr gd",
            ),
            mapping("7f4000000000-7f4000400000 rw-p 00000000 00:00 0", "VmFlags: rd wr zz"),
            mapping("7f5000000000-7f5000400000 r--p 00000000 00:00 0", plain),
            "7f60-7f61 rw-p 00000000 00:00 0\nRss: 12 kB\nAnonymous: 12 kB\nVmFlags: rd wr\n"
                .to_owned(),
        ]
        .concat();
        let map = Map::parse(&text);
        assert_eq!(map.mappings, 9);
        assert_eq!(map.freezable.small, 2048);
        // Everything private but nothing shared is copied: seven of 4 MB and one of 12 KB.
        assert_eq!(map.entries.small, 7 * 1024 + 3);
        let kept: Vec<_> = map.kept.iter().map(|(why, bytes)| (*why, *bytes)).collect();
        let of_4_mb = |why| (why, 4 << 20);
        let mut expected = vec![
            ("below 1 MB", 12 << 10),
            of_4_mb("file"),
            of_4_mb("locked"),
            of_4_mb("not readable and writable"),
            of_4_mb("shared"),
            of_4_mb("special flag"),
            of_4_mb("stack or special"),
        ];
        expected.sort();
        assert_eq!(kept, expected);
        assert!(!map.loaded && !map.is_frozen() && !map.pinned);
    }

    #[test]
    fn an_image_and_the_library_are_recognised() {
        let text = "7f0000000000-7f0040000000 rw-p 00200000 00:2a 3  /#3 (deleted)\nRss: 8 kB\nAnonymous: 8 kB\n\
            FilePmdMapped: 0 kB\nVmFlags: rd wr\n\
            7f5000000000-7f5000100000 rw-p 00200000 00:01 7  /memfd:odfork (deleted)\nRss: 64 kB\n\
            Anonymous: 0 kB\nVmFlags: rd wr\n\
            610000000000-610000001000 r--p 00000000 00:2a 3  /#3 (deleted)\nRss: 4 kB\nVmFlags: rd\n\
            7f70-7f80 r-xp 00000000 08:01 7  /opt/lib/libodfork.so\nRss: 64 kB\nVmFlags: rd ex\n\
            7f90-7fa0 rw-s 00000000 00:0e 7  anon_inode:[io_uring]\nVmFlags: rd wr\n";
        let map = Map::parse(text);
        assert!(map.loaded && map.is_frozen() && map.pinned);
        assert_eq!((map.image_mappings, map.image_rewritten), (2, 8192));
        assert_eq!(map.image_bytes, (1 << 30) + (1 << 20));
        assert_eq!(map.entries, Entries { small: 2, huge: 0 });
        assert_eq!(Map::parse("garbage\n\u{0}:\n"), Map::default());
    }

    #[test]
    fn memory_that_a_child_does_not_get_is_not_copied() {
        let text = mapping("7f00-7f40 rw-p 00000000 00:00 0", "VmFlags: rd wr dc");
        let map = Map::parse(&text);
        assert_eq!(map.entries, Entries::default());
        assert_eq!(map.kept["special flag"], 4 << 20);
    }
}
