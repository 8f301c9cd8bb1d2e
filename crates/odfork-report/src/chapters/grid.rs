//! The grid of 1988: time against size with regression lines, per engine; slopes beside the published ones.

use super::{headlines, medians, relief, Content};
use crate::blocks::{Block, Figure, Table};
use crate::chart::{self, Axis, Chart, Join, Series};
use crate::colour::Colour;
use crate::regression::{estimate_slope, fit, Line};
use crate::scale::Kind;
use crate::scene::MARKS;
use odfork_samples::configurations::CONFIGURATIONS;
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published;
use odfork_samples::stats::Rng;
use odfork_samples::unit::{digits, trim, Unit};

pub const METRIC: &str = "real";
/// The fractions of Figures 1 and 2.
const FRACTIONS: [f64; 3] = [0.1, 0.5, 0.9];
/// Two plots beside each other.
pub const HALF: (f64, f64) = (560.0, 400.0);

/// One scale of the grid: "1988" or "modern".
pub struct Part<'a> {
    pub digest: &'a Digest,
    pub scale: String,
    pub forks: f64,
    pub id: String,
}

impl Part<'_> {
    pub fn points<'b>(&'b self, engine: &'b str, forks: f64) -> impl Iterator<Item = &'b Point> {
        self.digest.of_metric(METRIC).filter(move |point| {
            point.engine == engine
                && point.word("scale") == self.scale
                && point.number("forks") == forks
        })
    }
}

pub fn build(digest: &Digest, id: &str) -> Content {
    let mut blocks = Vec::new();
    let mut scales = digest.words(METRIC, "scale");
    if scales.is_empty() {
        scales.push(String::new());
    }
    let mut lines = Vec::new();
    for scale in scales {
        let forks = telling_forks(digest, &scale);
        let part = Part { digest, id: format!("{id}-{scale}"), forks, scale };
        blocks.push(Block::Figures(time_plots(&part)));
        if part.scale == "1988" {
            blocks.push(Block::Figures(vec![published_lines(&part.id), growth(&part)]));
        }
        blocks.push(slopes(&part));
        blocks.extend(relief::build(&part));
        let wanted = |point: &Point| {
            point.word("scale") == part.scale
                && point.number("forks") == part.forks
                && point.number("frac") == 0.5
        };
        for (what, value) in headlines(digest, METRIC, ("bytes", Unit::Bytes), wanted) {
            lines.push((format!("{what}, {} forks, half written", digits(forks)), value));
        }
    }
    let columns = [
        ("scale", "scale", Unit::Number),
        ("forks", "forks", Unit::Count),
        ("bytes", "heap", Unit::Bytes),
        ("frac", "written", Unit::Share),
    ];
    for (metric, caption) in
        [(METRIC, "Real time of every point"), ("user", "User time"), ("sys", "System time")]
    {
        blocks.push(medians(digest, metric, &columns, caption));
    }
    Content { blocks, headlines: lines }
}

/// The number of forks to draw: that of the most heaps, and of several the largest.
fn telling_forks(digest: &Digest, scale: &str) -> f64 {
    let in_scale = || digest.of_metric(METRIC).filter(|point| point.word("scale") == scale);
    let mut choices: Vec<(usize, f64)> = Vec::new();
    for forks in in_scale().map(|point| point.number("forks")) {
        let mut heaps: Vec<u64> = in_scale()
            .filter(|point| point.number("forks") == forks)
            .map(|point| point.number("bytes") as u64)
            .collect();
        heaps.sort_unstable();
        heaps.dedup();
        choices.push((heaps.len(), forks));
    }
    let best = choices.into_iter().max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    best.map_or(0.0, |(_, forks)| forks)
}

/// The fractions to draw: the paper's where they were measured, else lowest, middle and highest.
fn fractions(part: &Part) -> Vec<f64> {
    let mut all: Vec<f64> = part
        .digest
        .engines(METRIC)
        .iter()
        .flat_map(|e| part.points(e, part.forks).map(|p| p.number("frac")).collect::<Vec<_>>())
        .collect();
    all.retain(|frac| frac.is_finite());
    all.sort_unstable_by(f64::total_cmp);
    all.dedup();
    let known: Vec<f64> = FRACTIONS.into_iter().filter(|frac| all.contains(frac)).collect();
    if !known.is_empty() || all.is_empty() {
        return known;
    }
    let mut some = vec![all[0], all[all.len() / 2], all[all.len() - 1]];
    some.dedup();
    some
}

