//! A pass in slices: one look, then moves that each end after a while, so that the program is never
//! held for long.
//!
//! Owns what one slice does: it goes on where the last one stopped, over the mappings that the look
//! has found, and asks of each range again what may have changed. After each slice every address
//! has its content: a range is anonymous, private or shared, and whole. Runs in the helper task.
//!
//! ```text
//! look      scan, decide                             pass.rs; holds nobody but the caller
//! slice     hold, range by range: still the same? refreeze, freeze or share; let go
//! ...       until the end of the list; what a child shows now waits for its end
//! ```
//! Threads are held by ptrace, which takes the same time for any amount of memory. Who is alone has
//! the range at work watched, against writes of other processes.
//!
//! One thing with `pass.rs`: a pass looks, and its slices do the rest.

use odfork_model::Trial;

use crate::budget;
use crate::freeze::{self, Content, Tools};
use crate::grow;
use crate::held::Holding;
use crate::inspect;
use crate::maps::{is_still, still};
use crate::open_files::Found;
use crate::pass::{self, Order};
use crate::plan::{Kind, Piece};
use crate::quiesce::{self, Quiesced};
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::{BackingFile, MAX_FILES};
use crate::sample;
use crate::scan;
use crate::scratch::Scratch;
use crate::share;
use crate::source::Source;
use crate::step::Step;
use crate::sys::{now_ns, HUGE, PAGE};
use crate::vma::Vma;

/// Bytes at most that are at work at once: about what moves in 5 ms. What is asked of a range grows
/// with it.
const RANGE: usize = 8 << 20;
/// What is moved at least in a slice, by the clock: a window of 2 MB or two.
const LEAST_NS: u64 = 1_000_000;
/// New files are made while so many can still be had; later only growth.
const FEW_FILES: usize = MAX_FILES / 2;

/// What a slice may take, and whether it goes on with what the last one left.
#[derive(Clone, Copy)]
pub struct Slice {
    pub trial: Trial,
    pub goes_on: bool,
    /// It begins to share with what an earlier look has found.
    pub again: bool,
    /// It only asks whether a look is worth it.
    pub samples: bool,
}

/// The descriptor of the page tables, how many threads there are, what the open files forbid.
pub type Asked = (i32, u64, Found);

/// How a range was left.
enum Left {
    /// Done up to there.
    At(usize),
    /// A child shows it now.
    Waits,
}

/// This pass is made in slices. Userfaultfd would protect all memory in each of them.
pub fn is_sliced(o: &Order, threads: u64) -> bool {
    let is_held = threads == 1 || o.subject.holding != Holding::Userfaultfd;
    o.slice.is_some() && is_held && o.subject.sanitizer == [0; 2]
}

/// The first slice, behind the look, if there is time left.
pub fn begin(s: &mut Scratch, o: &Order, all: Asked, allowance: Trial) -> Done<()> {
    let shares = matches!(o.decide, pass::Decide::Share);
    s.results.report.allowance.set(allowance.limit_ns() as usize);
    let course = &mut s.work.course;
    (course.open, course.shares) = (true, shares);
    course.known = shares || o.shares_later;
    (course.at, course.slot, course.within) = (0, 0, 0);
    course.rebuilds.fill(false);
    sample::note_found(s);
    for (slot, file) in o.subject.registry.live() {
        let alone = s.results.is_gone(slot) || refreeze::in_place(s, &o.subject, all.0, file);
        s.work.course.rebuilds[slot] = !alone;
    }
    let eligible = s.results.report.eligible.get();
    if !shares && eligible > 0 {
        if o.is_chosen {
            // What the program maps until the last slice is not counted: it has as much again.
            budget::room(s, 2 * eligible)?;
        }
        pass::keep_in_cores(s);
    }
    s.results.report.more.set(1);
    s.results.report.waits.set(0);
    if !o.slice.is_some_and(|slice| slice.trial.affords(now_ns())) {
        return Ok(());
    }
    go_on(s, o, all)
}

