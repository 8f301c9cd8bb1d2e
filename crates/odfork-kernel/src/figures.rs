//! Samples of the guest's benchmark, and the table made of them: medians, ratios of pairs, and what
//! was published.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use odfork_bench::runner::Number;
use odfork_samples::samples::Sample;
use odfork_samples::stats::{estimate_median, estimate_ratio, median, Estimate, Rng};
use serde_json::Value;

/// From a line of the guest's program; None when it is none. The mode is the configuration.
pub fn read(line: &[u8]) -> Option<Number> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let number = Number::new(value["measure"].as_str()?, "ns", value["ns"].as_f64()?);
    Some(Number {
        engine: Some(value["mode"].as_str()?.into()),
        round: Some(u32::try_from(value["round"].as_u64()?).ok()?),
        ..number.with("bytes", value["bytes"].as_u64()?)
    })
}

/// A line of the table: what is measured, and the published figures in ns where there are some.
struct Row {
    name: &'static str,
    measure: &'static str,
    megabytes: u64,
    published: Option<(f64, f64)>,
    /// What the ratio kernel/plain should be at most.
    goal: Option<f64>,
}

/// Published: an implementation for Linux 6.0.6 in a guest of this kind (fork, write-one, read-all
/// at 1 GB).
const ROWS: [Row; 9] = [
    Row { name: "fork, 4 MB", measure: "fork", megabytes: 4, published: None, goal: None },
    Row { name: "fork, 512 MB", measure: "fork", megabytes: 512, published: None, goal: None },
    Row {
        name: "fork, 1 GB",
        measure: "fork",
        megabytes: 1024,
        published: Some((15_480e3, 230e3)),
        goal: Some(1.0 / 67.0),
    },
    Row {
        name: "fork, 2 GB",
        measure: "fork",
        megabytes: 2048,
        published: Some((31_153e3, 262e3)),
        goal: Some(1.0 / 119.0),
    },
    Row {
        name: "child writes one page, 4 MB",
        measure: "write-one",
        megabytes: 4,
        published: None,
        goal: None,
    },
    Row {
        name: "child writes one page, 1 GB",
        measure: "write-one",
        megabytes: 1024,
        published: Some((52_134e3, 644e3)),
        goal: Some(644.0 / 52_134.0),
    },
    Row {
        name: "child reads everything, 1 GB",
        measure: "read-all",
        megabytes: 1024,
        published: Some((70_600e3, 19_600e3)),
        goal: Some(19.6 / 70.6),
    },
    Row {
        name: "child writes everything, 512 MB",
        measure: "write-all",
        megabytes: 512,
        published: None,
        goal: Some(1.0),
    },
    Row {
        name: "first write into a table",
        measure: "fault",
        megabytes: 512,
        published: None,
        goal: Some(4.0),
    },
];

/// Added to the name of a kernel that ran in a counting guest: its nanoseconds are instructions.
pub const COUNTED: &str = ", counted";

/// The whole table; a line that has no samples is left out.
pub fn table(samples: &[Sample]) -> String {
    let mut rng = Rng::with_seed(1);
    let mut text = format!(
        "{:32} {:>18} {:>18} {:>24}  {}\n",
        "median", "plain", "kernel", "kernel / plain", "published; goal"
    );
    text += &pairs(samples, "patched", &mut rng);
    text += &at_once(samples, &mut rng);
    text += &price_of_off(samples, &mut rng);
    if samples.iter().any(|sample| sample.word("kernel").ends_with(COUNTED)) {
        text += "the same in instructions (1 us: a thousand)\n";
        text += &pairs(samples, &format!("patched{COUNTED}"), &mut rng);
        text += &counted_price_of_off(samples, &mut rng);
    }
    text
}

/// The lines of one kernel's two modes.
fn pairs(samples: &[Sample], guest: &str, rng: &mut Rng) -> String {
    let mut text = String::new();
    for row in &ROWS {
        let find = |mode: &str| series(samples, guest, row.measure, row.megabytes, mode);
        let (plain, kernel) = pair(&find("plain"), &find("kernel"));
        let only = values(&find("plain"));
        let Some(left) = estimate_median(if plain.is_empty() { &only } else { &plain }, rng) else {
            continue;
        };
        let right = estimate_median(&kernel, rng);
        let ratio = estimate_ratio(&kernel, &plain, rng);
        let _ = writeln!(
            text,
            "{:32} {:>18} {:>18} {:>24}  {}",
            row.name,
            time(Some(left)),
            time(right),
            share(ratio),
            if guest.ends_with(COUNTED) { String::new() } else { remark(row, ratio) }
        );
    }
    text
}

