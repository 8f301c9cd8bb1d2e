//! The memory budget: what odfork may hold above what the process would hold without it.
//!
//! Owns three decisions of a pass, made after the scan and before anything moves: how much of the
//! new memory is dense enough to be frozen, which dirty memory may be refrozen, and whether what
//! is provably free is enough for the copies that later writes make.
//!
//! ```text
//! new memory                 frozen if dense (plan.rs) and shared with no living child: its pages
//!                              would exist twice
//! file                       dirty memory of it
//! shown by us alone, ours    written back in place: costs nothing
//! shown by us alone, not     all of it moves to a new file, once we show less than half of it
//!   ours (the parent's)        or have rewritten half: the old one goes
//! shown by others too        rebuilt where most pages are dirty and the budget pays for the clean
//!                              ones, which then exist twice; else left dirty, as after a fork
//!                              on stock
//! ```
//! What was spent is owed until the descendants that show the old files are gone
//! ([`Debt`]). What is left dirty costs a fork its page-table entries and nothing else.

use odfork_model::Trial;

use crate::cgroup::{self, Left};
use crate::freeze;
use crate::pagemap::{Pagemap, Want};
use crate::plan::Kind;
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::{BackingFile, Debt};
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{HUGE, PAGE};
use crate::vma::Vma;

/// Of the frozen bytes one part in this many may exist twice for living relatives ...
const SHARE: usize = 10;
/// ... and so much always (8 MB): below that, a process is small.
const FLOOR: usize = 8 << 20;
/// A file is left for a new one when it holds twice what is shown and so much more.
const KEPT_TOO_MUCH: usize = 4 << 20;

/// What a pass may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Leave files that hold much more than they show, punch what is not shown.
    GiveBack,
    /// Refreeze and freeze too.
    All,
    /// Refreeze in place what is going to be shared.
    Share,
    /// Thaw that range.
    Thaw((usize, usize)),
}

/// Nobody else shows the file, whoever made it.
fn is_sole(s: &mut Scratch, pagemap: i32, file: &BackingFile) -> bool {
    s.kernel.enter(Step::Probe);
    let mut pagemap = Pagemap { fd: pagemap, buf: &mut s.work.pagemap };
    file.probe != 0 && pagemap.exclusive(&s.kernel, file.probe).unwrap_or(false)
}

/// How this process shows a file.
#[derive(Clone, Copy, Default)]
struct Shown {
    bytes: usize,
    dirty: usize,
    /// Some mapping of it cannot be replaced.
    stuck: bool,
}

impl Shown {
    fn of(s: &Scratch, file: &BackingFile) -> Shown {
        let mut shown = Shown::default();
        for v in s.vmas().iter().filter(|v| v.shows(file.dev, file.inode)) {
            shown.bytes += v.len();
            shown.dirty += v.anon.min(v.len());
            shown.stuck |= !refreeze::is_replaceable(s, v);
        }
        shown
    }

    fn is_little(&self, file: &BackingFile) -> bool {
        file.bytes >= self.bytes.saturating_mul(2).saturating_add(KEPT_TOO_MUCH)
    }
}

/// Some file holds much more than this process shows of it, and something can be done about it.
pub fn is_too_much_kept(s: &mut Scratch, subject: &Subject, pagemap: i32) -> bool {
    for (slot, file) in subject.registry.live() {
        let shown = Shown::of(s, file);
        let kept = match file.anchor_shared {
            0 => !shown.stuck && shown.is_little(file),
            _ => refreeze::keeps_unseen(file, shown.bytes),
        };
        let affordable = file.anchor_shared == 0 && shown.bytes <= FLOOR;
        if !s.results.is_gone(slot) && kept && (affordable || is_sole(s, pagemap, file)) {
            return true;
        }
    }
    false
}

/// Bytes of the new memory that are dense enough to be frozen and that living children do not
/// share. A mapping that has none of them is left alone from here on.
pub fn freezable(s: &mut Scratch, pagemap: i32, takes: impl Fn(Kind) -> bool) -> usize {
    let mut bytes = 0;
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        if v.can_freeze() {
            let planned = freezable_of(s, pagemap, &v, &takes).unwrap_or(0);
            s.vmas_mut()[i].special = planned == 0;
            bytes += planned;
        }
    }
    bytes
}

/// Of one mapping: 0 if more than a tenth of what would be frozen is shared, which would exist
/// twice as long as the children live.
fn freezable_of(
    s: &mut Scratch,
    pagemap: i32,
    v: &Vma,
    takes: &impl Fn(Kind) -> bool,
) -> Done<usize> {
    let (bytes, own) = own_of(s, pagemap, v, takes)?;
    Ok(if is_own(bytes, own) { bytes } else { 0 })
}

/// So few of these bytes are shared that they may be frozen.
pub fn is_own(bytes: usize, own: usize) -> bool {
    own >= bytes - bytes / SHARE
}

