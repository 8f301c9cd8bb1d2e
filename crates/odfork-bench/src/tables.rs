//! The tables at the end of a suite: a line for each point and configuration, and how the harness
//! compares.
//!
//! Which of many points are worth a line is the suite's to say (the file has all). Pure: samples
//! in, text out.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use odfork_samples::samples::{Params, Recording, Sample};
use odfork_samples::stats::{estimate_median, estimate_ratio, median, Estimate, Rng};

use crate::suite::Suite;

/// Engine -> (round, value), for one metric and point.
type Series<'a> = BTreeMap<&'a str, Vec<(u32, f64)>>;

/// The answer of the suite at every point, or a line that says there is nothing.
pub fn medians(suite: &Suite, recording: &Recording) -> String {
    table(suite, &recording.samples.iter().collect::<Vec<_>>())
}

/// The same for some of the samples.
pub fn table(suite: &Suite, samples: &[&Sample]) -> String {
    framed(suite, &metric_table(suite, suite.metrics[0], samples))
}

/// Every metric, one after the other.
pub fn medians_of_all_metrics(suite: &Suite, recording: &Recording) -> String {
    let samples: Vec<&Sample> = recording.samples.iter().collect();
    let each = suite.metrics.iter();
    let each = each.map(|metric| format!("{metric}:\n{}", metric_table(suite, metric, &samples)));
    framed(suite, &each.collect::<String>())
}

fn framed(suite: &Suite, tables: &str) -> String {
    format!("{}: {}\n{tables}published: {}\n", suite.name, suite.question, suite.published)
}

/// Paired ratios in a column.
pub fn ratios(all: &[(String, Estimate)]) -> String {
    let widest = all.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    if widest > 0 {
        text.push_str("ratios of the same rounds [95 %]:\n");
    }
    for (what, ratio) in all {
        let _ = writeln!(text, "  {what:<widest$}  {}", ratio_words(*ratio));
    }
    text
}

fn metric_table(suite: &Suite, metric: &str, samples: &[&Sample]) -> String {
    let is_shown = |s: &&&Sample| s.metric == metric && s.engine != "null";
    let mut rows: Vec<(&Params, Series)> = Vec::new();
    let mut unit = "";
    for sample in samples.iter().filter(is_shown) {
        unit = &sample.unit;
        let at = match rows.iter().position(|(params, _)| **params == sample.params) {
            Some(at) => at,
            None => {
                rows.push((&sample.params, Series::new()));
                rows.len() - 1
            }
        };
        rows[at].1.entry(&sample.engine).or_default().push((sample.round, sample.value));
    }
    if rows.is_empty() {
        return "nothing was measured\n".into();
    }
    rows.sort_by(|(a, _), (b, _)| order(suite, a, b));
    render(suite, &rows, unit)
}

fn render(suite: &Suite, rows: &[(&Params, Series)], unit: &str) -> String {
    let mut rng = Rng::with_seed(1);
    let mut text = String::new();
    for (params, series) in rows {
        let _ = writeln!(text, "{}", point_words(suite, params));
        for engine in suite.configurations.iter().map(|one| one.word()) {
            let Some(values) = series.get(engine) else { continue };
            let numbers: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
            let Some(estimate) = estimate_median(&numbers, &mut rng) else { continue };
            let ratio = series
                .get("plain")
                .filter(|_| engine != "plain")
                .and_then(|plain| paired_ratio(plain, values, unit, &mut rng));
            let _ = writeln!(
                text,
                "  {engine:<8} {:<34} {}",
                estimate_words(&estimate, unit),
                ratio.map(ratio_words).unwrap_or_default()
            );
        }
    }
    text
}

/// plain / engine for times, engine / plain for rates, from the rounds both have: above 1 the
/// engine is better.
fn paired_ratio(
    plain: &[(u32, f64)],
    engine: &[(u32, f64)],
    unit: &str,
    rng: &mut Rng,
) -> Option<Estimate> {
    let of: BTreeMap<u32, f64> = plain.iter().copied().collect();
    let pairs: Vec<(f64, f64)> =
        engine.iter().filter_map(|(round, value)| Some((*of.get(round)?, *value))).collect();
    let (plain, engine): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    if unit == "bytes/s" {
        estimate_ratio(&engine, &plain, rng)
    } else {
        estimate_ratio(&plain, &engine, rng)
    }
}

fn ratio_words(ratio: Estimate) -> String {
    let interval = ratio
        .interval
        .map(|(low, high)| format!(" [{}, {}]", digits(low), digits(high)))
        .unwrap_or_default();
    format!("{}x{interval}", digits(ratio.value))
}

fn estimate_words(estimate: &Estimate, unit: &str) -> String {
    let interval = estimate
        .interval
        .map(|(low, high)| format!(" [{}, {}]", quantity(low, unit), quantity(high, unit)))
        .unwrap_or_default();
    format!("{}{interval} n={}", quantity(estimate.value, unit), estimate.count)
}

