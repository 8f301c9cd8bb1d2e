//! Rates and shares: copying against page service, and what programs write.

use super::micro::{published_rows, row_of, shorten};
use super::{medians, Content};
use crate::bars::{Bars, Row};
use crate::blocks::{interval, Block, Figure, Table};
use crate::colour::Colour;
use crate::scale::Kind;
use crate::scene::MARKS;
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::unit::{digits, Unit};

pub fn build_copy(digest: &Digest, id: &str) -> Content {
    let mut rows = Vec::new();
    for (metric, word) in [("copy", "memcpy"), ("service", "faults")] {
        let point_rows = digest.of_metric(metric).filter(|point| point.engine != "null");
        rows.extend(point_rows.map(|point| {
            row_of(
                format!("{word}: {}, {}", point.engine, Unit::Bytes.write(point.number("bytes"))),
                point,
            )
        }));
    }
    let bars = Bars {
        title: "Bytes copied per second".into(),
        about: "One bar per engine and size: by memcpy into touched memory, and by faults of a child that writes every page once.".into(),
        label: "bytes per second".into(),
        kind: Kind::Linear,
        unit: Unit::BytesPerSecond,
        rows,
    };
    let caption = "Median, 95 % interval and raw samples. memcpy is the bound that no service of faults can pass.";
    let columns = [("bytes", "memory", Unit::Bytes)];
    let (ratios, headlines) = service_ratios(digest);
    let blocks = vec![
        Block::Figures(vec![Figure::new(id, caption, bars.scene())]),
        ratios,
        medians(digest, "copy", &columns, "Rate of memcpy"),
        medians(digest, "service", &columns, "Rate of page service"),
    ];
    Content { blocks, headlines }
}

fn service_ratios(digest: &Digest) -> (Block, Vec<(String, String)>) {
    let head =
        ["engine", "memory", "copy", "service", "service / copy", "95 % interval", "published"];
    let mut table = Table::new("Service of pages against copying", &head, 1);
    let theirs: Vec<String> = published_rows("copy-rate", Unit::Share)
        .iter()
        .filter(|row| row.value < 2.0)
        .map(|row| format!("{} {}", row.label.trim_start_matches("published: "), digits(row.value)))
        .collect();
    let theirs = theirs.join("; ");
    let mut headlines = Vec::new();
    for service in digest.of_metric("service").filter(|point| point.engine != "null") {
        // memcpy is the same for every engine: where it was measured for plain only, plain's stands in.
        let plain = || digest.twin(service, "plain").and_then(|plain| digest.beside(plain, "copy"));
        let Some(copy) = digest.beside(service, "copy").or_else(plain) else { continue };
        let Some(ratio) = paired_ratio(service, copy) else { continue };
        let size = Unit::Bytes.write(service.number("bytes"));
        headlines
            .push((format!("service / copy, {}, {size}", service.engine), digits(ratio.value)));
        let rates = [copy, service].map(|point| point.unit.write(point.median()));
        table.rows.push(vec![
            service.engine.clone(),
            size,
            rates[0].clone(),
            rates[1].clone(),
            digits(ratio.value),
            interval(&ratio, Unit::Number),
            theirs.clone(),
        ]);
    }
    let skip = headlines.len().saturating_sub(5);
    (Block::Table(table), headlines.split_off(skip))
}

/// Bars in one plot; more would not be read.
const SHOWN: usize = 30;

pub fn build_writes(digest: &Digest, id: &str) -> Content {
    let points: Vec<&Point> = digest.of_metric("pages").collect();
    let label = |point: &Point| {
        shorten(&format!(
            "{}, {} ({})",
            point.word("program"),
            point.word("phase"),
            point.word("method")
        ))
    };
    let mut rows: Vec<Row> =
        points.iter().take(SHOWN).map(|point| row_of(label(point), point)).collect();
    rows.extend(published_rows("writes", Unit::Share).into_iter().map(|row| Row {
        colour: Colour::Text,
        mark: MARKS[3],
        ..row
    }));
    let bars = Bars {
        title: "Share of pages that a phase of work changed".into(),
        about: "One bar per program and phase; published shares of 1988 as hollow marks.".into(),
        label: "share of pages".into(),
        kind: Kind::Linear,
        unit: Unit::Share,
        rows,
    };
    let more = points.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!(" {more} more are in the table.") } else { String::new() };
    let caption = format!("Hollow: published in 1988, with pages of 512 to 4,096 bytes.{rest}");
    let mut blocks =
        vec![Block::Figures(vec![Figure::new(id, &caption, bars.scene())]), changes(digest)];
    blocks.push(Block::Text("The paper's programs changed 0.23 (Lisp planner, pages), 0.35, 0.30 and 0.48 (Emacs, bytes) of their data: less than half.".into()));
    let below = points.iter().filter(|point| point.median() < 0.5).count();
    let headlines = vec![(
        "phases that changed less than half of their pages".to_string(),
        format!("{below} of {}", points.len()),
    )];
    Content { blocks, headlines: if points.is_empty() { Vec::new() } else { headlines } }
}

fn changes(digest: &Digest) -> Block {
    let head =
        ["program", "phase", "method", "pages changed", "of", "share of pages", "share of bytes"];
    let mut table = Table::new("Changed pages and bytes", &head, 3);
    for point in digest.of_metric("pages") {
        let count = |metric: &str| {
            digest.beside(point, metric).map_or_else(|| "–".into(), |p| digits(p.median()))
        };
        let bytes = digest
            .beside(point, "bytes")
            .map_or_else(|| "–".into(), |p| Unit::Share.write(p.median()));
        table.rows.push(vec![
            point.word("program"),
            point.word("phase"),
            point.word("method"),
            count("pages-changed"),
            count("pages-all"),
            Unit::Share.write(point.median()),
            bytes,
        ]);
    }
    Block::Table(table)
}