/// Of one mapping, bytes that are dense enough, and how many of them nobody shares.
pub fn own_of(
    s: &mut Scratch,
    pagemap: i32,
    v: &Vma,
    takes: &impl Fn(Kind) -> bool,
) -> Done<(usize, usize)> {
    let fail = |e| Stop::failed(Reason::Step, Step::Plan, e);
    let mut plan = freeze::plan_vma(s, pagemap, takes(Kind::Huge), v)?;
    let (mut bytes, mut own) = (0, 0);
    for piece in plan.finish().iter().filter(|p| takes(p.kind)) {
        bytes += piece.pages * PAGE;
        own += Pagemap { fd: pagemap, buf: &mut s.work.pagemap }
            .own_bytes(&s.kernel, (piece.start, piece.end), Want::Populated)
            .map_err(fail)?;
    }
    Ok((bytes, own))
}

/// Decides about all dirty memory; gives what is then owed. What is to stay as it is counts as
/// clean from here on, what is to leave its file as wholly dirty.
pub fn decide(s: &mut Scratch, subject: &Subject, pagemap: i32, scope: Scope) -> Debt {
    let limit = s.results.report.shown.get() / SHARE + FLOOR;
    let mut debt = subject.registry.debt();
    debt.settle(|probe| is_sole(s, pagemap, &BackingFile { probe, ..BackingFile::default() }));
    for (slot, file) in subject.registry.live() {
        if !s.results.is_gone(slot) {
            let mut may_owe = |bytes| debt.charge(file.probe, bytes, limit);
            decide_file(s, pagemap, scope, file, &mut may_owe);
        }
    }
    debt
}

fn decide_file(
    s: &mut Scratch,
    pagemap: i32,
    scope: Scope,
    file: &BackingFile,
    may_owe: &mut dyn FnMut(usize) -> bool,
) {
    let (ours, sole) = (file.anchor_shared != 0, is_sole(s, pagemap, file));
    if ours && sole {
        if scope == Scope::GiveBack {
            each_shown(s, file, |_, _| 0);
        }
        return;
    }
    let shown = Shown::of(s, file);
    let mostly_dirty = scope == Scope::All && shown.dirty * 2 >= shown.bytes;
    if !ours && !shown.stuck && (shown.is_little(file) || mostly_dirty) {
        let own = if sole { shown.bytes } else { own_dirty(s, pagemap, file, |_| true) };
        if may_owe(shown.bytes.saturating_sub(own)) {
            return each_shown(s, file, |v, _| v.len());
        }
    }
    let worth = |v: &Vma| scope == Scope::All && v.anon * 2 >= v.len();
    let (len, own) = (shown_len(s, file, worth), own_dirty(s, pagemap, file, worth));
    let paid = len > 0 && may_owe(len.saturating_sub(own));
    each_shown(s, file, |v, anon| if paid && worth(v) { anon } else { 0 });
}

fn shown_len(s: &Scratch, file: &BackingFile, wanted: impl Fn(&Vma) -> bool) -> usize {
    let shows = |v: &&Vma| v.shows(file.dev, file.inode) && wanted(v);
    s.vmas().iter().filter(shows).map(Vma::len).sum()
}

/// Dirty bytes that nobody shares, in these mappings of a file.
fn own_dirty(
    s: &mut Scratch,
    pagemap: i32,
    file: &BackingFile,
    wanted: impl Fn(&Vma) -> bool,
) -> usize {
    let want = if s.work.marked { Want::DirtyMarked } else { Want::Dirty };
    let mut own = 0;
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        if v.shows(file.dev, file.inode) && wanted(&v) {
            own += Pagemap { fd: pagemap, buf: &mut s.work.pagemap }
                .own_bytes(&s.kernel, (v.start, v.end), want)
                .unwrap_or(0);
        }
    }
    own
}

/// Changes what counts as dirty of each mapping of a file.
fn each_shown(s: &mut Scratch, file: &BackingFile, new: impl Fn(&Vma, usize) -> usize) {
    let mut left = 0;
    for v in s.vmas_mut().iter_mut().filter(|v| v.shows(file.dev, file.inode) && !v.is_empty()) {
        let dirty = v.anon;
        v.anon = new(v, dirty);
        left += dirty.saturating_sub(v.anon);
    }
    s.results.report.left.add(left);
}

/// Leaves everything dirty that would have to be rebuilt: there is no room for it.
pub fn leave_rebuilds(s: &mut Scratch, subject: &Subject, pagemap: i32) {
    for (slot, file) in subject.registry.live() {
        if !s.results.is_gone(slot) && !refreeze::in_place(s, subject, pagemap, file) {
            each_shown(s, file, |_, _| 0);
        }
    }
}

/// Bytes that rebuilding will copy.
pub fn rebuilding(s: &mut Scratch, subject: &Subject, pagemap: i32) -> usize {
    let mut bytes = 0;
    for (slot, file) in subject.registry.live() {
        if !s.results.is_gone(slot) && !refreeze::in_place(s, subject, pagemap, file) {
            let dirty = |v: &&Vma| v.shows(file.dev, file.inode) && v.anon > 0;
            bytes += s.vmas().iter().filter(dirty).map(|v| v.len()).sum::<usize>();
        }
    }
    bytes
}

