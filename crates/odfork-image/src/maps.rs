//! The map of a process, and which part of it a wish means.
//!
//! Owns reading `/proc/PID/smaps` and the words by which people name memory. It reads no content.

use std::fs;

use crate::error::{Error, Result};
use crate::format::Region;
use crate::PAGE;

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub prot: u32,
    pub shared: bool,
    pub inode: u64,
    pub name: String,
    /// Watched by a userfaultfd: what is not there may be elsewhere.
    pub watched: bool,
}

impl Mapping {
    /// Nobody but this process has content for it: what is not there is zeros.
    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && !self.shared && !self.watched
    }

    /// Content of the kernel's that is no memory of the program.
    fn is_kernels(&self) -> bool {
        ["[vvar", "[vdso", "[vsyscall", "[uprobes"].iter().any(|name| self.name.starts_with(name))
    }

    /// Frozen by odfork: the content lies in an unnamed file.
    fn is_frozen(&self) -> bool {
        !self.shared && self.inode != 0 && self.name.ends_with("(deleted)")
    }
}

/// Memory to be saved, as people say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionWish {
    /// What lies in these addresses.
    Range { name: Option<String>, start: u64, end: u64 },
    /// All mappings of this name in the map (`[heap]`, `[anon:pool]`, a file).
    Named(String),
    /// The heap below the program break, frozen by odfork or not.
    Heap,
    /// Every private mapping that can be written.
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
            let why = format!("{text}: a range is START-END in hexadecimal, whole pages of {PAGE} bytes, not empty");
            return Err(Error::Refused(why));
        }
        Ok(RegionWish::Range { name, start, end })
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// The map of a process; `pid` may be `self`.
pub fn read(pid: &str) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/smaps");
    match fs::read(&path) {
        Ok(text) => Ok(parse(&String::from_utf8_lossy(&text))),
        Err(e)
            if e.kind() == std::io::ErrorKind::NotFound && fs::metadata("/proc/self").is_ok() =>
        {
            Err(Error::Refused(format!("there is no process {pid}")))
        }
        Err(e) => Err(Error::io(format!("cannot read {path}"), e)),
    }
}

fn parse(text: &str) -> Vec<Mapping> {
    let mut maps: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = parse_line(line) {
            maps.push(mapping);
        } else if let (Some(flags), Some(last)) = (line.strip_prefix("VmFlags:"), maps.last_mut()) {
            last.watched = flags.split_whitespace().any(|flag| ["um", "uw", "ui"].contains(&flag));
        }
    }
    maps
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        rest = after;
        word
    };
    let (start, end) = word().split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let access = word();
    let (_offset, _device) = (word(), word());
    let inode = word().parse().ok()?;
    let bit = |letter, bit: i32| if access.contains(letter) { bit as u32 } else { 0 };
    let prot = bit('r', libc::PROT_READ) | bit('w', libc::PROT_WRITE) | bit('x', libc::PROT_EXEC);
    let name = rest.trim_start().to_owned();
    Some(Mapping { start, end, prot, shared: access.ends_with('s'), inode, name, watched: false })
}

/// The regions that the wishes mean, in order and apart.
pub fn choose(pid: &str, maps: &[Mapping], wishes: &[RegionWish]) -> Result<Vec<Region>> {
    if maps.is_empty() {
        let why =
            format!("process {pid} has no memory: it has ended, or is a thread of the kernel");
        return Err(Error::Refused(why));
    }
    let mut found: Vec<Region> = Vec::new();
    for wish in wishes {
        let regions = match wish {
            RegionWish::Range { name, start, end } => in_range(maps, name.as_deref(), *start, *end),
            RegionWish::Named(name) => of(maps.iter().filter(|m| m.name == *name)),
            RegionWish::Heap => heap(maps, start_of_heap(pid)?),
            RegionWish::All => {
                let writable = |m: &&Mapping| !m.shared && m.prot & libc::PROT_WRITE as u32 != 0;
                of(maps.iter().filter(writable).filter(|m| !m.is_kernels()))
            }
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
    for mapping in maps.filter(|m| !m.is_kernels()) {
        let name = match mapping.name.as_str() {
            "" => "anonymous",
            _ if mapping.is_frozen() => "anonymous",
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

fn in_range(maps: &[Mapping], name: Option<&str>, start: u64, end: u64) -> Vec<Region> {
    let inside = maps.iter().filter(|m| m.end > start && m.start < end);
    let cut: Vec<Mapping> = inside
        .map(|m| Mapping {
            start: m.start.max(start),
            end: m.end.min(end),
            name: name.map_or(m.name.clone(), str::to_owned),
            inode: if name.is_some() { 0 } else { m.inode },
            ..m.clone()
        })
        .collect();
    of(cut.iter())
}

/// Frozen pieces of the heap carry the name of their file: what follows the start of the break without a gap counts.
fn heap(maps: &[Mapping], start: u64) -> Vec<Region> {
    let start = start.next_multiple_of(PAGE as u64);
    let mut end = start;
    for mapping in maps {
        let ours = mapping.name == "[heap]" || mapping.is_frozen();
        if mapping.start <= end && mapping.end > end && ours {
            end = mapping.end;
        }
    }
    in_range(maps, Some("[heap]"), start, end)
}

/// Field 47 of /proc/PID/stat, after the name in brackets, which may hold anything.
fn start_of_heap(pid: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text =
        fs::read_to_string(&path).map_err(|e| Error::io(format!("cannot read {path}"), e))?;
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let start = after.split_whitespace().nth(44).and_then(|word| word.parse().ok());
    start.filter(|&start| start != 0).ok_or_else(|| {
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
7ffc00000000-7ffc00001000 r--p 00000000 00:00 0                          [vvar]
";

    fn region(name: &str, address: u64, bytes: u64, prot: u32) -> Region {
        Region { name: name.to_owned(), address, bytes, prot }
    }

    #[test]
    fn lines_become_mappings() {
        let maps = parse(MAPS);
        assert_eq!(maps.len(), 5);
        assert!(maps[0].is_anonymous() && maps[1].is_frozen() && maps[2].watched);
        assert_eq!((maps[3].name.as_str(), maps[3].prot), ("/a dir/lib c.so", 5));
    }

    #[test]
    fn wishes_mean_regions() {
        let maps = parse(MAPS);
        let chosen = |wish: &str| choose("1", &maps, &[RegionWish::parse(wish).unwrap()]);
        assert_eq!(chosen("[heap]").unwrap(), [region("[heap]", 0x55d0a000, 0x21000, 3)]);
        assert_eq!(chosen("x=55d0b000-0x55d2c000").unwrap(), [region("x", 0x55d0b000, 0x21000, 3)]);
        assert_eq!(heap(&maps, 0x55d0a000), [region("[heap]", 0x55d0a000, 0xf6000, 3)]);
        assert!(chosen("[stack]").unwrap_err().to_string().contains("'[stack]'"));
        assert!(chosen("1000-2000").unwrap_err().to_string().contains("0x1000"));
        assert!(RegionWish::parse("2000-1000").is_err() && RegionWish::parse("1-2000").is_err());
        let all = choose("1", &maps, &[RegionWish::All]).unwrap();
        assert_eq!(all.len(), 3);
    }
}
