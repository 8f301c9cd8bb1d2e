//! The process map as values: one [`Vma`] per mapping, read from
//! `/proc/self/smaps` as a stream, without heap.
//!
//! Owns parsing and the question "may this mapping be frozen?". It does not
//! open files and changes nothing. Every rule about special mappings is here.

use crate::code::is_known;
use crate::kept::{HUGEPAGE, NOHUGEPAGE, NORESERVE};
use crate::sys::PAGE;

/// Access bits of a mapping, as in `PROT_*`.
pub const READ: u8 = 1;
/// Writable.
pub const WRITE: u8 = 2;
/// Executable.
pub const EXEC: u8 = 4;
/// `MAP_SHARED`.
pub const SHARED: u8 = 8;

/// One mapping of the process, immutable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vma {
    /// First address.
    pub start: usize,
    /// Address behind the last one.
    pub end: usize,
    /// READ | WRITE | EXEC | SHARED.
    pub perms: u8,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Device as `major << 32 | minor`, 0 for anonymous memory.
    pub dev: u64,
    /// Number of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Anonymous bytes present or swapped: what fork has to copy entries for. Of shared anonymous
    /// memory all bytes that this process has touched.
    pub anon: usize,
    /// All `VmFlags` seen are known to be harmless for freezing, or hints.
    pub plain_flags: bool,
    /// It has a hint how it is read (`MADV_RANDOM`, `MADV_SEQUENTIAL`).
    pub hinted: bool,
    /// Watched by a userfaultfd.
    pub watched: bool,
    /// Properties that anonymous memory there gets again (`kept.rs`).
    pub kept: u32,
    /// A stack, a mapping of the kernel's or with a name that the program gave it, or one with a
    /// protection key: never frozen.
    pub special: bool,
    /// A mapping by which kernel or device I/O reaches memory on its own.
    pub pins: bool,
    /// Shared anonymous memory.
    pub shared_anon: bool,
    /// Code of the program or a library, but the C library's and ours.
    pub code: bool,
}

impl Vma {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True for an empty range, which the kernel never shows.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Private anonymous memory that can be read and written, with no property
    /// that freezing would lose.
    pub fn can_freeze(&self) -> bool {
        self.inode == 0
            && self.dev == 0
            && self.perms == READ | WRITE
            && !self.watched
            && self.plain_flags
            && !self.hinted
            && !self.special
    }

    /// A write there waits while the process is quiesced.
    pub fn guards(&self, address: usize) -> bool {
        self.watched && self.perms & SHARED == 0 && (self.start..self.end).contains(&address)
    }

    /// Bytes of it that the program may populate without asking again, and is charged for. What
    /// shows a backing file is in the reserve instead.
    pub fn untouched(&self) -> usize {
        let charged = self.shared_anon || self.perms & SHARED == 0;
        if charged && self.perms & WRITE != 0 && self.kept & NORESERVE == 0 {
            self.len().saturating_sub(self.anon)
        } else {
            0
        }
    }

    /// The same mapping as if the process were not quiesced.
    pub fn as_if_unwatched(&self) -> Vma {
        Vma { watched: false, ..*self }
    }

    /// The mapping shows the file `dev:inode` privately.
    pub fn shows(&self, dev: u64, inode: u64) -> bool {
        self.inode == inode && self.dev == dev && self.perms & SHARED == 0
    }
}

/// `VmFlags` that freezing keeps or need not keep. Whatever is not listed
/// (locked `lo`, growing down `gd`, `dc` DONTFORK, `wf` WIPEONFORK, `dd`
/// DONTDUMP, userfaultfd `um`/`uw`/`ui`, sealed `sl`, hugetlb `ht`, shadow stack
/// `ss`, mergeable `mg`, and flags of kernels not yet written) keeps the
/// mapping as it is.
const HARMLESS: [&[u8]; 11] =
    [b"rd", b"wr", b"mr", b"mw", b"me", b"ac", b"nr", b"hg", b"nh", b"sd", b"ms"];

/// How a file is read ahead: anonymous memory can do without when its mappings are joined.
const HINTS: [&[u8]; 2] = [b"sr", b"rr"];

