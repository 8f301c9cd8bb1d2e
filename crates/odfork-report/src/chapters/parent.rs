//! The parent after fork: rounds of writes before and after, per page, by the way the child was made.

use super::series::{all_engines, over, published};
use super::{medians, Content};
use crate::blocks::{Block, Figure, Table};
use crate::chart::{self, Axis, Chart, Series};
use crate::scale::Kind;
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::published::PublishedPoint;
use odfork_samples::stats::Estimate;
use odfork_samples::unit::Unit;

const METRIC: &str = "round";
const PAGE: f64 = 4096.0;
/// The published rounds write this many pages.
const PUBLISHED_PAGES: f64 = 100_000.0;

pub fn build(digest: &Digest, id: &str) -> Content {
    let bytes = digest.numbers(METRIC, "bytes").last().copied().unwrap_or(f64::NAN);
    let mut blocks = Vec::new();
    for via in digest.words(METRIC, "via") {
        blocks.push(Block::Figures(vec![rounds(digest, (&via, bytes), id)]));
    }
    let (table, headlines) = first_rounds(digest, bytes);
    blocks.push(table);
    let columns = [
        ("bytes", "memory", Unit::Bytes),
        ("via", "child by", Unit::Number),
        ("phase", "phase", Unit::Number),
        ("turn", "round", Unit::Count),
    ];
    blocks.push(medians(digest, METRIC, &columns, "One write a page over the whole memory"));
    Content { blocks, headlines }
}

/// Rounds before the fork stand left of zero.
fn place(point: &Point) -> f64 {
    let turn = point.number("turn");
    if point.word("phase") == "before" {
        turn - 11.0
    } else {
        turn
    }
}

fn rounds(digest: &Digest, (via, bytes): (&str, f64), id: &str) -> Figure {
    let line = |engine: &String| {
        let mut series = over(digest, METRIC, (engine, "turn"), |_| false);
        let mut points: Vec<&Point> = digest
            .of_metric(METRIC)
            .filter(|p| p.engine == *engine && p.word("via") == via && p.number("bytes") == bytes)
            .collect();
        points.sort_by(|a, b| place(a).total_cmp(&place(b)));
        let pages = bytes / PAGE;
        for point in points {
            let estimate = point.estimate();
            let interval = estimate.interval.map(|(low, high)| (low / pages, high / pages));
            series.points.push(chart::Point {
                x: place(point),
                y: estimate.value / pages,
                interval,
            });
            series.raw.extend(point.samples.iter().map(|(_, value)| (place(point), value / pages)));
        }
        series
    };
    let mut all: Vec<Series> = all_engines(digest, METRIC).iter().map(line).collect();
    all.extend(theirs(via));
    let axes = (
        Axis::new("round (below 0: before the child was made)", Kind::Linear, Unit::Count),
        Axis::new("time per page written", Kind::Log, Unit::Nanoseconds),
    );
    let title = format!("Writes of the parent, child made by {via}, {}", Unit::Bytes.write(bytes));
    let about = "Time per page of each round of writes in the parent, ten rounds before the child was made and ten after it was gone, one line per engine.";
    let caption = "Median, 95 % interval and raw samples, divided by the number of 4 KB pages, so that the published rounds (100,000 pages) stand on the same axis.";
    let chart = Chart::new(&title, about, axes, all);
    Figure::of_chart(&format!("{id}-{via}"), caption, &chart)
}

/// Published rounds of children made the same way, per page, one series per program.
fn theirs(via: &str) -> Vec<Series> {
    let same = |point: &PublishedPoint| match (via, point.series.contains("vfork")) {
        ("fork", vfork) => !vfork,
        ("vfork", vfork) => vfork,
        _ => false,
    };
    let side = |phase: &str| {
        published("parent-writes", Unit::Nanoseconds, |p| same(p) && p.what.starts_with(phase))
    };
    let mut all = side("before");
    for series in &mut all {
        series.points.iter_mut().for_each(|point| point.x -= 11.0);
    }
    for after in side("after") {
        match all.iter_mut().find(|series| series.label == after.label) {
            Some(series) => series.points.extend(after.points),
            None => all.push(after),
        }
    }
    for series in &mut all {
        series.points.iter_mut().for_each(|point| point.y /= PUBLISHED_PAGES);
    }
    all
}

/// First round after against the last one before: how much the fork cost the parent later.
fn first_rounds(digest: &Digest, bytes: f64) -> (Block, Vec<(String, String)>) {
    let head =
        ["engine", "child by", "last round before", "first round after", "after / before (95 %)"];
    let mut table = Table::new("The first round after, against the last one before", &head, 2);
    let mut headlines = Vec::new();
    let firsts = digest.of_metric(METRIC).filter(|p| {
        p.word("phase") == "after" && p.number("turn") == 1.0 && p.number("bytes") == bytes
    });
    for after in firsts.filter(|point| point.engine != "null") {
        let same = |p: &&Point| {
            p.engine == after.engine
                && p.word("via") == after.word("via")
                && p.number("bytes") == bytes
                && p.word("phase") == "before"
        };
        let last = digest
            .of_metric(METRIC)
            .filter(same)
            .max_by(|a, b| a.number("turn").total_cmp(&b.number("turn")));
        let Some(before) = last else { continue };
        let ratio = paired_ratio(after, before).or_else(|| plain_ratio(after, before));
        let ratio = ratio.map_or_else(|| "–".into(), |ratio| super::times(&ratio));
        let via = after.word("via");
        if via == "fork" {
            headlines
                .push((format!("first round after / before, {}", after.engine), ratio.clone()));
        }
        let times = [before, after].map(|point| point.unit.write(point.median()));
        table.rows.push(vec![after.engine.clone(), via, times[0].clone(), times[1].clone(), ratio]);
    }
    (Block::Table(table), headlines)
}

/// When no round has both: the medians alone, without an interval.
fn plain_ratio(top: &Point, bottom: &Point) -> Option<Estimate> {
    let value = top.median() / bottom.median();
    value.is_finite().then_some(Estimate { value, interval: None, count: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_rounds_stand_on_both_sides_of_the_fork_and_per_page() {
        let all = theirs("fork");
        let first =
            all.iter().flat_map(|series| &series.points).find(|point| point.x == 1.0).unwrap();
        assert!((600.0..700.0).contains(&first.y), "{first:?}");
        assert!(all.iter().flat_map(|series| &series.points).any(|point| point.x < 0.0));
        assert!(theirs("spawn").is_empty());
    }
}