/// Both in counting guests, where rounds can be paired although the kernels did not run together.
fn counted_price_of_off(samples: &[Sample], rng: &mut Rng) -> String {
    let mut text = String::new();
    for (measure, megabytes) in [("fork", 4), ("fork", 512), ("fault", 512)] {
        let find = |kernel: &str| {
            series(samples, &format!("{kernel}{COUNTED}"), measure, megabytes, "plain")
        };
        let (off, unpatched) = pair(&find("off"), &find("unpatched"));
        if let Some(found) = estimate_ratio(&off, &unpatched, rng) {
            let _ = writeln!(
                text,
                "{:32} {:>18} {:>18} {:>24}  within 1.02",
                format!("off / unpatched, {measure} {megabytes} MB"),
                time(estimate_median(&unpatched, rng)),
                time(estimate_median(&off, rng)),
                share(Some(found)),
            );
        }
    }
    text
}

fn remark(row: &Row, ratio: Option<Estimate>) -> String {
    let published = row.published.map_or(String::new(), |(plain, kernel)| {
        format!("{} to {} ({:.1} times)", micro(plain), micro(kernel), plain / kernel)
    });
    let goal = row.goal.map_or(String::new(), |goal| {
        let word = match ratio {
            Some(found) if found.straddles(goal) => "undecided",
            Some(found) if found.value <= goal => "reached",
            Some(_) => "missed",
            None => "not measured",
        };
        format!("at most {}: {word}", number(goal))
    });
    [published, goal].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Three forkers of one parent's tables against one alone.
fn at_once(samples: &[Sample], rng: &mut Rng) -> String {
    let mut text = String::new();
    for mode in ["plain", "kernel"] {
        let find = |measure: &str| series(samples, "patched", measure, 512, mode);
        let (one, three) = pair(&find("one-forker"), &find("three-forkers"));
        let ratio = estimate_ratio(&three, &one, rng);
        if let Some(found) = ratio {
            let goal = if mode == "kernel" { "at most 1.3" } else { "" };
            let _ = writeln!(
                text,
                "{:32} {:>18} {:>18} {:>24}  {goal}",
                format!("three forkers / one, {mode}"),
                time(estimate_median(&one, rng)),
                time(estimate_median(&three, rng)),
                share(Some(found))
            );
        }
    }
    text
}

/// Medians of boots in pairs: a boot is one sample here, for memory lies elsewhere in each.
fn price_of_off(samples: &[Sample], rng: &mut Rng) -> String {
    let mut text = String::new();
    for measure in ["fork", "fault"] {
        let boots = |kernel: &str| -> Vec<f64> {
            let mut boots: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            let of = |s: &&Sample| is_of(s, kernel, measure, 512);
            for sample in samples.iter().filter(of) {
                boots.entry(sample.number("boot") as u64).or_default().push(sample.value);
            }
            boots.values().filter_map(|values| median(values)).collect()
        };
        let (off, unpatched) = (boots("off"), boots("unpatched"));
        if let Some(found) = estimate_ratio(&off, &unpatched, rng) {
            let _ = writeln!(
                text,
                "{:32} {:>18} {:>18} {:>24}  within 1.02 ({} boots each)",
                format!("off / unpatched, {measure} 512 MB"),
                time(estimate_median(&unpatched, rng)),
                time(estimate_median(&off, rng)),
                share(Some(found)),
                off.len()
            );
        }
    }
    text
}

fn series<'a>(
    samples: &'a [Sample],
    kernel: &str,
    measure: &str,
    megabytes: u64,
    mode: &str,
) -> Vec<&'a Sample> {
    let is = |s: &&Sample| is_of(s, kernel, measure, megabytes) && s.engine == mode;
    samples.iter().filter(is).collect()
}

fn is_of(sample: &Sample, kernel: &str, measure: &str, megabytes: u64) -> bool {
    sample.word("kernel") == kernel
        && sample.metric == measure
        && sample.number("bytes") == (megabytes << 20) as f64
}

fn values(series: &[&Sample]) -> Vec<f64> {
    series.iter().map(|sample| sample.value).collect()
}

/// Only rounds that both have: the i-th of both belong together.
fn pair(left: &[&Sample], right: &[&Sample]) -> (Vec<f64>, Vec<f64>) {
    let partner = |sample: &Sample| right.iter().find(|other| other.round == sample.round);
    left.iter().filter_map(|sample| Some((sample.value, partner(sample)?.value))).unzip()
}

