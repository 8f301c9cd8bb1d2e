//! The smaller micro-benchmarks of 2021: write fault, fork plus access, profile.

use super::series::{percentiles, published};
use super::{headlines, medians, Content};
use crate::bars::{Bars, Row};
use crate::blocks::{Block, Figure};
use crate::chart::{self, Axis, Chart, Join, Series};
use crate::colour::Colour;
use crate::heat::{percent, Heat};
use crate::scale::Kind;
use crate::scene::MARKS;
use odfork_samples::configurations::rank;
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::unit::Unit;

pub fn row_of(label: String, point: &Point) -> Row {
    let estimate = point.estimate();
    let place = rank(&point.engine).min(MARKS.len() - 1);
    Row {
        label,
        value: estimate.value,
        interval: estimate.interval,
        raw: point.values(),
        colour: Colour::Engine(place),
        mark: MARKS[place],
        hollow: false,
    }
}

/// Published figures as hollow rows.
pub fn published_rows(name: &str, unit: Unit) -> Vec<Row> {
    let all = published(name, unit, |_| true);
    let rows = all.iter().flat_map(|series| {
        series.points.iter().map(|point| Row {
            label: series.label.clone(),
            value: point.y,
            interval: None,
            raw: Vec::new(),
            colour: series.colour,
            mark: series.mark,
            hollow: true,
        })
    });
    rows.collect()
}

pub fn build_fault(digest: &Digest, id: &str) -> Content {
    let mut rows: Vec<Row> = digest
        .of_metric("fault")
        .map(|point| {
            row_of(format!("{}, {}", point.engine, Unit::Bytes.write(point.number("bytes"))), point)
        })
        .collect();
    rows.extend(published_rows("fault", Unit::Nanoseconds));
    let bars = Bars {
        title: "First write of a child into the middle of its memory".into(),
        about: "One row per engine and size: median, interval and raw samples on a logarithmic axis; published figures hollow.".into(),
        label: "time of the write".into(),
        kind: Kind::Log,
        unit: Unit::Nanoseconds,
        rows,
    };
    let caption = "Median, 95 % interval and all raw samples. Hollow: Table 1 of the paper.";
    let mut blocks = vec![Block::Figures(vec![Figure::new(id, caption, bars.scene())])];
    blocks.extend(percentiles(digest, "fault", id));
    let columns = [("bytes", "memory", Unit::Bytes)];
    blocks.push(medians(digest, "fault", &columns, "Worst-case write fault"));
    Content { blocks, headlines: headlines(digest, "fault", ("bytes", Unit::Bytes), |_| true) }
}

/// Relative change against plain, from pairs: -0.2 is 20 % less time.
fn change(digest: &Digest, point: &Point) -> Option<(f64, Option<(f64, f64)>)> {
    let ratio = paired_ratio(point, digest.twin(point, "plain")?)?;
    Some((ratio.value - 1.0, ratio.interval.map(|(low, high)| (low - 1.0, high - 1.0))))
}

pub fn build_access(digest: &Digest, id: &str) -> Content {
    let metric = "total";
    let bytes = digest.numbers(metric, "bytes").last().copied().unwrap_or(f64::NAN);
    let mut blocks = Vec::new();
    for engine in digest.engines(metric).iter().filter(|engine| *engine != "plain") {
        let points: Vec<&Point> = digest
            .of_metric(metric)
            .filter(|p| p.engine == *engine && p.number("bytes") == bytes)
            .collect();
        let figures =
            vec![heat_map(digest, engine, &points, id), change_lines(digest, engine, &points, id)];
        blocks.push(Block::Figures(figures));
    }
    let columns = [
        ("bytes", "memory", Unit::Bytes),
        ("read", "read share", Unit::Share),
        ("share", "accessed", Unit::Share),
    ];
    blocks.push(medians(digest, metric, &columns, "Fork, then access by the parent"));
    let line = |point: &Point| {
        let (value, _) = change(digest, point)?;
        Some((
            format!("{} against plain, all of {} written", point.engine, Unit::Bytes.write(bytes)),
            percent(value),
        ))
    };
    let all = |p: &&Point| {
        p.number("bytes") == bytes
            && p.number("share") == 1.0
            && p.number("read") == 0.0
            && !matches!(p.engine.as_str(), "plain" | "null")
    };
    let headlines = digest.of_metric(metric).filter(all).filter_map(line).collect();
    Content { blocks, headlines }
}

