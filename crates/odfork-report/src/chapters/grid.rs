//! The grid of 1988: time against size with regression lines, per configuration; slopes beside the
//! published ones.

use super::grid_part::{Part, FRACTIONS, HALF, METRIC};
use super::grid_shapes;
use super::tables::headlines;
use crate::axis::Axis;
use crate::blocks::{Block, Content, Figure, Table};
use crate::chart::{Chart, Join, Series, Style};
use crate::colour::Colour;
use crate::drawing::MARKS;
use crate::regression::{estimate_slope, Line};
use odfork_samples::digest::{distinct, Digest, Point};
use odfork_samples::published::{self, PublishedLine};
use odfork_samples::stats::Rng;
use odfork_samples::unit::{digits, trim, Unit};

pub fn build(digest: &Digest, id: &str) -> Content {
    let (mut blocks, mut lines) = (Vec::new(), Vec::new());
    let mut scales = digest.words(METRIC, "scale");
    if scales.is_empty() {
        scales.push(String::new());
    }
    for scale in scales {
        let forks = telling_forks(digest, &scale);
        let part = Part { digest, id: format!("{id}-{scale}"), forks, scale };
        blocks.push(Block::Figures(time_plots(&part)));
        if part.scale == "1988" {
            blocks.push(Block::Figures(vec![published_lines(&part.id), growth(&part)]));
        }
        blocks.push(slopes(&part).into());
        blocks.extend(grid_shapes::build(&part));
        let half_written = |point: &Point| {
            point.word("scale") == part.scale
                && point.number("forks") == part.forks
                && point.number("frac") == 0.5
        };
        let found = headlines(digest, METRIC, half_written).into_iter();
        let forks = digits(part.forks);
        lines.extend(
            found.map(|(what, ratio)| (format!("{what}, {forks} forks, half written"), ratio)),
        );
    }
    Content { blocks, headlines: lines }
}

/// The number of forks to draw: that of the most heaps, and of several the largest.
fn telling_forks(digest: &Digest, scale: &str) -> f64 {
    let in_scale = || digest.of_metric(METRIC).filter(|point| point.word("scale") == scale);
    let heaps = |forks: f64| {
        distinct(in_scale().filter(|point| point.number("forks") == forks), "bytes").len()
    };
    let choices = distinct(in_scale(), "forks").into_iter().map(|forks| (heaps(forks), forks));
    let best = choices.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    best.map_or(0.0, |(_, forks)| forks)
}

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        about: "Real time against the size of the heap, with regression lines.".into(),
        x: Axis::from_zero("size of the heap", Unit::Bytes),
        y: Axis::from_zero("real time", Unit::Seconds),
        series: series.into_iter().filter(|series| !series.points.is_empty()).collect(),
        size: HALF,
        ..Chart::default()
    }
}

fn time_plots(part: &Part) -> Vec<Figure> {
    let (configurations, fractions) = (part.configurations(), part.fractions());
    let forks = digits(part.forks);
    let of_configuration = |configuration: &String| {
        let line = |(place, frac): (usize, &f64)| {
            let series = Series::new(&format!("{frac} written"), Style::of_series(place));
            part.series(configuration, *frac, series)
        };
        Chart {
            name: format!("{}-time-{configuration}", part.id),
            title: format!("{configuration}: {forks} forks, {} grid", part.scale),
            caption: "As Figures 1 and 2: median, 95 % interval, raw samples, least-squares line \
                      per fraction written."
                .into(),
            ..chart(fractions.iter().enumerate().map(line).collect())
        }
    };
    let charts =
        configurations.iter().map(of_configuration).filter(|chart| !chart.series.is_empty());
    let mut figures: Vec<Figure> = charts.map(|chart| chart.figure()).collect();
    let Some(&middle) = fractions.get(fractions.len() / 2) else { return figures };
    let together = Chart {
        name: format!("{}-time-engines", part.id),
        title: format!("All configurations: {forks} forks, {middle} written"),
        caption: "The same, one line per configuration, at the middle fraction.".into(),
        ..chart(
            configurations
                .iter()
                .map(|configuration| part.of_configuration(configuration, middle))
                .collect(),
        )
    };
    if together.series.len() > 1 {
        figures.push(together.figure());
    }
    figures
}

fn line_of(published: &PublishedLine) -> Line {
    Line { slope: published.slope, intercept: published.intercept, explained: 1.0 }
}

