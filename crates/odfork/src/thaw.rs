//! Thawing: mappings of backing files back to anonymous memory, with their content or,
//! where the program asked for that, as zeros.
//!
//! The truth about every address is asked from the kernel (`PROCMAP_QUERY`,
//! Linux 6.11, else `/proc/self/maps`). Runs in the helper task.

use crate::args;
use crate::content::Filling;
use crate::kept;
use crate::leave::{self, Leaving};
use crate::maps::{self, covering_or_next};
use crate::open_files::Found;
use crate::pagemap::{Pagemap, Want};
use crate::quiesce::{self, Quiesced};
use crate::reason::{Done, Reason, Stop};
use crate::registry::Registry;
use crate::results::View;
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::abi::advice::MADV_GUARD_INSTALL;
use crate::sys::{self, Errno, Kernel, SysResult, HUGE};
use crate::vma::{Vma, SHARED};

/// Bytes that are copied at a time.
const CHUNK: usize = 32 << 20;
/// The same where new mappings are locked: each counts against the limit of locked memory, until it
/// is unlocked.
const CHUNK_LOCKED: usize = 1 << 20;

/// What becomes of the content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Frozen mappings become anonymous with the same bytes.
    Keep,
    /// The same, and the files give each part back at once, so that little exists twice. Where one
    /// cannot, or nothing is free, it ends.
    Leave,
    /// Frozen mappings become zeros: the advice of this number gave them up.
    Zero(i32),
    /// The whole range becomes one anonymous mapping with the same bytes, as
    /// `mremap` needs it, if it could have been one on stock.
    Join,
}

/// A range to thaw.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub start: usize,
    pub end: usize,
    pub content: Content,
    /// The program lets the range move: whoever writes to it meanwhile races with
    /// the program's own call, and threads need not be held.
    pub moves: bool,
    pub subject: Subject<'a>,
}

impl Order<'_> {
    /// Content is copied, and the copy takes its place.
    pub fn keeps(&self) -> bool {
        !matches!(self.content, Content::Zero(_))
    }
}

/// The job: every part of the range that shows a backing file becomes anonymous. What the kernel
/// may write to by itself stays: a copy would miss it.
pub fn job(s: &mut Scratch, order: &Order, found: Found) -> Done<()> {
    // A copy on the task's own stack: the caller's may be part of what is thawed.
    let o = *order;
    s.kernel.enter(Step::Thaw);
    let fail = |e| Stop::failed(Reason::NoProc, Step::Thaw, e);
    let fd = scan::open(&s.kernel, c"/proc/self/maps").map_err(fail)?;
    s.work.locks = scan::locks_new(s);
    let mut threads = 1;
    if o.keeps() {
        threads = scan::fences(s, &o.subject)?;
        // Who is held is the threads of the process.
        let refusal = if o.subject.shared_vm {
            Some(Reason::SharedVm)
        } else if found.may_pin(threads) || maps::pin(s, fd).map_err(fail)? {
            Some(Reason::Pinned)
        } else {
            None
        };
        if let Some(reason) = refusal {
            // Without it nothing need be copied, and the kernel answers.
            return match shows_backed(s, &o, fd).map_err(fail)? {
                true => Err(Stop::of(reason)),
                false => Ok(()),
            };
        }
    }
    let quiesced = quiesce(s, &o, (fd, threads), found)?;
    let done = thaw(s, &o, fd);
    if let Some(quiesced) = quiesced {
        quiesced.release(s, &o.subject);
    }
    done
}

/// Holds whoever could write to what is moved. Content that is given up needs none of it: whoever
/// writes to it meanwhile races with the program's own call.
fn quiesce(
    s: &mut Scratch,
    o: &Order,
    (fd, threads): (i32, u64),
    found: Found,
) -> Done<Option<Quiesced>> {
    if !o.keeps() {
        return Ok(None);
    }
    if o.content == Content::Leave {
        // What is read behind the page tables stays in its file, and a view of a whole file is not
        // for being locked.
        found.forbids(threads)?;
        if found.zerocopy || s.work.locks {
            return Err(Stop::of(Reason::Pinned));
        }
    }
    if threads == 1 && o.end - o.start <= CHUNK {
        return Ok(watch(s, o, fd));
    }
    match Quiesced::begin(s, &o.subject, threads, true) {
        Err(stop) if threads > 1 && !o.moves => Err(stop),
        quiesced => Ok(quiesced.ok()),
    }
}

