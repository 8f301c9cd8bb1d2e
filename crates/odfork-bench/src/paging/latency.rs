//! Latencies counted in buckets of 1/32 of a power of two: 3 % wide, fixed size, cheap enough for every access.

const FINE: usize = 32;

/// Counts of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { buckets: vec![0; 64 * FINE], count: 0 }
    }
}

/// Values below `FINE` have a bucket of their own; above, the five bits behind the first one choose it.
fn bucket(ns: u64) -> usize {
    if ns < FINE as u64 {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros() as usize;
    (power - 4) * FINE + (ns >> (power - 5)) as usize % FINE
}

/// The middle of a bucket, in nanoseconds.
fn middle(bucket: usize) -> f64 {
    if bucket < FINE {
        return bucket as f64;
    }
    let power = bucket / FINE + 4;
    let step = 2f64.powi(power as i32 - 5);
    (FINE + bucket % FINE) as f64 * step + step / 2.0
}

impl Latencies {
    pub fn add(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
    }

    pub fn merge(&mut self, other: &Latencies) {
        self.count += other.count;
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latency that this share of all does not exceed, in nanoseconds; 0 when there are none.
    pub fn quantile(&self, share: f64) -> f64 {
        self.quantile_above(0, share)
    }

    /// The same among those of at least `least` nanoseconds.
    pub fn quantile_above(&self, least: u64, share: f64) -> f64 {
        let from = bucket(least);
        let all: u64 = self.buckets[from..].iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate().skip(from) {
            seen += count;
            if *count > 0 && seen >= rank {
                return middle(at);
            }
        }
        0.0
    }

    /// How many took at least `least` nanoseconds.
    pub fn count_above(&self, least: u64) -> u64 {
        self.buckets[bucket(least)..].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for ns in (0..100_000u64).chain([1 << 40, u64::MAX]) {
            let at = bucket(ns);
            assert!(at >= last, "{ns}");
            assert!(ns > 99_999 || at <= last + 1, "{ns}");
            last = at;
            let error = (middle(at) - ns as f64).abs();
            assert!(error <= 0.5 || error / ns as f64 <= 1.0 / 32.0, "{ns}: {}", middle(at));
        }
        assert!(bucket(u64::MAX) < 64 * FINE);
    }

    #[test]
    fn quantiles_are_found_also_among_the_slow_ones() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), 0.0);
        (0..980).for_each(|_| latencies.add(100));
        (0..20).for_each(|_| latencies.add(6_000));
        let near = |got: f64, wanted: f64| (got / wanted - 1.0).abs() < 0.035;
        assert!(near(latencies.quantile(0.5), 100.0));
        assert!(near(latencies.quantile(0.99), 6_000.0));
        assert!(near(latencies.quantile_above(2_000, 0.5), 6_000.0));
        assert_eq!((latencies.count(), latencies.count_above(2_000)), (1000, 20));
        let mut both = Latencies::default();
        both.merge(&latencies);
        both.merge(&latencies);
        assert_eq!(both.count_above(2_000), 40);
    }
}
