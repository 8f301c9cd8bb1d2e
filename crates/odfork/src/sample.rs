//! A sample of anonymous memory before a look: whether any of it may be dense enough to be frozen.
//!
//! Owns that question, and whether any of it is new: page faults say little, most of them are
//! copies beside a child. A look reads each entry of the page tables: 20 ms for 1 GB, held in one
//! piece. Values of 16 KB leave a page free beside each of them, more than the budget allows
//! frozen: without the sample each pass would find that out anew. Runs in the helper task, changes
//! nothing.

use crate::pagemap::{Pagemap, Want};
use crate::plan;
use crate::quiesce;
use crate::reason::{Done, Reason, Stop};
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{now_ns, Kernel, SysResult, HUGE, PAGE};
use crate::vma::{dec, Vma, READ, WRITE};

/// Windows of 2 MB that are looked at, spread over all.
const SAMPLES: usize = 64;
/// Of those that have content one in so many must be dense, else it is not worth a look.
const SHARE: usize = 16;
/// Pages that must be new (4 MB).
const NEW: usize = 1024;
/// Pages that come while a pass moves others and make the next one due (16 MB); and so much of what
/// it has left, which the next look reads too.
const ARRIVED: usize = 4096;
const OF_LEFT: usize = 8;
/// With less memory than that a look is cheaper: 128 MB.
const FEW: usize = 64;
/// Files of that size are looked at for what the program does not show any more (64 MB).
const MUCH_FROZEN: usize = 64 << 20;

/// `NotWorth` where a look would find next to nothing. More is to be done if it would not, and if
/// anything is new.
pub fn ask(s: &mut Scratch, subject: &Subject, pagemap: i32) -> Done<()> {
    s.results.report.more.set(1);
    let (before, now) = (s.work.course.anonymous, anonymous(s));
    if now < before + NEW {
        s.work.course.anonymous = before.min(now);
        s.results.report.more.set(0);
        return Ok(());
    }
    let frozen: usize = subject.registry.live().map(|(_, file)| file.bytes).sum();
    if frozen > MUCH_FROZEN {
        return Ok(());
    }
    let fail = |e| Stop::failed(Reason::NoProc, Step::Scan, e);
    let (windows, ..) = count(s, pagemap, usize::MAX).map_err(fail)?;
    if windows < FEW {
        return Ok(());
    }
    let (_, full, dense) = count(s, pagemap, windows.div_ceil(SAMPLES)).map_err(fail)?;
    if dense * SHARE < full {
        note_anonymous(s);
        s.results.report.more.set(0);
        return Err(Stop::of(Reason::NotWorth));
    }
    Ok(())
}

/// So much is left as it is: what is new from here on counts.
fn note_anonymous(s: &mut Scratch) {
    s.work.course.anonymous = anonymous(s);
}

/// At the look of a pass in slices: what comes after it is new.
pub fn note_found(s: &mut Scratch) {
    (s.work.course.found, s.work.course.moved) = (anonymous(s), 0);
}

/// After a slice that moves. At the end of the pass what it has found and not moved is left as it
/// is; the program may have touched much since, which is told where a look is worth that.
pub fn note_moved(s: &mut Scratch) {
    let report = &s.results.report;
    s.work.course.moved += (report.frozen.get() + report.written_back.get()) / PAGE;
    if s.work.course.open {
        return;
    }
    let now = anonymous(s);
    let course = &mut s.work.course;
    let left = course.found.saturating_sub(course.moved).min(now);
    course.anonymous = left;
    let is_worth = now - left >= ARRIVED.max(left / OF_LEFT);
    s.results.report.arrived.set(now - left);
    s.results.report.urges.set(usize::from(is_worth));
}

/// Anonymous pages of this memory. Copies of pages of files are among them; after sharing there are
/// none of those.
fn anonymous(s: &mut Scratch) -> usize {
    s.kernel.enter(Step::Scan);
    let text = scan::slurp(&s.kernel, c"/proc/self/statm", &mut s.work.text);
    let mut words = text.unwrap_or_default().split(|&b| b == b' ').skip(1).filter_map(dec);
    let (resident, shared) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    resident.saturating_sub(shared) as usize
}

/// Whole windows of memory that could be frozen; of every `nth` of them those with content, and
/// those that are dense.
fn count(s: &mut Scratch, pagemap: i32, nth: usize) -> SysResult<(usize, usize, usize)> {
    s.kernel.enter(Step::Scan);
    let maps = scan::open(&s.kernel, c"/proc/self/maps")?;
    let (kernel, phase) = (s.kernel, now_ns() as usize % nth);
    let (mut windows, mut full, mut dense) = (0, 0, 0);
    let (buf, text) = (&mut s.work.pagemap, &mut s.work.text);
    let read = quiesce::each_map_line(&kernel, maps, text, &mut |k, v| {
        let (first, end) = (v.start.next_multiple_of(HUGE), v.end / HUGE * HUGE);
        if !is_candidate(&v) || first >= end {
            return;
        }
        for at in (first..end).step_by(HUGE) {
            windows += 1;
            if nth == usize::MAX || windows % nth != phase {
                continue;
            }
            let mut pages = 0;
            let mut each = |_: &Kernel, a: usize, b: usize| {
                pages += (b - a) / PAGE;
                Ok(())
            };
            let mut pagemap = Pagemap { fd: pagemap, buf: &mut *buf };
            if pagemap.runs(k, (at, at + HUGE), Want::Populated, &mut each).is_ok() {
                full += usize::from(pages > 0);
                dense += usize::from(plan::is_dense(pages));
            }
        }
    });
    scan::close(maps);
    read.map(|()| (windows, full, dense))
}

fn is_candidate(v: &Vma) -> bool {
    (v.inode, v.dev) == (0, 0) && v.perms == READ | WRITE && !v.special
}
