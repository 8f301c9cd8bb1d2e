//! Tables made of recorded samples are the tables printed when the samples were recorded.
//!
//! The files are in tests/golden. Columns may move; words and numbers may not.

use odfork_samples::samples::{read, Sample};

/// The samples of a recorded file.
pub fn samples(name: &str) -> Vec<Sample> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    read(&std::path::Path::new(folder).join(format!("{name}.jsonl"))).unwrap().samples
}

/// Compares line by line and word by word.
pub fn assert_same_words(table: &str, expected: &str) {
    let words = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    assert_eq!(words(table), words(expected), "{table}");
}
