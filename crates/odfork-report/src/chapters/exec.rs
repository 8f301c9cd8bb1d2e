//! Create and exec: time of one start by used memory, method, configuration and actions; the
//! published totals on their own axis.

use crate::axis::{Axis, Kind};
use crate::bars::{Bars, Row};
use crate::blocks::{times, Block, Content, Figure, Table};
use crate::chart::{grouped, Chart, Join, Series, Style};
use crate::colour::Colour;
use crate::drawing::MARKS;
use odfork_samples::digest::Digest;
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
/// The size at which the actions are shown: any does, as the ways that have them do not depend on
/// it.
const SHOWN: f64 = 20.0 * 1048576.0;

pub fn build(digest: &Digest, id: &str) -> Content {
    let mut blocks: Vec<Block> =
        vec![by_method(digest, id).into(), by_configuration(digest, id).into()];
    blocks.extend(by_actions(digest, id).map(Block::from));
    blocks.extend(theirs(id).map(Block::from));
    let words = |(what, ratio): spawn_timings::Line| (what, times(&ratio));
    let rows = spawn_timings::ratios(digest).into_iter().map(words);
    let table = Table::new("Ratios of the same rounds", &["what", "ratio (95 %)"], 1);
    blocks.push(table.with(rows.map(|(what, ratio)| vec![what, ratio])).into());
    let headlines = spawn_timings::headlines(digest).into_iter().map(words).collect();
    Content { blocks, headlines }
}

/// One configuration's starts without actions by one method, over the memory used; None without
/// any.
fn starts(
    digest: &Digest,
    (configuration, method): (&str, &str),
    series: Series,
) -> Option<Series> {
    let same = digest.of_metric(METRIC).filter(|p| {
        p.configuration == configuration && p.word("method") == method && spawn_timings::is_plain(p)
    });
    let series = series.measured(same, |point| point.number("used"));
    (!series.points.is_empty()).then_some(series)
}

fn chart() -> Chart {
    Chart {
        x: Axis::log("memory the parent uses", Unit::Bytes),
        y: Axis::log("one start: create, exec, wait", Unit::Nanoseconds),
        ..Chart::default()
    }
}

fn by_method(digest: &Digest, id: &str) -> Figure {
    let series = METHODS.iter().enumerate().filter_map(|(place, method)| {
        // There are more methods than colours: when they begin again the mark is another, and the
        // line is dashed.
        let again = place / 5;
        let mark = MARKS[(place + 2 * again) % MARKS.len()];
        let series = Series::new(method, Style { colour: Colour::Series(place), mark });
        let join = if again == 0 { Join::Solid } else { Join::Dashed };
        starts(digest, ("plain", method), series.joined(join))
    });
    Chart {
        name: id.into(),
        title: "Starting a tiny program".into(),
        about: "Time to start a tiny program and wait for it, against the memory its parent uses, \
                one line for each way to start it."
            .into(),
        caption: "Kernel's own fork, no engine. Median, 95 % interval and raw samples. Allocated \
                  but unused memory costs nothing visible: points of the same used size lie on \
                  each other."
            .into(),
        series: series.collect(),
        ..chart()
    }
    .figure()
}

/// What a configuration changes, and what it must not change.
fn by_configuration(digest: &Digest, id: &str) -> Figure {
    let mut all = Vec::new();
    for configuration in digest.configurations(METRIC) {
        for (place, method) in ["fork+exec", "posix_spawn", "spawn"].into_iter().enumerate() {
            let style =
                Style { colour: Colour::of_configuration(&configuration), mark: MARKS[place] };
            let join = if method == "fork+exec" { Join::Solid } else { Join::Dashed };
            let series = Series::new(&format!("{configuration}: {method}"), style).joined(join);
            all.extend(starts(digest, (&configuration, method), series));
        }
    }
    Chart {
        name: format!("{id}-engines"),
        title: "The same under each configuration".into(),
        about: "Time to start a tiny program by fork and exec, posix_spawn and spawn, against the \
                memory its parent uses: colour is the configuration, mark is the method."
            .into(),
        caption: "Median, 95 % interval and raw samples. Colour is the configuration, the mark is \
                  the method."
            .into(),
        series: all,
        ..chart()
    }
    .figure()
}

/// posix_spawn and spawn asked for the same, at one size.
fn by_actions(digest: &Digest, id: &str) -> Option<Figure> {
    let mut rows: Vec<Row> = Vec::new();
    for actions in spawn_timings::actions(digest) {
        for (place, method) in
            METHODS.iter().enumerate().filter(|(_, method)| spawn_timings::acts(method))
        {
            let found = spawn_timings::at(digest, "plain", (method, &actions), SHOWN);
            rows.extend(found.map(|point| Row {
                style: Style::of_series(place),
                ..Row::measured(format!("{actions}: {method}"), point)
            }));
        }
    }
    let asked = rows.iter().any(|row| !row.label.starts_with("plain"));
    let bars = Bars {
        title: &format!("The same asked of both, parent of {}", Unit::Bytes.write(SHOWN)),
        about: "One row for each way to start a program and what is asked besides: median, \
                interval and raw samples.",
        caption:
            "chdir: another working directory. close-N: all other descriptors closed, N being \
             open. pipes: three pipes, both outputs read to their ends.",
        label: "one start: create, exec, wait",
        kind: Kind::Log,
        unit: Unit::Nanoseconds,
        rows,
    };
    asked.then(|| bars.figure(&format!("{id}-actions")))
}

/// The number of runs behind the published seconds is not known, so they get an axis of their own.
fn theirs(id: &str) -> Option<Figure> {
    let all = published::points("exec");
    let seconds = all.iter().filter(|point| point.unit.starts_with('s')).map(|point| {
        // Systems are told apart: a line from one to the other would show a slope that nobody
        // measured.
        let system = if point.what.contains("BSD") { "FreeBSD" } else { "Linux" };
        (format!("{}, {system}", point.series), (point.x, point.y))
    });
    let series = grouped(seconds).into_iter().enumerate().map(|(place, (label, spots))| {
        let style = Style { colour: Colour::Series(place), mark: MARKS[place % 5] };
        Series::new(&label, style).through(spots).published()
    });
    let chart = Chart {
        name: format!("{id}-published"),
        title: "Published (Zahariev 2009)".into(),
        about:
            "The published seconds for a few thousand starts, by used memory: fork rises, vfork \
             does not."
                .into(),
        caption: "Seconds for a few thousand starts; how many is not told, so only slopes and \
                  ratios can be compared with ours."
            .into(),
        y: Axis::log("a few thousand starts", Unit::Seconds),
        series: series.collect(),
        ..chart()
    };
    (!chart.series.is_empty()).then(|| chart.figure())
}