/// Points and raw samples of one engine and fraction, with their regression line.
fn series(
    part: &Part,
    engine: &str,
    (label, colour, place): (&str, Colour, usize),
    frac: f64,
) -> Series {
    let mut series = Series::new(label, colour, MARKS[place % MARKS.len()]);
    for point in part.points(engine, part.forks).filter(|point| point.number("frac") == frac) {
        super::series::add(&mut series, point, point.number("bytes"));
    }
    series.line = fit(&medians_of(&series));
    series
}

fn medians_of(series: &Series) -> Vec<(f64, f64)> {
    series.points.iter().map(|point| (point.x, point.y)).collect()
}

fn time_plots(part: &Part) -> Vec<Figure> {
    let axes = || {
        (
            Axis::from_zero("size of the heap", Unit::Bytes),
            Axis::from_zero("real time", Unit::Seconds),
        )
    };
    let forks = digits(part.forks);
    let about = "Real time against the size of the heap, with regression lines.";
    let mut figures = Vec::new();
    for engine in part.digest.engines(METRIC) {
        let lines: Vec<Series> = fractions(part)
            .iter()
            .enumerate()
            .map(|(place, frac)| {
                series(
                    part,
                    &engine,
                    (&format!("{frac} written"), Colour::Series(place), place),
                    *frac,
                )
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        if lines.is_empty() {
            continue;
        }
        let mut chart = Chart::new(
            &format!("{engine}: {forks} forks, {} grid", part.scale),
            about,
            axes(),
            lines,
        );
        chart.size = HALF;
        let caption = "As Figures 1 and 2: median, 95 % interval, raw samples, least-squares line per fraction written.";
        figures.push(Figure::of_chart(&format!("{}-time-{engine}", part.id), caption, &chart));
    }
    let Some(&middle) = fractions(part).get(fractions(part).len() / 2) else { return figures };
    let line = |engine: &String| {
        let place = CONFIGURATIONS.iter().position(|known| known == engine).unwrap_or(0);
        series(part, engine, (engine, Colour::of_engine(engine), place), middle)
    };
    let all: Vec<Series> = part
        .digest
        .engines(METRIC)
        .iter()
        .map(line)
        .filter(|series| !series.points.is_empty())
        .collect();
    if all.len() > 1 {
        let mut chart = Chart::new(
            &format!("All engines: {forks} forks, {middle} written"),
            about,
            axes(),
            all,
        );
        chart.size = HALF;
        let caption = "The same, one line per engine, at the middle fraction.";
        figures.push(Figure::of_chart(&format!("{}-time-engines", part.id), caption, &chart));
    }
    figures
}

/// The regression lines of Figures 1 and 2, on their own axes: seconds of 1988 have no place on ours.
fn published_lines(id: &str) -> Figure {
    let lines = published::lines("grid");
    let series = lines.iter().enumerate().map(|(place, line)| {
        let drawn = Line { slope: line.slope, intercept: line.intercept, explained: 1.0 };
        let mut series = published_series(line);
        series.points = samples_of(drawn, 316_228.0);
        // One entry of the legend for the three lines of a machine.
        let again = lines[..place].iter().any(|other| other.series == line.series);
        series.label = if again {
            String::new()
        } else {
            format!("{}: 0.1, 0.5, 0.9 written, upwards", line.series)
        };
        series
    });
    let axes = (
        Axis::from_zero("size of the heap", Unit::Bytes),
        Axis::new("real time of 1000 forks", Kind::Log, Unit::Seconds),
    );
    let about = "The published regression lines of two machines of 1988 on axes of their own.";
    let mut chart = Chart::new("Published lines, 1000 forks (1988)", about, axes, series.collect());
    chart.size = HALF;
    let caption = "The six published lines on their own axes (time logarithmic, so that both machines fit): Smith and Maguire 1988, Figures 1 and 2.";
    Figure::of_chart(&format!("{id}-published"), caption, &chart)
}

fn published_series(line: &published::PublishedLine) -> Series {
    let machine = usize::from(!line.series.to_lowercase().contains("3b2"));
    let mut series = Series::new(
        &format!("{}, {}", line.series, line.frac),
        Colour::Series(machine * 3),
        MARKS[0],
    );
    series.join = Join::Dashed;
    series
}

/// Enough points that the plot draws a line without marks.
fn samples_of(line: Line, far: f64) -> Vec<chart::Point> {
    (0..=64)
        .map(|step| far * f64::from(step) / 64.0)
        .map(|x| chart::Point { x, y: line.at(x), interval: None })
        .collect()
}

/// Time relative to an empty heap: without a unit, so machines 38 years apart fit on one axis.
fn growth(part: &Part) -> Figure {
    let mut all = Vec::new();
    for (place, engine) in part.digest.engines(METRIC).iter().enumerate() {
        let drawn = series(part, engine, (engine, Colour::of_engine(engine), place), FRACTIONS[2]);
        let Some(line) = drawn.line.filter(|line| line.intercept > 0.0) else { continue };
        let scaled = |point: &chart::Point| chart::Point {
            x: point.x,
            y: point.y / line.intercept,
            interval: point
                .interval
                .map(|(low, high)| (low / line.intercept, high / line.intercept)),
        };
        let points = drawn.points.iter().map(scaled).collect();
        all.push(Series { points, raw: Vec::new(), line: None, join: Join::Solid, ..drawn });
    }
    for line in published::lines("grid").iter().filter(|line| line.frac == FRACTIONS[2]) {
        let mut series = published_series(line);
        series.label = format!("published: {}", line.series);
        series.points = samples_of(
            Line { slope: line.slope / line.intercept, intercept: 1.0, explained: 1.0 },
            316_228.0,
        );
        all.push(series);
    }
    let axes = (
        Axis::from_zero("size of the heap", Unit::Bytes),
        Axis::new("time / time with an empty heap", Kind::Log, Unit::Times),
    );
    let about = "Growth of the time with the heap, relative to an empty heap, 0.9 written: our engines and the published lines.";
    let mut chart = Chart::new("Growth with the heap, 0.9 written", about, axes, all);
    chart.size = HALF;
    let caption = "Each line divided by its own time at size 0: what is left is how much copying weighs against creating a process.";
    Figure::of_chart(&format!("{}-growth", part.id), caption, &chart)
}

/// Regression per engine and fraction, the published lines below.
fn slopes(part: &Part) -> Block {
    let head = [
        "engine",
        "written",
        "seconds per byte",
        "95 % interval",
        "intercept",
        "per fork",
        "explained",
        "page service",
    ];
    let mut table = Table::new(
        &format!(
            "Regression of time on heap size, {} forks, {} grid",
            digits(part.forks),
            part.scale
        ),
        &head,
        1,
    );
    let scientific = |value: f64| format!("{value:.3e}").replace('-', "−");
    let mut row = |name: String, frac: f64, (line, bounds): (Line, String), forks: f64| {
        let service = if line.slope > 0.0 {
            Unit::BytesPerSecond.write(forks * frac / line.slope)
        } else {
            "–".into()
        };
        table.rows.push(vec![
            name,
            trim(&digits(frac)),
            scientific(line.slope),
            bounds,
            Unit::Seconds.write(line.intercept),
            Unit::Seconds.write(line.intercept / forks),
            if line.explained < 1.0 { Unit::Share.write(line.explained) } else { "–".into() },
            service,
        ]);
    };
    for engine in part.digest.engines(METRIC) {
        for frac in fractions(part) {
            let drawn = series(part, &engine, ("", Colour::Text, 0), frac);
            let Some(line) = drawn.line else { continue };
            let slope = estimate_slope(&medians_of(&drawn), &mut Rng::with_seed(1))
                .and_then(|slope| slope.interval);
            let bounds = slope.map_or("–".into(), |(low, high)| {
                format!("{} – {}", scientific(low), scientific(high))
            });
            row(engine.clone(), frac, (line, bounds), part.forks);
        }
    }
    for line in published::lines("grid") {
        let drawn = Line { slope: line.slope, intercept: line.intercept, explained: 1.0 };
        row(format!("published: {}", line.series), line.frac, (drawn, "–".into()), 1000.0);
    }
    Block::Table(table)
}
