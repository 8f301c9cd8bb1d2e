//! Memory larger than what may be resident: accesses a second by act and backend, the promised
//! figures; and sessions at rising load.

use crate::axis::{Axis, Kind};
use crate::bars::{Bars, Row};
use crate::blocks::{interval, Block, Content, Figure, Table};
use crate::chart::{Chart, Join, Series, Style};
use odfork_samples::configurations::{BACKENDS, SESSION_MODES};
use odfork_samples::digest::{Digest, Point};
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
    let (targets, headlines) = judged(digest);
    let mut blocks = vec![targets.into()];
    blocks.extend(ACTS.iter().filter_map(|act| rates(digest, id, *act)).map(Block::from));
    Content { blocks, headlines }
}

fn rates(digest: &Digest, id: &str, (act, title): (&str, &str)) -> Option<Figure> {
    let row = |point: &Point| {
        let place = BACKENDS.iter().position(|name| *name == point.configuration);
        let style = Style::of_series(place.unwrap_or(BACKENDS.len()));
        Row { style, ..Row::measured(point.configuration.clone(), point) }
    };
    let points = digest.of_metric("rate").filter(|point| point.word("act") == act);
    let bars = Bars {
        title,
        about: "Accesses to pages of 4 KB in a second, one row for each backend; every page read \
                is compared with what was written.",
        caption:
            "Median and 95 % interval over rounds; faint dots are single rounds. To the right \
             is faster.",
        label: "accesses a second",
        kind: Kind::Log,
        unit: Unit::PerSecond,
        rows: points.map(row).collect(),
    };
    (!bars.rows.is_empty()).then(|| bars.figure(&format!("{id}-{act}")))
}

/// The table of targets, and the ratios to the kernel's swap file for the front page.
fn judged(digest: &Digest) -> (Table, Vec<(String, String)>) {
    let head = ["", "figure", "goal", "value", "95 % interval", "verdict"];
    let mut table = Table::new("Promised figures, from samples of the same rounds", &head, 2);
    let mut headlines = Vec::new();
    for target in TARGETS.iter() {
        let (estimate, verdict) = target.judge(digest);
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

/// Metric, title, and the vertical axis.
fn session_plots() -> [(&'static str, &'static str, Axis); 4] {
    [
        (
            "throughput",
            "Throughput against the number of sessions",
            Axis::from_zero("scripts a second", Unit::PerSecond),
        ),
        (
            "completion",
            "Mean time of a script against the number of sessions",
            Axis::from_zero("time of a script", Unit::Seconds),
        ),
        (
            "response-p99",
            "The trivial command, 99th percentile, against the number of sessions",
            Axis::log("response", Unit::Nanoseconds),
        ),
        (
            "response-p50",
            "The trivial command, median, against the number of sessions",
            Axis::log("response", Unit::Nanoseconds),
        ),
    ]
}

pub fn build_sessions(digest: &Digest, id: &str) -> Content {
    let line = |metric: &str, (place, way): (usize, &&str)| {
        let points = digest.of_metric(metric).filter(|point| point.configuration == **way);
        let series = Series::new(way, Style::of_series(place)).joined(Join::Solid);
        series.measured(points, |point| point.number("sessions"))
    };
    let plot = |(metric, title, y): (&str, &str, Axis)| {
        let all = SESSION_MODES.iter().enumerate().map(|way| line(metric, way));
        let chart = Chart {
            name: format!("{id}-{metric}"),
            title: title.into(),
            about: "One line for each way of sharing the memory: by the kernel's paging, by our \
                    pagers (a daemon's; of any memory), by whole-process swapping."
                .into(),
            caption: "Median and 95 % interval over rounds; faint dots are single rounds.".into(),
            x: Axis::new("sessions at once", Kind::Linear, Unit::Count),
            y,
            series: all.filter(|series| !series.points.is_empty()).collect(),
            ..Chart::default()
        };
        (!chart.series.is_empty()).then(|| chart.figure().into())
    };
    Content {
        blocks: session_plots().into_iter().filter_map(plot).collect(),
        headlines: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::Render;
    use odfork_samples::samples::Sample;

    fn digest(metric: &str, key: &str, values: [serde_json::Value; 2]) -> Digest {
        let sample = |configuration: &str, value: &serde_json::Value, round: u32| {
            let number = 5e4 * f64::from(round);
            let sample = Sample::of(configuration, (metric, "1/s"), number);
            sample.with(key, value.clone()).in_round(round)
        };
        let mut samples = Vec::new();
        for value in &values {
            for round in 1..=3 {
                samples.push(sample("pager", value, round));
                samples.push(sample("swapfile", value, round));
            }
        }
        Digest::of_samples(&samples)
    }

    #[test]
    fn a_plot_for_each_act_that_was_measured_and_every_target_judged() {
        let content =
            build_paging(&digest("rate", "act", ["zipf".into(), "seq-read".into()]), "paging");
        let figures = content.blocks.iter().filter(|block| matches!(block, Block::Figures(_)));
        assert_eq!(figures.count(), 2);
        let html: String = content.blocks.iter().map(|block| block.render().0).collect();
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
        digest.points.iter_mut().for_each(|point| point.configuration = "umap-4k".into());
        let content = build_sessions(&digest, "sessions");
        let drawn = content.blocks.iter().filter(|block| matches!(block, Block::Figures(_)));
        assert_eq!(drawn.count(), 0, "a configuration of the other experiment");
    }
}
