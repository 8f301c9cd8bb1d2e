//! The promised figures of fork: what each compares, how its goal is read, and the judgement from
//! samples. Pure.
//!
//! A figure compares two series of one group of the suite `promises`. `Times` reads "the base takes
//! so many times longer" (more is better), `Share` reads "takes this share of the base's time"
//! (less is better), `Bytes` is an amount. A goal is judged at its nominal size only; a figure
//! missed is printed as missed and never fails a run.

pub mod line;
pub mod words;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::samples::{Recording, Sample};
use crate::stats::{estimate_median, estimate_ratio, median, Estimate, Rng};

/// Parameters of the samples: the group that was alive together, the series in it, the size, and
/// the goal's size.
pub const GROUP: &str = "group";
/// Which series of the group it is.
pub const SERIES: &str = "series";
/// Bytes that were held.
pub const BYTES: &str = "bytes";
/// Bytes the goal speaks of.
pub const NOMINAL: &str = "nominal";

/// A plain fork this many times longer than its processor time was disturbed.
const DISTURBED: f64 = 1.25;

/// How a figure is read, and the goal if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// base / subject, at least.
    Times(f64),
    /// subject / base, at most.
    Share(f64),
    /// subject in bytes, at most.
    Bytes(u64),
    /// base / subject, only reported.
    TimesReported,
    /// subject / base, only reported.
    ShareReported,
}

impl Goal {
    /// Whether the ratio is subject / base.
    pub fn is_share(self) -> bool {
        matches!(self, Goal::Share(_) | Goal::ShareReported)
    }

    /// The number at which the judgement turns, and whether larger is better.
    fn border(self) -> Option<(f64, bool)> {
        match self {
            Goal::Times(least) => Some((least, true)),
            Goal::Share(most) => Some((most, false)),
            Goal::Bytes(most) => Some((most as f64, false)),
            Goal::TimesReported | Goal::ShareReported => None,
        }
    }
}

/// Where in the report a figure stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Has a goal that was promised.
    Promise,
    /// Belongs to a curve over sizes.
    Curve,
    /// Shows where odfork loses.
    Loss,
}

impl Section {
    /// All of them, in the order of the report.
    pub const ALL: [Section; 3] = [Section::Promise, Section::Curve, Section::Loss];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Promise => "Figures with a goal",
            Section::Curve => "The curve and other shapes of parents",
            Section::Loss => "Where the engine may lose",
        }
    }
}

/// One series of the figure's group.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Side {
    /// Name of the series in the group.
    pub series: &'static str,
    /// The metric of its samples that is compared.
    pub metric: &'static str,
}

/// One line of the report.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Figure {
    /// Its short name, by which `--only` finds it.
    pub name: &'static str,
    /// What it says, for people.
    pub about: &'static str,
    /// Where it stands.
    pub section: Section,
    /// The group of the suite that measures it.
    pub group: &'static str,
    /// What it is compared with: plain fork.
    pub base: Side,
    /// What is judged.
    pub subject: Side,
    /// Stock fork with transparent huge pages, where it was measured.
    pub third: Option<Side>,
    /// How it is read.
    pub goal: Goal,
}

/// Every figure, in the order of the report. A new one is an entry of `figures.json` and, if
/// nothing measures it yet, a group in the suite `promises`. Goals come from the issue that
/// promised them; figures without one are there so that a gain is not bought with a silent loss.
pub fn figures() -> Vec<Figure> {
    serde_json::from_str(include_str!("figures.json")).expect("figures.json is checked by tests")
}

/// What became of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The goal is met.
    Met {
        /// The interval holds the goal too.
        close: bool,
    },
    /// It is not.
    Missed {
        /// The interval holds the goal too.
        close: bool,
    },
    /// It has no goal.
    Reported,
    /// Measured at another size than the goal speaks of.
    Scaled {
        /// The size measured, in bytes.
        size: u64,
    },
    /// It could not be measured; why.
    Unavailable(String),
}

/// A figure with its numbers.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The figure.
    pub figure: Figure,
    /// Estimate of its base.
    pub base: Option<Estimate>,
    /// Estimate of its subject.
    pub subject: Option<Estimate>,
    /// Estimate of stock with transparent huge pages.
    pub third: Option<Estimate>,
    /// Their ratio, of pairs of one round.
    pub ratio: Option<Estimate>,
    /// What follows.
    pub verdict: Verdict,
}

/// Round and value of each sample of a series.
type Series = BTreeMap<u32, f64>;

fn samples<'a>(recording: &'a Recording, group: &'a str) -> impl Iterator<Item = &'a Sample> {
    recording.samples.iter().filter(move |sample| sample.word(GROUP) == group)
}

fn series(recording: &Recording, group: &str, side: Side) -> Series {
    let is_of = |s: &&Sample| s.word(SERIES) == side.series && s.metric == side.metric;
    samples(recording, group).filter(is_of).map(|s| (s.round, s.value)).collect()
}

