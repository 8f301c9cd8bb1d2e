//! Latency of the call over the size of the memory: alone, three at once, as a ratio to plain fork;
//! and the first write fault after it.

use super::series::{over, percentiles, published, published_rows};
use super::tables::headlines;
use crate::axis::{Axis, Kind};
use crate::bars::{Bars, Row};
use crate::blocks::{Block, Content, Figure};
use crate::chart::{Chart, Point, Series};
use odfork_samples::digest::{self, Digest};
use odfork_samples::published::PublishedPoint;
use odfork_samples::unit::Unit;

const METRIC: &str = "fork";

pub fn build(digest: &Digest, id: &str) -> Content {
    let counts = digest.numbers(METRIC, "processes");
    let mut blocks: Vec<Block> =
        counts.into_iter().map(|processes| times(digest, id, processes).into()).collect();
    blocks.extend(gains(digest, id).map(Block::from));
    blocks.extend(percentiles(digest, METRIC, id));
    let alone = |point: &digest::Point| point.number("processes") == 1.0;
    Content { blocks, headlines: headlines(digest, METRIC, alone) }
}

/// Whether a published figure was taken with three processes forking at once.
fn at_once(point: &PublishedPoint) -> bool {
    let words = format!("{} {}", point.series, point.what).to_lowercase();
    ["three", "concurrent", "3 at once", "3 processes", "at once"]
        .iter()
        .any(|word| words.contains(word))
}

fn times(digest: &Digest, id: &str, processes: f64) -> Figure {
    let many = processes > 1.0;
    let mut series = over(
        digest,
        METRIC,
        |point| point.number("bytes"),
        |point| point.number("processes") == processes,
    );
    series.extend(published("latency", Unit::Nanoseconds, |point| at_once(point) == many));
    let words = if many { format!("{processes} processes at once") } else { "one process".into() };
    Chart {
        name: format!("{id}-{processes}"),
        title: format!("fork call over memory, {words}"),
        about: "Time of the fork call against the size of the memory, both logarithmic: one line \
                per configuration, published figures as hollow marks."
            .into(),
        caption: "Median and 95 % interval; faint dots are all raw samples, outliers included. \
                  Hollow marks were published, on another machine."
            .into(),
        x: Axis::log("memory of the process", Unit::Bytes),
        y: Axis::log("time of the fork call", Unit::Nanoseconds),
        series,
        ..Chart::default()
    }
    .figure()
}

fn gains(digest: &Digest, id: &str) -> Option<Figure> {
    let of_configuration = |name: &String| {
        let mut series = Series::of_configuration(name);
        let alone = digest
            .of_metric(METRIC)
            .filter(|p| p.configuration == *name && p.number("processes") == 1.0);
        series.points.extend(alone.filter_map(|point| {
            let gain = digest.gain(point)?;
            Some(Point { x: point.number("bytes"), y: gain.value, interval: gain.interval })
        }));
        series
    };
    let configurations = digest.configurations(METRIC);
    let mut series: Vec<Series> =
        configurations.iter().filter(|name| *name != "plain").map(of_configuration).collect();
    if series.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    series.extend(published_gain());
    let chart = Chart {
        name: format!("{id}-ratio"),
        title: "How many times faster than plain fork".into(),
        about: "How many times faster than plain fork each configuration is, against the size of \
                the memory, one process."
            .into(),
        caption: "Ratio of medians, formed between samples of the same round, with its 95 % \
                  interval. Above the dashed line the configuration is faster."
            .into(),
        x: Axis::log("memory of the process", Unit::Bytes),
        y: Axis::log("plain fork / configuration", Unit::Times),
        series,
        level: Some(1.0),
        ..Chart::default()
    };
    Some(chart.figure())
}

/// The published ratio of fork to on-demand-fork, from means at the same size.
fn published_gain() -> Option<Series> {
    let alone = |point: &PublishedPoint| !at_once(point) && !point.what.contains("minimum");
    let all = published("latency", Unit::Nanoseconds, alone);
    let find = |name: &str| all.iter().find(|series| series.label == format!("published: {name}"));
    let (fork, shared) = (find("fork")?, find("on-demand-fork")?);
    let ratio = |point: &Point| {
        let other = shared.points.iter().find(|other| other.x == point.x)?;
        Some(Point::new(point.x, point.y / other.y))
    };
    let points = fork.points.iter().filter_map(ratio).collect();
    Some(Series { points, ..shared.clone() })
}

pub fn build_fault(digest: &Digest, id: &str) -> Content {
    let row = |point: &digest::Point| {
        let size = Unit::Bytes.write(point.number("bytes"));
        Row::measured(format!("{}, {size}", point.configuration), point)
    };
    let mut rows: Vec<Row> = digest.of_metric("fault").map(row).collect();
    rows.extend(published_rows("fault", Unit::Nanoseconds));
    let bars = Bars {
        title: "First write of a child into the middle of its memory",
        about: "One row per configuration and size: median, interval and raw samples on a \
                logarithmic axis; published figures hollow.",
        caption: "Median, 95 % interval and all raw samples. Hollow: Table 1 of the paper.",
        label: "time of the write",
        kind: Kind::Log,
        unit: Unit::Nanoseconds,
        rows,
    };
    let mut blocks = vec![bars.figure(id).into()];
    blocks.extend(percentiles(digest, "fault", id));
    Content { blocks, headlines: headlines(digest, "fault", |_| true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ratios_are_those_of_the_paper() {
        let gain = published_gain().unwrap();
        let ratios: Vec<f64> = gain.points.iter().map(|point| point.y.round()).collect();
        assert_eq!(ratios, [65.0, 270.0]);
    }
}