/// One slice: what is left to do afterwards is in the report.
pub fn go_on(s: &mut Scratch, o: &Order, (pagemap, threads, found): Asked) -> Done<()> {
    s.results.report.more.set(1);
    if o.slice.is_some_and(|slice| slice.again) && s.work.course.known {
        share::look_again(s)?;
        let course = &mut s.work.course;
        (course.open, course.shares) = (true, true);
        (course.slot, course.within) = (0, 0);
        if !share::is_any_alone(s, &o.subject, pagemap) {
            s.work.course.open = false;
            s.results.report.more.set(0);
            s.results.report.waits.set(1);
            return Ok(());
        }
    }
    if !s.work.course.open {
        s.results.report.lost.set(1);
        return Ok(());
    }
    found.forbids(threads)?;
    if threads > 1 && o.subject.pi_futexes {
        return Err(Stop::of(Reason::Threads));
    }
    match inspect::inspect(s, &o.subject, trial_of(o)) {
        // A later slice goes on from there.
        Err(Stop { reason: Reason::Price, .. }) => return Ok(()),
        other => other?,
    }
    let mut o = *o;
    o.subject.spliced |= s.results.report.keeps.flag();
    let o = &o;
    let shares = s.work.course.shares;
    s.results.report.acted.set(usize::from(!shares));
    let (begin, asked) = (now_ns(), (pagemap, threads, found));
    let done = if shares { share_some(s, o, asked) } else { move_some(s, o, asked) };
    let spent = (now_ns() - begin) as usize;
    let report = &s.results.report;
    if report.frozen.get() > 0 { &report.freeze_ns } else { &report.refreeze_ns }.set(spent);
    // Sharing frees as much as rewriting it would take.
    if !shares || !s.results.report.more.flag() {
        budget::note_slack(s);
    }
    if !shares {
        sample::note_moved(s);
    }
    done
}

fn trial_of(o: &Order) -> Trial {
    o.slice.map_or(Trial::UNLIMITED, |slice| slice.trial)
}

fn move_some(s: &mut Scratch, o: &Order, (pagemap, threads, found): Asked) -> Done<()> {
    pass::rehearse(s);
    s.work.course.shares_later = o.shares_later && share::is_allowed(s, &found);
    s.work.files_left = o.subject.registry.room().min(MAX_FILES);
    if is_early(s, o, pagemap) {
        s.results.report.waits.set(1);
        return Ok(());
    }
    // From a user namespace, which files of huge pages may need, nobody can be traced any more.
    holding(s, o, threads, |s| {
        let source = Source::open(&s.kernel, o.allowed, o.directory)?;
        let probe = pass::choose_probe(s, o, pagemap);
        let tools = Tools { source, pagemap, probe, trial: trial_of(o) };
        let done = each_range(s, o, &tools, threads == 1);
        pass::settle_probe(s, probe);
        done
    })
}

/// A child shows what comes next: nobody is held for that.
fn is_early(s: &mut Scratch, o: &Order, pagemap: i32) -> bool {
    let Some((v, (start, end))) = next(s, s.work.course.at) else { return false };
    if v.inode != 0 {
        let file = o.subject.registry.find(v.dev, v.inode);
        let Some(slot) = file.filter(|&slot| !s.work.course.rebuilds[slot]) else { return false };
        let file = o.subject.registry.get(slot).copied();
        return file.is_some_and(|file| !refreeze::in_place(s, &o.subject, pagemap, &file));
    }
    let takes = |kind| o.allowed.takes(kind);
    let own = budget::own_of(s, pagemap, &Vma { start, end, ..v }, &takes);
    own.is_ok_and(|(bytes, own)| !budget::is_own(bytes, own))
}

/// With all threads stopped, if there are others.
fn holding(
    s: &mut Scratch,
    o: &Order,
    threads: u64,
    work: impl FnOnce(&mut Scratch) -> Done<()>,
) -> Done<()> {
    let held = match threads {
        1 => None,
        _ => Some(Quiesced::stop(s, &o.subject)?),
    };
    let done = work(s);
    if let Some(held) = held {
        held.release(s, &o.subject);
    }
    done
}

fn each_range(s: &mut Scratch, o: &Order, tools: &Tools, alone: bool) -> Done<()> {
    let fail = |e| Stop::failed(Reason::NoProc, Step::Scan, e);
    let maps = scan::open(&s.kernel, c"/proc/self/maps").map_err(fail)?;
    let done = loop {
        let Some((v, range)) = next(s, s.work.course.at) else {
            s.work.course.open = false;
            s.results.report.more.set(0);
            break Ok(());
        };
        let left = match is_still(s, maps, &v, range) {
            false => Ok(Left::At(v.end)),
            true => watching(s, o, (alone, &v), range, |s| advance(s, o, tools, &v, range)),
        };
        match left {
            Ok(Left::At(at)) => s.work.course.at = at,
            Ok(Left::Waits) => {
                s.results.report.waits.set(1);
                break Ok(());
            }
            Err(stop) => break Err(stop),
        }
        if !tools.trial.affords(now_ns()) {
            break Ok(());
        }
    };
    scan::close(maps);
    done
}

