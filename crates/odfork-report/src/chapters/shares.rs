//! Shares and rates as bars: parts of fork, copying against page service, and what programs write.

use super::series::published_rows;
use crate::axis::Kind;
use crate::bars::{Bars, Row};
use crate::blocks::{interval, Block, Content, Figure, Table};
use crate::chart::Style;
use crate::colour::Colour;
use crate::drawing::MARKS;
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::unit::{digits, Unit};

/// Rows of a profile before the rest is summed up.
const PARTS: usize = 14;

pub fn build_profile(digest: &Digest, id: &str) -> Content {
    let (mut blocks, mut headlines) = (Vec::new(), Vec::new());
    let bytes = digest.numbers("share", "bytes").last().copied().unwrap_or(f64::NAN);
    for source in digest.words("share", "source") {
        for configuration in digest.configurations("share") {
            let mut points: Vec<&Point> = digest
                .of_metric("share")
                .filter(|p| p.configuration == configuration && p.word("source") == source)
                .filter(|p| p.number("bytes") == bytes || !bytes.is_finite())
                .collect();
            points.sort_by(|a, b| b.median().total_cmp(&a.median()));
            let Some(first) = points.first() else { continue };
            let share = Unit::Share.write(first.median());
            let part = format!("{} {share}", first.word("name"));
            headlines.push((format!("largest part, {configuration} ({source})"), part));
            let size = Unit::Bytes.write(bytes);
            let title = format!("Parts of fork, {configuration}, {size} ({source})");
            blocks.push(profile(&points, &title, &format!("{id}-{configuration}-{source}")).into());
        }
    }
    headlines.truncate(4);
    Content { blocks, headlines }
}

fn profile(points: &[&Point], title: &str, name: &str) -> Figure {
    let (shown, others) = points.split_at(points.len().min(PARTS));
    let row = |point: &&Point| Row::measured(shorten(&point.word("name")), point);
    let mut rows: Vec<Row> = shown.iter().map(row).collect();
    if !others.is_empty() {
        let rest = others.iter().map(|point| point.median()).sum();
        let style = Style { colour: Colour::Quiet, mark: MARKS[0] };
        rows.push(Row::new(format!("{} others together", others.len()), rest, style));
    }
    let bars = Bars {
        title,
        about: "One bar per part of the kernel: its share of the time of fork.",
        caption: "Median share; the line is the 95 % interval, dots are single runs. The table \
                  holds the paper's instruction shares beside.",
        label: "share of the time of fork",
        kind: Kind::Linear,
        unit: Unit::Share,
        rows,
    };
    bars.figure(name)
}

/// Symbols of the kernel can be long; the table has them whole.
fn shorten(name: &str) -> String {
    if name.chars().count() <= 38 {
        return name.into();
    }
    name.chars().take(36).collect::<String>() + "…"
}

pub fn build_copy(digest: &Digest, id: &str) -> Content {
    let mut rows = Vec::new();
    for (metric, word) in [("copy", "memcpy"), ("service", "faults")] {
        let points = digest.of_metric(metric).filter(|point| point.configuration != "null");
        rows.extend(points.map(|point| {
            let size = Unit::Bytes.write(point.number("bytes"));
            Row::measured(format!("{word}: {}, {size}", point.configuration), point)
        }));
    }
    let bars = Bars {
        title: "Bytes copied per second",
        about: "One bar per configuration and size: by memcpy into touched memory, and by faults \
                of a child that writes every page once.",
        caption: "Median, 95 % interval and raw samples. memcpy is the bound that no service of \
                  faults can pass.",
        label: "bytes per second",
        kind: Kind::Linear,
        unit: Unit::BytesPerSecond,
        rows,
    };
    let (ratios, headlines) = service_ratios(digest);
    Content { blocks: vec![bars.figure(id).into(), ratios.into()], headlines }
}

