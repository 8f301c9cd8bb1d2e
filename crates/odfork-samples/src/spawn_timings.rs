//! Ratios between ways to start a program: by memory, by method, by actions; for the report and for
//! the terminal.
//!
//! Owns which comparisons answer the experiment's questions. Every ratio is of medians over the
//! rounds that have both sides (`digest`); what was not measured together is left out.

use crate::digest::{paired_ratio, Digest, Point};
use crate::samples::Sample;
use crate::stats::Estimate;
use crate::unit::Unit;

const METRIC: &str = "each";
/// The published size.
const PUBLISHED: f64 = 20.0 * 1048576.0;
/// What the others are compared with: this project's way.
const OURS: &str = "spawn";
const LENDING: [&str; 3] = ["spawn", "posix_spawn", "vfork+exec"];

/// Nothing asked besides the program. Files from before there were actions do not say.
pub fn is_plain(point: &Point) -> bool {
    matches!(point.word("actions").as_str(), "plain" | "")
}

/// Whether this way of starting was also measured with file actions.
pub fn acts(method: &str) -> bool {
    matches!(method, "posix_spawn" | "spawn")
}

/// Starts of one kind from parents that use so much; the least allocated of them.
pub fn at<'a>(
    digest: &'a Digest,
    configuration: &str,
    (method, actions): (&str, &str),
    used: f64,
) -> Option<&'a Point> {
    digest.of_metric(METRIC).find(|p| {
        let asked = if actions == "plain" { is_plain(p) } else { p.word("actions") == actions };
        p.configuration == configuration
            && p.word("method") == method
            && asked
            && p.number("used") == used
    })
}

/// What is compared, and how many times as long the first takes.
pub type Line = (String, Estimate);

fn line(what: String, top: Option<&Point>, bottom: Option<&Point>) -> Option<Line> {
    Some((what, paired_ratio(top?, bottom?)?))
}

/// The few that the front page has.
pub fn headlines(digest: &Digest) -> Vec<Line> {
    let Some(largest) = sizes(digest).last().copied() else { return Vec::new() };
    let mut lines = fork_against(digest, &["vfork+exec", "posix_spawn", OURS], largest);
    lines.extend(across(digest, OURS));
    lines.extend(same_actions(digest, "plain", largest));
    lines.extend(under_engines(digest, largest));
    lines
}

/// All of them.
pub fn ratios(digest: &Digest) -> Vec<Line> {
    let mut lines = Vec::new();
    lines.extend(LENDING.iter().filter_map(|method| across(digest, method)));
    let sizes = sizes(digest);
    for &used in &sizes {
        lines.extend(fork_against(digest, &LENDING, used));
    }
    let largest = sizes.last().copied().into_iter();
    let shown: Vec<f64> = sizes.iter().copied().filter(|&used| used == PUBLISHED).collect();
    for used in shown.into_iter().chain(largest.filter(|&used| used != PUBLISHED)) {
        lines.extend(actions(digest).iter().filter_map(|it| same_actions(digest, it, used)));
        for method in ["rust-command", "popen", "python-subprocess"] {
            let (theirs, ours) = (plain(digest, method, used), plain(digest, OURS, used));
            lines.extend(line(format!("{method} / {OURS}, {}", words(used)), theirs, ours));
        }
        lines.extend(under_engines(digest, used));
    }
    lines
}

fn sizes(digest: &Digest) -> Vec<f64> {
    digest.numbers(METRIC, "used")
}

/// What was asked of starts, nothing first.
pub fn actions(digest: &Digest) -> Vec<String> {
    let mut all = digest.words(METRIC, "actions");
    all.sort_by_key(|actions| actions != "plain");
    all
}

fn words(used: f64) -> String {
    Unit::Bytes.write(used)
}

fn plain<'a>(digest: &'a Digest, method: &str, used: f64) -> Option<&'a Point> {
    at(digest, "plain", (method, "plain"), used)
}

