//! The tables of `sessions`: throughput and response against the number of sessions. Pure.

use std::collections::BTreeMap;

use super::mode::WORDS;
use crate::spread::spread;
use odfork_proc::table::columns;
use odfork_samples::samples::Sample;
use odfork_samples::stats::{estimate_ratio, Rng};

const TABLES: [(&str, &str, f64); 6] = [
    ("throughput", "scripts a minute", 1.0 / 60.0),
    ("completion", "mean time of a script, s", 1.0),
    ("response-p50", "trivial command, median, ms", 1e6),
    ("response-p99", "trivial command, 99th percentile, ms", 1e6),
    ("page-ins", "thousand page-ins", 1e3),
    ("killed", "processes killed", 1.0),
];

/// Round and value.
fn series(samples: &[Sample], (mode, metric, sessions): (&str, &str, u64)) -> BTreeMap<u32, f64> {
    let wanted = |s: &&Sample| {
        s.engine == mode && s.metric == metric && s.number("sessions") == sessions as f64
    };
    samples.iter().filter(wanted).map(|sample| (sample.round, sample.value)).collect()
}

pub fn tables(samples: &[Sample], most: u64) -> String {
    let table = |(metric, caption, unit)| {
        let head = std::iter::once("  sessions".to_string());
        let mut rows: Vec<Vec<String>> =
            vec![head.chain((1..=most).map(|sessions| sessions.to_string())).collect()];
        for mode in WORDS {
            let cells = (1..=most).map(|sessions| series(samples, (mode, metric, sessions)));
            let cells: Vec<Vec<f64>> = cells.map(|series| series.into_values().collect()).collect();
            if cells.iter().any(|values| !values.is_empty()) {
                let words = cells.iter().map(|values| spread(values, unit));
                rows.push(std::iter::once(format!("  {mode}")).chain(words).collect());
            }
        }
        format!("{caption}: median [least, most]\n{}", columns(&rows))
    };
    TABLES.map(table).concat() + &ratios(samples, most)
}

/// Paired over rounds: pager against the two others.
fn ratios(samples: &[Sample], most: u64) -> String {
    let mut text = String::new();
    for (metric, caption) in
        [("throughput", "throughput"), ("response-p99", "response, 99th percentile")]
    {
        for other in ["kernel", "swapping"] {
            for sessions in 1..=most {
                if let Some(ratio) = ratio(samples, metric, other, sessions) {
                    text += &format!("  {caption}, {sessions} sessions: pager / {other} {ratio}\n");
                }
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("ratios of the same rounds [95 %]:\n{text}")
}

fn ratio(samples: &[Sample], metric: &str, other: &str, sessions: u64) -> Option<String> {
    let ours = series(samples, ("pager", metric, sessions));
    let theirs = series(samples, (other, metric, sessions));
    let pairs = ours.iter().filter_map(|(round, value)| Some((*value, *theirs.get(round)?)));
    let (top, bottom): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let ratio = estimate_ratio(&top, &bottom, &mut Rng::with_seed(1))?;
    let interval = ratio.interval.map(|(low, high)| format!(" [{low:.3}, {high:.3}]"));
    Some(format!("{:.3}{}", ratio.value, interval.unwrap_or_default()))
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
