//! From points to series of a plot: one engine over one parameter, published figures, percentiles.
//!
//! Owns how engines and sources look in every chapter: colour and mark by engine, hollow marks for published figures in
//! the colour of the engine they correspond to.

use super::{medians, Content};
use crate::blocks::{Block, Figure};
use crate::chart::{self, Axis, Chart, Join, Series};
use crate::colour::Colour;
use crate::scale::Kind;
use crate::scene::MARKS;
use odfork_samples::configurations::{rank, CONFIGURATIONS};
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published::{self, PublishedPoint};
use odfork_samples::unit::{convert, Unit};

/// One engine's medians over a parameter, with raw samples behind.
pub fn over(
    digest: &Digest,
    metric: &str,
    (engine, x): (&str, &str),
    wanted: impl Fn(&Point) -> bool,
) -> Series {
    let mut series =
        Series::new(engine, Colour::of_engine(engine), MARKS[rank(engine).min(MARKS.len() - 1)]);
    series.join = if engine == "null" { Join::Dashed } else { Join::Solid };
    for point in digest.of_metric(metric).filter(|point| point.engine == engine && wanted(point)) {
        let place = point.number(x);
        add(&mut series, point, place);
    }
    series
}

pub fn add(series: &mut Series, point: &Point, x: f64) {
    let estimate = point.estimate();
    series.points.push(chart::Point { x, y: estimate.value, interval: estimate.interval });
    series.raw.extend(point.samples.iter().map(|(_, value)| (x, *value)));
}

/// Engines with a point, the harness last.
pub fn all_engines(digest: &Digest, metric: &str) -> Vec<String> {
    let mut engines = digest.engines(metric);
    if digest.of_metric(metric).any(|point| point.engine == "null") {
        engines.push("null".into());
    }
    engines
}

/// The engine of ours that a published series corresponds to.
fn counterpart(series: &str) -> Colour {
    let words = series.to_lowercase();
    let engine = match () {
        () if words.contains("huge") => "hugetlb",
        () if words.contains("thp") => "thp",
        () if words.contains("demand") || words.contains("odf") => "kernel",
        () if words.contains("fork") => "plain",
        () => return Colour::Text,
    };
    Colour::of_engine(engine)
}

/// Published figures that fit the axis, one hollow series per published series.
pub fn published(name: &str, unit: Unit, wanted: impl Fn(&PublishedPoint) -> bool) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for point in published::points(name).iter().filter(|point| wanted(point)) {
        let Some(y) = convert(point.y, point.unit, unit) else { continue };
        let label = format!("published: {}", point.series);
        let place = all.iter().position(|series| series.label == label).unwrap_or_else(|| {
            let mark = MARKS[all.len() % 5];
            let mut series = Series::new(&label, counterpart(point.series), mark);
            series.hollow = true;
            series.join = Join::Dashed;
            all.push(series);
            all.len() - 1
        });
        all[place].points.push(chart::Point { x: point.x, y, interval: None });
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    all
}

/// Whether a published figure was taken with three processes forking at once.
pub fn at_once(point: &PublishedPoint) -> bool {
    let words = format!("{} {}", point.series, point.what).to_lowercase();
    ["three", "concurrent", "3 at once", "3 processes", "at once"]
        .iter()
        .any(|word| words.contains(word))
}

/// Samples below which a percentile plot would show single outliers as a shape.
const FOR_PERCENTILES: usize = 50;

/// The distribution of one metric, every engine, at the largest parameters that have samples enough.
pub fn percentiles(digest: &Digest, metric: &str, id: &str) -> Option<Block> {
    let rich = |point: &&Point| point.samples.len() >= FOR_PERCENTILES;
    let largest = digest.of_metric(metric).filter(rich).max_by(|a, b| {
        let weight = |point: &Point| (point.number("bytes"), -point.number("processes").max(1.0));
        let (a, b) = (weight(a), weight(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })?;
    let series: Vec<Series> = CONFIGURATIONS
        .iter()
        .filter_map(|engine| digest.twin(largest, engine))
        .filter(|point| rich(point))
        .map(distribution)
        .collect();
    let place: Vec<String> = largest
        .params
        .keys()
        .map(|name| format!("{name} {}", parameter_text(largest, name)))
        .collect();
    let title = format!("Percentiles of {metric} ({})", place.join(", "));
    let about = "One line per engine: the value that the given share of samples stays below, from the median to the slowest.";
    let axes = (
        Axis::new("percentile of samples", Kind::Percentile, Unit::Share),
        Axis::new(metric, Kind::Log, largest.unit),
    );
    let chart = Chart::new(&title, about, axes, series);
    let caption = "From the median to the slow end; the axis gives each factor of ten of rarity the same room. A line ends where its samples end: 100 samples say nothing about 99.9 %.";
    Some(Block::Figures(vec![Figure::of_chart(&format!("{id}-percentiles"), caption, &chart)]))
}

fn parameter_text(point: &Point, name: &str) -> String {
    if name == "bytes" {
        Unit::Bytes.write(point.number(name))
    } else {
        point.word(name)
    }
}

fn distribution(point: &Point) -> Series {
    let mark = MARKS[rank(&point.engine).min(MARKS.len() - 1)];
    let mut series = Series::new(&point.engine, Colour::of_engine(&point.engine), mark);
    series.join = if point.engine == "null" { Join::Dashed } else { Join::Solid };
    let mut values = point.values();
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len() as f64;
    // Rank r of n stands for the share (r - 1/2) / n: the largest of 50 is the 99th percentile, not the 100th.
    let spots =
        values.iter().enumerate().map(|(rank, value)| ((rank as f64 + 0.5) / count, *value));
    let shown = spots.filter(|(share, _)| (0.5..=0.999).contains(share));
    series.points = shown.map(|(x, y)| chart::Point { x, y, interval: None }).collect();
    series
}

/// The chapter of an experiment nobody wrote a chapter for.
pub fn everything(digest: &Digest) -> Content {
    let mut metrics: Vec<&str> = digest.points.iter().map(|point| point.metric.as_str()).collect();
    metrics.dedup();
    let names: Vec<String> =
        digest.points.first().map(|p| p.params.keys().cloned().collect()).unwrap_or_default();
    let columns: Vec<(&str, &str, Unit)> =
        names.iter().map(|name| (name.as_str(), name.as_str(), Unit::Number)).collect();
    let blocks = metrics
        .iter()
        .map(|metric| medians(digest, metric, &columns, &format!("Medians of {metric}")))
        .collect();
    Content { blocks, headlines: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_distribution_stay_below_one() {
        let samples = (0..100).map(|round| (round, f64::from(100 - round))).collect();
        let point = Point {
            engine: "plain".into(),
            metric: "fork".into(),
            unit: Unit::Nanoseconds,
            params: Default::default(),
            samples,
        };
        let series = distribution(&point);
        let last = series.points.last().unwrap();
        assert_eq!((last.x, last.y), (0.995, 100.0));
        assert!(series.points[0].x >= 0.5 && series.points.windows(2).all(|w| w[0].y <= w[1].y));
    }

    #[test]
    fn published_series_take_the_colour_of_their_engine() {
        assert_eq!(counterpart("On-demand-fork"), Colour::of_engine("kernel"));
        assert_eq!(counterpart("fork with huge pages"), Colour::of_engine("hugetlb"));
        assert_eq!(counterpart("fork"), Colour::of_engine("plain"));
        assert_eq!(counterpart("3B2"), Colour::Text);
    }
}
