//! The tables of `afl`: a block for each target, a row for each arm; ratios and goals; what was
//! published. Pure.

use std::fmt::Write;

use crate::tables::ratios;
use odfork_proc::table::columns;
use odfork_proc::text::{digits, size};
use odfork_samples::digest::{paired_ratio, Digest, Point};
use odfork_samples::published;
use odfork_samples::samples::Sample;
use odfork_samples::stats::{median, Estimate};

/// The experiment whose published figures stand below.
const PUBLISHED: &str = "afl";
/// Executions a second of the arm `eager`, in those of `plain`, by bytes of the database.
const GOALS: [(u64, f64); 2] = [(256 << 20, 10.0), (1 << 30, 30.0)];
const GOAL_OF: &str = "eager";
/// The same with AddressSanitizer.
const GOALS_ASAN: [(u64, f64); 1] = [(1 << 30, 3.0)];

const HEAD: [&str; 11] = [
    "", "1/s", "first", "last", "edges", "lost", "edges/s", "stable %", "corpus", "crashes",
    "ready s",
];

const FOOT: &str = "\
1/s: median of the slices; first, last: of these slices. edges: found in all slices; lost: those
that no saved input reaches in a fresh process. ready: until fuzzing began.
";

pub fn tables(samples: &[Sample]) -> String {
    let digest = Digest::of_samples(samples);
    let mut text = String::new();
    for place in digest.places("rate") {
        text += &case(&digest, place);
    }
    if text.is_empty() {
        return "nothing was measured\n".into();
    }
    text + "\n" + FOOT + &published_table()
}

fn case(digest: &Digest, place: &Point) -> String {
    let bytes = place.number("bytes") as u64;
    let mut what =
        if bytes == 0 { "small program".into() } else { format!("SQLite, {}", size(bytes)) };
    let asan = place.word("sanitizer") == "address";
    if asan {
        what += ", AddressSanitizer";
    }
    let goals: &[(u64, f64)] = if asan { &GOALS_ASAN } else { &GOALS };
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut compared: Vec<(String, Estimate)> = Vec::new();
    let mut judged = String::new();
    for arm in digest.of_metric("rate").filter(|point| point.params == place.params) {
        rows.push(row(digest, arm));
        let stock = digest.twin(arm, "plain").filter(|_| arm.configuration != "plain");
        let Some(ratio) = stock.and_then(|stock| paired_ratio(arm, stock)) else { continue };
        judged += &verdict(goals, bytes, &arm.configuration, ratio.value);
        compared.push((format!("{} / plain", arm.configuration), ratio));
    }
    let rounds = place.samples.len();
    format!("\n{what}, {rounds} slices each\n{}{}{judged}", columns(&rows), ratios(&compared))
}

fn verdict(goals: &[(u64, f64)], bytes: u64, arm: &str, ratio: f64) -> String {
    let goal = goals.iter().find(|goal| goal.0 == bytes && arm == GOAL_OF);
    let Some((_, goal)) = goal else { return String::new() };
    let word = if ratio >= *goal { "met" } else { "MISSED" };
    format!("goal: {arm} at least {goal} times plain: {word}\n")
}

fn row(digest: &Digest, arm: &Point) -> Vec<String> {
    let rates = arm.values();
    let of = |value: Option<f64>| value.map_or("-".into(), digits);
    // The last of several runs in a file.
    let last = |metric: &str| digest.beside(arm, metric)?.values().last().copied();
    let mut cells = vec![format!("  {}", arm.configuration)];
    cells.extend([median(&rates), rates.first().copied(), rates.last().copied()].map(of));
    cells.extend(["edges-found", "lost", "edge-rate"].map(|metric| of(last(metric))));
    cells.push(of(last("stability").map(|share| share * 100.0)));
    cells.extend(["corpus", "crashes", "ready"].map(|metric| of(last(metric))));
    cells
}

fn published_table() -> String {
    let points = published::points(PUBLISHED);
    let mut rows = Vec::new();
    let mut source = "";
    for point in &points {
        rows.push(vec![format!("  {}", point.series), format!("{} 1/s", digits(point.y))]);
        source = point.source;
    }
    let mut text = String::from("\npublished:\n") + &columns(&rows);
    let _ = writeln!(text, "  ({source})");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arm: &str, metric: &str, round: u32, value: f64) -> Sample {
        Sample::of(arm, (metric, "1/s"), value).with("bytes", 1u64 << 30).in_round(round)
    }

    #[test]
    fn each_arm_has_a_row_a_ratio_and_a_verdict_and_the_published_rates_stand_below() {
        let mut samples = Vec::new();
        for round in 1..=4 {
            samples.push(sample("plain", "rate", round, 25.0));
            samples.push(sample("eager", "rate", round, if round < 4 { 500.0 } else { 525.0 }));
        }
        samples.push(sample("eager", "stability", 4, 0.995));
        samples.push(sample("eager", "lost", 4, 812.0));
        let text = tables(&samples);
        let row = text.lines().find(|line| line.starts_with("  eager")).unwrap();
        assert!(row.contains("500") && row.contains("99.5") && row.contains("812"), "{row}");
        assert!(text.contains("eager / plain  20.0x"), "{text}");
        assert!(text.contains("at least 30 times plain: MISSED"), "{text}");
        assert!(text.contains("63.0 1/s") && text.contains("206 1/s"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("TriforceAFL"), "{text}");
        assert!(tables(&[]).starts_with("nothing was measured"));
    }

    #[test]
    fn goals_are_of_their_sizes_arm_and_sanitizer_alone() {
        let of = |bytes, arm, ratio| verdict(&GOALS, bytes, arm, ratio);
        assert!(of(256 << 20, "eager", 10.0).contains("met"));
        assert!(of(256 << 20, "eager", 9.9).contains("MISSED"));
        assert_eq!(of(64 << 20, "eager", 1.0) + &of(1 << 30, "auto", 1.0), "");
        let mut samples = vec![sample("plain", "rate", 1, 10.0), sample("eager", "rate", 1, 31.0)];
        for one in &mut samples {
            one.params.insert("sanitizer".into(), "address".into());
        }
        let text = tables(&samples);
        assert!(text.contains("1 GB, AddressSanitizer, 1 slices"), "{text}");
        assert!(text.contains("at least 3 times plain: met"), "{text}");
    }
}
