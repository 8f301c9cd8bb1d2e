//! The tables of `apache` and `postgres`: a row for each arm, ratios, and whether anything is lost.
//! Pure.

use std::fmt::Write;

use crate::foreign::open_loop::SHARES;
use crate::tables::ratios;
use odfork_proc::table::columns;
use odfork_proc::text::{digits, time};
use odfork_samples::digest::{ratio_of_rounds, Digest, Point};
use odfork_samples::samples::Sample;
use odfork_samples::stats::{median, Estimate};

/// A percentile of an arm is at most so many times stock's.
const LIMIT: f64 = 1.03;
/// Percentiles that a round has enough requests for.
const JUDGED: [&str; 3] = ["p50", "p90", "p99"];
const HEAD: [&str; 13] = [
    "",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "p99.99",
    "max",
    "1/s",
    "late p99",
    "processor",
    "PSS MB",
    "first",
    "last",
];

pub fn tables(samples: &[Sample]) -> String {
    let digest = Digest::of_samples(samples);
    let places = digest.places("p50");
    let text: String = places.into_iter().map(|place| case(&digest, place)).collect();
    if text.is_empty() {
        "nothing was measured\n".into()
    } else {
        text
    }
}

fn case(digest: &Digest, place: &Point) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let (mut compared, mut judged): (Vec<(String, Estimate)>, _) = (Vec::new(), String::new());
    for arm in digest.of_metric("p50").filter(|point| point.params == place.params) {
        rows.push(row(digest, arm));
        if arm.configuration == "plain" {
            continue;
        }
        for metric in ["p50", "p90", "p99", "p99.9", "max", "processor", "pss"] {
            let own = digest.beside(arm, metric);
            let pair = own.and_then(|own| Some((own, digest.twin(own, "plain")?)));
            let Some(ratio) = pair.and_then(|(own, stock)| ratio_of_rounds(own, stock)) else {
                continue;
            };
            if JUDGED.contains(&metric) {
                let _ = writeln!(judged, "{metric} of {}: {}", arm.configuration, verdict(ratio));
            }
            compared.push((format!("{metric}: {} / plain", arm.configuration), ratio));
        }
    }
    let (rate, rounds) = (digits(place.number("rate")), place.samples.len());
    let goal = format!("goal: at most {LIMIT} of plain\n");
    let table = columns(&rows);
    format!("\n{rate} a second, {rounds} rounds\n{table}{}{goal}{judged}", ratios(&compared))
}

fn verdict(ratio: Estimate) -> &'static str {
    match ratio.interval {
        Some((_, high)) if high <= LIMIT => "met",
        Some((low, _)) if low > LIMIT => "MISSED",
        _ => "not decided",
    }
}

fn row(digest: &Digest, arm: &Point) -> Vec<String> {
    let values = |metric: &str| digest.beside(arm, metric).map(Point::values).unwrap_or_default();
    let of = |value: Option<f64>, write: fn(f64) -> String| value.map_or("-".into(), write);
    let megabytes = |bytes: f64| digits(bytes / f64::from(1 << 20));
    let mut cells = vec![format!("  {}", arm.configuration)];
    // The last of several runs in a file.
    let whole = |(_, name): (f64, &str)| of(values(&format!("run-{name}")).last().copied(), time);
    cells.extend(SHARES.map(whole));
    cells.push(of(median(&values("rate")), digits));
    cells.push(of(median(&values("late")), time));
    cells.push(of(median(&values("processor")), time));
    let weights = values("pss");
    let ends = [median(&weights), weights.first().copied(), weights.last().copied()];
    cells.extend(ends.map(|bytes| of(bytes, megabytes)));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arm: &str, metric: &str, round: u32, value: f64) -> Sample {
        Sample::of(arm, (metric, "ns"), value).with("rate", 400).in_round(round)
    }

    #[test]
    fn each_arm_has_a_row_ratios_and_a_verdict() {
        let mut samples = Vec::new();
        for round in 1..=5 {
            samples.push(sample("plain", "p50", round, 1e6));
            samples.push(sample("auto", "p50", round, 1.01e6));
            samples.push(sample("eager", "p50", round, 1.2e6));
            samples.push(sample("auto", "pss", round, f64::from(round << 20)));
        }
        samples.push(sample("auto", "run-p99", 5, 2e6));
        let text = tables(&samples);
        let row = text.lines().find(|line| line.starts_with("  auto")).unwrap();
        assert!(row.contains("2.00 ms") && row.ends_with("3.00   1.00  5.00"), "{row}");
        assert!(
            text.contains("p50 of auto: met") && text.contains("p50 of eager: MISSED"),
            "{text}"
        );
        assert!(!text.contains("NaN"), "{text}");
        assert!(tables(&[]).starts_with("nothing was measured"));
    }

    #[test]
    fn an_interval_across_the_limit_decides_nothing() {
        let ratio = |interval| Estimate { value: 1.0, interval, count: 9 };
        assert_eq!(verdict(ratio(Some((0.9, 1.1)))), "not decided");
        assert_eq!(verdict(ratio(None)), "not decided");
    }
}