fn middle(series: &Series, rng: &mut Rng) -> Option<Estimate> {
    estimate_median(&series.values().copied().collect::<Vec<f64>>(), rng)
}

/// Of the rounds that both have.
fn ratio(top: &Series, bottom: &Series, rng: &mut Rng) -> Option<Estimate> {
    let pair = |(round, value): (&u32, &f64)| Some((*value, *bottom.get(round)?));
    let (tops, bottoms): (Vec<f64>, Vec<f64>) = top.iter().filter_map(pair).unzip();
    estimate_ratio(&tops, &bottoms, rng)
}

/// Judges a figure by what was recorded.
pub fn judge(figure: Figure, recording: &Recording, rng: &mut Rng) -> Finding {
    let of = |side| series(recording, figure.group, side);
    let (base, subject) = (of(figure.base), of(figure.subject));
    let ratio = match figure.goal {
        Goal::Bytes(_) => middle(&subject, rng),
        goal if goal.is_share() => ratio(&subject, &base, rng),
        _ => ratio(&base, &subject, rng),
    };
    Finding {
        figure,
        base: middle(&base, rng),
        subject: middle(&subject, rng),
        third: figure.third.and_then(|third| middle(&of(third), rng)),
        verdict: verdict(figure, recording, ratio),
        ratio,
    }
}

fn verdict(figure: Figure, recording: &Recording, ratio: Option<Estimate>) -> Verdict {
    let sides = [figure.subject, figure.base].into_iter();
    let skipped = sides.map(|side| why_skipped(recording, figure.group, side.series));
    if let Some(reason) = skipped.flatten().next() {
        return Verdict::Unavailable(reason);
    }
    let Some(ratio) = ratio else {
        return Verdict::Unavailable("not measured".into());
    };
    if let Some(size) = scaled_size(figure, recording) {
        return Verdict::Scaled { size };
    }
    let Some((border, larger_is_better)) = figure.goal.border() else {
        return Verdict::Reported;
    };
    let close = ratio.straddles(border);
    let good = if larger_is_better { ratio.value >= border } else { ratio.value <= border };
    if good {
        Verdict::Met { close }
    } else {
        Verdict::Missed { close }
    }
}

/// Why a series gave no more samples; the first reason.
fn why_skipped(recording: &Recording, group: &str, series: &str) -> Option<String> {
    let word = |skip: &crate::samples::Skip, name: &str, expected: &str| {
        skip.params.get(name).and_then(|value| value.as_str()) == Some(expected)
    };
    let mut skips = recording.skips.iter();
    let found = skips.find(|skip| word(skip, GROUP, group) && word(skip, SERIES, series))?;
    Some(found.reason.clone())
}

/// The size it was measured at, when that is another than the goal's.
fn scaled_size(figure: Figure, recording: &Recording) -> Option<u64> {
    let sample = samples(recording, figure.group).next()?;
    (sample.number(BYTES) != sample.number(NOMINAL)).then(|| sample.number(BYTES) as u64)
}

