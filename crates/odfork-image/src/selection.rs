//! Which part of a process's memory a wish means.
//!
//! Owns the words by which people name memory. It reads the map of a process, but no content.

use std::io::ErrorKind;
use std::path::Path;

use odfork_proc::maps::Mapping;
use odfork_proc::process::{self, Stat};
use odfork_proc::smaps::{self, Usage};

use crate::error::{Error, Result};
use crate::format::Region;
use crate::PAGE;

/// Frozen by odfork: the content lies in an unnamed file.
fn is_frozen(mapping: &Mapping) -> bool {
    !mapping.shared && mapping.is_of_file() && mapping.name.ends_with("(deleted)")
}

/// Memory to be saved, as people say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionWish {
    /// What lies in these addresses.
    Range {
        /// The name it gets; without one, those of the mappings there.
        name: Option<String>,
        /// First address.
        start: u64,
        /// Address behind the last one.
        end: u64,
    },
    /// All mappings of this name in the map (`[heap]`, `[anon:pool]`, a file).
    Named(String),
    /// The heap below the program break, frozen by odfork or not.
    Heap,
    /// Every private mapping that can be written; also what a pager shows the process as such.
    All,
}

impl RegionWish {
    /// `START-END` and `NAME=START-END` (hexadecimal, 0x or not), else a name.
    ///
    /// # Errors
    /// A range that is empty or not whole pages.
    pub fn parse(text: &str) -> Result<RegionWish> {
        let (name, range) = match text.split_once('=') {
            Some((name, range)) => (Some(name.to_owned()), range),
            None => (None, text),
        };
        let Some((start, end)) = range.split_once('-').and_then(|(a, b)| Some((hex(a)?, hex(b)?)))
        else {
            return Ok(RegionWish::Named(text.to_owned()));
        };
        let page = PAGE as u64;
        if start >= end || start % page != 0 || end % page != 0 {
            let why = format!(
                "{text}: a range is START-END in hexadecimal, whole pages of {PAGE} \
                               bytes, not empty"
            );
            return Err(Error::Refused(why));
        }
        Ok(RegionWish::Range { name, start, end })
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// The map of a process; `pid` may be `self`.
pub fn read(pid: &str) -> Result<Vec<Usage>> {
    smaps::of_process(pid).map_err(|e| match e.kind() {
        ErrorKind::NotFound if Path::new("/proc/self").exists() => {
            Error::Refused(format!("there is no process {pid}"))
        }
        _ => Error::io(format!("cannot read /proc/{pid}/smaps"), e),
    })
}

/// The regions that the wishes mean, in order and apart.
pub fn choose(pid: &str, usages: &[Usage], wishes: &[RegionWish]) -> Result<Vec<Region>> {
    let maps: Vec<&Mapping> = usages.iter().map(|usage| &usage.mapping).collect();
    if maps.is_empty() {
        let why =
            format!("process {pid} has no memory: it has ended, or is a thread of the kernel");
        return Err(Error::Refused(why));
    }
    let mut found: Vec<Region> = Vec::new();
    for wish in wishes {
        let regions = match wish {
            RegionWish::Range { name, start, end } => {
                in_range(&maps, name.as_deref(), *start, *end)
            }
            RegionWish::Named(name) => of(maps.iter().copied().filter(|m| m.name == *name)),
            RegionWish::Heap => heap(&maps, start_of_heap(pid)?),
            RegionWish::All => all(usages),
        };
        if regions.is_empty() {
            return Err(Error::Refused(format!(
                "process {pid} has no memory of its own {} (see /proc/{pid}/maps)",
                words(wish)
            )));
        }
        found.extend(regions);
    }
    found.sort_by_key(|region| region.address);
    found.dedup();
    Ok(found)
}

fn words(wish: &RegionWish) -> String {
    match wish {
        RegionWish::Range { start, end, .. } => format!("between {start:#x} and {end:#x}"),
        RegionWish::Named(name) => format!("named '{name}'"),
        RegionWish::Heap => "at the program break".to_owned(),
        RegionWish::All => "that can be written".to_owned(),
    }
}

/// Neighbours of equal name and access are one region.
fn of<'a>(maps: impl Iterator<Item = &'a Mapping>) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for mapping in maps.filter(|m| !m.is_of_kernel()) {
        let name = match mapping.name.as_str() {
            "" => "anonymous",
            _ if is_frozen(mapping) => "anonymous",
            name => name,
        };
        match regions.last_mut() {
            Some(last)
                if last.end() == mapping.start
                    && last.prot == mapping.prot
                    && last.name == name =>
            {
                last.bytes += mapping.end - mapping.start;
            }
            _ => regions.push(Region {
                name: name.to_owned(),
                address: mapping.start,
                bytes: mapping.end - mapping.start,
                prot: mapping.prot,
            }),
        }
    }
    regions
}

