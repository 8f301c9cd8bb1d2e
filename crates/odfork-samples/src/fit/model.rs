//! What a fit is made of: the model with its coefficients, judged points, predictions.
//!
//! Owns these values and how a time follows from them; `fitting` finds the coefficients. The three
//! terms are
//! `odfork_model::ForkTerms`, so the runtime and `odfork predict` add up the same sum.

use odfork_model::ForkTerms;

use super::forms::{Form, Load, Term};
use crate::stats::{median, middle_95};

/// Coefficients with a form: the three terms are those of the runtime, the others come on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The three terms of the runtime's own model.
    pub terms: ForkTerms,
    /// Picoseconds a unit.
    pub extras: Vec<(Term, u64)>,
}

impl Model {
    pub(super) fn new(form: &Form, coefficients: &[f64]) -> Option<Model> {
        let [process, entry, copy, extras @ ..] = coefficients else {
            return None;
        };
        let ps = |seconds: &f64| (seconds * 1e12).round() as u64;
        let process_ns = (process * 1e9).round() as u64;
        let terms = ForkTerms { process_ns, entry_ps: ps(entry), copy_ps: ps(copy) };
        let extras = form.terms.iter().skip(3).copied().zip(extras.iter().map(ps)).collect();
        Some(Model { terms, extras })
    }

    /// Seconds that each term adds to one fork.
    pub fn parts(&self, load: &Load) -> Vec<(Term, f64)> {
        let [process, entries, copies] = self.terms.parts_ns(load.entries, load.written);
        let three = [(Term::Process, process), (Term::Entry, entries), (Term::Copy, copies)];
        let extra = |&(term, unit_ps): &(Term, u64)| {
            let unit = ForkTerms { copy_ps: unit_ps, ..ForkTerms::default() };
            (term, unit.time_ns(0, term.amount(load)))
        };
        let all = three.into_iter().chain(self.extras.iter().map(extra));
        all.map(|(term, ns)| (term, ns as f64 / 1e9)).collect()
    }

    /// Seconds of one fork.
    pub fn time(&self, load: &Load) -> f64 {
        self.parts(load).iter().map(|(_, seconds)| seconds).sum()
    }

    /// Seconds a unit of each term.
    pub fn coefficients(&self) -> Vec<(Term, f64)> {
        let ForkTerms { process_ns, entry_ps, copy_ps } = self.terms;
        let process = (Term::Process, process_ns as f64 / 1e9);
        let rest = [(Term::Entry, entry_ps), (Term::Copy, copy_ps)];
        let rest = rest.into_iter().chain(self.extras.iter().copied());
        std::iter::once(process).chain(rest.map(|(term, ps)| (term, ps as f64 / 1e12))).collect()
    }
}

/// One coefficient with what its rounds allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficient {
    /// The term it belongs to.
    pub term: Term,
    /// Seconds a unit.
    pub value: f64,
    /// 95 % interval from resampled rounds; `None` with too few.
    pub interval: Option<(f64, f64)>,
}

/// A point and what the model says of it. Seconds of one fork.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Bytes of the parent.
    pub bytes: f64,
    /// Share of its pages that the child writes.
    pub frac: f64,
    /// Measured seconds.
    pub measured: f64,
    /// Seconds of the model.
    pub predicted: f64,
}

impl Judged {
    /// predicted / measured - 1.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Sizes of relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Points.
    pub count: usize,
    /// The middle error, as a share of what was measured.
    pub median: f64,
    /// The largest.
    pub worst: f64,
}

impl Errors {
    /// The errors of these points; `None` without any.
    pub fn of(points: &[Judged]) -> Option<Errors> {
        let sizes: Vec<f64> = points.iter().map(|point| point.error().abs()).collect();
        let worst = sizes.iter().copied().fold(0.0, f64::max);
        Some(Errors { count: sizes.len(), median: median(&sizes)?, worst })
    }
}

/// What the model says of a load nobody measured, for one fork.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds of one fork.
    pub seconds: f64,
    /// Of the coefficients and of the errors on held-out points together.
    pub interval: Option<(f64, f64)>,
    /// Seconds of each term.
    pub parts: Vec<(Term, f64)>,
}

/// The fit of one engine.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The configuration it was fitted to.
    pub engine: String,
    /// Scale of the grid: `1988` or `modern`.
    pub scale: String,
    /// The form that was chosen.
    pub form: Form,
    /// The fitted model.
    pub model: Model,
    /// Its coefficients, in the order of the form's terms.
    pub coefficients: Vec<Coefficient>,
    /// Every point against the model fitted to all of them.
    pub residuals: Vec<Judged>,
    /// Points held out against the model fitted to the others.
    pub held_out: Vec<Judged>,
    /// Errors on the points held out.
    pub errors: Errors,
    /// Smallest heap but 0, and largest heap of the points, bytes.
    pub range: (f64, f64),
    pub(super) refits: Vec<Model>,
}

impl Fit {
    /// One fork of a process of `bytes` whose child writes `frac` of them.
    pub fn predict(&self, bytes: f64, frac: f64) -> Prediction {
        let load = Load::of(&self.engine, bytes, frac);
        let off = |time: f64| self.held_out.iter().map(move |point| time / (1.0 + point.error()));
        let spread = self.refits.iter().flat_map(|model| off(model.time(&load))).collect();
        Prediction {
            seconds: self.model.time(&load),
            interval: middle_95(spread),
            parts: self.model.parts(&load),
        }
    }
}
