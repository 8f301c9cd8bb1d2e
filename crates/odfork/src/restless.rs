//! Frozen memory whose parts the program keeps giving back becomes anonymous again.
//!
//! Owns the act of [`Decide::Thaw`](crate::pass::Decide::Thaw): all of a range or nothing that
//! the sets of addresses would have to know of. Only files that nobody else shows: what leaves them
//! is punched out at once, so that nothing exists twice for longer than the pass. When it is due is
//! in `given_up.rs`. Runs in the helper task.

use odfork_model::Trial;

use crate::budget;
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::sys;
use crate::thaw;
use crate::vma::{READ, WRITE};

/// A range of addresses.
type Range = (usize, usize);

/// Something in the range shows a backing file, and all that does can be thawed.
pub fn is_possible(s: &mut Scratch, subject: &Subject, pagemap: i32, range: Range) -> bool {
    // A file gives memory back through a view of all of it.
    if sys::is_space_limited() {
        return false;
    }
    let mut any = false;
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        if v.inode == 0 || v.start >= range.1 || v.end <= range.0 {
            continue;
        }
        let Some((slot, file)) = subject.registry.live().find(|(_, f)| v.shows(f.dev, f.inode))
        else {
            continue;
        };
        let is_plain = v.perms == READ | WRITE && refreeze::is_replaceable(s, &v);
        if s.results.is_gone(slot) || !is_plain || !refreeze::in_place(s, subject, pagemap, file) {
            return false;
        }
        any = true;
    }
    any
}

/// Thaws it, and gives back what the files have of it.
pub fn act(s: &mut Scratch, subject: &Subject, pagemap: i32, range: Range) -> Done<()> {
    budget::room(s, range.1 - range.0)?;
    if !is_possible(s, subject, pagemap, range) {
        return Err(Stop::of(Reason::NotWorth));
    }
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        let (start, end) = (v.start.max(range.0), v.end.min(range.1));
        let shows = subject.registry.live().any(|(_, f)| v.shows(f.dev, f.inode));
        if start < end && shows {
            thaw::part(s, subject, &v, (start, end))?;
            s.results.report.thawed.add(end - start);
        }
    }
    // What the files are shown by now.
    let watched = s.work.marked;
    scan::scan(s, subject, watched, Trial::UNLIMITED)?;
    for (slot, file) in subject.registry.live() {
        if !s.results.is_gone(slot) {
            refreeze::punch_unseen(s, pagemap, (slot, file))?;
        }
    }
    budget::note_slack(s);
    Ok(())
}
