//! From points to series of a plot: configurations over one parameter, published figures,
//! percentiles.
//!
//! Owns which configuration a published figure corresponds to: it has its colour, and a hollow
//! mark.

use crate::axis::{Axis, Kind};
use crate::bars::Row;
use crate::blocks::Block;
use crate::chart::{grouped, Chart, Join, Series, Style};
use crate::colour::Colour;
use crate::drawing::MARKS;
use odfork_samples::configurations::CONFIGURATIONS;
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published::{self, PublishedPoint};
use odfork_samples::unit::{convert, Unit};

/// Each configuration's medians over a parameter, with raw samples behind; the harness alone comes
/// last.
pub fn over(
    digest: &Digest,
    metric: &str,
    x: impl Fn(&Point) -> f64,
    wanted: impl Fn(&Point) -> bool,
) -> Vec<Series> {
    let mut all = digest.configurations(metric);
    if digest.of_metric(metric).any(|point| point.configuration == "null") {
        all.push("null".into());
    }
    let line = |name: String| {
        let points =
            digest.of_metric(metric).filter(|point| point.configuration == name && wanted(point));
        Series::of_configuration(&name).measured(points, &x)
    };
    all.into_iter().map(line).collect()
}

/// The configuration of ours that a published series corresponds to.
fn counterpart(series: &str) -> Colour {
    let words = series.to_lowercase();
    let known = [
        ("huge", "hugetlb"),
        ("thp", "thp"),
        ("demand", "kernel"),
        ("odf", "kernel"),
        ("fork", "plain"),
    ];
    let found = known.iter().find(|(word, _)| words.contains(word));
    found.map_or(Colour::Text, |(_, name)| Colour::of_configuration(name))
}

/// Published figures that fit the axis, one hollow series per published series.
pub fn published(name: &str, unit: Unit, wanted: impl Fn(&PublishedPoint) -> bool) -> Vec<Series> {
    let all = published::points(name);
    let fitting = all.iter().filter(|point| wanted(point)).filter_map(|point| {
        Some((point.series.to_owned(), (point.x, convert(point.y, point.unit, unit)?)))
    });
    let series = grouped(fitting).into_iter().enumerate().map(|(place, (name, spots))| {
        let style = Style { colour: counterpart(&name), mark: MARKS[place % 5] };
        let series = Series::new(&format!("published: {name}"), style).through(spots);
        series.joined(Join::Dashed).published()
    });
    series.collect()
}

/// Published figures as hollow rows.
pub fn published_rows(name: &str, unit: Unit) -> Vec<Row> {
    let all = published(name, unit, |_| true);
    let row = |series: &Series, y| Row {
        hollow: true,
        ..Row::new(series.label.clone(), y, series.style)
    };
    all.iter().flat_map(|series| series.points.iter().map(|point| row(series, point.y))).collect()
}

/// Samples below which a percentile plot would show single outliers as a shape.
const FOR_PERCENTILES: usize = 50;

/// The distribution of one metric, every configuration, at the largest parameters that have samples
/// enough.
pub fn percentiles(digest: &Digest, metric: &str, id: &str) -> Option<Block> {
    let rich = |point: &&Point| point.samples.len() >= FOR_PERCENTILES;
    let largest = digest.of_metric(metric).filter(rich).max_by(|a, b| {
        let fewest = |point: &Point| -point.number("processes").max(1.0);
        let by_size = a.number("bytes").total_cmp(&b.number("bytes"));
        by_size.then(fewest(a).total_cmp(&fewest(b)))
    })?;
    let points = CONFIGURATIONS.iter().filter_map(|name| digest.twin(largest, name));
    let place = largest.params.keys().map(|name| match name.as_str() {
        "bytes" => format!("bytes {}", Unit::Bytes.write(largest.number(name))),
        _ => format!("{name} {}", largest.word(name)),
    });
    let place = place.collect::<Vec<_>>().join(", ");
    let chart = Chart {
        name: format!("{id}-percentiles"),
        title: format!("Percentiles of {metric} ({place})"),
        about:
            "One line per configuration: the value that the given share of samples stays below, \
             from the median to the slowest."
                .into(),
        caption:
            "From the median to the slow end; the axis gives each factor of ten of rarity the \
             same room. A line ends where its samples end: 100 samples say nothing about 99.9 \
             %."
            .into(),
        x: Axis::new("percentile of samples", Kind::Percentile, Unit::Share),
        y: Axis::log(metric, largest.unit),
        series: points.filter(rich).map(distribution).collect(),
        ..Chart::default()
    };
    Some(chart.figure().into())
}

fn distribution(point: &Point) -> Series {
    let mut values = point.values();
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len() as f64;
    // Rank r of n stands for the share (r - 1/2) / n: the largest of 50 is the 99th percentile, not
    // the 100th.
    let spots =
        values.iter().enumerate().map(|(rank, value)| ((rank as f64 + 0.5) / count, *value));
    let shown = spots.filter(|(share, _)| (0.5..=0.999).contains(share));
    Series::of_configuration(&point.configuration).through(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_distribution_stay_below_one() {
        let samples = (0..100).map(|round| (round, f64::from(100 - round))).collect();
        let point = Point {
            configuration: "plain".into(),
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
    fn published_series_take_the_colour_of_their_configuration() {
        assert_eq!(counterpart("On-demand-fork"), Colour::of_configuration("kernel"));
        assert_eq!(counterpart("fork with huge pages"), Colour::of_configuration("hugetlb"));
        assert_eq!(counterpart("fork"), Colour::of_configuration("plain"));
        assert_eq!(counterpart("3B2"), Colour::Text);
    }
}