/// With writes of other processes to the range waiting, where that can be had.
fn watching<T>(
    s: &mut Scratch,
    o: &Order,
    (alone, v): (bool, &Vma),
    (start, end): (usize, usize),
    work: impl FnOnce(&mut Scratch) -> T,
) -> T {
    let watched = if alone { Quiesced::watch(s, &Vma { start, end, ..*v }) } else { None };
    let done = work(s);
    s.work.marked = false;
    if let Some(watched) = watched {
        watched.release(s, &o.subject);
    }
    done
}

/// The first range at or after that address that the look has found worth it.
fn next(s: &Scratch, at: usize) -> Option<(Vma, (usize, usize))> {
    let worth = |v: &&Vma| v.end > at && (v.can_freeze() || v.inode != 0 && v.anon > 0);
    let v = *s.vmas().iter().find(worth)?;
    let from = at.max(v.start);
    Some((v, (from, ((from + RANGE) / HUGE * HUGE).min(v.end))))
}

/// The range of a mapping that is shared at once: none is left behind it that is too small.
fn at_once(v: &Vma, from: usize) -> (usize, usize) {
    let end = (from + RANGE) / HUGE * HUGE;
    (from, if end + HUGE > v.end { v.end } else { end })
}

fn advance(
    s: &mut Scratch,
    o: &Order,
    tools: &Tools,
    v: &Vma,
    range: (usize, usize),
) -> Done<Left> {
    let found = o.subject.registry.find(v.dev, v.inode).filter(|_| v.inode != 0);
    match found.and_then(|slot| Some((slot, o.subject.registry.get(slot)?))) {
        Some(file) => refreeze_some(s, o, tools, file, (v, range)),
        None if v.inode == 0 => {
            freeze_some(s, o, tools, &Vma { start: range.0, end: range.1, ..*v })
        }
        None => Ok(Left::At(v.end)),
    }
}

fn refreeze_some(
    s: &mut Scratch,
    o: &Order,
    tools: &Tools,
    (slot, file): (usize, &BackingFile),
    (v, range): (&Vma, (usize, usize)),
) -> Done<Left> {
    if !refreeze::is_replaceable(s, v) {
        return Ok(Left::At(v.end));
    }
    if refreeze::in_place(s, &o.subject, tools.pagemap, file) {
        if s.work.course.shares_later && share::fits(s, &o.subject, file, v) {
            return Ok(Left::At(v.end));
        }
        let reached = refreeze::write_back_part(s, tools.pagemap, file, (v, range), tools.trial)?;
        return Ok(Left::At(reached));
    }
    if !s.work.course.rebuilds[slot] {
        return Ok(Left::Waits);
    }
    let kind = if tools.source.huge() { file.kind() } else { Kind::Small };
    let (start, end) = range;
    let piece = Piece { start, end, pages: (end - start) / PAGE, kind };
    let before = s.results.report.frozen.get();
    let reached = freeze_new(s, tools, &piece, v, Content::Backed)?;
    s.results.report.rebuilt.add(s.results.report.frozen.get() - before);
    Ok(Left::At(reached))
}

/// Anonymous memory: what is dense enough of it, and not shared with a child.
fn freeze_some(s: &mut Scratch, o: &Order, tools: &Tools, part: &Vma) -> Done<Left> {
    if o.subject.addresses.may_be_special(part.start, part.end)
        || o.subject.changes.touch(part.start, part.end)
        || !scan::has_default_policy(&s.kernel, part.start)
        || quiesce::excluded_range(s, part, part.start).is_some()
    {
        return Ok(Left::At(part.end));
    }
    let takes = |kind| o.allowed.takes(kind);
    let Ok((bytes, own)) = budget::own_of(s, tools.pagemap, part, &takes) else {
        return Ok(Left::At(part.end));
    };
    if !budget::is_own(bytes, own) {
        return Ok(Left::Waits);
    }
    budget::room(s, bytes)?;
    let mut plan = freeze::plan_vma(s, tools.pagemap, tools.source.huge(), part)?;
    for piece in plan.finish().iter().filter(|piece| takes(piece.kind)) {
        let file = grow::file_before(s, &o.subject, piece, part.kept);
        let reached = match &file {
            Some((slot, file)) => {
                let reached =
                    grow::grow(s, tools.pagemap, (*slot, file), (piece, part), tools.trial)?;
                grow::note_frozen(s, file, (piece.start, reached), part);
                reached
            }
            None if s.work.files_left < FEW_FILES => piece.end,
            None => {
                let reached = freeze_new(s, tools, piece, part, Content::Anonymous)?;
                if let Some(file) = s.results.created().last().filter(|_| reached > piece.start) {
                    grow::note_frozen(s, &file, (piece.start, reached), part);
                }
                reached
            }
        };
        if reached < piece.end {
            return Ok(Left::At(reached));
        }
    }
    Ok(Left::At(part.end))
}

