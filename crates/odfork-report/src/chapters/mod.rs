//! The chapters of a report, one per experiment: question, plots, tables, and what was published.
//!
//! Owns what all chapters share: state of the file, tables of medians, harness overhead, published figures, notes.
//! `plans` says what an experiment is; its plots are in its own file. A chapter must work with one sample a point and
//! with one configuration.

mod access;
mod exec;
mod grid;
mod grid_shapes;
mod latency;
mod paging;
mod parent;
mod plans;
mod series;
mod shares;

use serde_json::Value;

use crate::blocks::{interval, times, Block, Table};
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published;
use odfork_samples::samples::Recording;
use odfork_samples::unit::{convert, digits, trim, Unit};
pub use plans::PLANS;
use plans::{Column, Plan};
pub use series::grouped;

/// What a chapter's file makes.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub blocks: Vec<Block>,
    /// (what, our figure)
    pub headlines: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct Chapter {
    pub id: String,
    pub title: String,
    pub question: String,
    pub published: String,
    pub content: Content,
}

/// One chapter from one file. `suffix` keeps names apart when an experiment has several files.
pub fn chapter(recording: &Recording, suffix: &str) -> Chapter {
    let name = recording.experiment();
    let digest = Digest::of(recording);
    let mut blocks = state(recording);
    blocks.extend(place(recording).map(Block::Text));
    let mut chapter = match PLANS.iter().find(|plan| plan.name == name) {
        Some(plan) => known(plan, &digest, suffix, &mut blocks),
        None => unknown(recording, &digest, suffix, &mut blocks),
    };
    let note = |note: &String| Block::Text(format!("Note of the run: {note}"));
    blocks.extend(recording.notes.iter().map(note));
    let says = |(configuration, detail): &(String, String)| {
        Block::Text(format!("Configuration {configuration}: {detail}"))
    };
    blocks.extend(recording.engines.iter().map(says));
    chapter.content.blocks = blocks;
    chapter
}

fn known(plan: &Plan, digest: &Digest, suffix: &str, blocks: &mut Vec<Block>) -> Chapter {
    let id = format!("{}{suffix}", plan.name);
    let mut content = (plan.build)(digest, &id);
    blocks.append(&mut content.blocks);
    let table = |(metric, caption): &(&str, &str)| {
        Block::Table(medians(digest, metric, plan.columns, (caption, plan.ratios)))
    };
    blocks.extend(plan.tables.iter().map(table));
    blocks.extend(published_table(plan.name));
    blocks.push(Block::Text(format!("Why they may differ. {}", plan.differ)));
    blocks.extend(harness(digest, plan.metric).map(Block::Text));
    Chapter {
        id,
        title: plan.title.into(),
        question: plan.question.into(),
        published: plan.published.into(),
        content,
    }
}

/// The chapter of an experiment nobody wrote a chapter for.
fn unknown(
    recording: &Recording,
    digest: &Digest,
    suffix: &str,
    blocks: &mut Vec<Block>,
) -> Chapter {
    let mut metrics: Vec<&str> = digest.points.iter().map(|point| point.metric.as_str()).collect();
    metrics.dedup();
    let names = digest.points.first().into_iter().flat_map(|point| point.params.keys());
    let mut columns: Vec<Column> = vec![("configuration", "configuration", Unit::Number)];
    columns.extend(names.map(|name| (name.as_str(), name.as_str(), Unit::Number)));
    for metric in metrics {
        let caption = format!("Medians of {metric}");
        blocks.push(medians(digest, metric, &columns, (&caption, true)).into());
    }
    Chapter {
        id: format!("other{suffix}"),
        title: format!("Experiment {}", recording.experiment()),
        question: "An experiment this version has no chapter for: its numbers.".into(),
        published: String::new(),
        content: Content::default(),
    }
}

/// On which kernel the configurations stand side by side: a folder may hold runs of a host and of its guests.
fn place(recording: &Recording) -> Option<String> {
    let run = recording.run.as_ref()?;
    let word =
        |key| run.environment.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
    let on =
        [word("kernel").map(|release| format!("Linux {release}")), word("cpu").map(str::to_owned)];
    let on: Vec<String> = on.into_iter().flatten().collect();
    (!on.is_empty())
        .then(|| format!("Measured in one run on {}: {}.", on.join(", "), run.engines.join(", ")))
}

/// What the reader must know of the file before its numbers.
fn state(recording: &Recording) -> Vec<Block> {
    let file = recording
        .path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut blocks = Vec::new();
    let mut warn = |text: String| blocks.push(Block::Warning(text));
    match &recording.end {
        None => warn(format!("Incomplete: {file} has no closing line. The run was killed or the file is cut; what is there is shown.")),
        Some(end) => {
            if end.interrupted {
                warn(format!("Interrupted: the run was stopped early after {} samples; points may have few samples or be missing.", end.samples));
            }
            for wrong in &end.wrongs {
                warn(format!("Wrong: {wrong}"));
            }
        }
    }
    if let Some(damage) = &recording.damage {
        warn(format!("Damaged: {}", damage.rsplit('/').next().unwrap_or(damage)));
    }
    if recording.run.is_none() {
        warn("The line that describes the run is missing: machine and seed are unknown.".into());
    }
    if let Some(run) = recording.run.as_ref().filter(|run| run.effort == "quick") {
        warn(format!(
            "Made with effort {}: small sizes and few samples, good for a first look only.",
            run.effort
        ));
    }
    blocks
}

