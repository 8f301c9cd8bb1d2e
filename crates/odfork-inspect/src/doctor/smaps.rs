//! Classes of mappings: what a fork copies, what the runtime could freeze, and why not the rest.
//!
//! Pure: no file is opened here. The rule is the runtime's (crates/odfork, vma.rs: `can_freeze`,
//! `HARMLESS`), written once more because the tools reach the runtime only as a user does; a change
//! there is a change here. Parsing is `odfork_proc::smaps`.

use std::collections::BTreeMap;

use odfork_proc::maps::Mapping;
use odfork_proc::smaps::{self, Usage};
use serde::{Deserialize, Serialize};

/// Mappings with less content than this stay anonymous (the runtime's MIN_BYTES).
const MIN_BYTES: u64 = 1 << 20;
pub const PAGE: u64 = 4096;
pub const HUGE: u64 = 2 << 20;

/// What fork has to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Map {
    pub mappings: u64,
    pub entries: Entries,
    /// What of these entries is in mappings that the runtime would freeze.
    pub freezable: Entries,
    /// Anonymous bytes in mappings that stay, by the reason.
    pub kept: BTreeMap<&'static str, u64>,
    /// libodfork.so is mapped.
    pub loaded: bool,
    /// Mappings that show a backing file, their length, and their rewritten (anonymous) bytes. What
    /// is resident says nothing: a clean page of the file is mapped when it is next read.
    #[serde(rename = "image_mappings")]
    pub backing_mappings: u64,
    #[serde(rename = "image_bytes")]
    pub backing_bytes: u64,
    #[serde(rename = "image_rewritten")]
    pub backing_rewritten: u64,
    /// A mapping by which a device writes to memory: nothing is frozen then.
    pub pinned: bool,
}

/// An anchor mapping: pages of a backing file that the runtime maps for itself, no frozen memory.
const ANCHOR: u64 = 64 << 10;

const READ_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;

const HARMLESS: [&str; 13] =
    ["rd", "wr", "mr", "mw", "me", "ac", "nr", "hg", "nh", "sd", "ms", "um", "uw"];
const RINGS: [&str; 5] =
    ["/[aio]", "anon_inode:[io_uring]", "/dev/infiniband", "/dev/vfio", "anon_inode:kvm"];

impl Map {
    pub fn parse(text: &str) -> Map {
        let mut map = Map::default();
        for usage in &smaps::parse(text) {
            map.add(usage);
        }
        map
    }

    pub fn is_frozen(&self) -> bool {
        self.backing_mappings > 0
    }

    fn add(&mut self, usage: &Usage) {
        let (mapping, path) = (&usage.mapping, usage.mapping.name.as_str());
        self.mappings += 1;
        self.pinned |= RINGS.iter().any(|ring| path.starts_with(ring));
        self.loaded |= path.contains("/libodfork.so");
        if shows_backing_file(mapping) && mapping.bytes() > ANCHOR {
            self.backing_mappings += 1;
            self.backing_bytes = self.backing_bytes.saturating_add(mapping.bytes());
            self.backing_rewritten = self.backing_rewritten.saturating_add(usage.anonymous);
        }
        let entries = copied(usage);
        self.entries.add(entries);
        let content = usage.content();
        match why_kept(usage, content) {
            None => self.freezable.add(entries),
            Some(why) if content > 0 => {
                let kept = self.kept.entry(why).or_default();
                *kept = kept.saturating_add(content);
            }
            Some(_) => {}
        }
    }
}

/// Shows a backing file of the runtime.
fn shows_backing_file(mapping: &Mapping) -> bool {
    // A file of the runtime's own tmpfs, which is mounted nowhere, has no name but its number.
    let number = mapping.name.strip_prefix("/#").and_then(|rest| rest.strip_suffix(" (deleted)"));
    let unnamed =
        mapping.device.0 == 0 && number.is_some_and(|number| number.parse::<u64>().is_ok());
    !mapping.shared && (unnamed || mapping.name.starts_with("/memfd:odfork"))
}

/// Fork skips a mapping without anonymous pages and copies all that is present in any other
/// private one.
fn copied(usage: &Usage) -> Entries {
    let private = !usage.mapping.shared && !usage.has("dc");
    if !private || usage.content() == 0 {
        return Entries::default();
    }
    let huge = usage.huge.saturating_add(usage.file_huge);
    Entries {
        small: usage.resident.saturating_sub(huge).saturating_add(usage.swapped) / PAGE,
        huge: usage.huge / HUGE,
    }
}

/// The first reason for which the runtime leaves this mapping as it is.
fn why_kept(usage: &Usage, content: u64) -> Option<&'static str> {
    let (mapping, name) = (&usage.mapping, usage.mapping.name.as_str());
    let special = name.starts_with('[') && name != "[heap]" && !name.starts_with("[anon:");
    let flags_harmless = usage
        .flags
        .as_ref()
        .is_some_and(|flags| flags.iter().all(|flag| HARMLESS.contains(&flag.as_str())));
    match () {
        () if shows_backing_file(mapping) => Some("image, rewritten"),
        () if mapping.shared => Some("shared"),
        () if usage.has("ht") => Some("hugetlb"),
        () if mapping.is_of_file() || mapping.device != (0, 0) => Some("file"),
        () if special || usage.has("gd") => Some("stack or special"),
        () if mapping.prot != READ_WRITE => Some("not readable and writable"),
        () if usage.has("lo") => Some("locked"),
        () if usage.protection_key != 0 || !flags_harmless => Some("special flag"),
        () if content < MIN_BYTES => Some("below 1 MB"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_become_entries() {
        assert_eq!(Entries::of(1_050_624 << 10, 8192, 1 << 30), Entries { small: 514, huge: 512 });
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
        let text = "7f0000000000-7f0040000000 rw-p 00200000 00:2a 3  /#3 (deleted)\nRss: 8 \
                    kB\nAnonymous: 8 kB\n\
                    FilePmdMapped: 0 kB\nVmFlags: rd wr\n\
            7f5000000000-7f5000100000 rw-p 00200000 00:01 7  /memfd:odfork (deleted)\nRss: 64 kB\n\
                    Anonymous: 0 kB\nVmFlags: rd wr\n\
            610000000000-610000001000 r--p 00000000 00:2a 3  /#3 (deleted)\nRss: 4 kB\nVmFlags: \
                    rd\n\
            7f70-7f80 r-xp 00000000 08:01 7  /opt/lib/libodfork.so\nRss: 64 kB\nVmFlags: rd ex\n\
                    7f90-7fa0 rw-s 00000000 00:0e 7  anon_inode:[io_uring]\nVmFlags: rd wr\n";
        let map = Map::parse(text);
        assert!(map.loaded && map.is_frozen() && map.pinned);
        assert_eq!((map.backing_mappings, map.backing_rewritten), (2, 8192));
        assert_eq!(map.backing_bytes, (1 << 30) + (1 << 20));
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
