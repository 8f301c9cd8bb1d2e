//! Freezing: moving anonymous memory into a new backing file, in place.
//!
//! Owns the steps backing file, anchors, copy and map. Runs in the helper task.
//!
//! ```text
//! for every piece of a mapping           (plan.rs)
//!   file   make a file, map its anchors
//!   for every 32 MB of the piece
//!     copy   write the populated pages into the file, while the price allows it
//!     map    map the file over the piece, privately (frees the old pages)
//! ```
//! Whatever fails, what was mapped so far is whole and what was not is as it
//! was: nothing has to be undone. Extra memory is one chunk at most.

use odfork_model::Trial;

use crate::args;
use crate::backing::{self, DATA};
use crate::kept::NORESERVE;
use crate::pagemap::{Pagemap, Want};
use crate::plan::{part_len, Kind, Piece, Planner};
use crate::reason::{Done, Reason, Stop};
use crate::registry::BackingFile;
use crate::scratch::{Scratch, TEXT};
use crate::source::Source;
use crate::step::Step;
use crate::sys::{now_ns, Errno, Kernel, SysResult, HUGE, PAGE};
use crate::vma::Vma;

/// Bytes copied before their old pages are freed.
const CHUNK: usize = 32 << 20;

/// Shorter runs of 4 KB pages are left to be mapped by page faults (64 KB).
const MIN_POPULATED: usize = 64 << 10;

/// Where the populated pages of a piece are looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Anonymous memory: the page tables tell.
    Anonymous,
    /// A backing file mapping being rebuilt: its file's pages and the dirty ones.
    Backed,
}

/// The files a pass works with.
#[derive(Clone, Copy)]
pub struct Tools {
    pub source: Source,
    pub pagemap: i32,
    pub probe: usize,
    /// What the pass may cost.
    pub trial: Trial,
}

/// Which parts of an anonymous mapping are to be frozen.
pub fn plan_vma(s: &mut Scratch, pagemap: i32, huge: bool, vma: &Vma) -> Done<Planner> {
    s.kernel.enter(Step::Plan);
    let fail = |e| Stop::failed(Reason::Step, Step::Plan, e);
    let mut planner = Planner::new(vma.start, vma.end, huge);
    Pagemap { fd: pagemap, buf: &mut s.work.pagemap }
        .runs(&s.kernel, (vma.start, vma.end), Want::Populated, &mut |_, a, b| {
            planner.feed(a, b);
            Ok(())
        })
        .map_err(fail)?;
    Ok(planner)
}

/// Freezes one anonymous mapping. Returns bytes copied.
pub fn freeze_vma(s: &mut Scratch, tools: &Tools, vma: &Vma) -> Done<usize> {
    let mut planner = plan_vma(s, tools.pagemap, tools.source.huge(), vma)?;
    let mut bytes = 0;
    for piece in planner.finish().iter().filter(|p| tools.source.takes(p.kind)) {
        bytes += freeze_piece(s, tools, piece, vma, Content::Anonymous)?;
    }
    Ok(bytes)
}

/// Freezes one piece into a new backing file. Returns bytes copied.
pub fn freeze_piece(
    s: &mut Scratch,
    tools: &Tools,
    piece: &Piece,
    vma: &Vma,
    content: Content,
) -> Done<usize> {
    if s.results.created_count() >= s.work.files_left {
        return Err(Stop::of(Reason::MapLimit));
    }
    let part = part_len(piece);
    let last = Part::at(piece, part, piece.len().div_ceil(part) - 1);
    let span = (last.offset + last.end - last.start).next_multiple_of(PAGE);
    let fd = tools.source.file(&s.kernel, piece.kind, span)?;
    let done = fill(s, tools, fd, (piece, part, span), vma, content);
    crate::scan::close(fd);
    done
}