fn service_ratios(digest: &Digest) -> (Table, Vec<(String, String)>) {
    let head = [
        "configuration",
        "memory",
        "copy",
        "service",
        "service / copy",
        "95 % interval",
        "published",
    ];
    let theirs = published_rows("copy-rate", Unit::Share).into_iter().filter(|row| row.value < 2.0);
    let theirs = theirs.map(|row| {
        format!("{} {}", row.label.trim_start_matches("published: "), digits(row.value))
    });
    let theirs = theirs.collect::<Vec<_>>().join("; ");
    let (mut rows, mut headlines) = (Vec::new(), Vec::new());
    for service in digest.of_metric("service").filter(|point| point.configuration != "null") {
        // memcpy is the same for every configuration: where it was measured for plain only, plain's
        // stands in.
        let plain = || digest.twin(service, "plain").and_then(|plain| digest.beside(plain, "copy"));
        let Some(copy) = digest.beside(service, "copy").or_else(plain) else { continue };
        let Some(ratio) = paired_ratio(service, copy) else { continue };
        let (configuration, size) =
            (&service.configuration, Unit::Bytes.write(service.number("bytes")));
        headlines.push((format!("service / copy, {configuration}, {size}"), digits(ratio.value)));
        let [copy, service] = [copy, service].map(|point| point.unit.write(point.median()));
        let ratios = [digits(ratio.value), interval(&ratio, Unit::Number), theirs.clone()];
        rows.push([vec![configuration.clone(), size, copy, service], ratios.to_vec()].concat());
    }
    let skip = headlines.len().saturating_sub(5);
    (Table::new("Service of pages against copying", &head, 1).with(rows), headlines.split_off(skip))
}

/// Bars in one plot; more would not be read.
const PHASES: usize = 30;

pub fn build_writes(digest: &Digest, id: &str) -> Content {
    let points: Vec<&Point> = digest.of_metric("pages").collect();
    let label = |point: &Point| {
        let [program, phase, method] = ["program", "phase", "method"].map(|name| point.word(name));
        shorten(&format!("{program}, {phase} ({method})"))
    };
    let shown = points.iter().take(PHASES);
    let mut rows: Vec<Row> = shown.map(|point| Row::measured(label(point), point)).collect();
    let style = Style { colour: Colour::Text, mark: MARKS[3] };
    rows.extend(published_rows("writes", Unit::Share).into_iter().map(|row| Row { style, ..row }));
    let rest = match points.len().saturating_sub(PHASES) {
        0 => String::new(),
        more => format!(" {more} more are in the table."),
    };
    let bars = Bars {
        title: "Share of pages that a phase of work changed",
        about: "One bar per program and phase; published shares of 1988 as hollow marks.",
        caption: &format!("Hollow: published in 1988, with pages of 512 to 4,096 bytes.{rest}"),
        label: "share of pages",
        kind: Kind::Linear,
        unit: Unit::Share,
        rows,
    };
    let published = "The paper's programs changed 0.23 (Lisp planner, pages), 0.35, 0.30 and 0.48 \
                     (Emacs, bytes) of their data: less than half.";
    let blocks =
        vec![bars.figure(id).into(), changes(digest).into(), Block::Text(published.into())];
    let below = points.iter().filter(|point| point.median() < 0.5).count();
    let headline = (
        "phases that changed less than half of their pages".to_string(),
        format!("{below} of {}", points.len()),
    );
    Content { blocks, headlines: if points.is_empty() { Vec::new() } else { vec![headline] } }
}

fn changes(digest: &Digest) -> Table {
    let head =
        ["program", "phase", "method", "pages changed", "of", "share of pages", "share of bytes"];
    let row = |point: &Point| {
        let beside = |metric: &str| {
            let found = digest.beside(point, metric);
            found.map_or_else(|| "–".into(), |found| found.unit.write(found.median()))
        };
        let mut row = ["program", "phase", "method"].map(|name| point.word(name)).to_vec();
        let share = Unit::Share.write(point.median());
        row.extend([beside("pages-changed"), beside("pages-all"), share, beside("bytes")]);
        row
    };
    Table::new("Changed pages and bytes", &head, 3).with(digest.of_metric("pages").map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_symbols_are_shortened() {
        assert_eq!(shorten("copy_pte_range"), "copy_pte_range");
        assert_eq!(shorten(&"é".repeat(60)).chars().count(), 37);
    }
}
