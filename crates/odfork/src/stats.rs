//! Counters of one process, and their text.
//!
//! Owns what is counted and how it is printed, into fixed buffers. Counters are
//! atomic: several threads may fork at once.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::reason::{Reason, Stop, REASONS};

/// Buckets of the fork latency histogram: eight to a doubling, from 1 us up.
const BUCKETS: usize = 192;
const PER_OCTAVE: usize = 8;

/// All counters.
pub struct Stats {
    pub freezes: AtomicU64,
    pub freeze_ns: AtomicU64,
    pub freeze_bytes: AtomicU64,
    pub folds_in_place: AtomicU64,
    pub folds_rebuilt: AtomicU64,
    pub fold_ns: AtomicU64,
    pub fold_bytes: AtomicU64,
    pub thaws: AtomicU64,
    pub thaw_bytes: AtomicU64,
    pub forks: AtomicU64,
    pub forks_failed: AtomicU64,
    pub fork_min_ns: AtomicU64,
    pub fork_max_ns: AtomicU64,
    pub histogram: [AtomicU32; BUCKETS],
    pub dirty_pages: AtomicU64,
    pub image_bytes: AtomicU64,
    pub frozen_bytes: AtomicU64,
    /// 0 plain, 1 small, 2 huge.
    pub engine: AtomicU32,
    pub fallbacks: [AtomicU64; REASONS],
    /// Of the latest fallback of each reason: error number.
    pub errnos: [AtomicU32; REASONS],
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
            engine: ZERO32,
            fallbacks: [ZERO; REASONS],
            errnos: [ZERO32; REASONS],
            last_reason: ZERO32,
        }
    }

    /// Counts a fork that took `ns` nanoseconds in the parent.
    pub fn count_fork(&self, ns: u64) {
        self.forks.fetch_add(1, Relaxed);
        self.fork_min_ns.fetch_min(ns, Relaxed);
        self.fork_max_ns.fetch_max(ns, Relaxed);
        self.histogram[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// Counts a pass that did not happen, or stopped half-way.
    pub fn count_stop(&self, stop: &Stop) {
        let i = stop.reason as usize;
        self.fallbacks[i].fetch_add(1, Relaxed);
        self.errnos[i].store(stop.errno as u32, Relaxed);
        self.last_reason.store(i as u32, Relaxed);
    }

    /// Why the engine is what it is.
    pub fn reason(&self) -> Reason {
        let i = self.last_reason.load(Relaxed) as usize;
        Reason::ALL.get(i).copied().unwrap_or_default()
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
        let total = self.forks.load(Relaxed);
        let want = (total * permille).div_ceil(1000);
        let mut seen = 0;
        for (i, n) in self.histogram.iter().enumerate() {
            seen += u64::from(n.load(Relaxed));
            if seen >= want && seen > 0 {
                return bucket_end(i).min(self.fork_max_ns.load(Relaxed));
            }
        }
        0
    }

    /// Starts over, in a child; what its memory is stays.
    pub fn reset(&self) {
        let counters = [
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
        ];
        counters.into_iter().chain(&self.fallbacks).for_each(|n| n.store(0, Relaxed));
        self.fork_min_ns.store(u64::MAX, Relaxed);
        self.histogram.iter().chain(&self.errnos).for_each(|n| n.store(0, Relaxed));
    }
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
fn bucket_end(i: usize) -> u64 {
    let octave = 1000u64 << (i / PER_OCTAVE).min(40);
    octave + octave * (i % PER_OCTAVE) as u64 / PER_OCTAVE as u64
}

/// Text of fixed size; what does not fit is cut, never written past the end.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Text<N> {
    /// Empty.
    pub const fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(N - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// What a report says besides the counters.
pub struct Context<'a> {
    pub pid: i32,
    pub program: &'a str,
    pub calls: u32,
    pub injected: u32,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// One JSON object, schema 1.
pub fn write_json(w: &mut dyn Write, s: &Stats, c: &Context) -> fmt::Result {
    let g = |a: &AtomicU64| a.load(Relaxed);
    write!(w, "{{\"schema\":1,\"pid\":{},\"program\":\"", c.pid)?;
    for ch in c.program.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\') {
        w.write_char(ch)?;
    }
    write!(w, "\",\"engine\":\"{}\",\"reason\":\"{}\",", s.engine_word(), why(s))?;
    write!(
        w,
        "\"freeze\":{{\"count\":{},\"us\":{},\"bytes\":{}}},",
        g(&s.freezes),
        g(&s.freeze_ns) / 1000,
        g(&s.freeze_bytes)
    )?;
    write!(
        w,
        "\"fold\":{{\"in_place\":{},\"rebuilt\":{},\"us\":{},\"bytes\":{}}},\"thaw\":{{\"count\":{},\"bytes\":{}}},",
        g(&s.folds_in_place),
        g(&s.folds_rebuilt),
        g(&s.fold_ns) / 1000,
        g(&s.fold_bytes),
        g(&s.thaws),
        g(&s.thaw_bytes)
    )?;
    let min = if g(&s.forks) == 0 { 0 } else { g(&s.fork_min_ns) };
    write!(
        w,
        "\"fork\":{{\"count\":{},\"failed\":{},\"min_us\":{:.1},\"p50_us\":{:.1},\"p90_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1},\"histogram\":[",
        g(&s.forks),
        g(&s.forks_failed),
        us(min),
        us(s.percentile(500)),
        us(s.percentile(900)),
        us(s.percentile(990)),
        us(g(&s.fork_max_ns))
    )?;
    let mut comma = "";
    for (i, n) in s.histogram.iter().enumerate() {
        let n = n.load(Relaxed);
        if n > 0 {
            write!(w, "{comma}{{\"le_us\":{:.1},\"count\":{n}}}", us(bucket_end(i)))?;
            comma = ",";
        }
    }
    write!(
        w,
        "]}},\"dirty_pages\":{},\"image_bytes\":{},\"frozen_bytes\":{},\"fallbacks\":[",
        g(&s.dirty_pages),
        g(&s.image_bytes),
        g(&s.frozen_bytes)
    )?;
    write_fallbacks(w, s)?;
    writeln!(w, "],\"faults_injected\":{},\"calls\":{}}}", c.injected, c.calls)
}

/// Members of the list of reasons for plain fork.
fn write_fallbacks(w: &mut dyn Write, s: &Stats) -> fmt::Result {
    let mut comma = "";
    for (r, n) in Reason::ALL.iter().zip(&s.fallbacks) {
        let n = n.load(Relaxed);
        if n > 0 && tells(s, *r) {
            let errno = s.errnos[*r as usize].load(Relaxed);
            write!(
                w,
                "{comma}{{\"reason\":\"{}\",\"detail\":\"{}\",\"errno\":{errno},\"count\":{n}}}",
                r.word(),
                r.explain()
            )?;
            comma = ",";
        }
    }
    Ok(())
}

/// Having found nothing to do is no fallback once something was done.
fn tells(s: &Stats, r: Reason) -> bool {
    r != Reason::NotWorth || s.freezes.load(Relaxed) == 0
}

fn why(s: &Stats) -> &'static str {
    match (s.engine.load(Relaxed), s.reason()) {
        (2, _) => "memory is in a backing file of huge pages",
        (1, _) => "memory is in a backing file of 4 KB pages",
        (_, Reason::None) => "no freeze was due yet",
        (_, r) => r.explain(),
    }
}

/// The same for people.
pub fn write_text(w: &mut dyn Write, s: &Stats, c: &Context) -> fmt::Result {
    let g = |a: &AtomicU64| a.load(Relaxed);
    let mb = |a: &AtomicU64| g(a) as f64 / 1048576.0;
    writeln!(w, "odfork: {} (pid {}): engine {}: {}", c.program, c.pid, s.engine_word(), why(s))?;
    writeln!(
        w,
        "odfork:   forks {} (failed {}): p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        g(&s.forks),
        g(&s.forks_failed),
        us(s.percentile(500)),
        us(s.percentile(990)),
        us(g(&s.fork_max_ns))
    )?;
    writeln!(
        w,
        "odfork:   freezes {}: {:.1} MB in {:.1} ms; refreezes {} in place, {} rebuilt: {:.1} MB in {:.1} ms; thaws {}: {:.1} MB",
        g(&s.freezes),
        mb(&s.freeze_bytes),
        g(&s.freeze_ns) as f64 / 1e6,
        g(&s.folds_in_place),
        g(&s.folds_rebuilt),
        mb(&s.fold_bytes),
        g(&s.fold_ns) as f64 / 1e6,
        g(&s.thaws),
        mb(&s.thaw_bytes)
    )?;
    writeln!(
        w,
        "odfork:   backing files {:.1} MB, frozen {:.1} MB, dirty at the last scan {} pages",
        mb(&s.image_bytes),
        mb(&s.frozen_bytes),
        g(&s.dirty_pages)
    )?;
    for (r, n) in Reason::ALL.iter().zip(&s.fallbacks) {
        if g(n) > 0 && tells(s, *r) {
            writeln!(w, "odfork:   plain {} times: {}: {}", g(n), r.word(), r.explain())?;
        }
    }
    Ok(())
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
    fn a_child_keeps_what_its_memory_is() {
        let s = Stats::new();
        s.count_fork(40_000);
        s.count_stop(&Stop::of(Reason::Memory));
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
    fn a_full_buffer_is_cut() {
        let mut t = Text::<8>::new();
        let _ = write!(t, "123456789");
        assert_eq!(t.bytes(), b"12345678");
    }
}