/// From the largest parent against from the smallest: 1 is flat.
fn across(digest: &Digest, method: &str) -> Option<Line> {
    let sizes = sizes(digest);
    let (small, large) = (*sizes.first()?, *sizes.last()?);
    let what = format!("{method}, parent of {} / of {}", words(large), words(small));
    (small < large)
        .then(|| line(what, plain(digest, method, large), plain(digest, method, small)))?
}

fn fork_against(digest: &Digest, methods: &[&str], used: f64) -> Vec<Line> {
    let fork = plain(digest, "fork+exec", used);
    let against = |method: &&str| {
        line(format!("fork+exec / {method}, {}", words(used)), fork, plain(digest, method, used))
    };
    methods.iter().filter_map(against).collect()
}

/// Ours against libc's for the same actions: below 1 ours is faster.
fn same_actions(digest: &Digest, actions: &str, used: f64) -> Option<Line> {
    let of = |method| at(digest, "plain", (method, actions), used);
    let what = format!("{OURS} / posix_spawn, {actions}, {}", words(used));
    line(what, of(OURS), of("posix_spawn"))
}

fn under_engines(digest: &Digest, used: f64) -> Vec<Line> {
    let fork = plain(digest, "fork+exec", used);
    let configuration = |configuration: &&str| {
        let what = format!("fork+exec, plain / {configuration}, {}", words(used));
        line(what, fork, at(digest, configuration, ("fork+exec", "plain"), used))
    };
    ["image", "kernel"].iter().filter_map(configuration).collect()
}

/// The ratios between ways to start a program, from the samples of `exec`: what, and how many
/// times.
pub fn ratios_of_starts(samples: &[Sample]) -> Vec<Line> {
    ratios(&Digest::of_samples(samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1048576.0;

    fn sample((method, actions): (&str, &str), used: f64, round: u32, value: f64) -> Sample {
        let sample = Sample::of("plain", (METRIC, "ns"), value).in_round(round);
        let sample = sample.with("allocated", used).with("used", used);
        sample.with("method", method).with("actions", actions)
    }

    /// The small parent is in the group of the large one; in its own group it is much slower.
    fn digest() -> Digest {
        let mut samples = Vec::new();
        for round in 1..=5 {
            samples.push(sample(("spawn", "plain"), 8.0 * MB, round, 9e9));
            samples.push(sample(("posix_spawn", "plain"), 8.0 * MB, round, 9e9));
        }
        for round in 6..=10 {
            samples.push(sample(("spawn", "plain"), 8.0 * MB, round, 100.0));
            samples.push(sample(("spawn", "plain"), 8192.0 * MB, round, 105.0));
            samples.push(sample(("posix_spawn", "plain"), 8192.0 * MB, round, 210.0));
            samples.push(sample(("fork+exec", "plain"), 8192.0 * MB, round, 63000.0));
            samples.push(sample(("spawn", "chdir"), 8192.0 * MB, round, 110.0));
            samples.push(sample(("posix_spawn", "chdir"), 8192.0 * MB, round, 440.0));
        }
        Digest::of_samples(&samples)
    }

    fn find(lines: &[Line], start: &str) -> f64 {
        let found = lines.iter().find(|(what, _)| what.starts_with(start));
        found.map_or_else(|| panic!("no {start} in {lines:?}"), |(_, ratio)| ratio.value)
    }

    #[test]
    fn sizes_are_compared_in_the_rounds_that_have_both() {
        let lines = ratios(&digest());
        assert_eq!(find(&lines, "spawn, parent of 8 GB / of 8 MB"), 1.05);
        assert!(!lines.iter().any(|(what, _)| what.starts_with("posix_spawn, parent")));
    }

    #[test]
    fn each_actions_are_compared_with_the_same_actions() {
        let lines = ratios(&digest());
        assert_eq!(find(&lines, "spawn / posix_spawn, plain, 8 GB"), 0.5);
        assert_eq!(find(&lines, "spawn / posix_spawn, chdir, 8 GB"), 0.25);
        assert_eq!(find(&lines, "fork+exec / spawn, 8 GB"), 600.0);
        assert_eq!(find(&headlines(&digest()), "fork+exec / posix_spawn"), 300.0);
    }
}