/// Those that the runtime gives back with the memory.
const KEPT: [(&[u8], u32); 3] = [(b"hg", HUGEPAGE), (b"nh", NOHUGEPAGE), (b"nr", NORESERVE)];

/// Set by us while we quiesce the process, and by a program's own
/// userfaultfd; a process that has one is not quiesced.
const WATCHED: [&[u8]; 2] = [b"um", b"uw"];

/// Feeds on chunks of smaps text and hands out finished mappings.
///
/// Lines longer than the buffer (paths) are cut: only their beginning matters.
pub struct SmapsParser {
    line: [u8; 512],
    fill: usize,
    current: Option<Vma>,
}

impl Default for SmapsParser {
    fn default() -> Self {
        Self::new()
    }
}

impl SmapsParser {
    /// A parser at the beginning of a file.
    pub const fn new() -> Self {
        SmapsParser { line: [0; 512], fill: 0, current: None }
    }

    /// Takes more text; calls `each` for every mapping that is complete.
    pub fn feed(&mut self, text: &[u8], each: &mut dyn FnMut(&Vma)) {
        for &b in text {
            if b == b'\n' {
                self.end_line(each);
            } else if self.fill < self.line.len() {
                self.line[self.fill] = b;
                self.fill += 1;
            }
        }
    }

    /// Ends the file: hands out the last mapping.
    pub fn finish(&mut self, each: &mut dyn FnMut(&Vma)) {
        self.end_line(each);
        if let Some(v) = self.current.take() {
            each(&v);
        }
    }

    fn end_line(&mut self, each: &mut dyn FnMut(&Vma)) {
        let line = &self.line[..self.fill.min(self.line.len())];
        if let Some(head) = parse_head(line) {
            if let Some(done) = self.current.replace(head) {
                each(&done);
            }
        } else if let Some(v) = self.current.as_mut() {
            detail(v, line);
        }
        self.fill = 0;
    }
}

/// Parses a line of `/proc/PID/maps`, which is also the first line of an entry
/// of smaps: `start-end perms offset major:minor inode path`.
pub fn parse_head(line: &[u8]) -> Option<Vma> {
    let mut words = line.split(|&b| b == b' ').filter(|w| !w.is_empty());
    let range = words.next()?;
    let dash = range.iter().position(|&b| b == b'-')?;
    let (start, end) = (hex(range.get(..dash)?)?, hex(range.get(dash + 1..)?)?);
    let perm = words.next().filter(|p| p.len() == 4)?;
    let offset = hex(words.next()?)?;
    let dev = words.next()?;
    let colon = dev.iter().position(|&b| b == b':')?;
    let dev = (hex(dev.get(..colon)?)? << 32) | hex(dev.get(colon + 1..)?)?;
    let inode = dec(words.next()?)?;
    let name = words.next().unwrap_or(&[]);
    let perms = perm_bits(perm);
    let aligned = start % PAGE as u64 == 0 && end % PAGE as u64 == 0 && start < end;
    aligned.then_some(Vma {
        start: start as usize,
        end: end as usize,
        perms,
        offset,
        dev,
        inode,
        special: is_special(name),
        pins: pins_memory(name),
        shared_anon: perms & SHARED != 0 && name == b"/dev/zero",
        code: inode != 0 && perms == READ | EXEC && !is_known(line),
        ..Vma::default()
    })
}

fn is_special(name: &[u8]) -> bool {
    name.starts_with(b"[") && name != b"[heap]"
}

/// Rings and devices whose operations write to memory behind the page tables: of networks, virtual
/// machines, graphics, cameras. Names as a mapping or a descriptor has them.
pub fn pins_memory(name: &[u8]) -> bool {
    const RINGS: [&[u8]; 10] = [
        b"/[aio]",
        b"anon_inode:[io_uring]",
        b"anon_inode:kvm",
        b"/dev/infiniband",
        b"/dev/vfio",
        b"/dev/nvidia",
        b"/dev/dri/",
        b"/dev/kfd",
        b"/dev/accel/",
        b"/dev/video",
    ];
    RINGS.iter().any(|r| name.starts_with(r))
}