/// Into a new file, at least a window of it. Returns where it stopped.
fn freeze_new(
    s: &mut Scratch,
    tools: &Tools,
    piece: &Piece,
    v: &Vma,
    content: Content,
) -> Done<usize> {
    // The clock has gone on since the range was chosen.
    let least = Trial::new(now_ns(), LEAST_NS);
    let trial = if tools.trial.affords(now_ns()) { tools.trial } else { least };
    match freeze::freeze_piece(s, &Tools { trial, ..*tools }, piece, v, content) {
        Ok(_) => Ok(piece.end),
        Err(Stop { reason: Reason::Price, .. }) => {
            let reached = s.results.created().last().map_or(piece.start, |file| file.end);
            Ok(reached)
        }
        Err(stop) => Err(stop),
    }
}

/// Files become shared from their beginning on.
fn share_some(s: &mut Scratch, o: &Order, (pagemap, threads, found): Asked) -> Done<()> {
    if !share::is_allowed(s, &found) {
        s.work.course.open = false;
        s.results.report.more.set(0);
        return Ok(());
    }
    holding(s, o, threads, |s| each_file(s, o, pagemap, threads == 1))
}

fn each_file(s: &mut Scratch, o: &Order, pagemap: i32, alone: bool) -> Done<()> {
    // A server's requests wait for a slice, and there are many: each ends soon after all stand.
    let trial = trial_of(o).half_as_long_again(now_ns());
    let fail = |e| Stop::failed(Reason::NoProc, Step::Scan, e);
    let maps = scan::open(&s.kernel, c"/proc/self/maps").map_err(fail)?;
    let mut done = Ok(());
    while s.work.course.slot < MAX_FILES && done.is_ok() {
        let slot = s.work.course.slot;
        let file = o.subject.registry.get(slot).copied();
        let mut more = false;
        if let Some(file) = file.filter(|_| !s.results.is_gone(slot)) {
            let shared = share_on(s, o, (maps, pagemap, trial), alone, (slot, &file));
            more = matches!(shared, Ok(true));
            done = shared.map(|_| ());
        }
        if more {
            break;
        }
        (s.work.course.slot, s.work.course.within) = (slot + 1, 0);
    }
    scan::close(maps);
    if s.work.course.slot == MAX_FILES && done.is_ok() {
        s.work.course.open = false;
        s.results.report.more.set(0);
    }
    done
}

/// The next part of one file; true if there is more of it, and no time.
fn share_on(
    s: &mut Scratch,
    o: &Order,
    (maps, pagemap, trial): (i32, i32, Trial),
    alone: bool,
    (slot, file): (usize, &BackingFile),
) -> Done<bool> {
    if !refreeze::in_place(s, &o.subject, pagemap, file) {
        s.results.report.waits.set(1);
        return Ok(false);
    }
    while let Some(v) = share::next_mapping(s, file, s.work.course.within) {
        let from = s.work.course.within.max(v.start);
        let has_room = s.results.may_share(o.subject.registry.shared().len());
        s.work.course.within = match still(s, maps, &v, from) {
            (None, next) => next,
            (Some(now), _) if !has_room || !share::fits(s, &o.subject, file, &now) => now.end,
            (Some(now), _) => {
                let range = at_once(&now, from.max(now.start));
                watching(s, o, (alone, &now), range, |s| {
                    share::share_part(s, pagemap, (slot, file), range, trial)
                })?
            }
        };
        if !trial.affords(now_ns()) {
            return Ok(true);
        }
    }
    Ok(false)
}
