//! The tables of `sessions`: throughput and response against the number of sessions. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::stage::WORDS;
use odfork_samples::samples::Sample;
use odfork_samples::stats::{estimate_ratio, median, Rng};

const TABLES: [(&str, &str, f64); 6] = [
    ("throughput", "scripts a minute", 1.0 / 60.0),
    ("completion", "mean time of a script, s", 1.0),
    ("response-p50", "trivial command, median, ms", 1e6),
    ("response-p99", "trivial command, 99th percentile, ms", 1e6),
    ("page-ins", "thousand page-ins", 1e3),
    ("killed", "processes killed", 1.0),
];

fn series(samples: &[Sample], (engine, metric, sessions): (&str, &str, u64)) -> BTreeMap<u32, f64> {
    let wanted = |s: &&Sample| {
        s.engine == engine && s.metric == metric && s.number("sessions") == sessions as f64
    };
    samples.iter().filter(wanted).map(|sample| (sample.round, sample.value)).collect()
}

pub fn tables(samples: &[Sample], most: u64) -> String {
    let mut text = String::new();
    for (metric, caption, scale) in TABLES {
        let _ = write!(text, "{caption}: median [least, most]\n  {:<10}", "sessions");
        for sessions in 1..=most {
            let _ = write!(text, "{sessions:>24}");
        }
        text.push('\n');
        for engine in WORDS {
            let cells: Vec<Vec<f64>> = (1..=most)
                .map(|sessions| series(samples, (engine, metric, sessions)).into_values().collect())
                .collect();
            if cells.iter().all(Vec::is_empty) {
                continue;
            }
            let _ = write!(text, "  {engine:<10}");
            for values in &cells {
                let _ = write!(text, "{:>24}", spread(values, scale));
            }
            text.push('\n');
        }
    }
    text + &ratios(samples, most)
}

fn spread(values: &[f64], scale: f64) -> String {
    let Some(middle) = median(values) else { return "-".into() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let word = |value: f64| match value / scale {
        x if x.abs() >= 100.0 => format!("{x:.0}"),
        x if x.abs() >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    };
    format!("{} [{}, {}]", word(middle), word(least), word(most))
}

/// Paired over rounds: pager against the two others.
fn ratios(samples: &[Sample], most: u64) -> String {
    let mut text = String::new();
    for (metric, caption) in
        [("throughput", "throughput"), ("response-p99", "response, 99th percentile")]
    {
        for other in ["kernel", "swapping"] {
            for sessions in 1..=most {
                let (ours, theirs) = (
                    series(samples, ("pager", metric, sessions)),
                    series(samples, (other, metric, sessions)),
                );
                let pairs =
                    ours.iter().filter_map(|(round, value)| Some((*value, *theirs.get(round)?)));
                let (top, bottom): (Vec<f64>, Vec<f64>) = pairs.unzip();
                let Some(ratio) = estimate_ratio(&top, &bottom, &mut Rng::with_seed(1)) else {
                    continue;
                };
                let interval = ratio
                    .interval
                    .map_or_else(String::new, |(low, high)| format!(" [{low:.3}, {high:.3}]"));
                let _ = writeln!(
                    text,
                    "  {caption}, {sessions} sessions: pager / {other} {:.3}{interval}",
                    ratio.value
                );
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("ratios of the same rounds [95 %]:\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use odfork_samples::samples::Params;

    #[test]
    fn a_row_for_each_engine_that_was_measured() {
        let sample = |engine: &str, round, sessions: u64, value| Sample {
            experiment: "sessions".into(),
            engine: engine.into(),
            metric: "throughput".into(),
            unit: "1/s".into(),
            value,
            params: Params::from([("sessions".to_string(), sessions.into())]),
            round,
            at_s: 0.0,
        };
        let samples =
            [sample("pager", 1, 1, 0.5), sample("kernel", 1, 1, 0.25), sample("pager", 1, 2, 0.4)];
        let text = tables(&samples, 2);
        let row = text.lines().find(|line| line.starts_with("  pager")).unwrap();
        assert!(row.contains("30.0 [30.0, 30.0]") && row.contains("24.0"), "{row}");
        assert!(text.contains("1 sessions: pager / kernel 2.000"), "{text}");
        assert!(!text.contains("swapping"), "{text}");
    }

    #[test]
    fn the_same_samples_give_the_same_tables() {
        let expected = include_str!("../../tests/golden/sessions.txt");
        golden::assert_same_words(&tables(&golden::samples("sessions"), 4), expected);
    }
}
