//! The chapters of a report, one per experiment: question, plots, tables, and what was published.
//!
//! Owns the list of chapters and what all of them share: state of the file, notes, harness overhead, published figures.
//! Each chapter's own plots are in its file. A chapter must work with one sample a point and with one engine.

mod exec;
mod grid;
mod latency;
mod micro;
mod paging;
mod parent;
mod rates;
mod relief;
mod series;

use serde_json::Value;

use super::blocks::{interval, times, Block, Table};
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published;
use odfork_samples::samples::Recording;
use odfork_samples::unit::{convert, digits, trim, Unit};

/// What is known of an experiment before anything is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub name: &'static str,
    pub row: &'static str,
    pub title: &'static str,
    pub question: &'static str,
    /// The metric of the harness overhead and the headline.
    pub metric: &'static str,
    /// Why ours and theirs may differ.
    pub differ: &'static str,
    pub command: &'static str,
    /// What the front page says was published.
    pub published: &'static str,
    build: fn(&Digest, &str) -> Content,
}

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
    pub row: String,
    pub title: String,
    pub question: String,
    pub published: String,
    pub content: Content,
}

pub const PLANS: [Plan; 11] = [
    Plan {
        name: "grid",
        row: "M01, M03",
        title: "Forks whose child writes a part of the memory",
        question: "How does the time of many forks grow with the size of the heap and with the part of it that the child writes?",
        metric: "real",
        differ: "The 1988 machines had 2 and 8 MB of memory and pages of 2 and 4 KB; a process cost 12 to 31 ms. Slopes and intercepts differ by thousands; the straightness of the lines and the share of the intercept can be compared.",
        command: "odfork bench grid",
        published: "straight lines; 3B2: 31 ms a fork, HP9000: 12 ms a fork (Smith and Maguire 1988)",
        build: grid::build,
    },
    Plan {
        name: "latency",
        row: "M08",
        title: "Latency of the fork call",
        question: "How long does the caller of fork wait, by size of its memory, alone and with three processes forking at once?",
        metric: "fork",
        differ: "Theirs: 16-core AMD EPYC 7302P, Linux 5.6.19, bare metal. On a virtual machine, page-table work costs two to three times as much; ratios travel better than times.",
        command: "odfork bench latency",
        published: "on-demand-fork 65× faster at 1 GB, 270× at 50 GB (Zhao, Gong and Fonseca 2021)",
        build: latency::build,
    },
    Plan {
        name: "fault",
        row: "M08",
        title: "Worst-case write fault",
        question: "How long does the first write of a child take, in the middle of its memory?",
        metric: "fault",
        differ: "A fault copies one page: 4 KB, or 2 MB with huge pages. It follows the memory rate of the machine and the cost of an exception, which is higher on a virtual machine.",
        command: "odfork bench fault",
        published: "fork 2.3 µs, huge pages 198 µs, on-demand-fork 12.2 µs (Zhao, Gong and Fonseca 2021)",
        build: micro::build_fault,
    },
    Plan {
        name: "access",
        row: "M08",
        title: "Fork, then access",
        question: "Does the time saved in fork come back when the parent then reads or writes its memory?",
        metric: "total",
        differ: "Theirs accessed 50 GB in blocks of 32 MB on 16 cores. The relative change depends on how dear a fault is against copying memory, which differs by processor and by virtualisation.",
        command: "odfork bench access",
        published: "99 % less time when nothing is accessed, 4 to 8 % less when all is (Zhao, Gong and Fonseca 2021)",
        build: micro::build_access,
    },
    Plan {
        name: "profile",
        row: "M08",
        title: "Where fork spends its time",
        question: "Which parts of the kernel does a fork of a large process spend its time in?",
        metric: "share",
        differ: "Function names moved between Linux 5.6 and today: compound_head and page_ref_inc were inlined, folios came, and copying of entries is batched.",
        command: "odfork bench profile",
        published: "two hot spots in copying page-table entries: compound_head, page_ref_inc (Zhao, Gong and Fonseca 2021)",
        build: micro::build_profile,
    },
    Plan {
        name: "parent-writes",
        row: "M06",
        title: "The parent after fork",
        question: "How much slower are the parent's first writes after a fork whose child is already gone?",
        metric: "round",
        differ: "Theirs wrote 100,000 pages from Ruby, which adds some 60 ns a page to every round; a C loop shows the fault alone, so the ratio is larger here.",
        command: "odfork bench parent-writes",
        published: "10 times slower in the first round after fork; not after vfork, not with THP (Tanaka 2019)",
        build: parent::build,
    },
    Plan {
        name: "exec",
        row: "M15",
        title: "Create and exec",
        question: "What does starting a tiny program cost, by the memory its parent uses and by the way it is started?",
        metric: "each",
        differ: "Theirs: Core 2 Duo, 2.33 GHz, 32-bit Linux 2.6.28; seconds for a few thousand runs, the number not given. The slope over used memory and the ratio of fork to vfork can be compared.",
        command: "odfork bench exec",
        published: "20 MB used: fork+exec 21.6 s, vfork+exec 1.53 s, 14 times (Zahariev 2009)",
        build: exec::build,
    },
    Plan {
        name: "copy-rate",
        row: "M02",
        title: "Rate of copying and rate of page service",
        question: "How near does copying pages by faults come to copying memory at all?",
        metric: "copy",
        differ: "In 1988 copying 2 KB took milliseconds and hid the exception around it. Memory has become faster than exceptions have, so today's ratio is lower.",
        command: "odfork bench copy-rate",
        published: "service / copy: 0.823 (3B2), 0.804 (HP9000) (Smith and Maguire 1988)",
        build: rates::build_copy,
    },
    Plan {
        name: "writes",
        row: "M04",
        title: "What programs write",
        question: "What share of a program's pages, and of its bytes, does a phase of its work change?",
        metric: "pages",
        differ: "Pages were 512 bytes on the VAX and are 4,096 here: one changed byte now marks eight times as much, so shares of pages rise; shares of bytes do not depend on it.",
        command: "odfork writes --json",
        published: "0.23, 0.35, 0.30, 0.48: less than half (Smith and Maguire 1988)",
        build: rates::build_writes,
    },
    Plan {
        name: "paging",
        row: "M18, M20",
        title: "Memory larger than what may be resident",
        question: "How fast is memory of which a quarter may be resident, paged by the kernel, by odfork's pager, by umap?",
        metric: "rate",
        differ: "A page-in took 25 to 30 ms and a reclaim 250 µs on the VAX, 120 to 1; with a disk of today it is about 9 to 1, with a store in memory 2 to 1. In a virtual machine whose processors sleep, waking a thread on the other processor costs more than a page-in from memory.",
        command: "odfork bench paging",
        published: "a reclaim 250 µs, at most 10 % of a processor; pages of 1 KB instead of 512 B: 30 % less time (Babaoglu and Joy 1981)",
        build: paging::build_paging,
    },
    Plan {
        name: "sessions",
        row: "M24",
        title: "Sessions at rising load",
        question: "How do throughput and the response of a trivial command fall with more sessions than fit into memory?",
        metric: "throughput",
        differ: "The sessions are programs of our own in the roles of the published ones, memory is scaled to hold one session and a third, and there are two processors.",
        command: "odfork bench sessions",
        published: "paging degrades more linearly than swapping, the trivial command stays quick (Babaoglu and Joy 1981, figures 2 and 3)",
        build: paging::build_sessions,
    },
];

