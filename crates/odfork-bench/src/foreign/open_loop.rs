//! Requests that keep to their schedule: each is due at its time, whether or not earlier ones were
//! answered, and its latency counts from then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use odfork_proc::interrupt;
use odfork_samples::samples::{Params, Sample};

use crate::runner::Number;

/// Share of requests, and the name of what it does not exceed.
pub const SHARES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (1.0, "max")];

/// From a nanosecond to 18 minutes, three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 40, 3).expect("bounds that are in order")
}

pub fn quantile(all: &Histogram<u64>, share: f64) -> f64 {
    if all.is_empty() {
        return f64::NAN;
    }
    all.value_at_quantile(share) as f64
}

/// The percentiles of a slice of load.
pub fn percentiles(latencies: &Histogram<u64>) -> Vec<Number> {
    SHARES.map(|(share, name)| Number::new(name, "ns", quantile(latencies, share))).into()
}

/// The kernel may otherwise end a wait of this thread 50 us late.
pub fn exact_timers(exact: bool) {
    // SAFETY: takes no pointers; 0 is the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, if exact { 1_000 } else { 0 }, 0, 0, 0) };
}

/// Latencies of all slices of each point: they stand for the run, not for a round.
#[derive(Default)]
pub struct Whole(BTreeMap<(&'static str, String), (Params, Histogram<u64>)>);

impl Whole {
    pub fn add(&mut self, arm: &'static str, params: &Params, latencies: &Histogram<u64>) {
        let key = (arm, serde_json::to_string(params).unwrap_or_default());
        let whole = self.0.entry(key).or_insert_with(|| (params.clone(), histogram()));
        // Both have the same bounds.
        let _ = whole.1.add(latencies);
    }

    /// "run-p50" and the others of each point.
    pub fn samples(&self) -> Vec<Sample> {
        let of_point = |((arm, _), (params, all)): (&(&'static str, String), &(Params, _))| {
            let sample = |(share, name): (f64, &str)| {
                let sample = Sample::of(arm, (&format!("run-{name}"), "ns"), quantile(all, share));
                Sample { params: params.clone(), ..sample }
            };
            SHARES.map(sample)
        };
        self.0.iter().flat_map(of_point).collect()
    }
}

/// What is sent in one slice.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Requests a second, and how many.
    pub rate: f64,
    pub requests: u64,
    /// Requests at once; with all of them waiting, the next is sent late and counts as long.
    pub clients: usize,
}

/// What came of a slice, in nanoseconds.
pub struct Slice {
    /// From when a request was due to its end.
    pub latencies: Histogram<u64>,
    /// By how much requests were begun late.
    pub late: Histogram<u64>,
    pub seconds: f64,
}

impl Slice {
    pub fn new() -> Slice {
        Slice { latencies: histogram(), late: histogram(), seconds: 0.0 }
    }

    pub fn numbers(&self) -> Vec<Number> {
        let mut numbers = percentiles(&self.latencies);
        let rate = self.latencies.len() as f64 / self.seconds.max(1e-9);
        numbers.push(Number::new("rate", "1/s", rate));
        numbers.push(Number::new("late", "ns", quantile(&self.late, 0.99)));
        numbers
    }
}

/// One request after the other by each client; the first that fails ends the slice.
pub fn run(
    schedule: Schedule,
    request: impl Fn() -> Result<(), String> + Sync,
) -> Result<Slice, String> {
    let (next, begin) = (AtomicU64::new(0), Instant::now());
    let client = || -> Result<Slice, String> {
        exact_timers(true);
        let mut slice = Slice::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= schedule.requests {
                return Ok(slice);
            }
            let due = Duration::from_secs_f64(number as f64 / schedule.rate);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            if interrupt::asked() {
                return Err("interrupted".into());
            }
            let late = begin.elapsed().saturating_sub(due);
            slice.late.saturating_record(late.as_nanos() as u64);
            request().inspect_err(|_| next.store(schedule.requests, Ordering::Relaxed))?;
            let taken = begin.elapsed().saturating_sub(due);
            slice.latencies.saturating_record(taken.as_nanos() as u64);
        }
    };
    let mut all = Slice::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..schedule.clients).map(|_| scope.spawn(client)).collect();
        let mut first = Ok(());
        for client in clients {
            match client.join().unwrap_or_else(|_| Err("a client panicked".into())) {
                // All have the same bounds.
                Ok(own) => drop((all.latencies.add(own.latencies), all.late.add(own.late))),
                Err(why) => first = first.and(Err(why)),
            }
        }
        first
    })?;
    all.seconds = begin.elapsed().as_secs_f64();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_request_makes_those_behind_it_late() {
        let schedule = Schedule { rate: 1_000.0, requests: 20, clients: 1 };
        let first = AtomicU64::new(0);
        let slice = run(schedule, || {
            if first.fetch_add(1, Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(30));
            }
            Ok(())
        })
        .unwrap();
        assert_eq!((slice.latencies.len(), slice.late.len()), (20, 20));
        // Request 10 was due at 10 ms and could not begin before 30 ms.
        assert!(quantile(&slice.latencies, 0.5) >= 10e6);
        assert!(quantile(&slice.late, 0.5) >= 10e6);
    }

    #[test]
    fn the_first_failure_ends_the_slice() {
        let schedule = Schedule { rate: 1e6, requests: 1_000_000, clients: 3 };
        assert_eq!(run(schedule, || Err("no".into())).err().as_deref(), Some("no"));
    }

    #[test]
    fn a_run_has_the_percentiles_of_all_its_slices() {
        let mut whole = Whole::default();
        for value in [10, 1000] {
            let mut slice = histogram();
            slice.record(value).unwrap();
            whole.add("plain", &Params::new(), &slice);
        }
        let of = |name: &str| whole.samples().into_iter().find(|one| one.metric == name).unwrap();
        assert_eq!((of("run-p50").value, of("run-max").value), (10.0, 1000.0));
    }
}
