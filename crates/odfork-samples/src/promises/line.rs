//! A judged figure as a line of the sample file, so that other tools need not judge again.

use serde::{Deserialize, Serialize};

use super::{Finding, Goal, Verdict};
use crate::stats::Estimate;

/// A [`Finding`] as a line of a sample file (docs/samples.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureLine {
    /// Its short name.
    pub name: String,
    /// What it says, for people.
    pub about: String,
    /// The group of the suite.
    pub experiment: String,
    /// Plain fork; absent when it was not measured.
    pub base: Option<Summary>,
    /// odfork.
    pub odfork: Option<Summary>,
    /// Plain fork with transparent huge pages.
    pub thp: Option<Summary>,
    /// Their ratio; see `reading`.
    pub ratio: Option<Summary>,
    /// What `ratio` is: base/odfork, odfork/base or bytes.
    pub reading: String,
    /// The number at which the judgement turns.
    pub goal: Option<f64>,
    /// met, missed, reported, not judged or n/a.
    pub verdict: String,
    /// Why there is no judgement.
    pub reason: Option<String>,
}

/// An [`Estimate`] as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// Lower end of the 95 % interval.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Samples behind it.
    pub count: usize,
}

impl From<Estimate> for Summary {
    fn from(estimate: Estimate) -> Self {
        Summary {
            median: estimate.value,
            low: estimate.interval.map(|(low, _)| low),
            high: estimate.interval.map(|(_, high)| high),
            count: estimate.count,
        }
    }
}

impl From<&Finding> for FigureLine {
    fn from(finding: &Finding) -> FigureLine {
        let (reading, goal) = match finding.figure.goal {
            Goal::Times(least) => ("base/odfork", Some(least)),
            Goal::TimesReported => ("base/odfork", None),
            Goal::Share(most) => ("odfork/base", Some(most)),
            Goal::ShareReported => ("odfork/base", None),
            Goal::Bytes(most) => ("bytes", Some(most as f64)),
        };
        let close = |close: &bool| close.then_some("close");
        let (verdict, reason) = match &finding.verdict {
            Verdict::Met { close: near } => ("met", close(near)),
            Verdict::Missed { close: near } => ("missed", close(near)),
            Verdict::Reported => ("reported", None),
            Verdict::Scaled { .. } => ("not judged", Some("another size than the goal's")),
            Verdict::Unavailable(reason) => ("n/a", Some(reason.as_str())),
        };
        FigureLine {
            name: finding.figure.name.into(),
            about: finding.figure.about.into(),
            experiment: finding.figure.group.into(),
            base: finding.base.map(Summary::from),
            odfork: finding.subject.map(Summary::from),
            thp: finding.third.map(Summary::from),
            ratio: finding.ratio.map(Summary::from),
            reading: reading.into(),
            goal,
            verdict: verdict.into(),
            reason: reason.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::promises::{figures, judge};
    use crate::samples::{Line, Recording};
    use crate::stats::Rng;

    #[test]
    fn a_figure_is_a_line_that_says_how_it_was_judged() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../odfork-bench/tests/golden");
        let path = std::path::Path::new(path).join("promises-full.jsonl");
        let recording: Recording = crate::samples::read(&path).unwrap();
        let figure = figures().into_iter().find(|f| f.name == "read-1g").unwrap();
        let finding = judge(figure, &recording, &mut Rng::with_seed(1));
        let line = serde_json::to_value(Line::Figure(Box::new((&finding).into()))).unwrap();
        assert_eq!((&line["kind"], &line["verdict"]), (&"figure".into(), &"met".into()));
        assert_eq!(line["ratio"]["median"], finding.ratio.unwrap().value);
        assert_eq!((&line["goal"], &line["reading"]), (&10.0.into(), &"base/odfork".into()));
    }
}