/// A fork that took much longer than the processor time it used was waiting for other work.
pub fn disturbance(recording: &Recording) -> Option<String> {
    let mut groups: Vec<&str> = Vec::new();
    for sample in &recording.samples {
        if !groups.contains(&sample.word(GROUP)) {
            groups.push(sample.word(GROUP));
        }
    }
    let factor = |group: &&str| {
        let middle = |metric| {
            let side = Side { series: "stock", metric };
            median(&series(recording, group, side).into_values().collect::<Vec<f64>>())
        };
        let factor = middle("fork")? / middle("fork-cpu")?;
        (factor > DISTURBED).then(|| format!("{group} ({factor:.1}x)"))
    };
    let places: Vec<String> = groups.iter().filter_map(factor).collect();
    (!places.is_empty()).then(|| {
        format!(
            "other work took the processor during forks, whose times are too long by about the \
             factor given: {}; for better figures run alone",
            places.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Params, Skip};

    const MIB: f64 = 1048576.0;
    const GIB: u64 = 1 << 30;

    fn params(group: &str, series: &str) -> Params {
        let words = [(GROUP, group.into()), (SERIES, series.into())];
        let sizes = [(BYTES, GIB.into()), (NOMINAL, GIB.into())];
        words.into_iter().chain(sizes).map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn add(recording: &mut Recording, group: &str, (series, metric): (&str, &str), value: f64) {
        let round = 1 + series_count(recording, group, (series, metric)) as u32;
        let sample = Sample::of("plain", (metric, "ns"), value).in_round(round);
        recording.samples.push(Sample { params: params(group, series), ..sample });
    }

    fn series_count(recording: &Recording, group: &str, (series, metric): (&str, &str)) -> usize {
        let is_of = |s: &&Sample| s.word(SERIES) == series && s.metric == metric;
        samples(recording, group).filter(is_of).count()
    }

    fn record(group: &str, series: &[(&str, &str, f64)]) -> Recording {
        let mut recording = Recording::default();
        for (name, metric, value) in series {
            for round in 0..8 {
                let value = value * (1.0 + f64::from(round) / 100.0);
                add(&mut recording, group, (name, metric), value);
            }
        }
        recording
    }

    fn judged(name: &str, recording: &Recording) -> Finding {
        let figure = figures().into_iter().find(|f| f.name == name).unwrap();
        judge(figure, recording, &mut Rng::with_seed(1))
    }

    #[test]
    fn times_and_shares_are_judged_in_their_own_direction() {
        let fast = record("static-1g", &[("stock", "fork", 16e6), ("odfork", "fork", 40e3)]);
        let finding = judged("fork-1g", &fast);
        assert_eq!(finding.ratio.unwrap().value.round(), 400.0);
        assert_eq!(finding.verdict, Verdict::Met { close: false });

        let slow = record("static-1g", &[("stock", "fork", 16e6), ("odfork", "fork", 160e3)]);
        let missed = Verdict::Missed { close: false };
        assert_eq!(judged("fork-1g", &slow).verdict, missed);

        let dear = record("static-1g", &[("stock", "full", 100.0), ("odfork", "full", 120.0)]);
        let finding = judged("full-1g", &dear);
        assert!((finding.ratio.unwrap().value - 1.2).abs() < 1e-9);
        assert_eq!(finding.verdict, missed);
    }

    #[test]
    fn bytes_are_compared_with_the_amount() {
        let modest = record("peak-1g", &[("odfork", "extra", 20.0 * MIB)]);
        let met = Verdict::Met { close: false };
        assert_eq!(judged("freeze-memory", &modest).verdict, met);
        let greedy = record("peak-1g", &[("odfork", "extra", 900.0 * MIB)]);
        let missed = Verdict::Missed { close: false };
        assert_eq!(judged("freeze-memory", &greedy).verdict, missed);
    }

    #[test]
    fn a_goal_is_not_judged_at_another_size() {
        let mut small = record("size-8g", &[("stock", "fork", 9.0), ("odfork", "fork", 1.0)]);
        for sample in &mut small.samples {
            sample.params.extend([(BYTES.into(), (2 * GIB).into())]);
            sample.params.extend([(NOMINAL.into(), (8 * GIB).into())]);
        }
        let scaled = Verdict::Scaled { size: 2 * GIB };
        assert_eq!(judged("fork-8g", &small).verdict, scaled);
    }

    #[test]
    fn a_skipped_series_makes_the_figure_unavailable_with_its_first_reason() {
        let mut half = record("dirty-1g", &[("stock", "folded", 9.0)]);
        for reason in ["no engine is loaded", "later"] {
            let (params, reason) = (params("dirty-1g", "odfork"), reason.into());
            half.skips.push(Skip { engine: "image".into(), params, reason });
        }
        let finding = judged("dirty-folded", &half);
        let reason = Verdict::Unavailable("no engine is loaded".into());
        assert_eq!(finding.verdict, reason);
        assert!(finding.base.is_some() && finding.subject.is_none());
        let nothing = Verdict::Unavailable("not measured".into());
        assert_eq!(judged("fork-1g", &Recording::default()).verdict, nothing);
    }

    #[test]
    fn an_interval_around_the_goal_is_called_close() {
        let mut recording = Recording::default();
        for round in 0..20 {
            let wobble = if round % 2 == 0 { 0.9 } else { 1.15 };
            add(&mut recording, "small-8m", ("stock", "program"), 100.0);
            add(&mut recording, "small-8m", ("odfork", "program"), 100.0 * wobble);
        }
        assert_eq!(judged("small-8m", &recording).verdict, Verdict::Met { close: true });
    }

    #[test]
    fn only_rounds_that_both_sides_have_make_a_ratio() {
        let mut recording = record("size-2g", &[("stock", "fork", 30.0), ("odfork", "fork", 1.0)]);
        assert_eq!(judged("fork-2g", &recording).verdict, Verdict::Reported);
        recording.samples.retain(|s| s.word(SERIES) == "stock" || s.round < 4);
        assert_eq!(judged("fork-2g", &recording).ratio.unwrap().count, 3);
        assert_eq!(judged("fork-2g", &recording).base.unwrap().count, 8);
    }

    #[test]
    fn forks_that_waited_for_the_processor_are_noted() {
        let mut recording = Recording::default();
        for (metric, value) in [("fork", 30.0), ("fork-cpu", 10.0)] {
            add(&mut recording, "size-2g", ("stock", metric), value);
            add(&mut recording, "size-4g", ("stock", metric), 7.0);
        }
        let note = disturbance(&recording).unwrap();
        assert!(note.contains("size-2g (3.0x)") && !note.contains("size-4g"));
        recording.samples.retain(|sample| sample.word(GROUP) == "size-4g");
        assert_eq!(disturbance(&recording), None);
    }
}
