//! Growing: a backing file takes the anonymous memory that lies right behind its own.
//!
//! Owns how a piece is frozen that an earlier slice has begun. The file has no descriptor any more:
//! what is copied goes through a shared view of it, and a private view is moved over the range.
//!
//! ```text
//! memory   | shows the file, to `end` | anonymous ............ |
//! file     | content                  | hole: copy windows here | ...
//! ```
//! Whatever fails, the range is anonymous as before, or the file is mapped over it as far as it
//! was copied. Runs in the helper task.

use odfork_model::Trial;

use crate::args;
use crate::backing;
use crate::live;
use crate::pagemap::{Pagemap, Want};
use crate::plan::{Kind, Piece};
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::BackingFile;
use crate::results::View;
use crate::scan::Subject;
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{self, now_ns, Kernel, SysResult, HUGE};
use crate::vma::Vma;

/// A file that ends where the piece begins, and may take it. Not one that a relative with other
/// privileges could look into.
pub fn file_before(
    s: &Scratch,
    subject: &Subject,
    piece: &Piece,
    kept: u32,
) -> Option<(usize, BackingFile)> {
    let fits = |slot: usize, file: &BackingFile| {
        !s.results.is_gone(slot)
            && s.results.grown_end(slot).unwrap_or(file.end) == piece.start
            && (file.kind(), piece.kind) == (Kind::Huge, Kind::Huge)
            && file.kept == kept
            && file.anchor_shared != 0
            && file.probe != 0
    };
    if subject.spliced {
        return None;
    }
    subject.registry.live().find(|(slot, file)| fits(*slot, file)).map(|(slot, file)| (slot, *file))
}

/// Freezes as much of the piece into that file as the price allows. Returns where it stopped.
pub fn grow(
    s: &mut Scratch,
    pagemap: i32,
    (slot, file): (usize, &BackingFile),
    (piece, vma): (&Piece, &Vma),
    trial: Trial,
) -> Done<usize> {
    s.kernel.enter(Step::Copy);
    let fail = |step| move |e| Stop::failed(Reason::Step, step, e);
    let behind = live::place(file) + (piece.start - file.start);
    let all = BackingFile { span: file.span.max(behind + piece.len()), ..*file };
    let view = backing::shared_view(&s.kernel, s.results.zone(), &all).map_err(fail(Step::Copy))?;
    s.results.note_view(View::Shared, view, all.span);
    // A memfd makes huge pages where they are asked for, a tmpfs in any case.
    let a = args![view, all.span, libc::MADV_HUGEPAGE];
    // SAFETY: advice without effect on content.
    let _ = unsafe { s.kernel.call(libc::SYS_madvise, a) };
    let copied = copy(s, pagemap, piece, view + behind, trial);
    let done = copied.map_err(fail(Step::Copy)).and_then(|(bytes, reached)| {
        if reached > piece.start {
            // Before mapping: should the helper be killed in between, the range is known.
            s.results.note_grown(slot, reached, bytes);
            show(s, &all, (piece.start, reached), behind, vma)?;
            s.results.report.frozen.add(bytes);
        }
        Ok(reached)
    });
    s.results.drop_view(View::Shared);
    done
}

/// What is mapped there now may be shared without another look. Each range is asked about again.
pub fn note_frozen(s: &mut Scratch, file: &BackingFile, (start, end): (usize, usize), part: &Vma) {
    if file.kind() == Kind::Huge && start < end {
        let offset = (live::place(file) + (start - file.start)) as u64;
        let (dev, inode) = (file.dev, file.inode);
        s.keep_vma(Vma { start, end, offset, dev, inode, anon: 0, ..*part });
    }
}

/// Moves a private view of the file over the range.
fn show(
    s: &mut Scratch,
    file: &BackingFile,
    range: (usize, usize),
    behind: usize,
    vma: &Vma,
) -> Done<()> {
    s.kernel.enter(Step::Map);
    let fresh = backing::private_view(&s.kernel, s.results.zone(), file)
        .map_err(|e| Stop::failed(Reason::Step, Step::Map, e))?;
    s.results.note_view(View::Fresh, fresh, file.span);
    let moved = refreeze::remap(s, range, fresh + behind, vma.perms);
    s.results.drop_view(View::Fresh);
    backing::populate(&s.kernel, range);
    moved
}

/// Copies window by window, seen at `to`. A page of the file is asked for first: where there is
/// none to be had, that call says so.
fn copy(
    s: &mut Scratch,
    pagemap: i32,
    piece: &Piece,
    to: usize,
    trial: Trial,
) -> SysResult<(usize, usize)> {
    let (mut at, mut bytes) = (piece.start, 0);
    let kernel = s.kernel;
    while at < piece.end && (at == piece.start || trial.affords(now_ns())) {
        let end = (at / HUGE * HUGE + HUGE).min(piece.end);
        let window = to + (at - piece.start);
        let a = args![window, end - at, libc::MADV_POPULATE_WRITE];
        // SAFETY: a part of the view that no mapping of any process shows.
        unsafe { kernel.call(libc::SYS_madvise, a) }?;
        let mut each = |_: &Kernel, a: usize, b: usize| {
            // SAFETY: populated memory of the program that nobody writes now, and its place.
            unsafe { sys::copy(a, window + (a - at), b - a) };
            bytes += b - a;
            Ok(())
        };
        Pagemap { fd: pagemap, buf: &mut s.work.pagemap }.runs(
            &kernel,
            (at, end),
            Want::Populated,
            &mut each,
        )?;
        at = end;
    }
    Ok((bytes, at))
}
