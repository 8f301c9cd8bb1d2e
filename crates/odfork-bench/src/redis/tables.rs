//! The tables of `redis`: a block for each case, a row for each arm; ratios; what was published.
//! Pure.

use std::fmt::Write;

use serde_json::Value;

use crate::foreign::open_loop::SHARES;
use crate::tables::ratios;
use odfork_proc::table::columns;
use odfork_proc::text::{digits, size, time};
use odfork_samples::digest::{paired_ratio, pairs, Digest, Point};
use odfork_samples::published;
use odfork_samples::samples::Sample;
use odfork_samples::stats::{deviation, mean, median};
use odfork_samples::unit::Unit;

/// The experiment whose published figures stand below.
const PUBLISHED: &str = "redis";

pub fn tables(samples: &[Sample]) -> String {
    let digest = Digest::of_samples(samples);
    let mut text = String::new();
    for place in digest.places("fork") {
        let _ = writeln!(text, "\n{}", place_words(place));
        text += &case(&digest, place);
    }
    if text.is_empty() {
        text = "nothing was measured\n".into();
    }
    text + &published_table()
}

fn place_words(place: &Point) -> String {
    let word = |name: &str| place.word(name);
    let bytes = place.params.get("bytes").and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!(
        "{}, {}, {} in values of {}, disable-thp {}",
        word("server"),
        word("snapshot"),
        size(bytes),
        Unit::Bytes.write(place.number("value")),
        word("disable-thp")
    );
    for (name, before) in [("user", ", as "), ("through", ", through ")] {
        if !word(name).is_empty() {
            text += &format!("{before}{}", word(name));
        }
    }
    text
}

const HEAD: [&str; 17] = [
    "",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "p99.99",
    "max",
    "1/s",
    "fork mean",
    "+-",
    "median",
    "snapshot s",
    "copied MB",
    "memory MB",
    "extra %",
    "children s",
    "late p99",
];

fn case(digest: &Digest, place: &Point) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut compared = Vec::new();
    let arms: Vec<&Point> =
        digest.of_metric("fork").filter(|point| point.params == place.params).collect();
    for arm in &arms {
        rows.push(row(digest, arm));
        if arm.configuration != "plain" {
            compared.extend(ratios_of(digest, arm));
        }
    }
    let rounds = place.samples.len();
    format!("{}{rounds} rounds\n{}", columns(&rows), ratios(&compared))
}

fn row(digest: &Digest, arm: &Point) -> Vec<String> {
    let values = |metric: &str| digest.beside(arm, metric).map(Point::values).unwrap_or_default();
    let of = |values: Option<f64>, write: fn(f64) -> String| values.map_or("-".into(), write);
    let megabytes = |bytes: f64| digits(bytes / f64::from(1 << 20));
    let mut cells = vec![format!("  {}", arm.configuration)];
    // The last of several runs in a file.
    let whole = |name: &str| of(values(&format!("run-{name}")).last().copied(), time);
    cells.extend(SHARES.map(|(_, name)| whole(name)));
    cells.push(of(median(&values("rate")), digits));
    let forks = arm.values();
    cells.extend([mean, deviation, median].map(|one| of(one(&forks), time)));
    cells.push(of(median(&values("snapshot")), digits));
    cells.extend(["copied", "memory"].map(|metric| of(median(&values(metric)), megabytes)));
    cells.push(of(extra(digest, arm).map(|share| share * 100.0), digits));
    cells.push(of(median(&values("children")), digits));
    cells.push(of(median(&values("late")), time));
    cells
}

/// Memory above stock's in the same round, as a share of the data.
fn extra(digest: &Digest, arm: &Point) -> Option<f64> {
    let own = digest.beside(arm, "memory").filter(|own| own.configuration != "plain")?;
    let both = pairs(own, digest.twin(own, "plain")?);
    let shares: Vec<f64> =
        both.into_iter().map(|(own, stock)| (own - stock) / arm.number("bytes")).collect();
    median(&shares)
}

/// Stock over this arm, of the same rounds.
fn ratios_of(digest: &Digest, arm: &Point) -> Vec<(String, odfork_samples::stats::Estimate)> {
    let metrics =
        ["fork", "p50", "p90", "p99", "p99.9", "max", "snapshot", "copied", "memory", "children"];
    let ratio = |metric: &str| {
        let own = digest.beside(arm, metric)?;
        let estimate = paired_ratio(digest.twin(own, "plain")?, own)?;
        Some((format!("{metric}: plain / {}", arm.configuration), estimate))
    };
    metrics.into_iter().filter_map(ratio).collect()
}

fn published_table() -> String {
    let points = published::points(PUBLISHED);
    let mut text = String::from("\npublished:\n");
    let Some(first) = points.first() else { return String::new() };
    let mut rows = vec![vec!["".to_owned(), "fork".into(), "on-demand-fork".into()]];
    for point in points.iter().filter(|point| point.series == first.series) {
        let is_other = |it: &&published::PublishedPoint| {
            it.series != point.series && it.x == point.x && it.what == point.what
        };
        let other = points.iter().find(is_other).map_or("-".into(), |it| time(it.y));
        let at = if point.x > 0.0 { format!(" p{}", point.x) } else { String::new() };
        rows.push(vec![format!("  {}{at}", point.what), time(point.y), other]);
    }
    text += &columns(&rows);
    let _ = writeln!(text, "  ({})", first.source);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arm: &str, metric: &str, round: u32, value: f64) -> Sample {
        Sample::of(arm, (metric, "ns"), value).with("bytes", 1u64 << 30).in_round(round)
    }

    #[test]
    fn each_arm_has_a_row_and_a_ratio_and_the_published_table_stands_below() {
        let mut samples = Vec::new();
        for round in 1..=4 {
            samples.push(sample("plain", "fork", round, 8e6));
            samples.push(sample("auto", "fork", round, if round < 4 { 1e5 } else { 5e5 }));
        }
        samples.push(sample("auto", "run-p99", 4, 2e6));
        for (arm, bytes) in [("plain", 1.25), ("auto", 1.5)] {
            samples.push(sample(arm, "memory", 1, bytes * f64::from(1 << 30)));
        }
        let text = tables(&samples);
        let row = text.lines().find(|line| line.starts_with("  auto")).unwrap();
        assert!(
            row.contains("200 us")
                && row.contains("100 us")
                && row.contains("2.00 ms")
                && row.contains("25.0"),
            "{row}"
        );
        assert!(text.contains("fork: plain / auto    80.0x"), "{text}");
        assert!(text.contains("p99.99") && text.contains("16.3 ms"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
        assert!(tables(&[]).starts_with("nothing was measured"));
    }
}
