//! Tables made of recorded samples are the tables printed when the samples were recorded.
//!
//! The files are in tests/golden. Columns may move; words and numbers may not.

use odfork_samples::samples::{read, Recording, Sample};

pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// A recorded file.
pub fn recording(folder: &str, name: &str) -> Recording {
    read(&std::path::Path::new(folder).join(format!("{name}.jsonl"))).unwrap()
}

/// The samples of a recorded file.
pub fn samples(name: &str) -> Vec<Sample> {
    recording(FOLDER, name).samples
}

/// What was printed then.
pub fn expected(name: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(FOLDER).join(format!("{name}.txt"))).unwrap()
}

fn words(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Compares line by line and word by word.
pub fn assert_same_words(table: &str, expected: &str) {
    assert_eq!(words(table), words(expected), "{table}");
}

/// The same, but the ends of intervals may move by a third: they come from a few resampled medians,
/// and the resampling was by another generator when the text was recorded. Numbers, verdicts and
/// counts may not move.
pub fn assert_same_but_intervals(table: &str, expected: &str) {
    let (seen, before) =
        (words(&without_intervals(table).0), words(&without_intervals(expected).0));
    for (seen, before) in seen.iter().zip(&before) {
        assert_eq!(seen, before, "{table}");
    }
    assert_eq!(seen.len(), before.len());
    let (seen, before) = (without_intervals(table).1, without_intervals(expected).1);
    assert_eq!(seen.len(), before.len(), "{table}");
    for (seen, before) in seen.into_iter().zip(before) {
        assert!((seen / before - 1.0).abs() < 0.34, "{seen} instead of {before}: {table}");
    }
}

/// The text without what is in brackets, and the numbers that were there, in base units.
fn without_intervals(text: &str) -> (String, Vec<f64>) {
    let (mut rest, mut outside, mut ends) = (text, String::new(), Vec::new());
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').unwrap();
        outside += before;
        ends.extend(inside.split(", ").filter_map(base_unit));
        rest = after;
    }
    (outside + rest, ends)
}

/// "1.5 ms" as 1.5e6.
fn base_unit(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit {
        "us" | "kB/s" => 1e3,
        "ms" | "MB/s" | "MB" => 1e6,
        "s" | "GB/s" => 1e9,
        _ => 1.0,
    };
    Some(number.parse::<f64>().ok()? * scale)
}