/// The null configuration does everything but the measured thing: its share of the smallest figure bounds the error.
fn harness(digest: &Digest, metric: &str) -> Option<String> {
    let measured = digest
        .of_metric(metric)
        .filter(|point| point.configuration != "null" && point.median() > 0.0);
    let smallest = measured.min_by(|a, b| a.median().total_cmp(&b.median()))?;
    let null = digest.twin(smallest, "null").map(Point::median).or_else(|| {
        let values: Vec<f64> = digest
            .of_metric(metric)
            .filter(|p| p.configuration == "null")
            .flat_map(Point::values)
            .collect();
        odfork_samples::stats::median(&values)
    })?;
    let (unit, value) = (smallest.unit, smallest.median());
    Some(format!(
        "Harness overhead: the null configuration alone takes {}, {} of the smallest measured figure ({}, {}).",
        unit.write(null),
        Unit::Share.write(null / value),
        smallest.configuration,
        unit.write(value),
    ))
}

/// Every published figure of an experiment, whether a plot has a place for it or not.
fn published_table(name: &str) -> Option<Block> {
    let points = published::points(name);
    let sized = matches!(name, "latency" | "fault" | "exec" | "copy-rate");
    let row = |point: &published::PublishedPoint| {
        let at = if point.x > 0.0 && sized { Unit::Bytes.write(point.x) } else { digits(point.x) };
        let value = written(point.y, point.unit);
        vec![point.what.into(), point.series.into(), at, value, point.source.into()]
    };
    let table = Table::new("Published figures", &["what", "series", "at", "value", "source"], 2);
    (!points.is_empty()).then(|| table.with(points.iter().map(row)).into())
}

fn written(value: f64, unit: &str) -> String {
    let known = [Unit::Nanoseconds, Unit::BytesPerSecond, Unit::Bytes, Unit::Share, Unit::Times];
    known
        .into_iter()
        .find_map(|known| Some(known.write(convert(value, unit, known)?)))
        .unwrap_or_else(|| format!("{} {unit}", digits(value)))
}

/// Medians of one metric: configuration and parameters, median, interval, samples, perhaps the ratio to plain.
fn medians(
    digest: &Digest,
    metric: &str,
    columns: &[Column],
    (caption, ratios): (&str, bool),
) -> Table {
    let mut head: Vec<&str> = columns.iter().map(|(_, heading, _)| *heading).collect();
    head.extend(["median", "95 % interval"]);
    head.extend(if ratios {
        &["samples", "plain / configuration (95 %)"][..]
    } else {
        &["rounds"]
    });
    let words = columns.iter().take_while(|(.., unit)| *unit == Unit::Number).count();
    let row = |point: &Point| {
        let estimate = point.estimate();
        let mut row: Vec<String> =
            columns.iter().map(|(name, _, unit)| parameter(point, name, *unit)).collect();
        row.push(point.unit.write(estimate.value));
        row.push(interval(&estimate, point.unit));
        row.push(estimate.count.to_string());
        if ratios {
            row.push(digest.gain(point).map_or_else(|| "–".into(), |gain| times(&gain)));
        }
        row
    };
    Table::new(caption, &head, words).with(digest.of_metric(metric).map(row))
}

fn parameter(point: &Point, name: &str, unit: Unit) -> String {
    if name == "configuration" {
        return point.configuration.clone();
    }
    let number = point.number(name);
    if number.is_finite() {
        trim(&unit.write(number))
    } else {
        point.word(name)
    }
}

/// Ratios to plain at the largest size, for the front page.
fn headlines(
    digest: &Digest,
    metric: &str,
    wanted: impl Fn(&Point) -> bool,
) -> Vec<(String, String)> {
    let fits = |point: &&Point| {
        wanted(point) && point.configuration != "plain" && point.configuration != "null"
    };
    let sizes = digest.of_metric(metric).filter(fits).map(|point| point.number("bytes"));
    let largest = sizes.fold(f64::NEG_INFINITY, f64::max);
    let at = |point: &&Point| point.number("bytes") == largest || !largest.is_finite();
    let line = |point: &Point| {
        let place = parameter(point, "bytes", Unit::Bytes);
        Some((format!("plain / {}, {place}", point.configuration), times(&digest.gain(point)?)))
    };
    digest.of_metric(metric).filter(fits).filter(at).filter_map(line).collect()
}
