//! The promised figures T1 to T8, and whether a run reaches them. Data and judgement, no measuring.
//!
//! A figure is a ratio (or a difference, or one number) of samples of the same rounds. It is
//! reached when the whole 95 % interval is on the right side, missed when it is on the wrong side,
//! undecided between, or with too few rounds.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::digest::{paired_ratio, pairs, Digest, Point};
use crate::stats::{estimate_median, Estimate, Rng};

/// Which samples: engine, act, metric.
pub type Series = (&'static str, &'static str, &'static str);

/// What a target is a number of.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", bound = "'de: 'static")]
pub enum Of {
    /// First over second.
    Ratio(Series, Series),
    /// First less second.
    Difference(Series, Series),
    /// The series itself.
    One(Series),
    /// The sum over all rounds.
    Sum(Series),
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// A number that was aimed at, and how samples give it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Target {
    /// Its short name.
    pub name: &'static str,
    /// What it says, for people.
    pub what: &'static str,
    /// How it is computed.
    #[serde(flatten)]
    pub of: Of,
    #[serde(flatten)]
    goal: Goal,
}

/// All targets, from `targets.json`.
pub static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("targets.json")).expect("targets.json is checked by tests")
});

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is on the right side.
    Reached,
    /// The whole interval is on the wrong side.
    Missed,
    /// The interval holds the goal.
    Undecided,
    /// A side was not measured.
    Unmeasured,
}

impl Verdict {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "MISSED",
            Verdict::Undecided => "undecided",
            Verdict::Unmeasured => "not measured",
        }
    }
}

use Goal::{AtLeast, AtMost};
use Of::{Difference, One, Ratio, Sum};

impl Target {
    /// ">= 2", "<= 0.01"; nothing where there is none.
    pub fn goal_words(&self) -> String {
        match self.goal {
            AtLeast(0.0) => String::new(),
            AtLeast(goal) => format!(">= {goal}"),
            AtMost(goal) => format!("<= {goal}"),
        }
    }

    /// The number, and what becomes of the target.
    pub fn judge(&self, digest: &Digest) -> (Option<Estimate>, Verdict) {
        let Some(estimate) = self.estimate(digest) else { return (None, Verdict::Unmeasured) };
        let verdict = match (self.of, self.goal, estimate.interval) {
            (Sum(_), AtMost(goal), _) if estimate.value <= goal => Verdict::Reached,
            (Sum(_), ..) => Verdict::Missed,
            (_, _, None) => Verdict::Undecided,
            (_, AtLeast(goal), Some((low, _))) if low >= goal => Verdict::Reached,
            (_, AtLeast(goal), Some((_, high))) if high < goal => Verdict::Missed,
            (_, AtMost(goal), Some((_, high))) if high <= goal => Verdict::Reached,
            (_, AtMost(goal), Some((low, _))) if low > goal => Verdict::Missed,
            _ => Verdict::Undecided,
        };
        (Some(estimate), verdict)
    }

    fn estimate(&self, digest: &Digest) -> Option<Estimate> {
        let of = |series| point(digest, series);
        match self.of {
            Ratio(top, bottom) => paired_ratio(of(top)?, of(bottom)?),
            Difference(first, second) => {
                let all = pairs(of(first)?, of(second)?);
                let differences: Vec<f64> = all.into_iter().map(|(a, b)| a - b).collect();
                estimate_median(&differences, &mut Rng::with_seed(1))
            }
            One(series) => Some(of(series)?.estimate()),
            Sum(series) => {
                let values = of(series)?.values();
                Some(Estimate { value: values.iter().sum(), interval: None, count: values.len() })
            }
        }
    }
}

/// What was measured of a series.
pub fn point<'a>(
    digest: &'a Digest,
    (engine, act, metric): (&str, &str, &str),
) -> Option<&'a Point> {
    let is_of =
        |p: &&Point| p.configuration == engine && p.metric == metric && p.word("act") == act;
    digest.points.iter().find(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Sample;

    fn sample(engine: &str, act: &str, metric: &str, (round, value): (u32, f64)) -> Sample {
        Sample::of(engine, (metric, "1/s"), value).with("act", act).in_round(round)
    }

    fn series(engine: &str, values: &[f64]) -> Vec<Sample> {
        (1..)
            .zip(values)
            .map(|(round, &value)| sample(engine, "seq-read", "rate", (round, value)))
            .collect()
    }

    fn judge(pager: &[f64], swap: &[f64]) -> Verdict {
        let samples = [series("pager", pager), series("swapfile", swap)].concat();
        TARGETS[0].judge(&Digest::of_samples(&samples)).1
    }

    #[test]
    fn the_interval_decides() {
        let swap = [40.0, 42.0, 39.0, 41.0, 40.0];
        assert_eq!(judge(&[120.0, 130.0, 118.0, 121.0, 125.0], &swap), Verdict::Reached);
        assert_eq!(judge(&[60.0, 61.0, 62.0, 59.0, 60.0], &swap), Verdict::Missed);
        assert_eq!(judge(&[60.0, 100.0, 62.0, 110.0, 81.0], &swap), Verdict::Undecided);
        assert_eq!(judge(&[120.0], &[40.0]), Verdict::Undecided, "one round decides nothing");
        assert_eq!(judge(&[], &swap), Verdict::Unmeasured);
    }

    #[test]
    fn only_rounds_with_both_sides_count() {
        let mut samples = series("pager", &[100.0, 100.0, 100.0]);
        samples.extend(series("swapfile", &[40.0, 40.0, 40.0, 1.0, 1.0]));
        let (estimate, _) = TARGETS[0].judge(&Digest::of_samples(&samples));
        assert_eq!(estimate.unwrap().value, 2.5);
        assert_eq!(estimate.unwrap().count, 3);
    }

    #[test]
    fn a_kill_in_any_round_is_a_miss() {
        let target = TARGETS.iter().find(|target| target.what.contains("killed")).unwrap();
        let kills = |counts: &[f64]| {
            let samples: Vec<Sample> = (1..)
                .zip(counts)
                .map(|(round, &count)| sample("pager-lz4", "", "killed", (round, count)))
                .collect();
            target.judge(&Digest::of_samples(&samples)).1
        };
        assert_eq!(
            (kills(&[0.0, 0.0]), kills(&[0.0, 1.0]), kills(&[])),
            (Verdict::Reached, Verdict::Missed, Verdict::Unmeasured)
        );
    }

    #[test]
    fn a_difference_is_of_the_same_rounds() {
        let target = TARGETS.iter().find(|target| target.what.contains("page-ins")).unwrap();
        let make = |engine, values: [f64; 3]| {
            (1..)
                .zip(values)
                .map(move |(round, value)| sample(engine, "zipf", "major", (round, value)))
        };
        let samples: Vec<Sample> =
            make("pager", [0.26, 0.36, 0.46]).chain(make("swapfile", [0.27, 0.37, 0.47])).collect();
        let (estimate, verdict) = target.judge(&Digest::of_samples(&samples));
        assert!((estimate.unwrap().value + 0.01).abs() < 1e-9);
        assert_eq!(verdict, Verdict::Reached);
    }
}
