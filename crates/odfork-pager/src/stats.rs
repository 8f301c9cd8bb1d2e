//! The daemon's counters: totals, and a histogram of fault times.
//!
//! Counters only grow; the reader computes rates from two readings. A histogram has one bucket for
//! each power of two nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{json, Value};

/// Counts by powers of two nanoseconds.
#[derive(Debug)]
pub struct Histogram([AtomicU64; 40]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    pub fn add(&self, ns: u64) {
        let bucket = (64 - ns.leading_zeros() as usize).min(self.0.len() - 1);
        self.0[bucket].fetch_add(1, Relaxed);
    }

    fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|bucket| bucket.load(Relaxed)).collect()
    }

    /// Upper bound, in ns, of the bucket that holds this share of all; 0 when there is nothing.
    pub fn quantile(&self, share: f64) -> u64 {
        let counts = self.counts();
        let all: u64 = counts.iter().sum();
        let rank = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return 1 << bucket;
            }
        }
        0
    }

    /// Median, 99th percentile, and every bucket that is not empty: `[upper bound in ns, count]`.
    pub fn to_json(&self) -> Value {
        let counts = self.counts();
        let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets: Vec<Value> = filled.map(|(at, count)| json!([1u64 << at, count])).collect();
        json!({ "p50_ns": self.quantile(0.5), "p99_ns": self.quantile(0.99), "buckets": buckets })
    }
}

/// Totals since this daemon started, in events or pages.
#[derive(Debug, Default)]
pub struct Stats {
    pub faults: AtomicU64,
    pub zero_fills: AtomicU64,
    pub page_ins: AtomicU64,
    pub read_calls: AtomicU64,
    pub prefetched: AtomicU64,
    pub page_outs: AtomicU64,
    pub write_calls: AtomicU64,
    pub zero_outs: AtomicU64,
    pub zapped: AtomicU64,
    pub zap_batches: AtomicU64,
    pub zap_failed: AtomicU64,
    pub poisoned: AtomicU64,
    pub store_full: AtomicU64,
    pub store_errors: AtomicU64,
    pub demand_scans: AtomicU64,
    pub starved: AtomicU64,
    pub swap_outs: AtomicU64,
    pub swap_ins: AtomicU64,
    pub snapshots: AtomicU64,
    /// Faults served from memory, and those that read the store: from reading the message to the
    /// page being mapped.
    pub reclaim_time: Histogram,
    pub page_in_time: Histogram,
}

impl Stats {
    pub fn to_json(&self) -> Value {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        json!({
            "faults": get(&self.faults),
            "zero_fills": get(&self.zero_fills),
            "page_ins": get(&self.page_ins),
            "read_calls": get(&self.read_calls),
            "prefetched": get(&self.prefetched),
            "page_outs": get(&self.page_outs),
            "write_calls": get(&self.write_calls),
            "zero_outs": get(&self.zero_outs),
            "zapped": get(&self.zapped),
            "zap_batches": get(&self.zap_batches),
            "zap_failed": get(&self.zap_failed),
            "poisoned": get(&self.poisoned),
            "store_full": get(&self.store_full),
            "store_errors": get(&self.store_errors),
            "demand_scans": get(&self.demand_scans),
            "starved": get(&self.starved),
            "swap_outs": get(&self.swap_outs),
            "swap_ins": get(&self.swap_ins),
            "snapshots": get(&self.snapshots),
            "reclaim": self.reclaim_time.to_json(),
            "page_in": self.page_in_time.to_json(),
        })
    }
}

/// One more.
pub fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_bounds_of_buckets() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        (0..98).for_each(|_| histogram.add(6_000));
        (0..2).for_each(|_| histogram.add(1_000_000));
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99)), (8192, 1 << 20));
        histogram.add(u64::MAX);
        histogram.add(0);
        assert_eq!(histogram.to_json()["buckets"].as_array().unwrap().len(), 4);
    }
}