/// One chapter from one file. `suffix` keeps names apart when an experiment has several files.
pub fn make(recording: &Recording, suffix: &str) -> Chapter {
    let name = recording.experiment();
    let plan = PLANS.iter().find(|plan| plan.name == name);
    let digest = Digest::of(recording);
    let id = format!("{}{suffix}", plan.map_or("other", |plan| plan.name));
    let mut content =
        plan.map_or_else(|| series::everything(&digest), |plan| (plan.build)(&digest, &id));
    let mut blocks = state(recording);
    blocks.extend(place(recording).map(Block::Text));
    blocks.append(&mut content.blocks);
    blocks.extend(published_table(name));
    if let Some(plan) = plan {
        blocks.push(Block::Text(format!("Why they may differ. {}", plan.differ)));
        blocks.extend(harness(&digest, plan.metric).map(Block::Text));
    }
    blocks
        .extend(recording.notes.iter().map(|note| Block::Text(format!("Note of the run: {note}"))));
    let says =
        |(engine, detail): &(String, String)| Block::Text(format!("Engine {engine}: {detail}"));
    blocks.extend(recording.engines.iter().map(says));
    content.blocks = blocks;
    let text = |part: fn(&Plan) -> &'static str| plan.map(|plan| part(plan).to_string());
    Chapter {
        id,
        row: text(|plan| plan.row)
            .unwrap_or_else(|| recording.run.as_ref().map_or("–".into(), |run| run.row.clone())),
        title: text(|plan| plan.title).unwrap_or_else(|| format!("Experiment {name}")),
        question: text(|plan| plan.question).unwrap_or_else(|| {
            "An experiment this version has no chapter for: its numbers.".into()
        }),
        published: text(|plan| plan.published).unwrap_or_default(),
        content,
    }
}

