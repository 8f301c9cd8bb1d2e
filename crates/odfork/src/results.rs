//! What a job leaves behind for its caller.
//!
//! Owns the part of the scratch memory that both tasks refer to. All of it is atomic: the helper
//! task may be killed between any two instructions, and what it had stored by then counts.

use core::sync::atomic::{
    AtomicU32, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::code::Code;
use crate::parts::{Part, MAX_PARTS};
use crate::reason::{Done, Reason, Stop};
use crate::registry::{BackingFile, Debt, DEBT_PROBES, MAX_FILES};
use crate::report::Report;
use crate::step::Step;
use crate::sys::{self, Trace, PAGE};

/// A mapping made only for the job, to be removed if it dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// A backing file, to be written.
    Shared,
    /// What will be moved over memory of the program.
    Fresh,
    /// A probe that no backing file needs yet.
    Probe,
}

const VIEWS: [View; 3] = [View::Shared, View::Fresh, View::Probe];

/// A backing file as the task leaves it behind, word by word.
#[derive(Default)]
struct Record {
    dev: AtomicU64,
    inode: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    span: AtomicUsize,
    anchor_private: AtomicUsize,
    anchor_shared: AtomicUsize,
    probe: AtomicUsize,
    bytes: AtomicUsize,
    huge: AtomicU32,
    fresh: AtomicU32,
    kept: AtomicU32,
}

impl Record {
    fn store(&self, file: &BackingFile) {
        self.dev.store(file.dev, Relaxed);
        self.inode.store(file.inode, Relaxed);
        self.start.store(file.start, Relaxed);
        self.end.store(file.end, Relaxed);
        self.span.store(file.span, Relaxed);
        self.anchor_private.store(file.anchor_private, Relaxed);
        self.anchor_shared.store(file.anchor_shared, Relaxed);
        self.probe.store(file.probe, Relaxed);
        self.bytes.store(file.bytes, Relaxed);
        self.huge.store(file.huge, Relaxed);
        self.fresh.store(file.fresh, Relaxed);
        self.kept.store(file.kept, Relaxed);
    }

    fn load(&self) -> BackingFile {
        BackingFile {
            dev: self.dev.load(Relaxed),
            inode: self.inode.load(Relaxed),
            start: self.start.load(Relaxed),
            end: self.end.load(Relaxed),
            span: self.span.load(Relaxed),
            anchor_private: self.anchor_private.load(Relaxed),
            anchor_shared: self.anchor_shared.load(Relaxed),
            probe: self.probe.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            huge: self.huge.load(Relaxed),
            fresh: self.fresh.load(Relaxed),
            live: 1,
            kept: self.kept.load(Relaxed),
        }
    }
}

/// Mappings of code that one job searches at most; the rest is a later one's.
const MAX_INSPECTED: usize = 256;

/// A mapping of code that was searched.
#[derive(Default)]
struct Inspected {
    start: AtomicUsize,
    end: AtomicUsize,
    inode: AtomicU64,
}

/// Memory that a job has mapped shared, or was about to: from `certain` on perhaps.
#[derive(Default)]
struct Switched {
    slot: AtomicUsize,
    start: AtomicUsize,
    certain: AtomicUsize,
    end: AtomicUsize,
}

/// How a job ended, if it ended by itself.
#[derive(Default)]
struct Ending {
    done: AtomicU32,
    /// 1: early, for the reason and in the step of these numbers.
    stopped: AtomicU32,
    reason: AtomicU32,
    step: AtomicU8,
    errno: AtomicU32,
}

/// What a job leaves behind; all zeros is valid, as the kernel maps it.
pub struct Results {
    pub trace: Trace,
    pub report: Report,
    created: [Record; MAX_FILES],
    created_count: AtomicUsize,
    gone: [AtomicU8; MAX_FILES],
    inspected: [Inspected; MAX_INSPECTED],
    inspected_count: AtomicUsize,
    /// What backing files hold at most after punching, plus 1; 0 for those not punched.
    punched: [AtomicUsize; MAX_FILES],
    shared: [Switched; MAX_PARTS],
    shared_count: AtomicUsize,
    /// Up to where that file's memory goes now, and bytes written beyond its end before.
    grown: [(AtomicUsize, AtomicUsize); MAX_FILES],
    /// What is owed to the memory budget, once that is known.
    owed: (AtomicU32, AtomicUsize, [AtomicUsize; DEBT_PROBES]),
    views: [(AtomicUsize, AtomicUsize); VIEWS.len()],
    /// Where the runtime's own mappings go next (a hint; see `sys::ZONE`).
    zone: AtomicUsize,
    ending: Ending,
}

