//! Latency of the call over the size of the memory: alone, three at once, and as a ratio to plain fork.

use super::series::{all_engines, at_once, over, percentiles, published};
use super::{headlines, medians, Content};
use crate::blocks::{Block, Figure};
use crate::chart::{Axis, Chart, Point, Series};
use crate::scale::Kind;
use odfork_samples::digest::Digest;
use odfork_samples::published::PublishedPoint;
use odfork_samples::unit::Unit;

const METRIC: &str = "fork";

pub fn build(digest: &Digest, id: &str) -> Content {
    let mut blocks = Vec::new();
    for processes in digest.numbers(METRIC, "processes") {
        blocks.push(Block::Figures(vec![times(digest, id, processes)]));
    }
    blocks.extend(gains(digest, id).map(|figure| Block::Figures(vec![figure])));
    blocks.extend(percentiles(digest, METRIC, id));
    let columns = [("bytes", "memory", Unit::Bytes), ("processes", "at once", Unit::Count)];
    blocks.push(medians(digest, METRIC, &columns, "Time of the fork call"));
    blocks.push(medians(digest, "fork-cpu", &columns, "Processor time of the caller in fork"));
    blocks.push(medians(digest, "total", &columns, "Fork, child's exit and wait together"));
    let alone = |point: &odfork_samples::digest::Point| point.number("processes") == 1.0;
    Content { blocks, headlines: headlines(digest, METRIC, ("bytes", Unit::Bytes), alone) }
}

fn times(digest: &Digest, id: &str, processes: f64) -> Figure {
    let many = processes > 1.0;
    let series_of = |engine: &String| {
        over(digest, METRIC, (engine, "bytes"), |point| point.number("processes") == processes)
    };
    let mut series: Vec<Series> = all_engines(digest, METRIC).iter().map(series_of).collect();
    series.extend(published("latency", Unit::Nanoseconds, |point| at_once(point) == many));
    let words = if many { format!("{processes} processes at once") } else { "one process".into() };
    let title = format!("fork call over memory, {words}");
    let about = "Time of the fork call against the size of the memory, both logarithmic: one line per engine, published figures as hollow marks.";
    let axes = (
        Axis::new("memory of the process", Kind::Log, Unit::Bytes),
        Axis::new("time of the fork call", Kind::Log, Unit::Nanoseconds),
    );
    let chart = Chart::new(&title, about, axes, series);
    let caption = "Median and 95 % interval; faint dots are all raw samples, outliers included. Hollow marks were published, on another machine.";
    Figure::of_chart(&format!("{id}-{processes}"), caption, &chart)
}

fn gains(digest: &Digest, id: &str) -> Option<Figure> {
    let mut all = Vec::new();
    for engine in digest.engines(METRIC).iter().filter(|engine| *engine != "plain") {
        let mut series = over(digest, METRIC, (engine, "bytes"), |_| false);
        for point in
            digest.of_metric(METRIC).filter(|p| p.engine == *engine && p.number("processes") == 1.0)
        {
            let Some(gain) = digest.gain(point) else { continue };
            series.points.push(Point {
                x: point.number("bytes"),
                y: gain.value,
                interval: gain.interval,
            });
        }
        all.push(series);
    }
    if all.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    all.extend(published_gain());
    let axes = (
        Axis::new("memory of the process", Kind::Log, Unit::Bytes),
        Axis::new("plain fork / engine", Kind::Log, Unit::Times),
    );
    let about = "How many times faster than plain fork each engine is, against the size of the memory, one process.";
    let mut chart = Chart::new("How many times faster than plain fork", about, axes, all);
    chart.level = Some(1.0);
    let caption = "Ratio of medians, formed between samples of the same round, with its 95 % interval. Above the dashed line the engine is faster.";
    Some(Figure::of_chart(&format!("{id}-ratio"), caption, &chart))
}

/// The published ratio of fork to on-demand-fork, from means at the same size.
fn published_gain() -> Option<Series> {
    let alone = |point: &PublishedPoint| !at_once(point) && !point.what.contains("minimum");
    let all = published("latency", Unit::Nanoseconds, alone);
    let find = |name: &str| all.iter().find(|series| series.label == format!("published: {name}"));
    let (fork, shared) = (find("fork")?, find("on-demand-fork")?);
    let ratio = |point: &Point| {
        let other = shared.points.iter().find(|other| other.x == point.x)?;
        Some(Point { x: point.x, y: point.y / other.y, interval: None })
    };
    let points = fork.points.iter().filter_map(ratio).collect();
    Some(Series { label: "published: on-demand-fork".into(), points, ..shared.clone() })
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
