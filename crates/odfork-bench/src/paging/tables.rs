//! The tables at the end: what each backend did in each op, and the targets. Pure: samples in, text
//! out.

use super::backend::{Backend, ALL};
use super::op::Op;
use crate::spread::spread;
use odfork_proc::table::columns;
use odfork_proc::text::digits;
use odfork_samples::digest::{Digest, Point};
use odfork_samples::samples::Sample;
use odfork_samples::stats::{median, Estimate};
use odfork_samples::targets::{point, TARGETS};

/// Everything that is said of a run.
pub fn tables(samples: &[Sample]) -> String {
    let digest = &Digest::of_samples(samples);
    let measured =
        |backend: &Backend| digest.points.iter().any(|p| p.configuration == backend.word());
    let present: Vec<Backend> = ALL.into_iter().filter(measured).collect();
    format!("{}{}{}", rates(digest, &present), zipf(digest, &present), targets(digest))
}

const RATED: [Op; 7] =
    [Op::Fill, Op::SeqRead, Op::SeqWrite, Op::Zipf, Op::Phase, Op::Threads(1), Op::Threads(8)];

/// Values of a series, one a round.
fn values(digest: &Digest, backend: Backend, op: &str, metric: &str) -> Vec<f64> {
    point(digest, (backend.word(), op, metric)).map(Point::values).unwrap_or_default()
}

/// A table with a row for each backend.
fn by_backend<'a>(
    caption: &str,
    headings: impl Iterator<Item = String>,
    rows: impl Iterator<Item = (&'a Backend, Vec<String>)>,
) -> String {
    let head: Vec<String> = std::iter::once(String::new()).chain(headings).collect();
    let row = |(backend, cells): (&Backend, Vec<String>)| {
        std::iter::once(format!("  {}", backend.word())).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows.map(row)).collect();
    format!("{caption}\n{}", columns(&rows))
}

fn rates(digest: &Digest, present: &[Backend]) -> String {
    let rate = |backend, op: Op| match values(digest, backend, &op.word(), "rate")[..] {
        [one] => digits(one / 1e3),
        ref values => spread(values, 1e3),
    };
    let measured = present.iter().filter(|&&backend| backend != Backend::Bare);
    by_backend(
        "thousand accesses a second (pages of 4 KB, every one checked): median [least, most]",
        RATED.iter().map(|op| op.word()),
        measured.map(|backend| (backend, RATED.map(|op| rate(*backend, op)).into())),
    )
}

/// Heading, op, metric, unit of the column.
const ZIPF: [(&str, &str, &str, f64); 9] = [
    ("p50 us", "zipf", "p50", 1e3),
    ("p99 us", "zipf", "p99", 1e3),
    ("page-ins %", "zipf", "major", 0.01),
    ("reclaims %", "zipf", "reclaims", 0.01),
    ("reclaim us", "reclaim", "reclaim", 1e3),
    ("bare us", "continue", "reclaim", 1e3),
    ("simulation %", "reclaim", "simulation-cpu", 0.01),
    ("memory MB", "", "memory", 1_048_576.0),
    ("killed", "", "killed", 1.0),
];

/// Latencies and faults of Zipf reads, reclaims, memory: medians.
fn zipf(digest: &Digest, present: &[Backend]) -> String {
    let cell = |backend, (heading, op, metric, unit): (&str, &str, &str, f64)| {
        let values = values(digest, backend, op, metric);
        match median(&values) {
            None => "-".into(),
            Some(_) if heading == "killed" => {
                format!("{} of {}", values.iter().sum::<f64>(), values.len())
            }
            Some(middle) => digits(middle / unit),
        }
    };
    by_backend(
        "Zipf 0.9: latency of all accesses and faults an access; a reclaim; memory of the group at \
         its peak",
        ZIPF.iter().map(|column| column.0.to_string()),
        present.iter().map(|backend| (backend, ZIPF.map(|column| cell(*backend, column)).into())),
    )
}

fn targets(digest: &Digest) -> String {
    let mut text = String::from("targets: value [95 % interval over rounds]\n");
    for target in TARGETS.iter() {
        let (estimate, verdict) = target.judge(digest);
        let (name, what, goal) = (target.name, target.what, target.goal_words());
        let value = estimate.map_or_else(|| "-".into(), words);
        let verdict = if goal.is_empty() { "" } else { verdict.word() };
        let line = format!("  {name:<3} {what:<62} {goal:>8}  {value:<28} {verdict}");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn words(estimate: Estimate) -> String {
    match estimate.interval {
        Some((low, high)) => format!("{:.3} [{low:.3}, {high:.3}]", estimate.value),
        None => format!("{:.3} (n={})", estimate.value, estimate.count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    fn sample(engine: &str, act: &str, metric: &str, (round, value): (u32, f64)) -> Sample {
        Sample::of(engine, (metric, "1/s"), value).with("act", act).in_round(round)
    }

    #[test]
    fn only_what_was_measured_has_a_row_and_every_target_a_line() {
        let mut samples = Vec::new();
        for round in 1..=3 {
            samples.push(sample("pager", "seq-read", "rate", (round, 120e3)));
            samples.push(sample("swapfile", "seq-read", "rate", (round, 40e3 + f64::from(round))));
            samples.push(sample("pager", "", "killed", (round, 0.0)));
        }
        let text = tables(&samples);
        assert!(text.contains("120 [120, 120]") && text.contains("0 of 3"), "{text}");
        assert!(!text.contains("umap-4k "), "{text}");
        let first =
            text.lines().find(|line| line.contains("T1 ") && line.contains("swap file")).unwrap();
        assert!(first.contains(">= 2") && first.contains("reached"), "{first}");
        assert_eq!(text.lines().filter(|line| line.starts_with("  T")).count(), TARGETS.len());
        assert!(text.lines().all(|line| line.len() < 170), "{text}");
    }

    #[test]
    fn nothing_at_all_is_said_too() {
        let text = tables(&[]);
        assert!(text.contains("not measured") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn the_same_samples_give_the_same_tables() {
        let expected = include_str!("../../tests/golden/paging.txt");
        golden::assert_same_words(&tables(&golden::samples("paging")), expected);
    }
}