/// A published line as a series, in enough steps that it has no marks.
fn published_series(label: &str, published: &PublishedLine) -> Series {
    let machine = usize::from(!published.series.to_lowercase().contains("3b2"));
    let style = Style { colour: Colour::Series(machine * 3), mark: MARKS[0] };
    let xs = (0..=64).map(|step| 316_228.0 * f64::from(step) / 64.0);
    let spots = xs.map(|x| (x, line_of(published).at(x)));
    Series::new(label, style).joined(Join::Dashed).through(spots)
}

/// The regression lines of Figures 1 and 2, on their own axes: seconds of 1988 have no place on
/// ours.
fn published_lines(id: &str) -> Figure {
    let lines = published::lines("grid");
    let series = lines.iter().enumerate().map(|(place, line)| {
        // One entry of the legend for the three lines of a machine.
        let again = lines[..place].iter().any(|other| other.series == line.series);
        let label = format!("{}: 0.1, 0.5, 0.9 written, upwards", line.series);
        published_series(if again { "" } else { &label }, line)
    });
    Chart {
        name: format!("{id}-published"),
        title: "Published lines, 1000 forks (1988)".into(),
        about: "The published regression lines of two machines of 1988 on axes of their \
                own."
            .into(),
        caption: "The six published lines on their own axes (time logarithmic, so that both \
                  machines fit): Smith and Maguire 1988, Figures 1 and 2."
            .into(),
        y: Axis::log("real time of 1000 forks", Unit::Seconds),
        ..chart(series.collect())
    }
    .figure()
}

/// Time relative to an empty heap: without a unit, so machines 38 years apart fit on one axis.
fn growth(part: &Part) -> Figure {
    let ours = |configuration: &String| {
        let drawn = part.of_configuration(configuration, FRACTIONS[2]);
        let line = drawn.line.filter(|line| line.intercept > 0.0)?;
        let drawn = drawn.joined(Join::Solid).over(line.intercept);
        Some(Series { raw: Vec::new(), line: None, ..drawn })
    };
    let mut series: Vec<Series> = part.configurations().iter().filter_map(ours).collect();
    let lines = published::lines("grid").iter().filter(|line| line.frac == FRACTIONS[2]);
    series.extend(lines.map(|line| {
        published_series(&format!("published: {}", line.series), line).over(line.intercept)
    }));
    Chart {
        name: format!("{}-growth", part.id),
        title: "Growth with the heap, 0.9 written".into(),
        about: "Growth of the time with the heap, relative to an empty heap, 0.9 written: our \
                configurations and the published lines."
            .into(),
        caption: "Each line divided by its own time at size 0: what is left is how much copying \
                  weighs against creating a process."
            .into(),
        y: Axis::log("time / time with an empty heap", Unit::Times),
        ..chart(series)
    }
    .figure()
}

/// Regression per configuration and fraction, the published lines below.
fn slopes(part: &Part) -> Table {
    let head = [
        "configuration",
        "written",
        "seconds per byte",
        "95 % interval",
        "intercept",
        "per fork",
        "explained",
        "page service",
    ];
    let mut rows = Vec::new();
    for configuration in part.configurations() {
        for frac in part.fractions() {
            let drawn = part.of_configuration(&configuration, frac);
            let Some(line) = drawn.line else { continue };
            let slope = estimate_slope(&drawn.spots(), &mut Rng::with_seed(1));
            let bounds =
                slope.and_then(|slope| slope.interval).map_or("–".into(), |(low, high)| {
                    format!("{} – {}", scientific(low), scientific(high))
                });
            rows.push(slope_row((&configuration, frac, part.forks), line, bounds));
        }
    }
    for line in published::lines("grid") {
        let name = format!("published: {}", line.series);
        rows.push(slope_row((&name, line.frac, 1000.0), line_of(line), "–".into()));
    }
    let (forks, scale) = (digits(part.forks), &part.scale);
    let caption = format!("Regression of time on heap size, {forks} forks, {scale} grid");
    Table::new(&caption, &head, 1).with(rows)
}

fn scientific(value: f64) -> String {
    format!("{value:.3e}").replace('-', "−")
}

fn slope_row((name, frac, forks): (&str, f64, f64), line: Line, bounds: String) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let service = || Unit::BytesPerSecond.write(forks * frac / line.slope);
    vec![
        name.into(),
        trim(&digits(frac)),
        scientific(line.slope),
        bounds,
        Unit::Seconds.write(line.intercept),
        Unit::Seconds.write(line.intercept / forks),
        or_dash((line.explained < 1.0).then(|| Unit::Share.write(line.explained))),
        or_dash((line.slope > 0.0).then(service)),
    ]
}
