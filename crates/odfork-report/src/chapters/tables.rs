//! Tables that several chapters have: medians of a metric, published figures, and the headlines of
//! the summary.

use crate::blocks::{interval, times, Block, Table};
use odfork_samples::digest::{Digest, Point};
use odfork_samples::published;
use odfork_samples::unit::{convert, digits, trim, Unit};

/// Parameter of a sample, heading, unit. `configuration` stands for what was compared.
pub type Column<'a> = (&'a str, &'a str, Unit);

/// Every published figure of an experiment, whether a plot has a place for it or not.
pub fn published(name: &str) -> Option<Block> {
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

/// Medians of one metric: configuration and parameters, median, interval, samples, perhaps the
/// ratio to plain.
pub fn medians(
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
pub fn headlines(
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
