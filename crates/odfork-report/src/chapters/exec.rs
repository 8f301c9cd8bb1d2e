//! Create and exec: time of one start by used memory, method, engine and actions; the published totals on their own axis.

use super::{medians, times, Content};
use crate::bars::{Bars, Row};
use crate::blocks::{Block, Figure, Table};
use crate::chart::{self, Axis, Chart, Join, Series};
use crate::colour::Colour;
use crate::scale::Kind;
use crate::scene::MARKS;
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published;
use odfork_samples::spawn_timings;
use odfork_samples::unit::Unit;

const METRIC: &str = "each";

/// Legends and colours follow this order: what copies, what lends the memory, what builds on that.
const METHODS: [&str; 7] = [
    "fork+exec",
    "vfork+exec",
    "posix_spawn",
    "spawn",
    "rust-command",
    "popen",
    "python-subprocess",
];
/// The size at which the actions are shown: any does, as the ways that have them do not depend on it.
const SHOWN: f64 = 20.0 * 1048576.0;

pub fn build(digest: &Digest, id: &str) -> Content {
    let mut figures = vec![by_method(digest, id), by_engine(digest, id)];
    figures.extend(by_actions(digest, id));
    figures.extend(theirs(id));
    let mut blocks: Vec<Block> =
        figures.into_iter().map(|figure| Block::Figures(vec![figure])).collect();
    blocks.extend(table_of_ratios(digest));
    let columns = [
        ("method", "method", Unit::Number),
        ("actions", "actions", Unit::Number),
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
    let headlines = spawn_timings::headlines(digest).iter().map(in_words).collect();
    Content { blocks, headlines }
}

fn in_words((what, ratio): &spawn_timings::Line) -> (String, String) {
    (what.clone(), times(ratio))
}

fn table_of_ratios(digest: &Digest) -> Option<Block> {
    let mut table = Table::new("Ratios of the same rounds", &["what", "ratio (95 %)"], 1);
    let rows = spawn_timings::ratios(digest);
    table.rows.extend(rows.iter().map(in_words).map(|(what, ratio)| vec![what, ratio]));
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

/// One engine's starts without actions by one method, over the memory used.
fn starts_of(digest: &Digest, (engine, method): (&str, &str), series: Series) -> Series {
    let mut series = series;
    let mut points: Vec<&Point> = digest
        .of_metric(METRIC)
        .filter(|p| p.engine == engine && p.word("method") == method && spawn_timings::is_plain(p))
        .collect();
    points.sort_by(|a, b| a.number("used").total_cmp(&b.number("used")));
    for point in points {
        super::series::add(&mut series, point, point.number("used"));
    }
    series
}

fn axes() -> (Axis, Axis) {
    (
        Axis::new("memory the parent uses", Kind::Log, Unit::Bytes),
        Axis::new("one start: create, exec, wait", Kind::Log, Unit::Nanoseconds),
    )
}

fn by_method(digest: &Digest, id: &str) -> Figure {
    let all = METHODS.iter().enumerate().map(|(place, method)| {
        // There are more methods than colours: when they begin again the mark is another, and the line is dashed.
        let again = place / 5;
        let mark = MARKS[(place + 2 * again) % MARKS.len()];
        let mut series = Series::new(method, Colour::Series(place), mark);
        series.join = if again == 0 { Join::Solid } else { Join::Dashed };
        starts_of(digest, ("plain", method), series)
    });
    let all = all.filter(|series| !series.points.is_empty()).collect();
    let about = "Time to start a tiny program and wait for it, against the memory its parent uses, one line for each way to start it.";
    let caption = "Kernel's own fork, no engine. Median, 95 % interval and raw samples. Allocated but unused memory costs nothing visible: points of the same used size lie on each other.";
    Figure::of_chart(id, caption, &Chart::new("Starting a tiny program", about, axes(), all))
}

/// What an engine changes, and what it must not change.
fn by_engine(digest: &Digest, id: &str) -> Figure {
    let mut all = Vec::new();
    for engine in digest.engines(METRIC) {
        for (place, method) in ["fork+exec", "posix_spawn", "spawn"].into_iter().enumerate() {
            let label = format!("{engine}: {method}");
            let mut series = Series::new(&label, Colour::of_engine(&engine), MARKS[place]);
            series.join = if method == "fork+exec" { Join::Solid } else { Join::Dashed };
            all.push(starts_of(digest, (&engine, method), series));
        }
    }
    all.retain(|series| !series.points.is_empty());
    let about = "Time to start a tiny program by fork and exec, posix_spawn and spawn, against the memory its parent uses: colour is the engine, mark is the method.";
    let caption =
        "Median, 95 % interval and raw samples. Colour is the engine, the mark is the method.";
    let chart = Chart::new("The same under each engine", about, axes(), all);
    Figure::of_chart(&format!("{id}-engines"), caption, &chart)
}

/// posix_spawn and spawn asked for the same, at one size.
fn by_actions(digest: &Digest, id: &str) -> Option<Figure> {
    let mut rows: Vec<Row> = Vec::new();
    for actions in spawn_timings::actions(digest) {
        for (place, method) in METHODS.iter().enumerate().filter(|(_, m)| spawn_timings::acts(m)) {
            let found = spawn_timings::at(digest, "plain", (method, &actions), SHOWN);
            let row = |point| Row {
                colour: Colour::Series(place),
                mark: MARKS[place % MARKS.len()],
                ..super::micro::row_of(format!("{actions}: {method}"), point)
            };
            rows.extend(found.map(row));
        }
    }
    let asked = rows.iter().any(|row| !row.label.starts_with("plain"));
    let bars = Bars {
        title: format!("The same asked of both, parent of {}", Unit::Bytes.write(SHOWN)),
        about: "One row for each way to start a program and what is asked besides: median, interval and raw samples.".into(),
        label: "one start: create, exec, wait".into(),
        kind: Kind::Log,
        unit: Unit::Nanoseconds,
        rows,
    };
    let caption = "chdir: another working directory. close-N: all other descriptors closed, N being open. pipes: three pipes, both outputs read to their ends.";
    asked.then(|| Figure::new(&format!("{id}-actions"), caption, bars.scene()))
}

/// The number of runs behind the published seconds is not known, so they get an axis of their own.
fn theirs(id: &str) -> Option<Figure> {
    let mut all: Vec<Series> = Vec::new();
    for point in published::points("exec").iter().filter(|point| point.unit.starts_with('s')) {
        // Systems are told apart: a line from one to the other would show a slope that nobody measured.
        let system = if point.what.contains("BSD") { "FreeBSD" } else { "Linux" };
        let label = format!("{}, {system}", point.series);
        let place = all.iter().position(|series| series.label == label).unwrap_or_else(|| {
            let mut series = Series::new(&label, Colour::Series(all.len()), MARKS[all.len() % 5]);
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