impl Results {
    /// As new, for the next job, which goes on counting calls where `trace` is.
    pub fn begin(&self, trace: &Trace, zone: usize, goes_on: bool) {
        self.trace.follow(trace);
        if goes_on {
            self.report.go_on();
        } else {
            self.report.clear();
        }
        self.created_count.store(0, Relaxed);
        self.gone.iter().for_each(|g| g.store(0, Relaxed));
        self.inspected_count.store(0, Relaxed);
        self.punched.iter().for_each(|p| p.store(0, Relaxed));
        self.owed.0.store(0, Relaxed);
        VIEWS.iter().for_each(|&v| self.forget_view(v));
        self.zone.store(zone, Relaxed);
        self.shared_count.store(0, Relaxed);
        self.grown.iter().for_each(|(end, _)| end.store(0, Relaxed));
        self.ending.done.store(0, Relaxed);
        self.ending.stopped.store(0, Relaxed);
    }

    /// The backing files made.
    pub fn created(&self) -> impl Iterator<Item = BackingFile> + '_ {
        self.created[..self.created_count()].iter().map(Record::load)
    }

    pub fn created_count(&self) -> usize {
        self.created_count.load(Acquire).min(MAX_FILES)
    }

    /// Adds a backing file; from here on it counts.
    pub fn create(&self, file: &BackingFile) {
        let n = self.created_count();
        if let Some(record) = self.created.get(n) {
            record.store(file);
            self.created_count.store(n + 1, Release);
        }
    }

    /// The latest backing file is about to show more: up to `end`, with so many bytes more.
    pub fn extend_latest(&self, end: usize, bytes: usize) {
        if let Some(record) = self.created_count().checked_sub(1).map(|n| &self.created[n]) {
            record.end.store(end, Relaxed);
            record.bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Code that was searched and found harmless.
    pub fn inspected(&self) -> impl Iterator<Item = Code> + '_ {
        let count = self.inspected_count.load(Acquire).min(MAX_INSPECTED);
        self.inspected[..count].iter().map(|i| Code {
            start: i.start.load(Relaxed),
            end: i.end.load(Relaxed),
            inode: i.inode.load(Relaxed),
        })
    }

    /// More can be noted.
    pub fn has_inspected_room(&self) -> bool {
        self.inspected_count.load(Relaxed) < MAX_INSPECTED
    }

    /// Notes that code was searched up to its `end`.
    pub fn note_inspected(&self, code: &Code) {
        let n = self.inspected_count.load(Relaxed);
        if let Some(slot) = self.inspected.get(n) {
            slot.start.store(code.start, Relaxed);
            slot.end.store(code.end, Relaxed);
            slot.inode.store(code.inode, Relaxed);
            self.inspected_count.store(n + 1, Release);
        }
    }

    /// No mapping shows the backing file in that registry slot any more.
    pub fn is_gone(&self, slot: usize) -> bool {
        self.gone.get(slot).is_some_and(|g| g.load(Relaxed) == 1)
    }

    pub fn set_gone(&self, slot: usize, gone: bool) {
        if let Some(g) = self.gone.get(slot) {
            g.store(u8::from(gone), Relaxed);
        }
    }

    /// The backing file in that slot holds so much at most: the rest was punched.
    pub fn note_punched(&self, slot: usize, most: usize) {
        if let Some(p) = self.punched.get(slot) {
            p.store(most + 1, Relaxed);
        }
    }

    /// Slots of backing files that were punched, with what they hold at most.
    pub fn punched(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let most = self.punched.iter().map(|p| p.load(Relaxed).checked_sub(1));
        most.enumerate().filter_map(|(slot, most)| Some((slot, most?)))
    }

    /// So much of the memory of the file in that slot is about to be mapped shared.
    pub fn note_shared(&self, slot: usize, (from, end): (usize, usize)) {
        let count = self.shared_count.load(Relaxed);
        let goes_on =
            |last: &&Switched| (last.slot.load(Relaxed), last.end.load(Relaxed)) == (slot, from);
        if let Some(last) = self.shared[..count.min(MAX_PARTS)].last().filter(goes_on) {
            last.certain.store(from, Relaxed);
            last.end.store(end, Release);
        } else if let Some(place) = self.shared.get(count) {
            place.slot.store(slot, Relaxed);
            place.start.store(from, Relaxed);
            place.certain.store(from, Relaxed);
            place.end.store(end, Relaxed);
            self.shared_count.store(count + 1, Release);
        }
    }

    /// Memory that may be mapped shared now, and from where on it is not certain.
    pub fn shared(&self) -> impl Iterator<Item = (Part, usize)> + '_ {
        let count = self.shared_count.load(Acquire).min(MAX_PARTS);
        self.shared[..count].iter().map(|it| {
            let (slot, start) = (it.slot.load(Relaxed), it.start.load(Relaxed));
            (Part { slot, start, end: it.end.load(Acquire) }, it.certain.load(Relaxed))
        })
    }

    /// There is room for one more part beside so many that are shared already.
    pub fn may_share(&self, known: usize) -> bool {
        known + self.shared_count.load(Relaxed) < MAX_PARTS
    }

    /// The file in that slot is about to show memory up to `end`, so many bytes more.
    pub fn note_grown(&self, slot: usize, end: usize, more: usize) {
        if let Some((reached, bytes)) = self.grown.get(slot) {
            let before = if reached.load(Relaxed) == 0 { 0 } else { bytes.load(Relaxed) };
            bytes.store(before + more, Relaxed);
            reached.store(end, Release);
        }
    }

    /// Up to where that file's memory goes, if this job made it more.
    pub fn grown_end(&self, slot: usize) -> Option<usize> {
        self.grown.get(slot).map(|(end, _)| end.load(Relaxed)).filter(|&end| end != 0)
    }

    /// Slots of files that have taken more memory: up to where, and with how many bytes.
    pub fn grown(&self) -> impl Iterator<Item = (usize, (usize, usize))> + '_ {
        let ends = self.grown.iter().map(|(end, bytes)| (end.load(Acquire), bytes.load(Relaxed)));
        ends.enumerate().filter(|(_, (end, _))| *end != 0)
    }

    /// Notes what is owed to the memory budget.
    pub fn note_debt(&self, debt: &Debt) {
        let (known, bytes, probes) = &self.owed;
        bytes.store(debt.bytes, Relaxed);
        probes.iter().zip(debt.probes).for_each(|(place, probe)| place.store(probe, Relaxed));
        known.store(1, Release);
    }

    /// That debt, if the job came to it.
    pub fn debt(&self) -> Option<Debt> {
        let (known, bytes, probes) = &self.owed;
        (known.load(Acquire) == 1).then(|| Debt {
            bytes: bytes.load(Relaxed),
            probes: core::array::from_fn(|i| probes[i].load(Relaxed)),
        })
    }

    /// An address hint for `len` bytes of the runtime's own.
    pub fn place(&self, len: usize) -> usize {
        self.zone.fetch_add(len.next_multiple_of(PAGE), Relaxed)
    }

    pub fn zone(&self) -> usize {
        self.zone.load(Relaxed)
    }

    /// Notes a temporary mapping.
    pub fn note_view(&self, view: View, start: usize, len: usize) {
        let (at, size) = &self.views[view as usize];
        size.store(0, Relaxed);
        at.store(start, Relaxed);
        size.store(len, Release);
    }

    /// Forgets a temporary mapping without unmapping it.
    pub fn forget_view(&self, view: View) {
        self.views[view as usize].1.store(0, Relaxed);
    }

    /// Removes a temporary mapping.
    pub fn drop_view(&self, view: View) {
        let (at, len) = &self.views[view as usize];
        if len.load(Acquire) != 0 {
            // SAFETY: noted by the job as its own.
            unsafe { sys::munmap(at.load(Relaxed), len.load(Relaxed)) };
        }
        self.forget_view(view);
    }

    /// Removes what a job that died could not remove.
    pub fn drop_views(&self) {
        VIEWS.iter().for_each(|&v| self.drop_view(v));
    }

    /// The job's last word.
    pub fn end(&self, done: Done<()>) {
        let e = &self.ending;
        if let Err(stop) = done {
            e.reason.store(stop.reason as u32, Relaxed);
            let step = Step::named(stop.step.as_bytes()).unwrap_or_default();
            e.step.store(step as u8, Relaxed);
            e.errno.store(stop.errno as u32, Relaxed);
            e.stopped.store(1, Relaxed);
        }
        e.done.store(1, Release);
    }

    /// That word; `None` if the task died before.
    pub fn ending(&self) -> Option<Done<()>> {
        let e = &self.ending;
        if e.done.load(Acquire) != 1 {
            return None;
        }
        if e.stopped.load(Relaxed) == 0 {
            return Some(Ok(()));
        }
        let reason = e.reason.load(Relaxed) as usize;
        Some(Err(Stop {
            reason: Reason::ALL.get(reason).copied().unwrap_or_default(),
            step: Step::numbered(e.step.load(Relaxed)).name(),
            errno: e.errno.load(Relaxed) as i32,
        }))
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
