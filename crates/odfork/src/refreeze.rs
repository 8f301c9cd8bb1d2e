//! Refreezing: making mappings of backing files clean again, so that fork has nothing
//! to copy.
//!
//! Owns the write-back of dirty pages into their backing file, in place, and the step
//! `remap` (a fresh mapping without `anon_vma`); where a descendant may still
//! show the backing file, the mapping is rebuilt in a new backing file instead. Runs in the
//! helper task.
//!
//! In place is safe only while the backing file's probe is exclusive: then no process
//! but this one shows the backing file, and this one has its own copy of every page
//! that is overwritten. A child forked *later* than that check inherits those
//! copies, so it cannot see the file change either.

use odfork_model::Trial;

use crate::args;
use crate::backing;
use crate::freeze::{freeze_piece, Content, Tools};
use crate::pagemap::{Pagemap, Want};
use crate::plan::{Kind, Piece};
use crate::reason::{Done, Reason, Stop};
use crate::registry::{BackingFile, Registry, MAX_FILES};
use crate::results::{Results, View};
use crate::scan::Subject;
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{self, Kernel, HUGE, PAGE};
use crate::vma::{Vma, READ, WRITE};

/// Bytes written back before the private copies go.
const CHUNK: usize = 32 << 20;
/// Bytes of a file that nothing shows, from which on they are given back.
const WORTH_PUNCHING: usize = 4 << 20;

/// True if nobody but this process can show the backing file.
pub fn alone(s: &mut Scratch, pagemap: i32, file: &BackingFile) -> bool {
    s.kernel.enter(Step::Probe);
    if file.probe == 0 || file.anchor_shared == 0 {
        return false;
    }
    Pagemap { fd: pagemap, buf: &mut s.work.pagemap }
        .exclusive(&s.kernel, file.probe)
        .unwrap_or(false)
}

/// Its dirty pages may be written back in place. A page that is in a pipe or a socket has no
/// mapping a probe could show.
pub fn in_place(s: &mut Scratch, subject: &Subject, pagemap: i32, file: &BackingFile) -> bool {
    !subject.spliced && alone(s, pagemap, file)
}

/// Refreezes every dirty mapping of a backing file. Stops at the first failure; what is refrozen
/// by then is whole, the rest stays dirty, which is only slower.
pub fn refreeze_all(s: &mut Scratch, tools: &Tools, subject: &Subject) -> Done<()> {
    for (slot, file) in subject.registry.live() {
        if s.results.is_gone(slot) || !is_dirty(s, file) {
            continue;
        }
        if !tools.trial.affords(sys::now_ns()) {
            return Err(Stop::of(Reason::Price));
        }
        if in_place(s, subject, tools.pagemap, file) {
            write_back(s, tools.pagemap, file)?;
        } else {
            let shared = subject.registry.shared().iter().any(|part| part.slot == slot);
            if rebuild(s, tools, file)? && !shared && !subject.spliced {
                // What else it holds are descendants' pages, which go with them: this process
                // may sleep then.
                s.results.set_gone(slot, true);
            }
        }
    }
    Ok(())
}

fn is_dirty(s: &Scratch, file: &BackingFile) -> bool {
    (0..s.vma_count()).any(|i| {
        let v = s.vma(i);
        v.shows(file.dev, file.inode) && v.anon > 0
    })
}

/// Dirty mappings of a file that can be replaced.
fn refreezable(s: &Scratch, v: &Vma, file: &BackingFile) -> bool {
    v.shows(file.dev, file.inode) && v.anon > 0 && is_replaceable(s, v)
}

/// A mapping that can be replaced without losing a property.
pub fn is_replaceable(s: &Scratch, v: &Vma) -> bool {
    crate::quiesce::excluded_range(s, v, v.start).is_none()
        && v.plain_flags
        && !v.hinted
        && !v.watched
        && !v.special
        && matches!(v.perms, p if p == READ | WRITE || p == READ)
}

/// Copies the dirty pages into the backing file and maps it afresh, `CHUNK` bytes at a time: where
/// the file has a hole now, a page exists twice until its private copy goes.
fn write_back(s: &mut Scratch, pagemap: i32, file: &BackingFile) -> Done<()> {
    with_views(s, file, |s, views| write_all(s, pagemap, file, views))
}

