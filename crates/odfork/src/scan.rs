//! What the process looks like now: its map, its fences, the room it has.
//!
//! Owns reading `/proc` in the helper task and the reasons not to freeze at
//! all. It changes nothing. The rules of `helper` apply.

use core::ffi::CStr;

use odfork_model::Trial;

use crate::addresses::Addresses;
use crate::args;
use crate::changes::Changes;
use crate::code::Searched;
use crate::held::Holding;
use crate::live::Mapped;
use crate::reason::{Done, Reason, Stop};
use crate::registry::Registry;
use crate::results::Results;
use crate::scratch::{Kept, Scratch, MAX_VMAS};
use crate::step::Step;
use crate::sys::{self, Errno, Kernel, SysResult, PAGE};
use crate::vma::{dec, SmapsParser, Vma, SHARED};

/// AddressSanitizer's shadow ends there, and the heap of programs at fixed addresses is below.
const SHADOW_END: usize = 0x1000_7fff_8000;

/// The runtime's own private memory, page aligned: never frozen.
pub type OwnRanges = [(usize, usize); 2];

/// What the caller knows about the process, for the helper to use.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The process (not the helper), and the thread that forks.
    pub pid: i32,
    pub tid: i32,
    /// It borrows the memory it works in: it may be killed, and the memory lives on.
    pub borrowed: bool,
    /// Tasks outside the process run in its memory: whoever made a borrower, or who was made by
    /// clone.
    pub shared_vm: bool,
    pub registry: &'a Registry,
    /// Code that needs no inspection any more.
    pub searched: &'a Searched,
    pub addresses: &'a Addresses,
    /// Memory that the program itself has mapped.
    pub mapped: &'a Mapped,
    /// What it has mapped since the latest look of a pass in slices.
    pub changes: &'a Changes,
    pub own: OwnRanges,
    /// Code of a sanitizer's runtime whose system calls are known; zeros: none is.
    pub sanitizer: [usize; 2],
    /// Mappings with less anonymous memory than this stay.
    pub min_bytes: usize,
    /// Contended PI futexes may exist, which userfaultfd cannot hold.
    pub pi_futexes: bool,
    /// Pages of backing files may be in pipes or sockets (`vmsplice`, `MSG_ZEROCOPY`).
    pub spliced: bool,
    /// Sockets of the program may have limits of time.
    pub timed_sockets: bool,
    /// Or of another kind that cannot be asked about when it matters.
    pub delicate_sockets: bool,
    /// How other threads may be held.
    pub holding: Holding,
    /// The program may have named the helper its tracer.
    pub named: bool,
}

/// Opens a file for reading.
pub fn open(k: &Kernel, path: &CStr) -> SysResult<i32> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    unsafe { k.call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), flags, 0]) }
        .map(|fd| fd as i32)
}

/// Closes a descriptor of the helper's.
pub fn close(fd: i32) {
    // SAFETY: the helper's own descriptor table.
    unsafe { sys::raw(libc::SYS_close, args![fd]) };
}

fn read(k: &Kernel, fd: i32, buf: &mut [u8]) -> SysResult<usize> {
    // SAFETY: the buffer is valid for its length.
    unsafe { k.call(libc::SYS_read, args![fd, buf.as_mut_ptr(), buf.len()]) }
}

/// Reads the beginning of a small file.
pub fn slurp<'a>(k: &Kernel, path: &CStr, buf: &'a mut [u8]) -> SysResult<&'a [u8]> {
    let fd = open(k, path)?;
    let mut n = 0;
    let result = loop {
        match read(k, fd, &mut buf[n..]) {
            Ok(0) => break Ok(()),
            Ok(more) => n += more,
            Err(e) => break Err(e),
        }
    };
    close(fd);
    result.map(|()| &buf[..n])
}

/// The number after `key` in the text of a status-like file.
pub fn field(text: &[u8], key: &[u8]) -> Option<u64> {
    let line = text.split(|&b| b == b'\n').find(|l| l.starts_with(key))?;
    let mut words = line[key.len()..].split(|b| b" \t:".contains(b)).filter(|w| !w.is_empty());
    words.next().and_then(dec)
}

/// A path such as `/proc/123/status`, built without heap.
pub struct Path {
    text: [u8; 320],
    len: usize,
}

impl Path {
    /// Joins parts; a path too long becomes one that does not exist.
    pub fn join(parts: &[&[u8]]) -> Path {
        let mut p = Path { text: [0; 320], len: 0 };
        for &b in parts.iter().flat_map(|part| part.iter()) {
            if p.len + 1 < p.text.len() {
                p.text[p.len] = b;
                p.len += 1;
            }
        }
        p
    }