/// "14.2 ms", "3.1 GB/s", "12 %".
pub fn quantity(value: f64, unit: &str) -> String {
    let steps: &[(f64, &str)] = match unit {
        "ns" => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        "s" => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us")],
        "bytes/s" => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")],
        "share" => &[(0.01, "%")],
        _ => &[(1.0, "")],
    };
    let fitting = steps.iter().find(|(scale, _)| value.abs() >= *scale);
    let (scale, word) = fitting.or(steps.last()).copied().unwrap_or((1.0, ""));
    format!("{} {word}", digits(value / scale)).trim_end().to_string()
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 1.0 || x == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn point_words(suite: &Suite, params: &Params) -> String {
    let words = suite.params.iter().filter_map(|name| {
        let value = params.get(*name)?;
        let number = value.as_u64().filter(|_| matches!(*name, "bytes" | "used" | "allocated"));
        Some(match (number, value) {
            (Some(bytes), _) if bytes >= 1 << 20 => format!("{name} {} MB", bytes >> 20),
            (_, Value::String(word)) => word.clone(),
            _ => format!("{name} {value}"),
        })
    });
    words.collect::<Vec<_>>().join(", ")
}

/// By the parameters in the order of the suite, numbers as numbers.
fn order(suite: &Suite, a: &Params, b: &Params) -> std::cmp::Ordering {
    let key = |params: &Params, name: &str| {
        let value = params.get(name);
        let number = value.and_then(Value::as_f64).unwrap_or(0.0);
        (number, value.and_then(Value::as_str).unwrap_or("").to_string())
    };
    suite
        .params
        .iter()
        .map(|name| (key(a, name), key(b, name)))
        .fold(std::cmp::Ordering::Equal, |so_far, (a, b)| {
            so_far.then(a.0.total_cmp(&b.0)).then_with(|| a.1.cmp(&b.1))
        })
}

/// What share of the smallest median the harness itself takes, per metric: the overhead of
/// measuring.
pub fn harness(suite: &Suite, recording: &Recording) -> Option<String> {
    let mut smallest: Option<(f64, &Sample)> = None;
    let mut points: BTreeMap<(&str, String), Vec<&Sample>> = BTreeMap::new();
    for sample in recording.samples.iter().filter(|s| s.metric == suite.metrics[0]) {
        let point = format!("{:?}", sample.params);
        points.entry((&sample.engine, point)).or_default().push(sample);
    }
    let middle = |samples: &[&Sample]| median(&samples.iter().map(|s| s.value).collect::<Vec<_>>());
    let mut share: f64 = 0.0;
    for ((_, point), group) in points.iter().filter(|((engine, _), _)| *engine != "null") {
        let (Some(value), Some(null)) = (middle(group), points.get(&("null", point.clone())))
        else {
            continue;
        };
        let part = middle(null)? / value;
        if value > 0.0 && part.is_finite() && part > share && !is_empty_point(group[0]) {
            share = part;
            smallest = Some((value, group[0]));
        }
    }
    let (value, sample) = smallest?;
    Some(format!(
        "harness: at most {} of what is reported ({} of {} at {})",
        quantity(share, "share"),
        suite.metrics[0],
        quantity(value, &sample.unit),
        point_words(suite, &sample.params)
    ))
}

/// No fork at all, no access at all: nothing but harness by definition.
fn is_empty_point(sample: &Sample) -> bool {
    sample.params.get("forks").and_then(Value::as_f64) == Some(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;
    use crate::golden;
    use crate::suite::How;

    fn sample(engine: &str, value: f64, round: u32) -> Sample {
        Sample {
            experiment: "latency".into(),
            engine: engine.into(),
            metric: "fork".into(),
            unit: "ns".into(),
            value,
            params: Params::from([
                ("bytes".to_string(), Value::from(1u64 << 30)),
                ("processes".to_string(), Value::from(1)),
            ]),
            round,
            at_s: 0.0,
        }
    }

    fn recording() -> Recording {
        let samples = (0..5)
            .flat_map(|round| {
                [
                    sample("plain", 14e6 + f64::from(round), round),
                    sample("image", 7e4, round),
                    sample("null", 70.0, round),
                ]
            })
            .collect();
        Recording { samples, ..Recording::default() }
    }

    #[test]
    fn a_row_has_the_engines_and_the_paired_ratio() {
        let text = medians(find("latency").unwrap(), &recording());
        assert!(text.contains("bytes 1024 MB, processes 1"), "{text}");
        assert!(text.contains("plain    14.0 ms") && text.contains("200x"), "{text}");
        assert!(!text.contains("null"), "{text}");
    }

    #[test]
    fn ratios_stand_in_a_column_and_nothing_has_no_heading() {
        let ratio = |value| Estimate { value, interval: Some((0.5, 2.0)), count: 9 };
        let text = ratios(&[("a / b".into(), ratio(1.0)), ("longer".into(), ratio(613.0))]);
        assert!(text.contains("a / b   1.00x [0.500, 2.00]"), "{text}");
        assert!(text.contains("longer  613x"), "{text}");
        assert_eq!(ratios(&[]), "");
    }

    #[test]
    fn the_harness_is_a_share_of_the_smallest_quantity() {
        let line = harness(find("latency").unwrap(), &recording()).unwrap();
        assert!(line.contains("0.100 %") && line.contains("70.0 us"), "{line}");
    }

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        assert_eq!(quantity(1234.0, "ns"), "1.23 us");
        assert_eq!(quantity(0.0123, "s"), "12.3 ms");
        assert_eq!(quantity(0.5, "share"), "50.0 %");
        assert_eq!(quantity(2.5e9, "bytes/s"), "2.50 GB/s");
        assert_eq!(quantity(0.0, "ns"), "0.00 ns");
    }

    /// The same samples, the same words and numbers as before the runners became one; resampling
    /// draws other numbers.
    #[test]
    fn recorded_samples_give_the_tables_they_gave() {
        for name in
            ["grid", "latency", "fault", "access", "profile", "parent-writes", "exec", "copy-rate"]
        {
            let suite = find(name).unwrap();
            let How::Subjects(subjects) = &suite.how else { panic!("{name}") };
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../odfork-report/tests/recorded");
            let recording = golden::recording(folder, name);
            let harness = harness(suite, &recording).map(|line| line + "\n").unwrap_or_default();
            let text = (subjects.tables)(suite, &recording) + &harness;
            golden::assert_same_but_intervals(&text, &golden::expected(name));
        }
    }
}