/// The same where nobody else runs in the process: other processes may write to the range. That
/// costs as much as the range has mappings, whatever else there is. If it cannot be had it is done
/// without.
fn watch(s: &mut Scratch, o: &Order, fd: i32) -> Option<Quiesced> {
    if o.subject.sanitizer != [0; 2] {
        return None;
    }
    let (mut at, mut watched) = (o.start, None::<Quiesced>);
    while at < o.end {
        let v = covering_or_next(s, fd, at).ok()?.filter(|v| v.start < o.end);
        let Some(v) = v else { break };
        at = v.end;
        let part = Vma { start: v.start.max(o.start), end: v.end.min(o.end), ..v };
        if !quiesce::is_protectable(&v, &o.subject) {
            continue;
        }
        match &watched {
            Some(quiesced) => quiesced.protect(s, &part),
            None => watched = Quiesced::watch(s, &part),
        }
    }
    watched
}

fn thaw(s: &mut Scratch, o: &Order, fd: i32) -> Done<()> {
    s.kernel.enter(Step::Thaw);
    let fail = |e| Stop::failed(Reason::NoProc, Step::Thaw, e);
    if o.content == Content::Join && join(s, o, fd)? {
        return Ok(());
    }
    let (mut at, mut by_hand) = (o.start, false);
    while at < o.end {
        let Some(v) = covering_or_next(s, fd, at).map_err(fail)? else { break };
        let (start, end) = (v.start.max(at), v.end.min(o.end));
        if start < end {
            let ours = is_backed(&v, o.subject.registry);
            if refuses(s, (start, end), o.content, ours) {
                s.results.report.refused.set(1);
                break;
            }
            if ours {
                by_hand |= replace(s, &v, (start, end), o)?;
            }
        }
        at = v.end.max(at + 1);
    }
    // After zeros were written by hand the kernel must not hear the advice for those pages: it
    // would show the backing file. All others have heard it.
    if by_hand {
        s.results.report.by_hand.set(1);
    }
    Ok(())
}

/// Some of the range shows a backing file.
fn shows_backed(s: &mut Scratch, o: &Order, fd: i32) -> SysResult<bool> {
    let mut at = o.start;
    while at < o.end {
        let Some(v) = covering_or_next(s, fd, at)?.filter(|v| v.start < o.end) else { break };
        if is_backed(&v, o.subject.registry) {
            return Ok(true);
        }
        at = v.end;
    }
    Ok(false)
}

/// The kernel refuses the advice for this mapping, and does not come to what lies behind. What is
/// not ours (`ours`) hears the advice here. A locked mapping of ours keeps its content: it refuses
/// DONTNEED and FREE, and so it refuses MADV_COLD, which changes nothing (Linux 5.4).
fn refuses(s: &Scratch, (start, end): (usize, usize), content: Content, ours: bool) -> bool {
    let advice = match content {
        Content::Zero(advice) if !ours => advice,
        Content::Zero(libc::MADV_DONTNEED | libc::MADV_FREE) => libc::MADV_COLD,
        _ => return false,
    };
    // SAFETY: the program's own advice for its own memory, or one without effect on content.
    let answer = unsafe { s.kernel.call(libc::SYS_madvise, args![start, end - start, advice]) };
    answer == Err(Errno(libc::EINVAL))
}

fn is_backed(v: &Vma, registry: &Registry) -> bool {
    registry.find(v.dev, v.inode).is_some()
        && v.perms & SHARED == 0
        && !registry.live().any(|(_, i)| i.anchor_private == v.start)
}

