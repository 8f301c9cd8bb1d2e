//! Thawed memory leaves its file part by part.
//!
//! Owns the order that keeps it right: a part is replaced, then nobody else may show the file, then
//! the part is given back. A fork and a replacement exclude each other: a child made before shares
//! the probe, and one made later has the copy. Runs in the helper task.

use crate::args;
use crate::backing;
use crate::budget;
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::BackingFile;
use crate::results::View;
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::HUGE;
use crate::vma::Vma;

/// Replaces a range by a copy.
pub type Replace<'a> = &'a dyn Fn(&mut Scratch, (usize, usize)) -> Done<()>;

/// A part of a mapping that is to leave its file.
#[derive(Clone, Copy)]
pub struct Leaving<'a> {
    pub subject: &'a Subject<'a>,
    pub mapping: &'a Vma,
    pub range: (usize, usize),
    /// Bytes that are replaced at a time, at most.
    pub most: usize,
    pub replace: Replace<'a>,
}

/// The same as its file has it.
struct Place<'a> {
    file: &'a BackingFile,
    pagemap: i32,
    /// Where address 0 of the mapping would be in a view of the file.
    origin: usize,
}

/// The range becomes anonymous, and its file gives it back. It ends early where somebody else shows
/// the file or nothing is free.
pub fn leave_file(s: &mut Scratch, leaving: &Leaving) -> Done<()> {
    let (registry, v) = (leaving.subject.registry, leaving.mapping);
    let file = registry.find(v.dev, v.inode).and_then(|slot| registry.get(slot));
    let file = file.ok_or(Stop::of(Reason::NotWorth))?;
    let no_proc = |e| Stop::failed(Reason::NoProc, Step::Pagemap, e);
    let pagemap = scan::open(&s.kernel, c"/proc/self/pagemap").map_err(no_proc)?;
    s.kernel.enter(Step::Punch);
    let view = backing::shared_view(&s.kernel, s.results.zone(), file)
        .map_err(|e| Stop::failed(Reason::Step, Step::Punch, e))?;
    s.results.note_view(View::Shared, view, file.span);
    let origin = (view + v.offset as usize).wrapping_sub(v.start);
    let place = Place { file, pagemap, origin };
    let (mut at, end) = leaving.range;
    let mut done = Ok(());
    while at < end && done.is_ok() {
        done = leave_part(s, leaving, &place, at).map(|to| at = to);
    }
    s.results.drop_view(View::Shared);
    scan::close(pagemap);
    done
}

/// As much of it as may be copied now: whole huge pages of a file where there are any, since parts
/// of one are not given back. Returns where it ends.
fn leave_part(s: &mut Scratch, leaving: &Leaving, place: &Place, start: usize) -> Done<usize> {
    let nobody = |s: &mut Scratch| {
        let alone = refreeze::in_place(s, leaving.subject, place.pagemap, place.file);
        if alone {
            Ok(())
        } else {
            Err(Stop::of(Reason::Memory))
        }
    };
    nobody(s)?;
    let len = leaving.range.1 - start;
    if s.work.may_copy < len.min(HUGE) {
        s.work.may_copy = budget::piece(s)?.min(leaving.most);
    }
    let end = match s.work.may_copy {
        all if all >= len => start + len,
        part => (start + part) / HUGE * HUGE,
    };
    s.work.may_copy -= end - start;
    (leaving.replace)(s, (start, end))?;
    // A child that shows this part was there before it was replaced, and shares the probe.
    nobody(s)?;
    s.kernel.enter(Step::Punch);
    let a = args![place.origin.wrapping_add(start), end - start, libc::MADV_REMOVE];
    // SAFETY: a part of a view that no mapping of any process shows.
    unsafe { s.kernel.call(libc::SYS_madvise, a) }
        .map(|_| end)
        .map_err(|e| Stop::failed(Reason::Step, Step::Punch, e))
}
