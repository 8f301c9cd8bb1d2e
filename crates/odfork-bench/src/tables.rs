//! The tables at the end of a suite: a line for each point and configuration, and how the harness
//! compares.
//!
//! Which of many points are worth a line is the suite's to say (the file has all). Pure: samples
//! in, text out.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use odfork_samples::digest::{Digest, Point};
use odfork_samples::samples::{Params, Recording, Sample};
use odfork_samples::stats::{estimate_ratio, Estimate, Rng};
use odfork_samples::unit::Unit;

use crate::suite::Suite;

/// The answer of the suite at every point, or a line that says there is nothing.
pub fn medians(suite: &Suite, recording: &Recording) -> String {
    table(suite, &recording.samples)
}

/// The same for some of the samples.
pub fn table<'a>(suite: &Suite, samples: impl IntoIterator<Item = &'a Sample>) -> String {
    framed(suite, &metric_table(suite, suite.metrics[0], &Digest::of_samples(samples)))
}

/// Every metric, one after the other.
pub fn medians_of_all_metrics(suite: &Suite, recording: &Recording) -> String {
    let digest = Digest::of(recording);
    let each = suite.metrics.iter();
    let each = each.map(|metric| format!("{metric}:\n{}", metric_table(suite, metric, &digest)));
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

fn metric_table(suite: &Suite, metric: &str, digest: &Digest) -> String {
    let mut points: Vec<&Point> =
        digest.of_metric(metric).filter(|point| point.configuration != "null").collect();
    if points.is_empty() {
        return "nothing was measured\n".into();
    }
    // Of a place, configurations stay in their order.
    points.sort_by(|a, b| order(suite, a, b));
    let mut text = String::new();
    for place in points.chunk_by(|a, b| a.params == b.params) {
        let _ = writeln!(text, "{}", point_words(suite, &place[0].params));
        for point in place {
            let estimate = estimate_words(&point.estimate(), point.unit);
            let ratio = gain(digest, point).map(ratio_words).unwrap_or_default();
            let _ = writeln!(text, "  {:<8} {estimate:<34} {ratio}", point.configuration);
        }
    }
    text
}

/// plain / configuration for times, the reverse for rates, from the rounds both have: above 1 the
/// configuration is better. Of several samples of plain in a round the last stands for all.
fn gain(digest: &Digest, point: &Point) -> Option<Estimate> {
    let plain = digest.twin(point, "plain").filter(|_| point.configuration != "plain")?;
    let of: BTreeMap<u32, f64> = plain.samples.iter().copied().collect();
    let pair = |(round, value): &(u32, f64)| Some((*of.get(round)?, *value));
    let (plain, own): (Vec<f64>, Vec<f64>) = point.samples.iter().filter_map(pair).unzip();
    let mut rng = Rng::with_seed(1);
    match point.unit {
        Unit::BytesPerSecond => estimate_ratio(&own, &plain, &mut rng),
        _ => estimate_ratio(&plain, &own, &mut rng),
    }
}

fn ratio_words(ratio: Estimate) -> String {
    let interval = ratio
        .interval
        .map(|(low, high)| format!(" [{}, {}]", digits(low), digits(high)))
        .unwrap_or_default();
    format!("{}x{interval}", digits(ratio.value))
}

fn estimate_words(estimate: &Estimate, unit: Unit) -> String {
    let interval = estimate
        .interval
        .map(|(low, high)| format!(" [{}, {}]", quantity(low, unit), quantity(high, unit)))
        .unwrap_or_default();
    format!("{}{interval} n={}", quantity(estimate.value, unit), estimate.count)
}

/// "14.2 ms", "3.1 GB/s", "12 %".
pub fn quantity(value: f64, unit: Unit) -> String {
    let steps: &[(f64, &str)] = match unit {
        Unit::Nanoseconds => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us")],
        Unit::BytesPerSecond => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")],
        Unit::Share => &[(0.01, "%")],
        _ => &[(1.0, "")],
    };
    let fitting = steps.iter().find(|(scale, _)| value.abs() >= *scale);
    let (scale, word) = fitting.or(steps.last()).copied().unwrap_or((1.0, ""));
    format!("{} {word}", digits(value / scale)).trim_end().to_string()
}

/// Three digits that count.
pub fn digits(value: f64) -> String {
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
fn order(suite: &Suite, a: &Point, b: &Point) -> Ordering {
    let by = |name: &&str| {
        let [x, y] = [a, b].map(|point| point.params.get(*name));
        let numbers = [x, y].map(|value| value.and_then(Value::as_f64).unwrap_or(0.0));
        let words = [x, y].map(|value| value.and_then(Value::as_str).unwrap_or(""));
        numbers[0].total_cmp(&numbers[1]).then_with(|| words[0].cmp(words[1]))
    };
    suite.params.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// What share of the smallest median the harness itself takes: the overhead of measuring. Without
/// forks a point is nothing but harness by definition.
pub fn harness(suite: &Suite, recording: &Recording) -> Option<String> {
    let digest = Digest::of(recording);
    let is_real = |point: &&Point| point.configuration != "null" && point.number("forks") != 0.0;
    let share = |point| {
        let share = digest.twin(point, "null")?.median() / point.median();
        (share.is_finite() && share > 0.0).then_some((share, point))
    };
    let shares = digest.of_metric(suite.metrics[0]).filter(is_real).filter_map(share);
    let (share, point) = shares.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "harness: at most {} of what is reported ({} of {} at {})",
        quantity(share, Unit::Share),
        suite.metrics[0],
        quantity(point.median(), point.unit),
        point_words(suite, &point.params)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;
    use crate::golden;
    use crate::suite::How;

    #[test]
    fn ratios_stand_in_a_column_and_nothing_has_no_heading() {
        let ratio = |value| Estimate { value, interval: Some((0.5, 2.0)), count: 9 };
        let text = ratios(&[("a / b".into(), ratio(1.0)), ("longer".into(), ratio(613.0))]);
        assert!(text.contains("a / b   1.00x [0.500, 2.00]"), "{text}");
        assert!(text.contains("longer  613x"), "{text}");
        assert_eq!(ratios(&[]), "");
    }

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        assert_eq!(quantity(1234.0, Unit::Nanoseconds), "1.23 us");
        assert_eq!(quantity(0.0123, Unit::Seconds), "12.3 ms");
        assert_eq!(quantity(0.5, Unit::Share), "50.0 %");
        assert_eq!(quantity(2.5e9, Unit::BytesPerSecond), "2.50 GB/s");
        assert_eq!(quantity(0.0, Unit::Nanoseconds), "0.00 ns");
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
