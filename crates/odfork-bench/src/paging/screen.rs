//! The tables at the end: what each backend did in each act, and the targets. Pure: samples in, text out.

use std::fmt::Write;

use super::acts::Act;
use super::backend::{Backend, ALL};
use odfork_samples::samples::Sample;
use odfork_samples::stats::Estimate;
use odfork_samples::targets::{rounds, TARGETS};

/// Everything that is said of a run.
pub fn tables(samples: &[Sample]) -> String {
    let present: Vec<Backend> = ALL
        .into_iter()
        .filter(|backend| samples.iter().any(|sample| sample.engine == backend.word()))
        .collect();
    format!("{}{}{}", rates(samples, &present), zipf(samples, &present), targets(samples))
}

const RATED: [Act; 7] = [
    Act::Fill,
    Act::SeqRead,
    Act::SeqWrite,
    Act::Zipf,
    Act::Phase,
    Act::Threads(1),
    Act::Threads(8),
];

fn rates(samples: &[Sample], present: &[Backend]) -> String {
    let mut text = String::from(
        "thousand accesses a second (pages of 4 KB, every one checked): median [least, most]\n",
    );
    let _ = write!(text, "  {:<12}", "");
    for act in RATED {
        let _ = write!(text, "{:>20}", act.word());
    }
    text.push('\n');
    for backend in present.iter().filter(|&&backend| backend != Backend::Bare) {
        let _ = write!(text, "  {:<12}", backend.word());
        for act in RATED {
            let values: Vec<f64> =
                rounds(samples, (backend.word(), &act.word(), "rate")).into_values().collect();
            let _ = write!(text, "{:>20}", spread(&values, 1e3));
        }
        text.push('\n');
    }
    text
}

/// "54.2 [51, 60]"; a dash for nothing.
fn spread(values: &[f64], scale: f64) -> String {
    let Some(middle) = odfork_samples::stats::median(values) else { return "-".into() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let word = |value: f64| digits(value / scale);
    match values.len() {
        1 => word(middle),
        _ => format!("{} [{}, {}]", word(middle), word(least), word(most)),
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Latencies and faults of Zipf reads, reclaims, memory: medians.
fn zipf(samples: &[Sample], present: &[Backend]) -> String {
    let columns: [(&str, &str, &str, f64); 9] = [
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
    let mut text = String::from("Zipf 0.9: latency of all accesses and faults an access; a reclaim; memory of the group at its peak\n");
    let _ = write!(text, "  {:<12}", "");
    for (heading, ..) in columns {
        let _ = write!(text, "{heading:>14}");
    }
    text.push('\n');
    for backend in present {
        let _ = write!(text, "  {:<12}", backend.word());
        for (heading, act, metric, scale) in columns {
            let values: Vec<f64> =
                rounds(samples, (backend.word(), act, metric)).into_values().collect();
            let cell = match odfork_samples::stats::median(&values) {
                None => "-".into(),
                Some(_) if heading == "killed" => {
                    format!("{} of {}", values.iter().sum::<f64>(), values.len())
                }
                Some(middle) => digits(middle / scale),
            };
            let _ = write!(text, "{cell:>14}");
        }
        text.push('\n');
    }
    text
}

fn targets(samples: &[Sample]) -> String {
    let mut text = String::from("targets: value [95 % interval over rounds]\n");
    for target in TARGETS {
        let (estimate, verdict) = target.judge(samples);
        let value = estimate.map_or_else(|| "-".into(), words);
        let verdict = if target.goal_words().is_empty() { "" } else { verdict.word() };
        let _ = writeln!(
            text,
            "  {:<3} {:<62} {:>8}  {:<28} {verdict}",
            target.name,
            target.what,
            target.goal_words(),
            value
        );
    }
    text
}

fn words(estimate: Estimate) -> String {
    let number = |value: f64| format!("{value:.3}");
    match estimate.interval {
        Some((low, high)) => {
            format!("{} [{}, {}]", number(estimate.value), number(low), number(high))
        }
        None => format!("{} (n={})", number(estimate.value), estimate.count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use odfork_samples::samples::Params;

    fn sample(engine: &str, act: &str, metric: &str, (round, value): (u32, f64)) -> Sample {
        Sample {
            experiment: "paging".into(),
            engine: engine.into(),
            metric: metric.into(),
            unit: "1/s".into(),
            value,
            params: Params::from([("act".to_string(), act.into())]),
            round,
            at_s: 0.0,
        }
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
