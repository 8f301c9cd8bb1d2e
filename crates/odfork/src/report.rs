//! What a job found and did, in numbers.
//!
//! Owns the numbers that its results carry to the caller. All of them are atomic: the helper task
//! may be killed between any two instructions.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one task writes and another reads later.
#[derive(Default, Debug)]
pub struct Number(AtomicU64);

impl Number {
    pub fn get(&self) -> usize {
        self.0.load(Relaxed) as usize
    }

    pub fn set(&self, n: usize) {
        self.0.store(n as u64, Relaxed);
    }

    pub fn add(&self, n: usize) {
        self.set(self.get() + n);
    }

    pub fn flag(&self) -> bool {
        self.get() == 1
    }
}

/// What a job found and did.
#[derive(Default, Debug)]
pub struct Report {
    /// Anonymous bytes that may be frozen.
    pub eligible: Number,
    /// Bytes of mappings of backing files dirtied by the process.
    pub dirty: Number,
    /// Of these, bytes the memory budget leaves as they are.
    pub left: Number,
    /// Mappings these two are in.
    pub new_mappings: Number,
    pub dirty_mappings: Number,
    /// Private memory that is mapped, writable and not yet populated.
    pub untouched: Number,
    /// Bytes that may still be used before the reserve is touched, as an `i64`, if measured.
    slack: Number,
    measured: Number,
    /// Bytes of backing files the process shows (clean and dirty).
    pub shown: Number,
    /// Bytes copied into new backing files, and time for it in ns.
    pub frozen: Number,
    pub freeze_ns: Number,
    /// Dirty bytes written back in place, bytes of mappings rebuilt, time in ns.
    pub written_back: Number,
    pub rebuilt: Number,
    pub refreeze_ns: Number,
    pub thawed: Number,
    /// 1: zeros were written where the mapping could not be replaced.
    pub by_hand: Number,
    /// 1: thawing stopped at memory whose content the kernel will not give up.
    pub refused: Number,
    /// 1: the kernel may keep pages beyond their mappings, as a socket that sends without copying.
    pub keeps: Number,
    /// 1: some memory cannot be shared yet, because a child may show its file.
    pub waits: Number,
    /// 1: a slice has ended, and there is more to do. 1: what was found has to be looked for again.
    pub more: Number,
    pub lost: Number,
    /// Anonymous pages that came after the look, at the end of a pass in slices.
    pub arrived: Number,
    /// 1: so many that the next pass is due at once.
    pub urges: Number,
    /// What a pass that goes on in slices may cost, in ns.
    pub allowance: Number,
    /// 1: code was found that shared memory must not meet.
    pub unfit: Number,
    /// 1: Yama forbids this task to trace the process, until that names it.
    pub untraceable: Number,
    /// 1: the job looked and decided to act.
    pub acted: Number,
    /// 1: the map of the process was read to its end ([`Results::is_gone`] is meaningful).
    pub scanned: Number,
    /// Mappings of the process.
    pub mappings: Number,
    /// 1: what is frozen cannot be thawed: another process shows a file, or it would not fit.
    pub stuck: Number,
    /// 1: the address space is limited (RLIMIT_AS): what is left is the program's.
    pub space_limited: Number,
}

impl Report {
    /// Forgets what an earlier scan found.
    pub fn restart_scan(&self) {
        let found = [
            &self.eligible,
            &self.dirty,
            &self.left,
            &self.untouched,
            &self.shown,
            &self.new_mappings,
            &self.dirty_mappings,
        ];
        found.iter().for_each(|n| n.set(0));
        self.scanned.set(0);
    }

    /// Notes how much more may be used; negative when too much is.
    pub fn note_slack(&self, slack: i64) {
        self.slack.set(slack as usize);
        self.measured.set(1);
    }

    /// That number, if it was measured.
    pub fn slack(&self) -> Option<i64> {
        self.measured.flag().then(|| self.slack.get() as i64)
    }

    /// Forgets what an earlier slice did, and keeps what the look before it has found.
    pub fn go_on(&self) {
        let Report { eligible, left, untouched, shown, frozen, .. } = self;
        let found = [eligible, left, untouched].map(Number::get);
        let (shows, dirty) = (shown.get() + frozen.get(), self.still_dirty());
        self.clear();
        [eligible, left, untouched].into_iter().zip(found).for_each(|(n, was)| n.set(was));
        shown.set(shows);
        self.dirty.set(dirty);
    }

    /// Bytes that were dirty, less what was written back.
    pub fn still_dirty(&self) -> usize {
        self.dirty.get().saturating_sub(self.written_back.get())
    }

    /// Forgets what an earlier job left.
    pub fn clear(&self) {
        let all = [
            &self.eligible,
            &self.dirty,
            &self.left,
            &self.new_mappings,
            &self.dirty_mappings,
            &self.untouched,
            &self.measured,
            &self.shown,
            &self.frozen,
            &self.freeze_ns,
            &self.written_back,
            &self.rebuilt,
            &self.refreeze_ns,
            &self.arrived,
            &self.urges,
            &self.thawed,
            &self.by_hand,
            &self.refused,
            &self.keeps,
            &self.waits,
            &self.more,
            &self.lost,
            &self.allowance,
            &self.unfit,
            &self.untraceable,
            &self.acted,
            &self.scanned,
            &self.mappings,
            &self.stuck,
            &self.space_limited,
        ];
        all.iter().for_each(|n| n.set(0));
    }
}