/// Bytes that stay free beside everything else (64 MB).
const MARGIN: usize = 64 << 20;
/// So much of them stays free when the program grows (8 MB): a group is charged for more than the
/// pages in use. The kernel keeps up to 256 KB charged for each processor, and gives them back late
/// while the processor is busy; a thaw has page tables and mappings of its own.
const HELD_BACK: usize = 8 << 20;
/// A thaw takes so much itself (2 MB).
const OF_A_THAW: usize = 2 << 20;
/// What is copied at a time takes one part in so many of what is left: others use memory meanwhile,
/// and may thaw too.
const OF_WHAT_IS_LEFT: usize = 4;
/// Memory takes one part in this many for its page tables.
const PAGE_TABLES: usize = 512;

/// What copies of so many bytes take.
fn copies(bytes: usize) -> usize {
    bytes.saturating_add(bytes / PAGE_TABLES)
}

/// Enough is free for the copies that later writes make: of what is frozen, and of `bytes` more. A
/// page rewritten after freezing exists twice until it is refrozen. What cannot be read counts as
/// nothing free. Below the limit of a control group, memory that is mapped and not yet populated
/// must fit too.
pub fn room(s: &mut Scratch, bytes: usize) -> Done<()> {
    s.kernel.enter(Step::Memory);
    let text = scan::slurp(&s.kernel, c"/proc/meminfo", &mut s.work.text);
    let free = text.ok().and_then(|t| scan::field(t, b"MemAvailable:")).unwrap_or(0);
    let needed = copies(bytes.saturating_add(reserve(s))).saturating_add(MARGIN);
    if ((free * 1024) as usize) < needed {
        return Err(Stop::of(Reason::Memory));
    }
    match cgroup::left(&s.kernel, &mut s.work.text) {
        Left::Unlimited => Ok(()),
        Left::Bytes(left) if left >= needed.saturating_add(s.results.report.untouched.get()) => {
            Ok(())
        }
        _ => Err(Stop::of(Reason::Memory)),
    }
}

/// Bytes that rewriting all frozen memory would take. What the pass has written back is clean.
fn reserve(s: &Scratch) -> usize {
    let report = &s.results.report;
    report.shown.get().saturating_sub(report.still_dirty())
}

/// Bytes that a thaw may copy before their file gives them back.
pub fn piece(s: &mut Scratch) -> Done<usize> {
    s.kernel.enter(Step::Memory);
    match cgroup::left(&s.kernel, &mut s.work.text) {
        Left::Bytes(left) if left < HUGE * OF_WHAT_IS_LEFT => Err(Stop::of(Reason::Memory)),
        Left::Bytes(left) => Ok(left / OF_WHAT_IS_LEFT),
        Left::Unlimited | Left::Unknown => Ok(usize::MAX),
    }
}

/// Notes how much more the control groups let the program use before the reserve is touched. True:
/// what is frozen can be thawed in what they leave, if nobody else shows its files.
pub fn note_slack(s: &mut Scratch) -> bool {
    s.kernel.enter(Step::Memory);
    let report = &s.results.report;
    if report.shown.get() + report.frozen.get() == 0 {
        report.note_slack(i64::MAX);
        return true;
    }
    let (frozen, untouched) = (reserve(s) + report.frozen.get(), report.untouched.get());
    // Files are reached through views, which a limit of the address space may refuse.
    let twice = if report.space_limited.flag() { frozen } else { HUGE * OF_WHAT_IS_LEFT };
    let needed = twice.min(frozen) + frozen / PAGE_TABLES + OF_A_THAW;
    let (slack, fits) = match cgroup::left(&s.kernel, &mut s.work.text) {
        Left::Unlimited => (i64::MAX, true),
        Left::Bytes(left) => {
            (left as i64 - (copies(frozen) + untouched + HELD_BACK) as i64, left >= needed)
        }
        Left::Unknown => (-1, true),
    };
    s.results.report.note_slack(slack);
    fits
}

/// The job that asks for that and nothing else.
pub fn measure(s: &mut Scratch, subject: &Subject) -> Done<()> {
    // A copy on the task's own stack, as for all jobs.
    let subject = *subject;
    scan::scan(s, &subject, false, Trial::UNLIMITED)?;
    let fits = note_slack(s);
    let no_proc = |e| Stop::failed(Reason::NoProc, Step::Pagemap, e);
    let pagemap = scan::open(&s.kernel, c"/proc/self/pagemap").map_err(no_proc)?;
    let beside = subject.registry.live().any(|(slot, file)| {
        !s.results.is_gone(slot) && !refreeze::in_place(s, &subject, pagemap, file)
    });
    s.results.report.stuck.set(usize::from(beside || !fits));
    Ok(())
}