/// The same of a part of one mapping, while the price allows it. Returns where it stopped.
pub fn write_back_part(
    s: &mut Scratch,
    pagemap: i32,
    file: &BackingFile,
    (v, range): (&Vma, (usize, usize)),
    trial: Trial,
) -> Done<usize> {
    with_views(s, file, |s, views| write_part(s, pagemap, file, (v, range), views, trial))
}

/// Does it with a shared and a fresh private view of the file.
fn with_views<T>(
    s: &mut Scratch,
    file: &BackingFile,
    work: impl FnOnce(&mut Scratch, (usize, usize)) -> Done<T>,
) -> Done<T> {
    s.kernel.enter(Step::Refreeze);
    let fail = |step| move |e| Stop::failed(Reason::Step, step, e);
    let zone = s.results.zone();
    let view = backing::shared_view(&s.kernel, zone, file).map_err(fail(Step::Refreeze))?;
    s.results.note_view(View::Shared, view, file.span);
    s.kernel.enter(Step::Remap);
    let result =
        backing::private_view(&s.kernel, zone, file).map_err(fail(Step::Remap)).and_then(|fresh| {
            s.results.note_view(View::Fresh, fresh, file.span);
            work(s, (view, fresh))
        });
    s.results.drop_view(View::Fresh);
    s.results.drop_view(View::Shared);
    result
}

fn write_all(s: &mut Scratch, pagemap: i32, file: &BackingFile, views: (usize, usize)) -> Done<()> {
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        if !refreezable(s, &v, file) {
            continue;
        }
        // Swapping goes on while the process stands still.
        if s.work.marked && !s.work.swap {
            let _ = Pagemap { fd: pagemap, buf: &mut s.work.pagemap }.note_dirty(
                &s.kernel,
                (v.start, v.end),
                v.anon,
            );
        }
        let mut at = v.start;
        while at < v.end {
            let part = (at, (at + CHUNK).min(v.end));
            at = write_part(s, pagemap, file, (&v, part), views, Trial::UNLIMITED)?;
        }
        s.work.pagemap.forget();
    }
    Ok(())
}

/// Windows of 2 MB while the price allows it, the first in any case; then they are mapped afresh.
fn write_part(
    s: &mut Scratch,
    pagemap: i32,
    file: &BackingFile,
    (v, (start, end)): (&Vma, (usize, usize)),
    (view, fresh): (usize, usize),
    trial: Trial,
) -> Done<usize> {
    let place = v.offset as usize + (start - v.start);
    let to = view + place;
    let (reached, bytes) = copy_windows(s, pagemap, (start, end), to, trial)?;
    s.results.report.written_back.add(bytes);
    remap(s, (start, reached), fresh + place, v.perms)?;
    if file.kind() == Kind::Huge {
        backing::populate(&s.kernel, (start, reached));
    }
    Ok(reached)
}

/// Write-back of the windows of a range, seen at `to`: where it stopped, and bytes written.
pub fn copy_windows(
    s: &mut Scratch,
    pagemap: i32,
    (start, end): (usize, usize),
    to: usize,
    trial: Trial,
) -> Done<(usize, usize)> {
    let (mut at, mut bytes) = (start, 0);
    while at < end && (at == start || trial.affords(sys::now_ns())) {
        let stop = (at / HUGE * HUGE + HUGE).min(end);
        bytes += copy_dirty(s, pagemap, (at, stop), to + (at - start))?;
        at = stop;
    }
    Ok((at, bytes))
}

/// Write-back: private copies of a range go to their place in the file, seen at `to`.
fn copy_dirty(
    s: &mut Scratch,
    pagemap: i32,
    (start, end): (usize, usize),
    to: usize,
) -> Done<usize> {
    s.kernel.enter(Step::Refreeze);
    let mut bytes = 0;
    let want = if s.work.marked { Want::DirtyMarked } else { Want::Dirty };
    let mut each = |_: &Kernel, a: usize, b: usize| {
        let to = to + (a - start);
        // SAFETY: `a..b` is readable program memory that nobody writes now
        // (signals blocked, threads held); `to` is the same place of the file in
        // the shared view, which covers the whole span.
        unsafe { sys::copy(a, to, b - a) };
        bytes += b - a;
        Ok(())
    };
    Pagemap { fd: pagemap, buf: &mut s.work.pagemap }
        .runs(&s.kernel, (start, end), want, &mut each)
        .map_err(|e| Stop::failed(Reason::Step, Step::Refreeze, e))?;
    Ok(bytes)
}

