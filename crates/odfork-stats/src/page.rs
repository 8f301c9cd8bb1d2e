//! Counters of one process, as they lie in its memory.
//!
//! Owns the layout, by which another process may read them, and what is counted. Counters are
//! atomic: several threads may fork at once.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::reason::{Reason, REASONS};

/// The first eight bytes, once the library has begun.
pub const MAGIC: u64 = u64::from_le_bytes(*b"odfstats");
/// Of the layout; another number means another layout.
pub const VERSION: u32 = 3;

/// What [`Stats::wish`] asks for: nothing, to unfreeze and stay plain, which was done.
pub const NO_WISH: u32 = 0;
/// Unfreeze before the next fork, and never freeze again.
pub const STAY_PLAIN: u32 = 1;
/// That was done.
pub const IS_PLAIN: u32 = 2;

/// Buckets of the fork latency histogram: eight to a doubling, from 1 us up.
const BUCKETS: usize = 192;
const PER_OCTAVE: usize = 8;

/// All counters. The library places them at the beginning of a page of its own data.
#[repr(C)]
pub struct Stats {
    magic: AtomicU64,
    version: AtomicU32,
    size: AtomicU32,
    /// The process these are of, in its own namespace: a child that has not called the library yet
    /// shows its parent's.
    pub pid: AtomicI32,
    /// Written by an operator (`odfork stats --plain`), obeyed before the next fork.
    pub wish: AtomicU32,
    /// Rent paid and price, of the account that is open; price 0: nobody has looked yet.
    pub paid_ns: AtomicU64,
    /// See `paid_ns`.
    pub price_ns: AtomicU64,
    /// Time of fork(2) itself in the parent, all forks together.
    pub fork_ns: AtomicU64,
    /// Time the program's threads spent in odfork beside fork(2) itself.
    pub stalls: AtomicU64,
    /// All stalls together.
    pub stall_ns: AtomicU64,
    /// The longest.
    pub stall_max_ns: AtomicU64,
    /// Stalls by length: eight buckets to a doubling, from 1 us up.
    pub stall_histogram: [AtomicU32; BUCKETS],
    /// Passes that froze new memory; slices of one freeze count once.
    pub freezes: AtomicU64,
    /// Their time.
    pub freeze_ns: AtomicU64,
    /// Bytes they froze.
    pub freeze_bytes: AtomicU64,
    /// Passes that wrote dirty pages back into files in use.
    pub folds_in_place: AtomicU64,
    /// Passes that put memory into new files, because children show the old ones.
    pub folds_rebuilt: AtomicU64,
    /// Time of both.
    pub fold_ns: AtomicU64,
    /// Bytes of both.
    pub fold_bytes: AtomicU64,
    /// Times that frozen memory was made anonymous again.
    pub thaws: AtomicU64,
    /// Bytes of these.
    pub thaw_bytes: AtomicU64,
    /// Forks that succeeded.
    pub forks: AtomicU64,
    /// Forks that the kernel refused.
    pub forks_failed: AtomicU64,
    /// The fastest fork; `u64::MAX` before the first.
    pub fork_min_ns: AtomicU64,
    /// The slowest fork.
    pub fork_max_ns: AtomicU64,
    /// Forks by their time, in the buckets of `stall_histogram`.
    pub histogram: [AtomicU32; BUCKETS],
    /// Pages of 4 KB found dirty at the latest scan.
    pub dirty_pages: AtomicU64,
    /// Bytes written into the backing files in use.
    pub image_bytes: AtomicU64,
    /// Bytes of address space that show backing files.
    pub frozen_bytes: AtomicU64,
    /// Of these, bytes mapped shared now; switches between shared and private, and their time.
    pub live_bytes: AtomicU64,
    /// See `live_bytes`.
    pub switches: AtomicU64,
    /// See `live_bytes`.
    pub switch_ns: AtomicU64,
    /// 0 plain, 1 small, 2 huge.
    pub engine: AtomicU32,
    /// Passes that did not happen or stopped half-way, by number of their [`Reason`].
    pub fallbacks: [AtomicU64; REASONS],
    /// Of the latest fallback of each reason: error number.
    pub errnos: [AtomicU32; REASONS],
    /// Number of the latest of these reasons.
    pub last_reason: AtomicU32,
}

#[allow(clippy::declare_interior_mutable_const)]
const ZERO32: AtomicU32 = AtomicU32::new(0);
#[allow(clippy::declare_interior_mutable_const)]
const ZERO: AtomicU64 = AtomicU64::new(0);

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

