//! The tables of `sessions`: throughput and response against the number of sessions. Pure.

use super::mode::WORDS;
use crate::spread::spread;
use odfork_proc::table::columns;
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::samples::Sample;

const TABLES: [(&str, &str, f64); 6] = [
    ("throughput", "scripts a minute", 1.0 / 60.0),
    ("completion", "mean time of a script, s", 1.0),
    ("response-p50", "trivial command, median, ms", 1e6),
    ("response-p99", "trivial command, 99th percentile, ms", 1e6),
    ("page-ins", "thousand page-ins", 1e3),
    ("killed", "processes killed", 1.0),
];

fn point<'a>(digest: &'a Digest, metric: &str, (mode, sessions): (&str, u64)) -> Option<&'a Point> {
    let is_of = |p: &&Point| p.configuration == mode && p.number("sessions") == sessions as f64;
    digest.points.iter().filter(|point| point.metric == metric).find(is_of)
}

pub fn tables(samples: &[Sample], most: u64) -> String {
    let digest = Digest::of_samples(samples);
    let table = |(metric, caption, unit)| {
        let head = std::iter::once("  sessions".to_string());
        let mut rows: Vec<Vec<String>> =
            vec![head.chain((1..=most).map(|sessions| sessions.to_string())).collect()];
        for mode in WORDS {
            let points = (1..=most).map(|sessions| point(&digest, metric, (mode, sessions)));
            let points: Vec<Option<&Point>> = points.collect();
            if points.iter().any(Option::is_some) {
                let values = points.into_iter().map(|it| it.map(Point::values).unwrap_or_default());
                let words = values.map(|values| spread(&values, unit));
                rows.push(std::iter::once(format!("  {mode}")).chain(words).collect());
            }
        }
        format!("{caption}: median [least, most]\n{}", columns(&rows))
    };
    TABLES.map(table).concat() + &ratios(&digest, most)
}

/// Paired over rounds: our pagers against the two others.
fn ratios(digest: &Digest, most: u64) -> String {
    let mut text = String::new();
    for (metric, caption) in
        [("throughput", "throughput"), ("response-p99", "response, 99th percentile")]
    {
        for (ours, other) in
            ["pager", "any"].into_iter().flat_map(|ours| [(ours, "kernel"), (ours, "swapping")])
        {
            for sessions in 1..=most {
                let of = |mode| point(digest, metric, (mode, sessions));
                let pair = of(ours).zip(of(other));
                let Some(ratio) = pair.and_then(|(one, another)| paired_ratio(one, another)) else {
                    continue;
                };
                let interval = ratio.interval.map(|(low, high)| format!(" [{low:.3}, {high:.3}]"));
                let words = format!("{:.3}{}", ratio.value, interval.unwrap_or_default());
                text += &format!("  {caption}, {sessions} sessions: {ours} / {other} {words}\n");
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

    #[test]
    fn a_row_for_each_engine_that_was_measured() {
        let sample = |engine: &str, round, sessions: u64, value| {
            let sample = Sample::of(engine, ("throughput", "1/s"), value).in_round(round);
            sample.with("sessions", sessions)
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