/// One anonymous mapping over the range, if all of it is private, anonymous (or
/// was, before freezing), equally protected and advised; false if it is not. Then its parts
/// are thawed one by one: the kernel may move mixed mappings too (Linux 6.17), and a
/// backing file that moved or grew unseen would show its file. What is frozen has no property but
/// those that are known; what lies beside it may be anything, and the kernel is asked.
fn join(s: &mut Scratch, o: &Order, fd: i32) -> Done<bool> {
    let fail = |e| Stop::failed(Reason::NoProc, Step::Thaw, e);
    if o.subject.addresses.first_wiped(o.start, o.end).is_some() {
        return Ok(false);
    }
    let (mut at, mut perms, mut kept, mut parts) = (o.start, None, None, 0);
    let mut others = false;
    while at < o.end {
        let Some(v) = covering_or_next(s, fd, at).map_err(fail)? else { return Ok(false) };
        let ours = is_backed(&v, o.subject.registry);
        let like = v.perms & SHARED == 0 && (ours || v.inode == 0);
        if v.start > at || !like || perms.is_some_and(|p| p != v.perms) {
            return Ok(false);
        }
        others |= !ours;
        if ours {
            let end = v.end.min(o.end);
            let (bits, until) = o.subject.addresses.kept(at, end);
            if until < end || kept.is_some_and(|kept| kept != bits) {
                return Ok(false);
            }
            kept = Some(bits);
        }
        (at, perms, parts) = (v.end, Some(v.perms), parts + 1);
    }
    if others {
        let range = (o.start, o.end);
        kept = scan::common_properties(s, o.subject.registry, range, kept).map_err(fail)?;
        if kept.is_none() {
            return Ok(false);
        }
    }
    let prot = i32::from(perms.unwrap_or(0) & 7);
    let first = covering_or_next(s, fd, o.start).map_err(fail)?.unwrap_or_default();
    if parts > 1 || is_backed(&first, o.subject.registry) {
        thaw_chunk(s, o, (o.start, o.end), prot, kept)?;
        s.results.report.thawed.add(o.end - o.start);
    }
    Ok(true)
}

/// Replaces a part of such a mapping; true if zeros were written by hand instead.
fn replace(s: &mut Scratch, v: &Vma, (start, end): (usize, usize), o: &Order) -> Done<bool> {
    let prot = i32::from(v.perms & 7);
    s.results.report.thawed.add(end - start);
    match o.content {
        Content::Zero(_) => match anonymous(s, o, (start, end), prot) {
            Ok(()) => Ok(false),
            // Zeros are no guard.
            Err(stop) if o.content == Content::Zero(MADV_GUARD_INSTALL) => Err(stop),
            Err(stop) => write_zeros(s, (start, end)).map(|()| true).map_err(|_| stop),
        },
        _ => keep_content(s, o, v, (start, end)).map(|()| false),
    }
}

/// Where the mapping cannot be replaced (at the map-count limit, or sealed),
/// zeros are written, through `/proc/self/mem` so that protection does not matter.
fn write_zeros(s: &mut Scratch, (start, end): (usize, usize)) -> SysResult<()> {
    let a = args![libc::AT_FDCWD, c"/proc/self/mem".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0];
    s.work.text.fill(0);
    // SAFETY: writes zeros over content that the program gave up.
    unsafe {
        let fd = s.kernel.call(libc::SYS_openat, a)?;
        let mut at = start;
        while at < end {
            let n = s.work.text.len().min(end - at);
            at += s.kernel.call(libc::SYS_pwrite64, args![fd, s.work.text.as_ptr(), n, at])?;
        }
        scan::close(fd as i32);
    }
    Ok(())
}

fn anonymous(s: &Scratch, o: &Order, (start, end): (usize, usize), prot: i32) -> Done<()> {
    s.kernel.enter(Step::Thaw);
    let (kept, _) = o.subject.addresses.kept(start, end);
    kept::map(&s.kernel, (start, end), prot, libc::MAP_FIXED, kept)
        .map_err(|e| Stop::failed(Reason::Step, Step::Thaw, e))?;
    unlock(s, (start, end));
    kept::advise_again(o.subject.addresses, (start, end));
    Ok(())
}

/// What was frozen was not locked, whatever the program asked for new mappings since.
fn unlock(s: &Scratch, (start, end): (usize, usize)) {
    if s.work.locks {
        // SAFETY: changes no content.
        unsafe { sys::raw(libc::SYS_munlock, args![start, end - start]) };
    }
}