/// On which kernel the engines stand side by side: a folder may hold runs of a host and of its guests.
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

/// The null engine does everything but the measured thing: its share of the smallest figure bounds the error.
fn harness(digest: &Digest, metric: &str) -> Option<String> {
    let measured =
        digest.of_metric(metric).filter(|point| point.engine != "null" && point.median() > 0.0);
    let smallest = measured.min_by(|a, b| a.median().total_cmp(&b.median()))?;
    let null = digest.twin(smallest, "null").map(Point::median).or_else(|| {
        let values: Vec<f64> = digest
            .of_metric(metric)
            .filter(|p| p.engine == "null")
            .flat_map(Point::values)
            .collect();
        odfork_samples::stats::median(&values)
    })?;
    let (unit, value) = (smallest.unit, smallest.median());
    Some(format!(
        "Harness overhead: the null engine alone takes {}, {} of the smallest measured figure ({}, {}).",
        unit.write(null),
        Unit::Share.write(null / value),
        smallest.engine,
        unit.write(value),
    ))
}

/// Every published figure of an experiment, whether a plot has a place for it or not.
fn published_table(name: &str) -> Option<Block> {
    let mut table =
        Table::new("Published figures", &["what", "series", "at", "value", "source"], 2);
    for point in published::points(name) {
        let at = if point.x > 0.0 && matches!(name, "latency" | "fault" | "exec" | "copy-rate") {
            Unit::Bytes.write(point.x)
        } else {
            digits(point.x)
        };
        table.rows.push(vec![
            point.what.into(),
            point.series.into(),
            at,
            written(point.y, point.unit),
            point.source.into(),
        ]);
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

fn written(value: f64, unit: &str) -> String {
    let known = [Unit::Nanoseconds, Unit::BytesPerSecond, Unit::Bytes, Unit::Share, Unit::Times];
    known
        .into_iter()
        .find_map(|known| Some(known.write(convert(value, unit, known)?)))
        .unwrap_or_else(|| format!("{} {unit}", digits(value)))
}

/// Medians of one metric: engine, parameters, median, interval, samples, ratio to plain.
fn medians(digest: &Digest, metric: &str, columns: &[(&str, &str, Unit)], caption: &str) -> Block {
    let mut head: Vec<&str> = vec!["engine"];
    head.extend(columns.iter().map(|(_, heading, _)| *heading));
    head.extend(["median", "95 % interval", "samples", "plain / engine (95 %)"]);
    let mut table = Table::new(caption, &head, 1);
    for point in digest.of_metric(metric) {
        let estimate = point.estimate();
        let mut row = vec![point.engine.clone()];
        row.extend(columns.iter().map(|(name, _, unit)| parameter(point, name, *unit)));
        row.push(point.unit.write(estimate.value));
        row.push(interval(&estimate, point.unit));
        row.push(estimate.count.to_string());
        row.push(digest.gain(point).map_or_else(|| "–".into(), |gain| times(&gain)));
        table.rows.push(row);
    }
    Block::Table(table)
}

fn parameter(point: &Point, name: &str, unit: Unit) -> String {
    let number = point.number(name);
    if number.is_finite() {
        trim(&unit.write(number))
    } else {
        point.word(name)
    }
}

/// Ratios to plain at the largest value of a parameter, for the front page.
fn headlines(
    digest: &Digest,
    metric: &str,
    (name, unit): (&str, Unit),
    wanted: impl Fn(&Point) -> bool,
) -> Vec<(String, String)> {
    let fits = |point: &&Point| wanted(point) && point.engine != "plain" && point.engine != "null";
    let largest = digest
        .of_metric(metric)
        .filter(fits)
        .map(|p| p.number(name))
        .fold(f64::NEG_INFINITY, f64::max);
    let at = |point: &&Point| point.number(name) == largest || !largest.is_finite();
    let line = |point: &Point| {
        let gain = digest.gain(point)?;
        let place = parameter(point, name, unit);
        Some((format!("plain / {}, {place}", point.engine), times(&gain)))
    };
    digest.of_metric(metric).filter(fits).filter(at).filter_map(line).collect()
}
