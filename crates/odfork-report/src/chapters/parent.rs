//! The parent after fork: rounds of writes before and after, per page, by the way the child was
//! made.

use super::series::{over, published};
use crate::axis::{Axis, Kind};
use crate::blocks::{times, Block, Content, Figure, Table};
use crate::chart::{Chart, Series};
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
    let ways = digest.words(METRIC, "via");
    let mut blocks: Vec<Block> =
        ways.iter().map(|via| rounds(digest, (via, bytes), id).into()).collect();
    let (table, headlines) = first_rounds(digest, bytes);
    blocks.push(table.into());
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
    let same = |p: &Point| p.word("via") == via && p.number("bytes") == bytes;
    let measured = over(digest, METRIC, place, same);
    let mut series: Vec<Series> =
        measured.into_iter().map(|series| series.over(bytes / PAGE)).collect();
    series.extend(theirs(via));
    Chart {
        name: format!("{id}-{via}"),
        title: format!("Writes of the parent, child made by {via}, {}", Unit::Bytes.write(bytes)),
        about: "Time per page of each round of writes in the parent, ten rounds before the child \
                was made and ten after it was gone, one line per configuration."
            .into(),
        caption: "Median, 95 % interval and raw samples, divided by the number of 4 KB pages, so \
                  that the published rounds (100,000 pages) stand on the same axis."
            .into(),
        x: Axis::new("round (below 0: before the child was made)", Kind::Linear, Unit::Count),
        y: Axis::log("time per page written", Unit::Nanoseconds),
        series,
        ..Chart::default()
    }
    .figure()
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
    all.into_iter().map(|series| series.over(PUBLISHED_PAGES)).collect()
}

/// First round after against the last one before: how much the fork cost the parent later.
fn first_rounds(digest: &Digest, bytes: f64) -> (Table, Vec<(String, String)>) {
    let head = [
        "configuration",
        "child by",
        "last round before",
        "first round after",
        "after / before (95 %)",
    ];
    let (mut rows, mut headlines) = (Vec::new(), Vec::new());
    let at_size = || digest.of_metric(METRIC).filter(|point| point.number("bytes") == bytes);
    let first = |p: &&Point| p.word("phase") == "after" && p.number("turn") == 1.0;
    for after in at_size().filter(first).filter(|point| point.configuration != "null") {
        let via = after.word("via");
        let same = |p: &&Point| {
            p.configuration == after.configuration
                && p.word("via") == via
                && p.word("phase") == "before"
        };
        let turn = |p: &&Point| p.number("turn");
        let last = at_size().filter(same).max_by(|a, b| turn(a).total_cmp(&turn(b)));
        let Some(before) = last else { continue };
        let ratio = paired_ratio(after, before).or_else(|| plain_ratio(after, before));
        let ratio = ratio.map_or_else(|| "–".into(), |ratio| times(&ratio));
        if via == "fork" {
            let what = format!("first round after / before, {}", after.configuration);
            headlines.push((what, ratio.clone()));
        }
        let [before, first] = [before, after].map(|point| point.unit.write(point.median()));
        rows.push(vec![after.configuration.clone(), via, before, first, ratio]);
    }
    let caption = "The first round after, against the last one before";
    (Table::new(caption, &head, 2).with(rows), headlines)
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