/// Anonymous memory is filled elsewhere and then moved over the range at once,
/// so that nobody ever sees it half-filled. `v`: the mapping that the range is part of.
fn keep_content(s: &mut Scratch, o: &Order, v: &Vma, range: (usize, usize)) -> Done<()> {
    let prot = i32::from(v.perms & 7);
    if o.content == Content::Leave {
        let replace = |s: &mut Scratch, range| thaw_chunk(s, o, range, prot, None);
        let subject = &o.subject;
        let leaving = Leaving { subject, mapping: v, range, most: CHUNK, replace: &replace };
        return leave::leave_file(s, &leaving);
    }
    let chunk = if s.work.locks { CHUNK_LOCKED } else { CHUNK };
    let (mut at, end) = range;
    while at < end {
        let to = (at + chunk).min(end);
        thaw_chunk(s, o, (at, to), prot, None)?;
        at = to;
    }
    Ok(())
}

/// `kept`: the properties of all of it; else each part gets its own.
fn thaw_chunk(
    s: &mut Scratch,
    o: &Order,
    (at, to): (usize, usize),
    prot: i32,
    kept: Option<u32>,
) -> Done<()> {
    let fail = |e| Stop::failed(Reason::Step, Step::Thaw, e);
    let (len, rw) = (to - at, libc::PROT_READ | libc::PROT_WRITE);
    let hint = s.results.zone().next_multiple_of(HUGE) + HUGE;
    let properties = kept.unwrap_or_else(|| o.subject.addresses.kept(at, to).0);
    let fresh = kept::map(&s.kernel, (hint, hint + len), rw, 0, properties).map_err(fail)?;
    s.results.note_view(View::Fresh, fresh, len);
    unlock(s, (fresh, fresh + len));
    let filled = fill(s, o, (at, to), fresh, prot);
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the range shows backing file memory of ours (or is joined with it), and
    // `fresh` holds the same bytes with the same protection.
    let moved = filled.and_then(|()| unsafe {
        if prot != rw {
            s.kernel.call(libc::SYS_mprotect, args![fresh, len, prot]).map_err(fail)?;
        }
        s.kernel.call(libc::SYS_mremap, args![fresh, len, len, how, at]).map_err(fail)
    });
    if moved.is_ok() {
        s.results.forget_view(View::Fresh);
        if kept.is_none() {
            kept::advise_again(o.subject.addresses, (at, to));
        }
    } else {
        s.results.drop_view(View::Fresh);
    }
    moved.map(|_| ())
}

/// A part of one mapping of a backing file, which can be read and written. Everybody is held.
pub fn part(s: &mut Scratch, subject: &Subject, v: &Vma, range: (usize, usize)) -> Done<()> {
    s.kernel.enter(Step::Thaw);
    let (start, end) = range;
    let o = Order { start, end, content: Content::Keep, moves: false, subject: *subject };
    keep_content(s, &o, v, range)
}

/// Copies a range: what a backing file shows as a whole, anonymous parts where they
/// are populated (the rest may be protected, and it is zero).
fn fill(s: &mut Scratch, o: &Order, (at, to): (usize, usize), fresh: usize, prot: i32) -> Done<()> {
    let fail = |e| Stop::failed(Reason::Step, Step::Thaw, e);
    let open = |s: &mut Scratch, path| scan::open(&s.kernel, path).map_err(fail);
    let maps = open(s, c"/proc/self/maps")?;
    let pagemap = open(s, c"/proc/self/pagemap")?;
    let mut filling = Filling::of(&s.kernel, fresh, to - at);
    let mut from = at;
    while from < to {
        let Some(v) = covering_or_next(s, maps, from).map_err(fail)? else { break };
        let (a, b) = (v.start.max(from), v.end.min(to));
        from = v.end;
        if a >= b {
            break;
        }
        let mut copy = |_: &Kernel, a: usize, b: usize| {
            // SAFETY: readable memory of the program, and its place in the fresh mapping.
            unsafe { filling.copy(a, fresh + a - at, b - a) };
            Ok(())
        };
        if prot & libc::PROT_READ == 0 {
            // SAFETY: protection of memory that is replaced next.
            unsafe { s.kernel.call(libc::SYS_mprotect, args![a, b - a, libc::PROT_READ]) }
                .map_err(fail)?;
        }
        if is_backed(&v, o.subject.registry) {
            copy(&s.kernel, a, b).map_err(fail)?;
        } else {
            Pagemap { fd: pagemap, buf: &mut s.work.pagemap }
                .runs(&s.kernel, (a, b), Want::Populated, &mut copy)
                .map_err(fail)?;
        }
    }
    scan::close(maps);
    scan::close(pagemap);
    Ok(())
}