fn heat_map(digest: &Digest, engine: &str, points: &[&Point], id: &str) -> Figure {
    let distinct = |name: &str| {
        let mut values: Vec<f64> =
            points.iter().map(|p| p.number(name)).filter(|v| v.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        values
    };
    let (mut reads, shares) = (distinct("read"), distinct("share"));
    reads.reverse();
    let cell = |read: f64, share: f64| {
        let point =
            points.iter().find(|p| p.number("read") == read && p.number("share") == share)?;
        Some(change(digest, point)?.0)
    };
    let heat = Heat {
        title: format!("{engine} against plain: change of fork + access"),
        about: "Rows: share of accesses that read. Columns: share of the memory accessed. Each cell: change of the time against plain fork.".into(),
        rows: ("down: mix of reads and writes".into(), reads.iter().map(|read| mix(*read)).collect()),
        columns: ("share of memory accessed".into(), shares.iter().map(|share| Unit::Share.write(*share)).collect()),
        cells: reads.iter().map(|read| shares.iter().map(|share| cell(*read, *share)).collect()).collect(),
    };
    let caption = "Blue: less time than plain fork; orange: more. The number in a cell is the relative change of the medians.";
    Figure::new(&format!("{id}-map-{engine}"), caption, heat.scene())
}

fn mix(read: f64) -> String {
    format!("{} read", Unit::Share.write(read))
}

fn change_lines(digest: &Digest, engine: &str, points: &[&Point], id: &str) -> Figure {
    let mut reads: Vec<f64> =
        points.iter().map(|p| p.number("read")).filter(|v| v.is_finite()).collect();
    reads.sort_unstable_by(|a, b| b.total_cmp(a));
    reads.dedup();
    let line = |(place, read): (usize, &f64)| {
        let mut series =
            Series::new(&mix(*read), Colour::Series(place), MARKS[place % MARKS.len()]);
        series.join = Join::Solid;
        for point in points.iter().filter(|p| p.number("read") == *read) {
            let Some((y, interval)) = change(digest, point) else { continue };
            series.points.push(chart::Point { x: point.number("share"), y, interval });
        }
        series
    };
    let mut all: Vec<Series> = reads.iter().enumerate().map(line).collect();
    // Only the ends of the published curves are known as numbers: no line between them.
    let theirs = published("access", Unit::Share, |_| true);
    all.extend(theirs.into_iter().map(|series| Series { join: Join::Apart, ..series }));
    let axes = (
        Axis::from_zero("share of memory accessed", Unit::Share),
        Axis::from_zero("change against plain", Unit::Share),
    );
    let about = "Relative change of the time of fork and access against plain fork, by share of memory accessed, one line per mix of reads and writes.";
    let mut chart = Chart::new(&format!("{engine}: change against plain fork"), about, axes, all);
    chart.size = (620.0, 400.0);
    chart.level = Some(0.0);
    let caption = "As Figure 8 of the paper, with 95 % intervals. Below the dashed line fork + access take less time than with plain fork.";
    Figure::of_chart(&format!("{id}-lines-{engine}"), caption, &chart)
}

/// Rows of a profile before the rest is summed up.
const SHOWN: usize = 14;

pub fn build_profile(digest: &Digest, id: &str) -> Content {
    let mut blocks = Vec::new();
    let bytes = digest.numbers("share", "bytes").last().copied().unwrap_or(f64::NAN);
    let mut headlines = Vec::new();
    for source in digest.words("share", "source") {
        for engine in digest.engines("share") {
            let mut points: Vec<&Point> = digest
                .of_metric("share")
                .filter(|p| p.engine == engine && p.word("source") == source)
                .filter(|p| p.number("bytes") == bytes || !bytes.is_finite())
                .collect();
            points.sort_by(|a, b| b.median().total_cmp(&a.median()));
            if points.is_empty() {
                continue;
            }
            if let Some(first) = points.first() {
                headlines.push((
                    format!("largest part, {engine} ({source})"),
                    format!("{} {}", first.word("name"), Unit::Share.write(first.median())),
                ));
            }
            blocks.push(Block::Figures(vec![profile(&points, (&engine, &source), bytes, id)]));
        }
    }
    let names = [
        ("bytes", "memory", Unit::Bytes),
        ("source", "source", Unit::Number),
        ("name", "part", Unit::Number),
    ];
    blocks.push(medians(digest, "share", &names, "Shares of the time of fork"));
    blocks.push(medians(digest, "count", &names, "Counters per fork"));
    headlines.truncate(4);
    Content { blocks, headlines }
}

fn profile(points: &[&Point], (engine, source): (&str, &str), bytes: f64, id: &str) -> Figure {
    let mut rows: Vec<Row> = points
        .iter()
        .take(SHOWN)
        .map(|point| row_of(shorten(&point.word("name")), point))
        .collect();
    let rest: f64 = points.iter().skip(SHOWN).map(|point| point.median()).sum();
    if points.len() > SHOWN {
        let label = format!("{} others together", points.len() - SHOWN);
        let colour = Colour::Quiet;
        rows.push(Row {
            label,
            value: rest,
            interval: None,
            raw: Vec::new(),
            colour,
            mark: MARKS[0],
            hollow: false,
        });
    }
    let bars = Bars {
        title: format!("Parts of fork, {engine}, {} ({source})", Unit::Bytes.write(bytes)),
        about: "One bar per part of the kernel: its share of the time of fork.".into(),
        label: "share of the time of fork".into(),
        kind: Kind::Linear,
        unit: Unit::Share,
        rows,
    };
    let caption = "Median share; the line is the 95 % interval, dots are single runs. The table holds the paper's instruction shares beside.";
    Figure::new(&format!("{id}-{engine}-{source}"), caption, bars.scene())
}

/// Symbols of the kernel can be long; the table has them whole.
pub fn shorten(name: &str) -> String {
    if name.chars().count() <= 38 {
        return name.into();
    }
    name.chars().take(36).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_symbols_are_shortened() {
        assert_eq!(shorten("copy_pte_range"), "copy_pte_range");
        assert_eq!(shorten(&"é".repeat(60)).chars().count(), 37);
        assert_eq!(mix(0.25), "25 % read");
    }
}
