//! Memory larger than what may be resident: accesses a second by act and backend, latencies, the promised figures; and
//! sessions at rising load.

use super::series::add;
use super::Content;
use crate::bars::{Bars, Row};
use crate::blocks::{interval, Block, Figure, Table};
use crate::chart::{Axis, Chart, Join, Series};
use crate::colour::Colour;
use crate::scale::Kind;
use crate::scene::MARKS;
use odfork_samples::configurations;
use odfork_samples::digest::{Digest, Point};
use odfork_samples::samples::Sample;
use odfork_samples::targets::TARGETS;
use odfork_samples::unit::{digits, Unit};

/// Acts that have a plot of rates: word, title.
const ACTS: [(&str, &str); 6] = [
    ("seq-read", "Sequential read"),
    ("seq-write", "Sequential read and write"),
    ("zipf", "Reads by Zipf's law, 0.9"),
    ("phase", "Phase change: a working set of 0.6 of the limit that moves 8 times"),
    ("threads-1", "Random reads, 1 thread"),
    ("threads-8", "Random reads, 8 threads"),
];

pub fn build_paging(digest: &Digest, id: &str) -> Content {
    let figures: Vec<Figure> = ACTS.iter().filter_map(|act| rates(digest, id, *act)).collect();
    let mut blocks: Vec<Block> =
        figures.into_iter().map(|figure| Block::Figures(vec![figure])).collect();
    let (targets, headlines) = judged(digest);
    blocks.insert(0, Block::Table(targets));
    for (metric, caption) in [
        ("p50", "Median latency of an access, its check included"),
        ("p99", "99th percentile of the latency of an access"),
        ("major", "Page-ins on demand for each access"),
        ("reclaims", "Reclaims for each access"),
        ("reclaim", "A reclaim, as the faulting thread sees it"),
        ("simulation-cpu", "Processor time of reference simulation, at most"),
        ("memory", "Most memory of the backend's processes, page cache included"),
    ] {
        blocks.push(Block::Table(by_act(digest, metric, caption)));
    }
    Content { blocks, headlines }
}

fn place(engine: &str) -> usize {
    configurations::BACKENDS
        .iter()
        .position(|word| *word == engine)
        .unwrap_or(configurations::BACKENDS.len())
}

fn ordered<'a>(digest: &'a Digest, metric: &'a str) -> Vec<&'a Point> {
    let mut points: Vec<&Point> = digest.of_metric(metric).collect();
    points.sort_by_key(|point| (point.word("act"), place(&point.engine)));
    points
}

fn rates(digest: &Digest, id: &str, (act, title): (&str, &str)) -> Option<Figure> {
    let row = |point: &&Point| {
        let (estimate, at) = (point.estimate(), place(&point.engine));
        Row {
            label: point.engine.clone(),
            value: estimate.value,
            interval: estimate.interval,
            raw: point.values(),
            colour: Colour::Series(at),
            mark: MARKS[at % MARKS.len()],
            hollow: false,
        }
    };
    let points = ordered(digest, "rate");
    let rows: Vec<Row> = points.iter().filter(|point| point.word("act") == act).map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let bars = Bars {
        title: title.into(),
        about: "Accesses to pages of 4 KB in a second, one row for each backend; every page read is compared with what was written.".into(),
        label: "accesses a second".into(),
        kind: Kind::Log,
        unit: Unit::PerSecond,
        rows,
    };
    let caption = "Median and 95 % interval over rounds; faint dots are single rounds. To the right is faster.";
    Some(Figure::new(&format!("{id}-{act}"), caption, bars.scene()))
}

fn by_act(digest: &Digest, metric: &str, caption: &str) -> Table {
    let mut table =
        Table::new(caption, &["act", "backend", "median", "95 % interval", "rounds"], 2);
    for point in ordered(digest, metric) {
        let estimate = point.estimate();
        table.rows.push(vec![
            point.word("act"),
            point.engine.clone(),
            point.unit.write(estimate.value),
            interval(&estimate, point.unit),
            estimate.count.to_string(),
        ]);
    }
    table
}

/// The table of targets, and the ratios to the kernel's swap file for the front page.
fn judged(digest: &Digest) -> (Table, Vec<(String, String)>) {
    let samples = samples_of(digest);
    let head = ["", "figure", "goal", "value", "95 % interval", "verdict"];
    let mut table = Table::new("Promised figures, from samples of the same rounds", &head, 2);
    let mut headlines = Vec::new();
    for target in TARGETS {
        let (estimate, verdict) = target.judge(&samples);
        let value = estimate.map_or_else(|| "–".into(), |estimate| digits(estimate.value));
        if target.what.ends_with("pager / swap file") && estimate.is_some() {
            headlines.push((target.what.to_string(), format!("{value}×")));
        }
        table.rows.push(vec![
            target.name.into(),
            target.what.into(),
            target.goal_words(),
            value,
            estimate.map_or_else(|| "–".into(), |estimate| interval(&estimate, Unit::Number)),
            verdict.word().into(),
        ]);
    }
    (table, headlines)
}

