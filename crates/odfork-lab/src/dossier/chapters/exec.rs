//! Create and exec: time of one start by used memory and method; the published totals on their own axis.

use super::super::blocks::{Block, Figure};
use super::super::chart::{self, Axis, Chart, Join, Series};
use super::super::digest::{paired_ratio, Digest, Point};
use super::super::ink::{rank, Ink};
use super::super::quantity::Unit;
use super::super::scale::Kind;
use super::super::scene::MARKS;
use super::{medians, Content};
use crate::published;

const METRIC: &str = "each";

pub fn build(digest: &Digest, id: &str) -> Content {
    let mut figures = vec![starts(digest, id)];
    figures.extend(theirs(id));
    let mut blocks: Vec<Block> =
        figures.into_iter().map(|figure| Block::Figures(vec![figure])).collect();
    let columns = [
        ("method", "method", Unit::Number),
        ("allocated", "allocated", Unit::Bytes),
        ("used", "used", Unit::Bytes),
    ];
    for (metric, caption) in [
        (METRIC, "Create, exec and wait"),
        ("user", "User time of it"),
        ("sys", "System time of it"),
    ] {
        blocks.push(medians(digest, metric, &columns, caption));
    }
    Content { blocks, headlines: ratios(digest) }
}

fn starts(digest: &Digest, id: &str) -> Figure {
    let mut all = Vec::new();
    for engine in super::series::all_engines(digest, METRIC) {
        for (place, method) in digest.words(METRIC, "method").iter().enumerate() {
            let ink = if engine == "null" { Ink::of_engine("null") } else { Ink::Series(place) };
            let mut series = Series::new(
                &format!("{engine}: {method}"),
                ink,
                MARKS[rank(&engine).min(MARKS.len() - 1)],
            );
            series.join = if engine == "plain" { Join::Solid } else { Join::Dashed };
            let mut points: Vec<&Point> = digest
                .of_metric(METRIC)
                .filter(|p| p.engine == engine && p.word("method") == *method)
                .collect();
            points.sort_by(|a, b| a.number("used").total_cmp(&b.number("used")));
            for point in points {
                super::series::add(&mut series, point, point.number("used"));
            }
            if !series.points.is_empty() {
                all.push(series);
            }
        }
    }
    let axes = (
        Axis::new("memory the parent uses", Kind::Log, Unit::Bytes),
        Axis::new("one start: create, exec, wait", Kind::Log, Unit::Nanoseconds),
    );
    let about = "Time to start a tiny program and wait for it, against the memory its parent uses: colour is the method, mark is the engine.";
    let caption = "Median, 95 % interval and raw samples. Colour is the method, the mark is the engine. Allocated but unused memory costs nothing visible: points of the same used size lie on each other.";
    Figure::of_chart(id, caption, &Chart::new("Starting a tiny program", about, axes, all))
}

/// The number of runs behind the published seconds is not known, so they get an axis of their own.
fn theirs(id: &str) -> Option<Figure> {
    let mut all: Vec<Series> = Vec::new();
    for point in published::points("exec").iter().filter(|point| point.unit.starts_with('s')) {
        // Systems are told apart: a line from one to the other would show a slope that nobody measured.
        let system = if point.what.contains("BSD") { "FreeBSD" } else { "Linux" };
        let label = format!("{}, {system}", point.series);
        let place = all.iter().position(|series| series.label == label).unwrap_or_else(|| {
            let mut series = Series::new(&label, Ink::Series(all.len()), MARKS[all.len() % 5]);
            series.hollow = true;
            all.push(series);
            all.len() - 1
        });
        all[place].points.push(chart::Point { x: point.x, y: point.y, interval: None });
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let unit = Unit::Seconds;
    let axes = (
        Axis::new("memory the parent uses", Kind::Log, Unit::Bytes),
        Axis::new("a few thousand starts", Kind::Log, unit),
    );
    let about = "The published seconds for a few thousand starts, by used memory: fork rises, vfork does not.";
    let chart = Chart::new("Published (Zahariev 2009)", about, axes, all);
    let caption = "Seconds for a few thousand starts; how many is not told, so only slopes and ratios can be compared with ours.";
    (!chart.series.is_empty())
        .then(|| Figure::of_chart(&format!("{id}-published"), caption, &chart))
}

/// fork+exec against the other methods at the largest used size.
fn ratios(digest: &Digest) -> Vec<(String, String)> {
    let used = digest.numbers(METRIC, "used").last().copied().unwrap_or(f64::NAN);
    let at = |engine: &str, method: &str| {
        digest
            .of_metric(METRIC)
            .find(|p| p.engine == engine && p.word("method") == method && p.number("used") == used)
    };
    let place = Unit::Bytes.write(used);
    let Some(fork) = at("plain", "fork+exec") else { return Vec::new() };
    let mut lines = Vec::new();
    for method in ["vfork+exec", "posix_spawn"] {
        let ratio = at("plain", method).and_then(|other| paired_ratio(fork, other));
        lines.extend(
            ratio.map(|ratio| (format!("fork+exec / {method}, {place}"), super::times(&ratio))),
        );
    }
    for engine in ["image", "kernel"] {
        let ratio = at(engine, "fork+exec").and_then(|other| paired_ratio(fork, other));
        lines.extend(
            ratio.map(|ratio| {
                (format!("fork+exec, plain / {engine}, {place}"), super::times(&ratio))
            }),
        );
    }
    lines
}
