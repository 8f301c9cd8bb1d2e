//! Fork, then access by the parent: the relative change against plain fork as a map and as lines.

use super::series::published;
use crate::axis::Axis;
use crate::blocks::{Block, Content, Figure};
use crate::chart::{self, Chart, Join, Series, Style};
use crate::heat::{percent, Heat};
use odfork_samples::digest::{distinct, paired_ratio, Digest, Point};
use odfork_samples::stats::Estimate;
use odfork_samples::unit::Unit;

const METRIC: &str = "total";

/// Relative change against plain, from pairs: -0.2 is 20 % less time.
fn change(digest: &Digest, point: &Point) -> Option<Estimate> {
    let ratio = paired_ratio(point, digest.twin(point, "plain")?)?;
    let interval = ratio.interval.map(|(low, high)| (low - 1.0, high - 1.0));
    Some(Estimate { value: ratio.value - 1.0, interval, ..ratio })
}

pub fn build(digest: &Digest, id: &str) -> Content {
    let bytes = digest.numbers(METRIC, "bytes").last().copied().unwrap_or(f64::NAN);
    let at_size = || digest.of_metric(METRIC).filter(|point| point.number("bytes") == bytes);
    let mut blocks = Vec::new();
    for configuration in
        digest.configurations(METRIC).iter().filter(|configuration| *configuration != "plain")
    {
        let points: Vec<&Point> =
            at_size().filter(|point| point.configuration == *configuration).collect();
        let map = heat_map(digest, configuration, &points);
        let caption = "Blue: less time than plain fork; orange: more. The number in a cell is the \
                       relative change of the medians.";
        let map = Figure::new(&format!("{id}-map-{configuration}"), caption, map.drawing());
        blocks.push(Block::Figures(vec![map, change_lines(digest, configuration, &points, id)]));
    }
    let all_written = |point: &&Point| point.number("share") == 1.0 && point.number("read") == 0.0;
    let line = |point: &Point| {
        let size = Unit::Bytes.write(bytes);
        let place = format!("{} against plain, all of {size} written", point.configuration);
        Some((place, percent(change(digest, point)?.value)))
    };
    let measured =
        at_size().filter(|point| !matches!(point.configuration.as_str(), "plain" | "null"));
    let headlines = measured.filter(all_written).filter_map(line).collect();
    Content { blocks, headlines }
}

/// Mixes from all reads to all writes.
fn reads(points: &[&Point]) -> Vec<f64> {
    distinct(points.iter().copied(), "read").into_iter().rev().collect()
}

fn heat_map(digest: &Digest, configuration: &str, points: &[&Point]) -> Heat {
    let (reads, shares) = (reads(points), distinct(points.iter().copied(), "share"));
    let cell = |read: f64, share: f64| {
        let same = |p: &&&Point| p.number("read") == read && p.number("share") == share;
        Some(change(digest, points.iter().find(same)?)?.value)
    };
    let row = |read: &f64| shares.iter().map(|share| cell(*read, *share)).collect();
    Heat {
        title: format!("{configuration} against plain: change of fork + access"),
        about: "Rows: share of accesses that read. Columns: share of the memory accessed. Each \
                cell: change of the time against plain fork."
            .into(),
        rows: (
            "down: mix of reads and writes".into(),
            reads.iter().map(|read| mix(*read)).collect(),
        ),
        columns: (
            "share of memory accessed".into(),
            shares.iter().map(|share| Unit::Share.write(*share)).collect(),
        ),
        cells: reads.iter().map(row).collect(),
    }
}

fn mix(read: f64) -> String {
    format!("{} read", Unit::Share.write(read))
}

fn change_lines(digest: &Digest, configuration: &str, points: &[&Point], id: &str) -> Figure {
    let line = |(place, read): (usize, &f64)| {
        let mut series = Series::new(&mix(*read), Style::of_series(place)).joined(Join::Solid);
        let same = points.iter().filter(|point| point.number("read") == *read);
        series.points.extend(same.filter_map(|point| {
            let Estimate { value, interval, .. } = change(digest, point)?;
            Some(chart::Point { x: point.number("share"), y: value, interval })
        }));
        series
    };
    let mut series: Vec<Series> = reads(points).iter().enumerate().map(line).collect();
    // Only the ends of the published curves are known as numbers: no line between them.
    let theirs = published("access", Unit::Share, |_| true);
    series.extend(theirs.into_iter().map(|series| series.joined(Join::Apart)));
    Chart {
        name: format!("{id}-lines-{configuration}"),
        title: format!("{configuration}: change against plain fork"),
        about: "Relative change of the time of fork and access against plain fork, by share of \
                memory accessed, one line per mix of reads and writes."
            .into(),
        caption: "As Figure 8 of the paper, with 95 % intervals. Below the dashed line fork + \
                  access take less time than with plain fork."
            .into(),
        x: Axis::from_zero("share of memory accessed", Unit::Share),
        y: Axis::from_zero("change against plain", Unit::Share),
        series,
        size: (620.0, 400.0),
        level: Some(0.0),
    }
    .figure()
}