/// Private memory that a pager has is a shared mapping watched by a userfaultfd.
fn all(usages: &[Usage]) -> Vec<Region> {
    let is_own = |usage: &&Usage| !usage.mapping.shared || usage.is_watched();
    let own = usages.iter().filter(is_own).map(|usage| &usage.mapping);
    of(own.filter(|mapping| mapping.is_writable()))
}

fn in_range(maps: &[&Mapping], name: Option<&str>, start: u64, end: u64) -> Vec<Region> {
    let inside = maps.iter().filter(|m| m.end > start && m.start < end);
    let cut: Vec<Mapping> = inside
        .map(|m| Mapping {
            start: m.start.max(start),
            end: m.end.min(end),
            name: name.map_or(m.name.clone(), str::to_owned),
            inode: if name.is_some() { 0 } else { m.inode },
            ..(*m).clone()
        })
        .collect();
    of(cut.iter())
}

/// Frozen pieces of the heap carry the name of their file: what follows the start of the break
/// without a gap counts.
fn heap(maps: &[&Mapping], start: u64) -> Vec<Region> {
    let start = start.next_multiple_of(PAGE as u64);
    let mut end = start;
    for mapping in maps {
        let ours = mapping.name == "[heap]" || is_frozen(mapping);
        if mapping.start <= end && mapping.end > end && ours {
            end = mapping.end;
        }
    }
    in_range(maps, Some("[heap]"), start, end)
}

fn start_of_heap(pid: &str) -> Result<u64> {
    let start = process::stat(pid, Stat::StartOfHeap).filter(|&start| start != 0);
    start.ok_or_else(|| {
        Error::Refused(format!(
            "the kernel does not say where the heap of process {pid} is: be its user or root"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a000-55d2b000 rw-p 00000000 00:00 0                                  [heap]
Size:                132 kB
VmFlags: rd wr mr mw me ac sd
55d2b000-55e00000 rw-p 00200000 00:01 1234                               /memfd:odfork (deleted)
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000002000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me um ac sd
7f0000002000-7f0000003000 r-xp 00000000 08:01 99                         /a dir/lib c.so
VmFlags: rd ex mr mw me sd
7f0000010000-7f0000020000 rw-s 00000000 00:01 77                         /memfd:pages (deleted)
VmFlags: rd wr sh mr mw me ms um uw sd
7f0000030000-7f0000040000 rw-s 00000000 00:01 78                         /memfd:shared (deleted)
VmFlags: rd wr sh mr mw me ms sd
7ffc00000000-7ffc00001000 r--p 00000000 00:00 0                          [vvar]
";

    fn region(name: &str, address: u64, bytes: u64, prot: u32) -> Region {
        Region { name: name.to_owned(), address, bytes, prot }
    }

    #[test]
    fn wishes_mean_regions() {
        let maps = smaps::parse(MAPS);
        assert!(is_frozen(&maps[1].mapping) && maps[2].is_watched());
        let mappings: Vec<&Mapping> = maps.iter().map(|usage| &usage.mapping).collect();
        let chosen = |wish: &str| choose("1", &maps, &[RegionWish::parse(wish).unwrap()]);
        assert_eq!(chosen("[heap]").unwrap(), [region("[heap]", 0x55d0a000, 0x21000, 3)]);
        assert_eq!(chosen("x=55d0b000-0x55d2c000").unwrap(), [region("x", 0x55d0b000, 0x21000, 3)]);
        assert_eq!(heap(&mappings, 0x55d0a000), [region("[heap]", 0x55d0a000, 0xf6000, 3)]);
        assert!(chosen("[stack]").unwrap_err().to_string().contains("'[stack]'"));
        assert!(chosen("1000-2000").unwrap_err().to_string().contains("0x1000"));
        assert!(RegionWish::parse("2000-1000").is_err() && RegionWish::parse("1-2000").is_err());
        let all = choose("1", &maps, &[RegionWish::All]).unwrap();
        let starts: Vec<u64> = all.iter().map(|region| region.address).collect();
        assert_eq!(starts, [0x55d0a000, 0x55d2b000, 0x7f0000000000, 0x7f0000010000]);
    }
}
