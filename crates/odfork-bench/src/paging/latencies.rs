//! Latencies of single accesses, and of those that took longer than any access without a fault.

use std::time::Duration;

use hdrhistogram::Histogram;

/// An access that took longer went through a fault: the shortest of them takes twice as long.
pub const FAULT_NS: u64 = 2_000;

/// Counts in buckets 1 % wide.
#[derive(Clone, Debug)]
pub struct Latencies {
    all: Histogram<u64>,
    slow: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        // From a nanosecond to 18 minutes; what is longer counts as that.
        let made = || Histogram::new_with_bounds(1, 1 << 40, 2).expect("bounds that are in order");
        Latencies { all: made(), slow: made() }
    }
}

impl Latencies {
    pub fn add(&mut self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.all.saturating_record(ns);
        if ns >= FAULT_NS {
            self.slow.saturating_record(ns);
        }
    }

    pub fn merge(&mut self, other: &Latencies) {
        // Both have the same bounds.
        let _ = self.all.add(&other.all).and(self.slow.add(&other.slow));
    }

    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.all.len()
    }

    pub fn slow_count(&self) -> u64 {
        self.slow.len()
    }

    /// The latency that this share of all does not exceed, in nanoseconds; 0 when there are none.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.all, share)
    }

    pub fn slow_quantile(&self, share: f64) -> f64 {
        quantile(&self.slow, share)
    }
}

fn quantile(histogram: &Histogram<u64>, share: f64) -> f64 {
    histogram.median_equivalent(histogram.value_at_quantile(share)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow() {
        for ns in (1..100_000u64).step_by(7).chain([1 << 39]) {
            let mut latencies = Latencies::default();
            latencies.add(Duration::from_nanos(ns));
            let error = (latencies.quantile(0.5) - ns as f64).abs();
            assert!(error <= 0.5 || error / ns as f64 <= 1.0 / 32.0, "{ns}: {error}");
        }
        let mut longest = Latencies::default();
        longest.add(Duration::from_nanos(u64::MAX));
        assert_eq!((longest.count(), longest.slow_count()), (1, 1));
    }

    #[test]
    fn quantiles_are_found_also_among_the_slow_ones() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), 0.0);
        (0..980).for_each(|_| latencies.add(Duration::from_nanos(100)));
        (0..20).for_each(|_| latencies.add(Duration::from_nanos(6_000)));
        let near = |got: f64, wanted: f64| (got / wanted - 1.0).abs() < 0.035;
        assert!(near(latencies.quantile(0.5), 100.0));
        assert!(near(latencies.quantile(0.99), 6_000.0));
        assert!(near(latencies.slow_quantile(0.5), 6_000.0));
        assert_eq!((latencies.count(), latencies.slow_count()), (1000, 20));
        let mut both = Latencies::default();
        both.merge(&latencies);
        both.merge(&latencies);
        assert_eq!(both.slow_count(), 40);
    }
}