fn samples_of(digest: &Digest) -> Vec<Sample> {
    let of_point = |point: &Point| {
        let point = point.clone();
        point.samples.clone().into_iter().map(move |(round, value)| Sample {
            experiment: String::new(),
            engine: point.engine.clone(),
            metric: point.metric.clone(),
            unit: String::new(),
            value,
            params: point.params.clone(),
            round,
            at_s: 0.0,
        })
    };
    digest.points.iter().flat_map(of_point).collect()
}

pub fn build_sessions(digest: &Digest, id: &str) -> Content {
    let mut blocks = Vec::new();
    for (metric, title, label, kind, unit) in [
        (
            "throughput",
            "Throughput against the number of sessions",
            "scripts a second",
            Kind::Linear,
            Unit::PerSecond,
        ),
        (
            "completion",
            "Mean time of a script against the number of sessions",
            "time of a script",
            Kind::Linear,
            Unit::Seconds,
        ),
        (
            "response-p99",
            "The trivial command, 99th percentile, against the number of sessions",
            "response",
            Kind::Log,
            Unit::Nanoseconds,
        ),
        (
            "response-p50",
            "The trivial command, median, against the number of sessions",
            "response",
            Kind::Log,
            Unit::Nanoseconds,
        ),
    ] {
        let series: Vec<Series> = configurations::SESSION_WAYS
            .iter()
            .enumerate()
            .map(|(at, engine)| {
                let mut series = Series::new(engine, Colour::Series(at), MARKS[at]);
                series.join = Join::Solid;
                for point in digest.of_metric(metric).filter(|point| point.engine == *engine) {
                    add(&mut series, point, point.number("sessions"));
                }
                series
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        if series.is_empty() {
            continue;
        }
        let vertical = match kind {
            Kind::Linear => Axis::from_zero(label, unit),
            _ => Axis::new(label, kind, unit),
        };
        let axes = (Axis::new("sessions at once", Kind::Linear, Unit::Count), vertical);
        let about = "One line for each way of sharing the memory: by the kernel's paging, by our pager, by whole-process swapping.";
        let chart = Chart::new(title, about, axes, series);
        let caption = "Median and 95 % interval over rounds; faint dots are single rounds.";
        blocks.push(Block::Figures(vec![Figure::of_chart(
            &format!("{id}-{metric}"),
            caption,
            &chart,
        )]));
    }
    for (metric, caption) in [
        ("page-ins", "Page-ins on demand"),
        ("user", "User time of the scripts"),
        ("system", "System time of the scripts"),
    ] {
        blocks.push(Block::Table(by_sessions(digest, metric, caption)));
    }
    Content { blocks, headlines: Vec::new() }
}

fn by_sessions(digest: &Digest, metric: &str, caption: &str) -> Table {
    let mut table =
        Table::new(caption, &["engine", "sessions", "median", "95 % interval", "rounds"], 1);
    for point in digest.of_metric(metric) {
        let estimate = point.estimate();
        table.rows.push(vec![
            point.engine.clone(),
            digits(point.number("sessions")),
            point.unit.write(estimate.value),
            interval(&estimate, point.unit),
            estimate.count.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::samples::{Params, Recording};

    fn digest(metric: &str, key: &str, values: [serde_json::Value; 2]) -> Digest {
        let sample = |engine: &str, value: &serde_json::Value, round| Sample {
            experiment: "paging".into(),
            engine: engine.into(),
            metric: metric.into(),
            unit: "1/s".into(),
            value: 5e4 * f64::from(round),
            params: Params::from([(key.to_string(), value.clone())]),
            round,
            at_s: 0.0,
        };
        let mut samples = Vec::new();
        for value in &values {
            for round in 1..=3 {
                samples.push(sample("pager", value, round));
                samples.push(sample("swapfile", value, round));
            }
        }
        Digest::of(&Recording { samples, ..Recording::default() })
    }

    #[test]
    fn a_plot_for_each_act_that_was_measured_and_every_target_judged() {
        let content =
            build_paging(&digest("rate", "act", ["zipf".into(), "seq-read".into()]), "paging");
        let figures = content.blocks.iter().filter(|block| matches!(block, Block::Figures(_)));
        assert_eq!(figures.count(), 2);
        let html: String = content.blocks.iter().map(Block::html).collect();
        assert!(html.contains("Reads by Zipf") && html.contains("not measured"), "{html}");
        assert!(
            content
                .headlines
                .iter()
                .any(|(what, value)| what.contains("sequential read, disk") && value == "1×"),
            "{:?}",
            content.headlines
        );
    }

    #[test]
    fn sessions_are_drawn_over_their_number() {
        let mut digest = digest("throughput", "sessions", [1.into(), 4.into()]);
        // The pager takes part in both experiments.
        assert!(matches!(build_sessions(&digest, "sessions").blocks[0], Block::Figures(_)));
        digest.points.iter_mut().for_each(|point| point.engine = "umap-4k".into());
        let content = build_sessions(&digest, "sessions");
        let drawn = content.blocks.iter().filter(|block| matches!(block, Block::Figures(_)));
        assert_eq!(drawn.count(), 0, "an engine of the other experiment");
    }
}
