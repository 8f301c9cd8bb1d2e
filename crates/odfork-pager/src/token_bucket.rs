//! A cap on bytes a second: a token bucket that fills at that rate and holds a tenth of a second's
//! worth.
//!
//! One transfer may overdraw it; whoever overdraws waits until it is even again. Knows no clock and
//! does not sleep.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const SECOND: f64 = 1e9;
const HOLDS_SECONDS: f64 = 0.1;

#[derive(Debug, Default)]
pub struct TokenBucket(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    at_ns: u64,
    bytes: f64,
}

impl TokenBucket {
    /// How long to wait before (or after) moving so many bytes at `rate` bytes a second; rate 0: no
    /// cap.
    pub fn take(&self, bytes: u64, rate: u64, now_ns: u64) -> Duration {
        if rate == 0 {
            return Duration::ZERO;
        }
        let rate = rate as f64;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now_ns.saturating_sub(state.at_ns) as f64 / SECOND;
        state.bytes = (state.bytes + passed * rate).min(rate * HOLDS_SECONDS) - bytes as f64;
        state.at_ns = now_ns.max(state.at_ns);
        Duration::from_secs_f64((-state.bytes / rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn over_time_no_more_passes_than_the_rate() {
        let bucket = TokenBucket::default();
        let (rate, piece) = (1_000_000, 10_000);
        let (mut now, mut moved) = (1_000 * MS, 0);
        let begin = now;
        while now < begin + 5_000 * MS {
            now += bucket.take(piece, rate, now).as_nanos() as u64 + 1;
            moved += piece;
        }
        // Five seconds' worth, what the bucket held, and the last piece.
        assert!((5_000_000..=5_120_000).contains(&moved), "{moved}");
    }

    #[test]
    fn pauses_are_saved_up_for_a_tenth_of_a_second_only() {
        let bucket = TokenBucket::default();
        assert_eq!(bucket.take(1 << 30, 0, MS), Duration::ZERO, "no cap");
        bucket.take(0, 1000, 1000 * MS);
        assert_eq!(bucket.take(100, 1000, 9000 * MS), Duration::ZERO);
        assert_eq!(bucket.take(50, 1000, 9000 * MS), Duration::from_millis(50));
    }
}
