//! A server that makes snapshots: percentiles of its requests by arm, and the time in fork.

use super::series::published;
use crate::axis::{Axis, Kind};
use crate::blocks::{Block, Content, Table};
use crate::chart::{Chart, Join, Series, Style};
use odfork_samples::digest::{Digest, Point};
use odfork_samples::stats::{deviation, mean};
use odfork_samples::unit::Unit;

/// Metric of a whole run, and the share of requests that did not take longer.
const PERCENTILES: [(&str, f64); 5] = [
    ("run-p50", 0.5),
    ("run-p90", 0.9),
    ("run-p99", 0.99),
    ("run-p99.9", 0.999),
    ("run-p99.99", 0.9999),
];
const SLOWEST: &str = "run-p99.99";

pub fn build(digest: &Digest, id: &str) -> Content {
    let places = digest.places(SLOWEST);
    let charts = places.iter().enumerate().map(|(at, place)| chart(digest, place, id, at));
    let mut blocks: Vec<Block> = charts.collect();
    blocks.push(forks(digest).into());
    // One case on the front page: dumps of the largest data.
    let most = places.iter().map(|place| place.number("bytes")).fold(0.0, f64::max);
    let is_first =
        |place: &&&Point| place.word("snapshot") == "bgsave" && place.number("bytes") == most;
    let first = places.iter().find(is_first);
    let headlines = first.map(|place| headlines(digest, place)).unwrap_or_default();
    Content { blocks, headlines }
}

fn words(place: &Point) -> String {
    let size = |name: &str| Unit::Bytes.write(place.number(name));
    let user = match place.word("user") {
        name if name.is_empty() => name,
        name => format!(", as {name}"),
    };
    format!("{}, {} in values of {}{user}", place.word("snapshot"), size("bytes"), size("value"))
}

fn chart(digest: &Digest, place: &Point, id: &str, at: usize) -> Block {
    let theirs = published("redis", Unit::Nanoseconds, |point| point.what == "request latency");
    let share = |mut series: Series| {
        series.points.iter_mut().for_each(|point| point.x /= 100.0);
        series
    };
    let title = format!("Requests while snapshots are made: {}", words(place));
    let name = format!("{id}-percentiles-{}", at + 1);
    percentiles(digest, place, (name, title), theirs.into_iter().map(share).collect())
}

/// Percentiles of all requests of a run, by arm.
pub fn percentiles(
    digest: &Digest,
    place: &Point,
    (name, title): (String, String),
    theirs: Vec<Series>,
) -> Block {
    let arms = digest.of_metric(SLOWEST).filter(|point| point.params == place.params);
    let line = |(number, arm): (usize, &Point)| {
        let spot = |(metric, share): (&str, f64)| {
            Some((share, digest.beside(arm, metric)?.values().last().copied()?))
        };
        let spots = PERCENTILES.into_iter().filter_map(spot);
        let series = Series::new(&arm.configuration, Style::of_series(number));
        series.joined(Join::Solid).through(spots)
    };
    let hollow = " Hollow: published, from a client that waits for its answers.";
    let chart = Chart {
        name,
        title,
        about: "One line for each way of starting the server: the time that the given share of \
                requests stays below."
            .into(),
        caption: format!(
            "From when a request was due to its answer, over the whole run, the first slice \
             included.{}",
            if theirs.is_empty() { "" } else { hollow }
        ),
        x: Axis::new("percentile of requests", Kind::Percentile, Unit::Share),
        y: Axis::log("latency", Unit::Nanoseconds),
        series: arms.enumerate().map(line).chain(theirs).collect(),
        ..Chart::default()
    };
    chart.figure().into()
}

/// Mean and deviation, which the publication gives, too.
fn forks(digest: &Digest) -> Table {
    let head = ["configuration", "case", "time in fork, mean", "deviation", "longest", "snapshots"];
    let row = |point: &Point| {
        let values = point.values();
        let longest = values.iter().copied().fold(f64::NAN, f64::max);
        let write = |value: Option<f64>| point.unit.write(value.unwrap_or(f64::NAN));
        vec![
            point.configuration.clone(),
            words(point),
            write(mean(&values)),
            write(deviation(&values)),
            write(Some(longest)),
            values.len().to_string(),
        ]
    };
    Table::new("Time in fork", &head, 2).with(digest.of_metric("fork").map(row))
}

/// How long the slowest of 10,000 requests waited, with the arm that does best.
pub fn lead(digest: &Digest) -> Option<String> {
    let most = digest.of_metric(SLOWEST).map(|point| point.number("bytes")).fold(0.0, f64::max);
    let is_case = |point: &&Point| {
        point.configuration != "plain"
            && point.word("snapshot") == "bgsave"
            && point.number("bytes") == most
    };
    let last = |point: &Point| point.values().last().copied().unwrap_or(f64::INFINITY);
    let arms = digest.of_metric(SLOWEST).filter(is_case);
    let best = arms.min_by(|a, b| last(a).total_cmp(&last(b)))?;
    let stock = digest.twin(best, "plain")?;
    Some(format!(
        "The slowest of 10,000 requests waits {} with odfork ({}), {} with stock fork: {}.",
        Unit::Nanoseconds.write(last(best)),
        best.configuration,
        Unit::Nanoseconds.write(last(stock)),
        words(best),
    ))
}

/// How long the slowest of 10,000 requests waited, for the front page.
fn headlines(digest: &Digest, place: &Point) -> Vec<(String, String)> {
    let last = |point: &Point| point.values().last().copied();
    let line = |arm: &Point| {
        let stock = last(digest.twin(arm, "plain")?)?;
        let write = |value| Unit::Nanoseconds.write(value);
        let what =
            format!("1 request in 10,000 waits longer, {}: {}", arm.configuration, words(arm));
        Some((what, format!("{}, stock {}", write(last(arm)?), write(stock))))
    };
    let arms = digest.of_metric(SLOWEST).filter(|point| point.params == place.params);
    arms.filter(|arm| arm.configuration != "plain").filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::samples::Sample;

    #[test]
    fn a_plot_for_each_case_and_a_sentence_for_each_arm() {
        let mut samples = Vec::new();
        for (arm, factor) in [("plain", 10.0), ("auto", 1.0)] {
            for (metric, share) in PERCENTILES {
                let sample = Sample::of(arm, (metric, "ns"), 1e6 * factor * share);
                samples.push(
                    sample
                        .with("snapshot", "bgsave")
                        .with("value", 700)
                        .with("bytes", 1 << 30)
                        .in_round(2),
                );
            }
        }
        let content = build(&Digest::of_samples(&samples), "redis");
        let plots = content.blocks.iter().filter(|block| matches!(block, Block::Figures(_)));
        assert_eq!((plots.count(), content.headlines.len()), (1, 1));
        let (what, value) = &content.headlines[0];
        assert!(what.contains("auto") && value.contains("stock 10.0 ms"), "{what}: {value}");
    }
}