/// Step `remap`: moves a fresh private mapping of the file, `from`, over a refrozen range.
/// Until then the private copies stay, with the same bytes as the file.
pub fn remap(s: &mut Scratch, (start, end): (usize, usize), from: usize, perms: u8) -> Done<()> {
    s.kernel.enter(Step::Remap);
    let (len, how) = (end - start, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: `from` is part of the fresh view; the target shows the same
    // bytes of the same file, so replacing it changes nothing.
    let moved = unsafe {
        let narrowed = match perms {
            p if p == READ | WRITE => Ok(0),
            p => s.kernel.call(libc::SYS_mprotect, args![from, len, u32::from(p)]),
        };
        narrowed.and_then(|_| s.kernel.call(libc::SYS_mremap, args![from, len, len, how, start]))
    };
    moved.map(|_| ()).map_err(|e| Stop::failed(Reason::Step, Step::Remap, e))
}

/// Puts every dirty mapping of a backing file that others may show into a new backing file. True
/// if nothing here shows the old one any more.
fn rebuild(s: &mut Scratch, tools: &Tools, file: &BackingFile) -> Done<bool> {
    let mut all = true;
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        if !refreezable(s, &v, file) {
            all &= !v.shows(file.dev, file.inode);
            continue;
        }
        let pages = v.len() / PAGE;
        let kind = if tools.source.huge() { file.kind() } else { Kind::Small };
        let piece = Piece { start: v.start, end: v.end, pages, kind };
        s.results.report.rebuilt.add(freeze_piece(s, tools, &piece, &v, Content::Backed)?);
    }
    Ok(all)
}

/// A file of which this process shows so many bytes holds enough others to be worth punching.
pub fn keeps_unseen(file: &BackingFile, shown: usize) -> bool {
    file.bytes >= shown.saturating_add(WORTH_PUNCHING)
}

/// Gives back file pages that no mapping of this process shows any more.
/// Only while alone: a child may still show them.
pub fn punch_unseen(
    s: &mut Scratch,
    pagemap: i32,
    (slot, file): (usize, &BackingFile),
) -> Done<()> {
    let mappings = s.vmas().iter().filter(|v| v.shows(file.dev, file.inode));
    let seen: usize = mappings.map(|v| v.len()).sum();
    if !keeps_unseen(file, seen) || !alone(s, pagemap, file) {
        return Ok(());
    }
    s.kernel.enter(Step::Punch);
    let fail = |e| Stop::failed(Reason::Step, Step::Punch, e);
    let view = backing::shared_view(&s.kernel, s.results.zone(), file).map_err(fail)?;
    s.results.note_view(View::Shared, view, file.span);
    let mut at = backing::DATA;
    let mut result = Ok(());
    while at < file.span && result.is_ok() {
        let (busy, end) = next_seen(s, file, at);
        if busy > at {
            let a = args![view + at, busy - at, libc::MADV_REMOVE];
            // SAFETY: a part of the view that no mapping of any process shows.
            result = unsafe { s.kernel.call(libc::SYS_madvise, a) }.map(|_| ()).map_err(fail);
        }
        at = end;
    }
    s.results.drop_view(View::Shared);
    if result.is_ok() {
        s.results.note_punched(slot, seen);
    }
    result
}

/// The next file range at or after `at` that a mapping shows: (start, end),
/// or the end of the backing file twice.
fn next_seen(s: &Scratch, file: &BackingFile, at: usize) -> (usize, usize) {
    let mut best = (file.span, file.span);
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        let (from, to) = (v.offset as usize, v.offset as usize + v.len());
        if v.shows(file.dev, file.inode) && to > at && from.max(at) < best.0 {
            best = (from.max(at), to.min(file.span));
        }
    }
    best
}

/// Removes what is left of backing files that nothing shows, after a scan.
pub fn drop_unseen(registry: &mut Registry, results: &Results) {
    for slot in (0..MAX_FILES).filter(|&slot| results.is_gone(slot)) {
        if let Some(file) = registry.remove(slot) {
            backing::unmap_anchors(&file);
            // New files are not in the registry yet.
            if !results.created().any(|new| new.probe == file.probe) {
                drop_probe(registry, file.probe);
            }
        }
    }
}

/// Removes a probe that no backing file needs.
pub fn drop_probe(registry: &Registry, probe: usize) {
    let owed = registry.debt().probes.contains(&probe);
    if probe != 0 && !owed && !registry.live().any(|(_, i)| i.probe == probe) {
        // SAFETY: our own pages, used by no other backing file.
        unsafe { sys::munmap(probe, backing::PROBE) };
    }
}