fn fill(
    s: &mut Scratch,
    tools: &Tools,
    fd: i32,
    (piece, part, span): (&Piece, usize, usize),
    vma: &Vma,
    content: Content,
) -> Done<usize> {
    let fail = |e| Stop::failed(Reason::Step, Step::Backing, e);
    let (dev, inode) = backing::identity(&s.kernel, fd).map_err(fail)?;
    let mut im = BackingFile {
        dev,
        inode,
        start: piece.start,
        end: piece.start,
        span,
        probe: tools.probe,
        huge: u32::from(piece.kind == Kind::Huge),
        fresh: u32::from(content == Content::Anonymous),
        live: 1,
        kept: vma.kept,
        ..BackingFile::default()
    };
    let anchored = backing::map_anchors(s, fd, &mut im);
    // From here on the backing file counts: its mappings may be in the program.
    s.results.create(&im);
    anchored.map_err(|e| Stop::failed(Reason::Step, Step::Anchor, e))?;
    let mut bytes = 0;
    for i in 0..piece.len().div_ceil(part) {
        let p = Part::at(piece, part, i);
        let mut at = p.start;
        while at < p.end {
            let end = (at + CHUNK).min(p.end);
            let offset = p.offset + (at - p.start);
            let to = Place { fd, kind: piece.kind, offset };
            let (copied, reached) = copy(s, tools, (at, end), to, content)?;
            if reached > at {
                // Before mapping: should the helper be killed in between, the range is known.
                s.results.extend_latest(reached, copied);
                map(s, fd, (at, reached), offset, vma)?;
                populate(s, (at, reached), piece.kind);
                bytes += copied;
                s.results.report.frozen.add(copied);
            }
            if reached < end {
                return Err(Stop::of(Reason::Price));
            }
            at = end;
        }
    }
    Ok(bytes)
}

/// Maps what was just frozen: in 4 KB pages only where the file has some, or it would get more.
fn populate(s: &mut Scratch, range: (usize, usize), kind: Kind) {
    let kernel = s.kernel;
    if kind == Kind::Huge {
        return backing::populate(&kernel, range);
    }
    let _ = resident(&kernel, &mut s.work.text, range, &mut |k, a, b| {
        if b - a >= MIN_POPULATED {
            backing::populate(k, (a, b));
        }
        Ok(())
    });
}

/// One part of a piece and its place in the file. Parts of a 4 KB backing file lie
/// 2 MB apart in the file, so that the kernel keeps them separate mappings.
struct Part {
    start: usize,
    end: usize,
    offset: usize,
}

impl Part {
    fn at(piece: &Piece, part: usize, i: usize) -> Part {
        let start = piece.start + i * part;
        let end = (start + part).min(piece.end);
        Part { start, end, offset: DATA + piece.start % HUGE + i * (part + HUGE) }
    }
}

/// Where bytes go.
#[derive(Clone, Copy)]
struct Place {
    fd: i32,
    kind: Kind,
    offset: usize,
}

/// Step `copy`: writes the populated pages of `start..end` to the file, window by window while the
/// price allows it. Returns bytes written, and where it stopped.
fn copy(
    s: &mut Scratch,
    tools: &Tools,
    (start, end): (usize, usize),
    to: Place,
    content: Content,
) -> Done<(usize, usize)> {
    s.kernel.enter(Step::Copy);
    let hint = s.results.zone();
    let (mut bytes, mut reached) = (0, end);
    let mut windows = Windows::new(tools.trial, start);
    let mut write = |k: &Kernel, a: usize, b: usize| {
        let mut at = a;
        while at < b && reached == end {
            let stop = Windows::end_of(at).min(b);
            if windows.is_new(at) {
                let first = windows.start_of(at);
                if !windows.may_enter(at) {
                    reached = first;
                    break;
                }
                if to.kind == Kind::Huge {
                    let whole = stop - at == HUGE;
                    tools.source.prepare(k, hint, to.fd, to.offset + (first - start), whole);
                }
            }
            write_all(k, to.fd, at, stop - at, to.offset + (at - start))?;
            bytes += stop - at;
            at = stop;
        }
        Ok(())
    };
    let kernel = s.kernel;
    let done = match content {
        Content::Anonymous => Pagemap { fd: tools.pagemap, buf: &mut s.work.pagemap }.runs(
            &kernel,
            (start, end),
            Want::Populated,
            &mut write,
        ),
        // A page that is swapped out is not resident: with swap, copy everything.
        Content::Backed if s.work.swap => write(&kernel, start, end),
        Content::Backed => resident(&kernel, &mut s.work.text, (start, end), &mut write),
    };
    done.map_err(|e| Stop::failed(Reason::Step, Step::Copy, e))?;
    Ok((bytes, reached))
}