fn micro(ns: f64) -> String {
    match ns {
        ns if ns >= 10e6 => format!("{:.1} ms", ns / 1e6),
        ns if ns >= 10e3 => format!("{:.0} us", ns / 1e3),
        ns => format!("{:.2} us", ns / 1e3),
    }
}

fn time(estimate: Option<Estimate>) -> String {
    let Some(found) = estimate else { return "-".into() };
    match found.interval {
        Some((low, high)) => {
            format!("{} ±{:.0} %", micro(found.value), 50.0 * (high - low) / found.value.max(1e-9))
        }
        None => micro(found.value),
    }
}

fn share(estimate: Option<Estimate>) -> String {
    let Some(found) = estimate else { return "-".into() };
    match found.interval {
        Some((low, high)) => format!("{} [{}, {}]", number(found.value), number(low), number(high)),
        None => number(found.value),
    }
}

fn number(value: f64) -> String {
    if value < 0.1 {
        format!("{value:.4}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kernel: &str, boot: u32, measure: &str, mode: &str, round: u32, ns: f64) -> Sample {
        let bytes: u64 = if measure == "write-one" { 1 << 30 } else { 512 << 20 };
        let line = format!(
            r#"{{"measure":"{measure}","bytes":{bytes},"mode":"{mode}","round":{round},"ns":{ns}}}"#
        );
        recorded(line.as_bytes(), kernel, boot)
    }

    /// As the runner records a line of a guest.
    fn recorded(line: &[u8], kernel: &str, boot: u32) -> Sample {
        let number = read(line).unwrap().with("boot", boot).with("kernel", kernel);
        Sample {
            experiment: "kernel".into(),
            engine: number.engine.unwrap(),
            metric: number.metric,
            unit: number.unit.into(),
            value: number.value,
            params: number.params,
            round: number.round.unwrap(),
            at_s: 0.0,
        }
    }

    #[test]
    fn a_line_of_the_guest_is_a_number_and_noise_is_not() {
        let line =
            br#"{"measure":"fork","bytes":1073741824,"mode":"kernel","round":3,"ns":230000}"#;
        let read_back = recorded(line, "patched", 0);
        assert_eq!(read_back.number("bytes") as u64 >> 30, 1);
        assert_eq!((read_back.round, read_back.value), (3, 230_000.0));
        assert_eq!(read(b"hello\n"), None);
    }

    #[test]
    fn pairs_give_ratios_and_the_goal_is_judged() {
        let mut samples = Vec::new();
        for round in 1..=9 {
            samples.push(sample("patched", 0, "fault", "plain", round, 1000.0));
            samples.push(sample("patched", 0, "fault", "kernel", round, 3000.0));
            samples.push(sample("patched", 0, "write-one", "plain", round, 50e6));
        }
        for boot in 1..=3 {
            samples.push(sample("off", boot, "fork", "plain", 1, 101.0));
            samples.push(sample("unpatched", boot, "fork", "plain", 1, 100.0));
        }
        let text = table(&samples);
        assert!(
            text.contains("3.000 [3.000, 3.000]") && text.contains("at most 4.000: reached"),
            "{text}"
        );
        assert!(text.contains("child writes one page") && text.contains("not measured"), "{text}");
        assert!(text.contains("52.1 ms to 644 us (81.0 times)"), "{text}");
        assert!(text.contains("1.010 [1.010, 1.010]") && !text.contains("fork, 2 GB"), "{text}");
    }

    #[test]
    fn only_whole_rounds_count() {
        let all = [
            sample("patched", 0, "fork", "plain", 1, 1.0),
            sample("patched", 0, "fork", "kernel", 2, 5.0),
            sample("patched", 0, "fork", "plain", 2, 2.0),
        ];
        let find = |mode| series(&all, "patched", "fork", 512, mode);
        assert_eq!(pair(&find("plain"), &find("kernel")), (vec![2.0], vec![5.0]));
    }

    /// Lines of guests, each after the kernel and boot it came from; the table is the one printed
    /// when they were recorded. Columns may move; words and numbers may not.
    #[test]
    fn the_same_samples_give_the_same_table() {
        let words = |text: &str| -> Vec<Vec<String>> {
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
        };
        let lines = include_str!("../tests/golden/guest.txt").lines();
        let samples: Vec<Sample> = lines
            .map(|line| {
                let parts: Vec<&str> = line.splitn(3, '\t').collect();
                recorded(parts[2].as_bytes(), parts[0], parts[1].parse().unwrap())
            })
            .collect();
        let table = table(&samples);
        assert_eq!(words(&table), words(include_str!("../tests/golden/table.txt")), "{table}");
    }
}