impl Stats {
    /// Nothing counted.
    pub const fn new() -> Self {
        Stats {
            magic: ZERO,
            version: ZERO32,
            size: ZERO32,
            pid: AtomicI32::new(0),
            wish: ZERO32,
            paid_ns: ZERO,
            price_ns: ZERO,
            fork_ns: ZERO,
            stalls: ZERO,
            stall_ns: ZERO,
            stall_max_ns: ZERO,
            stall_histogram: [ZERO32; BUCKETS],
            freezes: ZERO,
            freeze_ns: ZERO,
            freeze_bytes: ZERO,
            folds_in_place: ZERO,
            folds_rebuilt: ZERO,
            fold_ns: ZERO,
            fold_bytes: ZERO,
            thaws: ZERO,
            thaw_bytes: ZERO,
            forks: ZERO,
            forks_failed: ZERO,
            fork_min_ns: AtomicU64::new(u64::MAX),
            fork_max_ns: ZERO,
            histogram: [ZERO32; BUCKETS],
            dirty_pages: ZERO,
            image_bytes: ZERO,
            frozen_bytes: ZERO,
            live_bytes: ZERO,
            switches: ZERO,
            switch_ns: ZERO,
            engine: ZERO32,
            fallbacks: [ZERO; REASONS],
            errnos: [ZERO32; REASONS],
            last_reason: ZERO32,
        }
    }

    /// From now on the page can be found and read.
    pub fn publish(&self, pid: i32) {
        self.pid.store(pid, Relaxed);
        self.version.store(VERSION, Relaxed);
        self.size.store(size_of::<Stats>() as u32, Relaxed);
        self.magic.store(MAGIC, Release);
    }

    /// A copy of a page of another process is one, and of this layout.
    ///
    /// # Errors
    /// What it is instead.
    pub fn check(&self) -> Result<(), Foreign> {
        if self.magic.load(Acquire) != MAGIC {
            return Err(Foreign::Nothing);
        }
        let version = self.version.load(Relaxed);
        let same = version == VERSION && self.size.load(Relaxed) == size_of::<Stats>() as u32;
        same.then_some(()).ok_or(Foreign::Version(version))
    }

