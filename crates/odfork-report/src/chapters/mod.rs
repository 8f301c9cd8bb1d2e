//! The chapters of a report, one per experiment: question, plots, tables, and what was published.
//!
//! Owns what all chapters share: state of the file, tables of medians, harness overhead, published
//! figures, notes. `plans` says what an experiment is; its plots are in its own file. A chapter
//! must work with one sample a point and with one configuration.

mod access;
mod exec;
mod grid;
mod grid_part;
mod grid_shapes;
mod latency;
mod paging;
mod parent;
mod plans;
mod programs;
mod promises;
mod redis;
mod series;
mod shares;
mod tables;

use serde_json::Value;

use crate::blocks::{Block, Chapter, Content};
use odfork_samples::digest::{Digest, Point};
use odfork_samples::samples::{Params, Recording};
use odfork_samples::unit::{digits, Unit};
use plans::Plan;
pub use plans::PLANS;
use tables::{medians, Column};

/// The experiment whose figures are judged, one by one.
const PROMISES: &str = "promises";

/// One chapter from one file. `suffix` keeps names apart when an experiment has several files.
pub fn chapter(recording: &Recording, suffix: &str) -> Chapter {
    let name = recording.experiment();
    let digest = Digest::of(recording);
    let plan = PLANS.iter().find(|plan| plan.name == name);
    let lead = plan.and_then(|plan| plan.lead(&digest)).map(Block::Lead);
    let mut blocks: Vec<Block> = lead.into_iter().chain(state(recording)).collect();
    blocks.extend(place(recording).map(Block::Text));
    let mut chapter = match plan {
        Some(plan) => known(plan, (recording, &digest), suffix, &mut blocks),
        None => unknown(recording, &digest, suffix, &mut blocks),
    };
    let note = |note: &String| Block::Text(format!("Note of the run: {note}"));
    blocks.extend(recording.notes.iter().map(note));
    let says = |(configuration, detail): &(String, String)| {
        Block::Text(format!("Configuration {configuration}: {}", in_words(detail)))
    };
    blocks.extend(recording.engines.iter().map(says));
    chapter.content.blocks = blocks;
    chapter
}

fn known(
    plan: &Plan,
    (recording, digest): (&Recording, &Digest),
    suffix: &str,
    blocks: &mut Vec<Block>,
) -> Chapter {
    let id = format!("{}{suffix}", plan.name);
    let mut content = match plan.name {
        PROMISES => promises::build(recording),
        _ => plan.build(digest, &id),
    };
    blocks.append(&mut content.blocks);
    let table = |(metric, caption): &(&str, &str)| {
        Block::Table(medians(digest, metric, &plan.columns, (caption, plan.ratios)))
    };
    blocks.extend(plan.tables.iter().map(table));
    blocks.extend(tables::published(plan.name));
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

/// Where a remark holds comes last, as the parameters of samples: {"bytes":1048576}.
fn in_words(detail: &str) -> String {
    let split = detail.rfind(" {").map(|at| detail.split_at(at));
    let Some((text, params)) =
        split.and_then(|(text, json)| Some((text, serde_json::from_str::<Params>(json).ok()?)))
    else {
        return detail.into();
    };
    let word = |(name, value): (&String, &Value)| match (name.as_str(), value.as_f64()) {
        ("bytes" | "value", Some(bytes)) => format!("{name} {}", Unit::Bytes.write(bytes)),
        (_, Some(number)) => format!("{name} {}", digits(number)),
        _ => format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    };
    let words: Vec<String> = params.iter().map(word).collect();
    format!("{text} ({})", words.join(", "))
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

/// On which kernel the configurations stand side by side: a folder may hold runs of a host and of
/// its guests.
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
        None => warn(format!(
            "Incomplete: {file} has no closing line. The run was killed or the \
             file is cut; what is there is shown."
        )),
        Some(end) => {
            if end.interrupted {
                warn(format!(
                    "Interrupted: the run was stopped early after {} samples; points may \
                     have few samples or be missing.",
                    end.samples
                ));
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

/// The null configuration does everything but the measured thing: its share of the smallest figure
/// bounds the error.
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
        "Harness overhead: the null configuration alone takes {}, {} of the smallest measured \
         figure ({}, {}).",
        unit.write(null),
        Unit::Share.write(null / value),
        smallest.configuration,
        unit.write(value),
    ))
}