    /// As the kernel wants it.
    pub fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }
}

/// Decimal digits of a number in a fixed buffer.
pub fn digits(n: u64, buf: &mut [u8; 20]) -> &[u8] {
    let (mut at, mut n) = (buf.len(), n);
    loop {
        at -= 1;
        buf[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 || at == 0 {
            break;
        }
    }
    &buf[at..]
}

/// Threads of the process, if nothing about its fences forbids freezing.
pub fn fences(s: &mut Scratch, subject: &Subject) -> Done<u64> {
    s.kernel.enter(Step::Fences);
    let no_proc = |e| Stop::failed(Reason::NoProc, Step::Fences, e);
    let mut number = [0u8; 20];
    let path = Path::join(&[b"/proc/", digits(subject.pid as u64, &mut number), b"/status"]);
    let text = slurp(&s.kernel, path.c_str(), &mut s.work.text).map_err(no_proc)?;
    // /proc of another PID namespace shows somebody else under our number.
    let pid = field(text, b"Pid:");
    let (tracer, threads) = (field(text, b"TracerPid:"), field(text, b"Threads:"));
    if pid != Some(subject.pid as u64) || threads.is_none() || !is_own_proc(&s.kernel) {
        return Err(Stop::of(Reason::NoProc));
    }
    if tracer != Some(0) {
        return Err(Stop::of(Reason::Traced));
    }
    let text = slurp(&s.kernel, c"/proc/meminfo", &mut s.work.text);
    s.work.swap = text.ok().and_then(|t| field(t, b"SwapTotal:")) != Some(0);
    match slurp(&s.kernel, c"/proc/sys/vm/overcommit_memory", &mut s.work.text) {
        // How much memory may be promised is not known.
        Err(_) => Err(Stop::of(Reason::Memory)),
        Ok(text) if text.starts_with(b"2") => Err(Stop::of(Reason::Overcommit)),
        Ok(_) => Ok(threads.unwrap_or(1)),
    }
}

/// Mappings that the process makes are locked (`MCL_FUTURE`), whoever asked for that. Those of a
/// backing file would be too, and the kernel would refuse `MADV_DONTNEED` of what the program never
/// locked. Nothing tells but a new mapping: a locked one refuses `MADV_COLD`, which changes nothing
/// (Linux 5.4), and beyond the limit of locked memory there is none.
pub fn locks_new(s: &Scratch) -> bool {
    let (hint, flags) = (s.results.zone(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let a = args![hint, PAGE, libc::PROT_NONE, flags, -1isize, 0];
    // SAFETY: a new mapping, of which nobody else knows, and advice without effect on it.
    unsafe {
        let at = match s.kernel.call(libc::SYS_mmap, a) {
            Ok(at) => at,
            Err(e) => return e == Errno(libc::EAGAIN),
        };
        let cold = s.kernel.call(libc::SYS_madvise, args![at, PAGE, libc::MADV_COLD]);
        sys::munmap(at, PAGE);
        cold == Err(Errno(libc::EINVAL))
    }
}

/// The first process of a namespace may find its parent under its own number: `/proc/self` has
/// this helper's number only in the `/proc` of its own namespace.
fn is_own_proc(k: &Kernel) -> bool {
    let mut name = [0u8; 20];
    read_link(k, c"/proc/self", &mut name).ok().and_then(dec) == Some(sys::getpid() as u64)
}

/// What a symbolic link says, as far as there is room.
pub fn read_link<'a>(k: &Kernel, path: &CStr, text: &'a mut [u8]) -> SysResult<&'a [u8]> {
    let a = args![libc::AT_FDCWD, path.as_ptr(), text.as_mut_ptr(), text.len()];
    // SAFETY: a valid path, and a buffer of the length told.
    let length = unsafe { k.call(libc::SYS_readlinkat, a) }?;
    Ok(&text[..length.min(text.len())])
}

/// Reads the map of the process into `s.vmas`: what may be frozen, and what
/// shows a backing file. Notes backing files that nothing shows any more.
///
/// `quiesced`: we have write-protected the process, so being watched is no obstacle. A look that
/// costs more than it may is given up.
pub fn scan(s: &mut Scratch, subject: &Subject, quiesced: bool, look: Trial) -> Done<()> {
    s.kernel.enter(Step::Scan);
    let no_proc = |e| Stop::failed(Reason::NoProc, Step::Scan, e);
    let fd = open(&s.kernel, c"/proc/self/smaps").map_err(no_proc)?;
    s.results.report.restart_scan();
    for (slot, _) in subject.registry.live() {
        s.results.set_gone(slot, true);
    }
    let (mut parser, mut pins) = (SmapsParser::new(), false);
    let mut map_count = 0usize;
    let (kernel, results) = (s.kernel, s.results);
    let (mut kept, text, stacks) = s.restart_vmas();
    let mut guarded = 0usize;
    let lowest = if subject.sanitizer == [0; 2] { 0 } else { SHADOW_END };
    loop {
        let n = read(&kernel, fd, text).map_err(no_proc)?;
        let mut each = |v: &Vma| {
            let rests = |&&sp: &&usize| v.guards(sp);
            guarded += stacks.iter().filter(rests).count();
            let v = &if quiesced { v.as_if_unwatched() } else { *v };
            map_count += 1;
            pins |= v.pins;
            let slot = file_of(v, subject.registry);
            results.report.untouched.add(if slot.is_some() { 0 } else { v.untouched() });
            let fits = v.can_freeze() && v.anon >= subject.min_bytes && v.start >= lowest;
            if fits && has_default_policy(&kernel, v.start) {
                note_eligible(results, &mut kept, subject, v);
            } else if let Some(slot) = slot {
                note_shown(results, &mut kept, slot, v);
            } else if v.code {
                kept.push_code(v);
            }
        };
        match n {
            0 => {
                parser.finish(&mut each);
                break;
            }
            n => parser.feed(&text[..n], &mut each),
        }
        if !look.affords(sys::now_ns()) {
            return Err(Stop::of(Reason::Price));
        }
    }
    let held = !quiesced || guarded == stacks.len();
    close(fd);
    results.report.scanned.set(1);
    results.report.mappings.set(map_count);
    if !held {
        // A stack in other memory than what is protected: its thread goes on when it likes.
        return Err(Stop::of(Reason::Threads));
    }
    if pins {
        return Err(Stop::of(Reason::Pinned));
    }
    if s.vma_count() >= MAX_VMAS || map_count + 64 > max_map_count(s) {
        return Err(Stop::of(Reason::MapLimit));
    }
    Ok(())
}

/// The properties that all mappings of the range have, but for those that show backing files, of
/// which they are known to be `kept`. None: they are not the same, or another mapping in the place
/// of one would lose some.
pub fn common_properties(
    s: &mut Scratch,
    registry: &Registry,
    (start, end): (usize, usize),
    mut kept: Option<u32>,
) -> SysResult<Option<u32>> {
    let fd = open(&s.kernel, c"/proc/self/smaps")?;
    let (mut parser, mut plain, mut passed) = (SmapsParser::new(), true, false);
    let kernel = s.kernel;
    let done = loop {
        let read = read(&s.kernel, fd, &mut s.work.text);
        let mut each = |v: &Vma| {
            passed |= v.start >= end;
            let concerns = v.start < end && v.end > start && file_of(v, registry).is_none();
            if concerns && plain {
                let same = *kept.get_or_insert(v.kept) == v.kept;
                plain = same && v.plain_flags && !v.special && has_default_policy(&kernel, v.start);
            }
        };
        match read {
            Ok(0) => parser.finish(&mut each),
            Ok(n) => parser.feed(&s.work.text[..n], &mut each),
            Err(e) => break Err(e),
        }
        if passed || read == Ok(0) {
            break Ok(());
        }
    };
    close(fd);
    done.map(|()| kept.filter(|_| plain))
}

/// Counts the mappings again, after many of them were joined.
pub fn count_mappings(s: &mut Scratch) {
    const MANY: usize = 512;
    if s.results.report.mappings.get() < MANY {
        return;
    }
    let Ok(fd) = open(&s.kernel, c"/proc/self/maps") else { return };
    let mut lines = 0;
    while let Ok(n @ 1..) = read(&s.kernel, fd, &mut s.work.text) {
        lines += s.work.text[..n].iter().filter(|&&byte| byte == b'\n').count();
    }
    close(fd);
    s.results.report.mappings.set(lines);
}

/// The program has not said on which memory node the mapping is to be (mbind(2)); a file would
/// not keep that.
pub fn has_default_policy(k: &Kernel, at: usize) -> bool {
    const MPOL_F_ADDR: usize = 2;
    let mut policy = 0i32;
    let a = args![&mut policy, 0, 0, at, MPOL_F_ADDR];
    // SAFETY: the policy is valid for writing.
    match unsafe { k.call(libc::SYS_get_mempolicy, a) } {
        Ok(_) => policy == libc::MPOL_DEFAULT,
        // A kernel without memory nodes; or a filter, which refuses to set what may not be asked.
        Err(e) => matches!(e.0, libc::ENOSYS | libc::EPERM),
    }
}

fn max_map_count(s: &mut Scratch) -> usize {
    let text = slurp(&s.kernel, c"/proc/sys/vm/max_map_count", &mut s.work.text);
    let number = text.ok().and_then(|t| dec(t.trim_ascii()));
    number.unwrap_or(65530) as usize
}

/// Memory that may be frozen, but for what is the runtime's own or restless.
fn note_eligible(results: &Results, kept: &mut Kept, subject: &Subject, v: &Vma) {
    let mut len = 0;
    for part in around_all(v, &subject.own) {
        subject.addresses.each_restful(part.start, part.end, |start, end| {
            len += end - start;
            kept.push(Vma { start, end, ..part });
        });
    }
    // Of its content as much as of its length.
    let pages = v.anon / PAGE * (len / PAGE) / (v.len() / PAGE);
    results.report.eligible.add(pages * PAGE);
    results.report.new_mappings.add(usize::from(len > 0));
}

/// A mapping of that backing file. Live memory is clean, and met by jobs that only measure.
fn note_shown(results: &Results, kept: &mut Kept, slot: usize, v: &Vma) {
    results.set_gone(slot, false);
    results.report.shown.add(v.len());
    if v.perms & SHARED == 0 {
        results.report.dirty.add(v.anon);
        results.report.dirty_mappings.add(usize::from(v.anon > 0));
        kept.push(*v);
    }
}

/// The registry slot of the backing file a mapping shows; anchors do not count.
fn file_of(v: &Vma, registry: &Registry) -> Option<usize> {
    if v.inode == 0 {
        return None;
    }
    let slot = registry.find(v.dev, v.inode)?;
    let file = registry.get(slot)?;
    let anchor = if v.perms & SHARED == 0 { file.anchor_private } else { file.anchor_shared };
    (anchor != v.start).then_some(slot)
}

/// A mapping without the runtime's own pages in it.
fn around_all(v: &Vma, own: &OwnRanges) -> impl Iterator<Item = Vma> {
    let [first, second] = *own;
    let parts = around(v, first).into_iter().flatten();
    parts.flat_map(move |part| around(&part, second)).flatten()
}

/// The same of one range of them.
fn around(v: &Vma, own: (usize, usize)) -> [Option<Vma>; 2] {
    if own.1 <= v.start || own.0 >= v.end {
        return [Some(*v), None];
    }
    let part = |start: usize, end: usize| (start < end).then_some(Vma { start, end, ..*v });
    [part(v.start, own.0.max(v.start)), part(own.1.min(v.end), v.end)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_status() {
        let text = b"Name:\tx\nTracerPid:\t0\nThreads:\t4\nMemAvailable:   123 kB\n";
        assert_eq!(field(text, b"Threads:"), Some(4));
        assert_eq!(field(text, b"MemAvailable:"), Some(123));
        assert_eq!(field(text, b"Nope:"), None);
    }

    #[test]
    fn own_memory_is_cut_out() {
        let v = Vma { start: 0x1000, end: 0x9000, ..Vma::default() };
        let ends = |own| around(&v, own).map(|p| p.map(|p| (p.start, p.end)));
        assert_eq!(ends((0x3000, 0x5000)), [Some((0x1000, 0x3000)), Some((0x5000, 0x9000))]);
        assert_eq!(ends((0xa000, 0xb000)), [Some((0x1000, 0x9000)), None]);
        assert_eq!(ends((0x1000, 0x9000)), [None, None]);
        assert_eq!(ends((0x0, 0x2000)), [None, Some((0x2000, 0x9000))]);
        let all = around_all(&v, &[(0x7000, 0x8000), (0x1000, 0x3000)]);
        let parts: Vec<_> = all.map(|p| (p.start, p.end)).collect();
        assert_eq!(parts, [(0x3000, 0x7000), (0x8000, 0x9000)]);
    }

    #[test]
    fn paths_and_digits() {
        let mut b = [0; 20];
        let p = Path::join(&[b"/proc/", digits(4711, &mut b), b"/status"]);
        assert_eq!(p.c_str(), c"/proc/4711/status");
        assert_eq!(digits(0, &mut [0; 20]), b"0");
    }
}