/// The steps in which a price is paid: windows of 2 MB, each entered once and only if the price
/// allows it.
struct Windows {
    trial: Trial,
    start: usize,
    entered: Option<usize>,
}

impl Windows {
    fn new(trial: Trial, start: usize) -> Self {
        Windows { trial, start, entered: None }
    }

    fn start_of(&self, at: usize) -> usize {
        (at / HUGE * HUGE).max(self.start)
    }

    fn end_of(at: usize) -> usize {
        (at / HUGE + 1) * HUGE
    }

    fn is_new(&self, at: usize) -> bool {
        self.entered != Some(at / HUGE)
    }

    fn may_enter(&mut self, at: usize) -> bool {
        self.entered = Some(at / HUGE);
        self.trial.affords(now_ns())
    }
}

fn write_all(k: &Kernel, fd: i32, at: usize, len: usize, offset: usize) -> SysResult<()> {
    let mut done = 0;
    while done < len {
        let a = args![fd, at + done, len - done, offset + done];
        // SAFETY: the kernel reads program memory; an unreadable page is EFAULT.
        match unsafe { k.call(libc::SYS_pwrite64, a) }? {
            0 => return Err(Errno(libc::EIO)),
            n => done += n,
        }
    }
    Ok(())
}

/// Runs of pages of a backing file mapping that have content: in the file's page
/// cache or copied on write (`mincore`; the rest are holes, which read as zeros).
fn resident(
    k: &Kernel,
    vec: &mut [u8; TEXT],
    (start, end): (usize, usize),
    each: &mut dyn FnMut(&Kernel, usize, usize) -> SysResult<()>,
) -> SysResult<()> {
    let pages = (end - start) / PAGE;
    debug_assert!(pages <= vec.len());
    // SAFETY: one byte a page, CHUNK / PAGE of them fit.
    unsafe { k.call(libc::SYS_mincore, args![start, end - start, vec.as_mut_ptr()]) }?;
    let mut i = 0;
    while i < pages {
        let from = i;
        while i < pages && vec[i] & 1 == 1 {
            i += 1;
        }
        if i > from {
            each(k, start + from * PAGE, start + i * PAGE)?;
        }
        i += 1;
    }
    Ok(())
}

/// Step `map`: replaces `start..end` by the file, privately.
fn map(
    s: &mut Scratch,
    fd: i32,
    (start, end): (usize, usize),
    offset: usize,
    vma: &Vma,
) -> Done<()> {
    s.kernel.enter(Step::Map);
    let prot = i32::from(vma.perms & 7);
    let reserve = if vma.kept & NORESERVE != 0 { libc::MAP_NORESERVE } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | reserve;
    let a = args![start, end - start, prot, flags, fd, offset];
    // SAFETY: the bytes are in the file; the kernel replaces the range at once.
    match unsafe { s.kernel.call(libc::SYS_mmap, a) } {
        Ok(_) => Ok(()),
        Err(e) => {
            rescue(a);
            Err(Stop::failed(Reason::Step, Step::Map, e))
        }
    }
}

/// A failed `mmap(MAP_FIXED)` leaves the old mapping in place, except that
/// kernels before 6.12 may have removed it when memory for their own records
/// ran out in the middle. Then the content is in the file only: keep trying.
fn rescue(a: [usize; 6]) {
    for _ in 0..1000 {
        // ENOMEM: part of the range is unmapped. A call that any filter allows that let the helper
        // come here: `mincore` may kill.
        let ask = args![a[0], a[1], libc::MADV_COLD];
        // SAFETY: changes the age of pages and nothing else.
        let there = unsafe { crate::sys::call(libc::SYS_madvise, ask) };
        if there != Err(Errno(libc::ENOMEM)) {
            return;
        }
        // SAFETY: as in `map`; bypasses the test's faults on purpose.
        if unsafe { crate::sys::call(libc::SYS_mmap, a) }.is_ok() {
            return;
        }
        crate::sys::sleep_ms(10);
    }
}