    /// Counts time that a thread of the program spent in odfork.
    pub fn count_stall(&self, ns: u64) {
        self.stalls.fetch_add(1, Relaxed);
        self.stall_ns.fetch_add(ns, Relaxed);
        self.stall_max_ns.fetch_max(ns, Relaxed);
        self.stall_histogram[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// Stall below which a share of stalls (in thousandths) lies, ns.
    pub fn stall_percentile(&self, permille: u64) -> u64 {
        let most = self.stall_max_ns.load(Relaxed);
        percentile(&self.stall_histogram, self.stalls.load(Relaxed), permille, most)
    }

    /// Stalls by powers of two of a microsecond: upper end in ns, and how many were longer than the
    /// end before and no longer than this one.
    pub fn stall_octaves(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..=BUCKETS / PER_OCTAVE).map(|octave| {
            let end = octave * PER_OCTAVE;
            let (first, last) = ((end + 1).saturating_sub(PER_OCTAVE), end.min(BUCKETS - 1));
            let counts = self.stall_histogram[first..=last].iter();
            (bucket_end(last), counts.map(|n| u64::from(n.load(Relaxed))).sum())
        })
    }

    /// Counts a fork that took `ns` nanoseconds in the parent.
    pub fn count_fork(&self, ns: u64) {
        self.forks.fetch_add(1, Relaxed);
        self.fork_ns.fetch_add(ns, Relaxed);
        self.fork_min_ns.fetch_min(ns, Relaxed);
        self.fork_max_ns.fetch_max(ns, Relaxed);
        self.histogram[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// Counts a pass that did not happen, or stopped half-way.
    pub fn count_stop(&self, reason: Reason, errno: i32) {
        let i = reason as usize;
        self.fallbacks[i].fetch_add(1, Relaxed);
        self.errnos[i].store(errno as u32, Relaxed);
        self.last_reason.store(i as u32, Relaxed);
    }

    /// Why the engine is what it is.
    pub fn reason(&self) -> Reason {
        Reason::numbered(self.last_reason.load(Relaxed))
    }

    /// The engine in use: `huge`, `small` or `plain`.
    pub fn engine_word(&self) -> &'static str {
        match self.engine.load(Relaxed) {
            2 => "huge",
            1 => "small",
            _ => "plain",
        }
    }

    /// Fork latency below which a share of forks (in thousandths) lies, ns.
    pub fn percentile(&self, permille: u64) -> u64 {
        let most = self.fork_max_ns.load(Relaxed);
        percentile(&self.histogram, self.forks.load(Relaxed), permille, most)
    }

    /// Starts over, in a child; what its memory is stays.
    pub fn reset(&self) {
        let counters = [
            &self.paid_ns,
            &self.price_ns,
            &self.fork_ns,
            &self.stalls,
            &self.stall_ns,
            &self.stall_max_ns,
            &self.freezes,
            &self.freeze_ns,
            &self.freeze_bytes,
            &self.folds_in_place,
            &self.folds_rebuilt,
            &self.fold_ns,
            &self.fold_bytes,
            &self.thaws,
            &self.thaw_bytes,
            &self.forks,
            &self.forks_failed,
            &self.fork_max_ns,
            &self.dirty_pages,
            &self.image_bytes,
            &self.live_bytes,
            &self.switches,
            &self.switch_ns,
        ];
        counters.into_iter().chain(&self.fallbacks).for_each(|n| n.store(0, Relaxed));
        self.fork_min_ns.store(u64::MAX, Relaxed);
        let histograms = self.histogram.iter().chain(&self.stall_histogram);
        histograms.chain(&self.errnos).for_each(|n| n.store(0, Relaxed));
    }
}

/// What a copied page is, if it is no statistics page of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// No library has begun here.
    Nothing,
    /// Statistics in the layout of this number.
    Version(u32),
}

fn percentile(histogram: &[AtomicU32], total: u64, permille: u64, most: u64) -> u64 {
    let want = (total.saturating_mul(permille)).div_ceil(1000);
    let mut seen = 0;
    for (i, n) in histogram.iter().enumerate() {
        seen += u64::from(n.load(Relaxed));
        if seen >= want && seen > 0 {
            return bucket_end(i).min(most);
        }
    }
    0
}

fn bucket(ns: u64) -> usize {
    let mut i = 0;
    while i + 1 < BUCKETS && bucket_end(i) < ns {
        i += PER_OCTAVE;
    }
    let mut i = i.saturating_sub(PER_OCTAVE);
    while i + 1 < BUCKETS && bucket_end(i) < ns {
        i += 1;
    }
    i
}

/// Upper end of a bucket, ns: 1 us times 2^(1/8) a step, octaves in equal parts.
pub(crate) fn bucket_end(i: usize) -> u64 {
    let octave = 1000u64 << (i / PER_OCTAVE).min(40);
    octave + octave * (i % PER_OCTAVE) as u64 / PER_OCTAVE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_its_bucket() {
        for ns in [0, 1, 999, 1000, 1001, 1125, 40_000, 14_000_000, 1 << 50] {
            let i = bucket(ns);
            assert!(bucket_end(i) >= ns || i == BUCKETS - 1, "{ns}");
            assert!(i == 0 || bucket_end(i - 1) < ns || i == BUCKETS - 1, "{ns}");
        }
    }

    #[test]
    fn percentiles_are_upper_ends() {
        let s = Stats::new();
        (0..99).for_each(|_| s.count_fork(40_000));
        s.count_fork(14_000_000);
        assert!((40_000..45_100).contains(&s.percentile(500)));
        assert_eq!(s.percentile(1000), 14_000_000);
    }

    #[test]
    fn every_stall_is_in_one_octave() {
        let s = Stats::new();
        [0, 1000, 1001, 2000, 5_000_000].into_iter().for_each(|ns| s.count_stall(ns));
        let found: Vec<_> = s.stall_octaves().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(1000, 2), (2000, 2), (8_192_000, 1)]);
    }

    #[test]
    fn a_child_keeps_what_its_memory_is() {
        let s = Stats::new();
        s.count_fork(40_000);
        s.count_stop(Reason::Memory, 0);
        s.engine.store(2, Relaxed);
        s.frozen_bytes.store(7, Relaxed);
        s.image_bytes.store(7, Relaxed);
        s.reset();
        assert_eq!((s.engine_word(), s.reason(), s.percentile(990)), ("huge", Reason::Memory, 0));
        assert_eq!(s.fork_min_ns.load(Relaxed), u64::MAX);
        assert_eq!((s.frozen_bytes.load(Relaxed), s.image_bytes.load(Relaxed)), (7, 0));
        assert!(s.fallbacks.iter().all(|n| n.load(Relaxed) == 0));
    }

    #[test]
    fn a_page_is_known_by_its_beginning() {
        let s = Stats::new();
        assert_eq!(s.check(), Err(Foreign::Nothing));
        s.publish(7);
        assert_eq!(s.check(), Ok(()));
        s.version.store(9, Relaxed);
        assert_eq!(s.check(), Err(Foreign::Version(9)));
    }
}