fn perm_bits(p: &[u8]) -> u8 {
    let bit = |i: usize, c: u8, v: u8| if p.get(i) == Some(&c) { v } else { 0 };
    bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXEC) | bit(3, b's', SHARED)
}

fn detail(v: &mut Vma, line: &[u8]) {
    let Some(colon) = line.iter().position(|&b| b == b':') else { return };
    let (key, value) = (&line[..colon], &line[colon + 1..]);
    match key {
        b"Anonymous" | b"Swap" => v.anon = v.anon.saturating_add(kilobytes(value)),
        b"Rss" if v.shared_anon => v.anon = v.anon.saturating_add(kilobytes(value)),
        b"ProtectionKey" if kilobytes(value) != 0 => v.special = true,
        b"VmFlags" => {
            v.plain_flags = true;
            for flag in value.split(|&b| b == b' ').filter(|w| !w.is_empty()) {
                v.kept |= KEPT.iter().find(|(name, _)| flag == *name).map_or(0, |(_, bit)| *bit);
                v.watched |= WATCHED.contains(&flag);
                v.hinted |= HINTS.contains(&flag);
                v.plain_flags &=
                    [&HARMLESS[..], &WATCHED, &HINTS].iter().any(|known| known.contains(&flag));
            }
        }
        _ => {}
    }
}

fn kilobytes(value: &[u8]) -> usize {
    let mut words = value.split(|&b| b == b' ').filter(|w| !w.is_empty());
    (words.next().and_then(dec).unwrap_or(0) as usize).saturating_mul(1024)
}

/// Parses a hexadecimal number; `None` for anything else or too large.
pub fn hex(s: &[u8]) -> Option<u64> {
    if s.is_empty() || s.len() > 16 {
        return None;
    }
    s.iter().try_fold(0u64, |n, &b| Some((n << 4) | (b as char).to_digit(16)? as u64))
}

/// Parses a decimal number; `None` for anything else or too large.
pub fn dec(s: &[u8]) -> Option<u64> {
    if s.is_empty() {
        return None;
    }
    s.iter()
        .try_fold(0u64, |n, &b| n.checked_mul(10)?.checked_add((b as char).to_digit(10)? as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f0000000000-7f0040000000 rw-p 00000000 00:00 0 
Size:            1048576 kB
Rss:             1048576 kB
Anonymous:       1048576 kB
Swap:                  4 kB
ProtectionKey:         0
VmFlags: rd wr mr mw me ac 
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Anonymous:            12 kB
VmFlags: rd wr mr mw me gd ac 
7fff00000000-7fff00001000 rw-p 00002000 00:1c 12345 /memfd:a b (deleted)
Anonymous:             4 kB
VmFlags: rd wr mr mw me ac wf
";

    fn parse(step: usize) -> Vec<Vma> {
        let mut all = Vec::new();
        let mut p = SmapsParser::new();
        for part in TEXT.as_bytes().chunks(step) {
            p.feed(part, &mut |v| all.push(*v));
        }
        p.finish(&mut |v| all.push(*v));
        all
    }

    #[test]
    fn any_chunking_gives_the_same_mappings() {
        let whole = parse(usize::MAX);
        assert_eq!(whole.len(), 3);
        for step in 1..70 {
            assert_eq!(parse(step), whole, "chunks of {step}");
        }
    }

    #[test]
    fn fields_are_read() {
        let v = parse(4096);
        assert_eq!(v[0].anon, (1 << 30) + 4096);
        assert!(v[0].can_freeze());
        assert!(!v[1].can_freeze(), "a stack that grows down stays");
        assert_eq!((v[2].dev, v[2].inode, v[2].offset), (0x1c, 12345, 0x2000));
        assert!(!v[2].plain_flags);
    }

    #[test]
    fn nonsense_is_no_mapping() {
        for bad in ["", "-", "10-5 rw-p 0 0:0 0", "1000-2000 rw 0 0:0 0", "1-2 rw-p 0 00:00 0"] {
            assert_eq!(parse_head(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
