//! What a figure is, how its goal is read, and the judgement. Pure; the list of figures is in `catalogue`.
//!
//! A figure compares two series of one experiment. `Times` reads "the base takes so many times longer" (more is
//! better), `Share` reads "takes this share of the base's time" (less is better), `Bytes` is an amount. A goal is
//! judged at its nominal size only; a figure missed is printed as missed and never fails a run.

use crate::record::Record;
use odfork_samples::stats::{estimate_median, estimate_ratio, Estimate, Rng};

/// How a figure is read, and the goal if it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Promise,
    Curve,
    Loss,
}

impl Group {
    pub const ALL: [Group; 3] = [Group::Promise, Group::Curve, Group::Loss];

    pub fn title(self) -> &'static str {
        match self {
            Group::Promise => "Figures with a goal",
            Group::Curve => "The curve and other shapes of parents",
            Group::Loss => "Where the engine may lose",
        }
    }
}

/// One series of the figure's experiment.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub arm: &'static str,
    pub label: &'static str,
}

/// One line of the report.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub about: &'static str,
    pub group: Group,
    pub experiment: &'static str,
    pub base: Side,
    pub subject: Side,
    /// Stock fork with transparent huge pages, where it was measured.
    pub third: Option<Side>,
    pub goal: Goal,
}

/// What became of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Met {
        close: bool,
    },
    Missed {
        close: bool,
    },
    /// It has no goal.
    Reported,
    /// Measured at another size than the goal speaks of.
    Scaled {
        size: u64,
    },
    Unavailable(String),
}

/// A figure with its numbers.
#[derive(Clone, Debug)]
pub struct Finding {
    pub figure: Figure,
    pub base: Option<Estimate>,
    pub subject: Option<Estimate>,
    pub third: Option<Estimate>,
    pub ratio: Option<Estimate>,
    pub verdict: Verdict,
}

/// Judges a figure by what was recorded.
pub fn judge(figure: Figure, record: &Record, rng: &mut Rng) -> Finding {
    let samples = |side: Side| record.samples(figure.experiment, side.arm, side.label);
    let (base, subject) = (samples(figure.base), samples(figure.subject));
    let ratio = match figure.goal {
        Goal::Bytes(_) => estimate_median(subject, rng),
        goal if goal.is_share() => estimate_ratio(subject, base, rng),
        _ => estimate_ratio(base, subject, rng),
    };
    Finding {
        figure,
        base: estimate_median(base, rng),
        subject: estimate_median(subject, rng),
        third: figure.third.and_then(|third| estimate_median(samples(third), rng)),
        verdict: verdict(figure, record, ratio),
        ratio,
    }
}

fn verdict(figure: Figure, record: &Record, ratio: Option<Estimate>) -> Verdict {
    let silence = [figure.subject.arm, figure.base.arm]
        .into_iter()
        .find_map(|arm| record.silence_of(figure.experiment, arm));
    if let Some(reason) = silence {
        return Verdict::Unavailable(reason.to_string());
    }
    let Some(ratio) = ratio else {
        return Verdict::Unavailable("not measured".into());
    };
    let sizes = record.sizes_of(figure.experiment);
    if let Some(sizes) = sizes.filter(|sizes| sizes.is_scaled()) {
        return Verdict::Scaled { size: sizes.actual };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::figures;
    use crate::experiments::{GIB, MIB};
    use crate::record::{SeriesName, Sizes};

    fn record(experiment: &str, series: &[(&str, &str, f64)]) -> Record {
        let mut record = Record::default();
        for (arm, label, value) in series {
            for round in 0..8 {
                let name = SeriesName::new(experiment, arm, label);
                record.add(name, value * (1.0 + f64::from(round) / 100.0));
            }
        }
        record
    }

    fn find(name: &str) -> Figure {
        figures().into_iter().find(|f| f.name == name).unwrap()
    }

    fn judged(name: &str, record: &Record) -> Finding {
        judge(find(name), record, &mut Rng::with_seed(1))
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
        let modest = record("peak-1g", &[("odfork", "extra", 20.0 * MIB as f64)]);
        let met = Verdict::Met { close: false };
        assert_eq!(judged("freeze-memory", &modest).verdict, met);
        let greedy = record("peak-1g", &[("odfork", "extra", 900.0 * MIB as f64)]);
        let missed = Verdict::Missed { close: false };
        assert_eq!(judged("freeze-memory", &greedy).verdict, missed);
    }

    #[test]
    fn a_goal_is_not_judged_at_another_size() {
        let mut small = record("size-8g", &[("stock", "fork", 9.0), ("odfork", "fork", 1.0)]);
        let sizes = Sizes { actual: 2 * GIB, nominal: 8 * GIB };
        small.set_sizes("size-8g", sizes);
        let scaled = Verdict::Scaled { size: 2 * GIB };
        assert_eq!(judged("fork-8g", &small).verdict, scaled);
    }

    #[test]
    fn a_silent_arm_makes_the_figure_unavailable_with_its_reason() {
        let mut half = record("dirty-1g", &[("stock", "folded", 9.0)]);
        half.silence("dirty-1g", "odfork", "no engine is loaded");
        let finding = judged("dirty-folded", &half);
        let reason = Verdict::Unavailable("no engine is loaded".into());
        assert_eq!(finding.verdict, reason);
        assert!(finding.base.is_some() && finding.subject.is_none());
        let nothing = Verdict::Unavailable("not measured".into());
        assert_eq!(judged("fork-1g", &Record::default()).verdict, nothing);
    }

    #[test]
    fn an_interval_around_the_goal_is_called_close() {
        let mut record = Record::default();
        for round in 0..20 {
            let wobble = if round % 2 == 0 { 0.9 } else { 1.15 };
            record.add(SeriesName::new("small-8m", "stock", "program"), 100.0);
            record.add(SeriesName::new("small-8m", "odfork", "program"), 100.0 * wobble);
        }
        assert_eq!(judged("small-8m", &record).verdict, Verdict::Met { close: true });
    }

    #[test]
    fn figures_without_a_goal_are_reported() {
        let record = record("size-2g", &[("stock", "fork", 30.0), ("odfork", "fork", 1.0)]);
        assert_eq!(judged("fork-2g", &record).verdict, Verdict::Reported);
    }
}
