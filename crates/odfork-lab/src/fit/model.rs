//! The cost model of one engine: which form fits, its coefficients with intervals, and how far off it is on unseen points.
//!
//! Owns the fit. Relative errors count, because times span four decades. The form is chosen by leaving out one
//! training point after the other: the simplest whose error is within a tenth of the best. Held out are, of the distinct points
//! in the order of bytes and frac, the second of every three (so the largest of a whole grid is among them); neither form
//! nor knee nor coefficient sees them before they are judged. The coefficients reported are then fitted to all points.

use anyhow::{bail, Context, Result};
use odfork_model::ForkTerms;

use super::algebra;
use super::forms::{Form, Load, Term};
use super::lines::middle_95;
use super::points::{Grid, Point};
use crate::stats::{median, Dice, SAMPLES_FOR_INTERVAL};

/// Refits of resampled rounds.
const RESAMPLES: usize = 400;
/// Of every three points the one with this index is held out.
const HELD_OUT: usize = 1;
/// A richer form must be better than a simpler one by this factor to be worth its terms.
const WORTH: f64 = 1.1;
/// Fewer distinct points do not carry three terms and a check.
const FEWEST: usize = 9;

/// Coefficients with a form: the three terms are those of the runtime, the others come on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub terms: ForkTerms,
    /// Picoseconds a unit.
    pub extras: Vec<(Term, u64)>,
}

impl Model {
    fn new(form: &Form, coefficients: &[f64]) -> Option<Model> {
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
    pub term: Term,
    /// Seconds a unit.
    pub value: f64,
    pub interval: Option<(f64, f64)>,
}

/// A point and what the model says of it. Seconds of one fork.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    pub bytes: f64,
    pub frac: f64,
    pub measured: f64,
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
    pub count: usize,
    pub median: f64,
    pub worst: f64,
}

impl Errors {
    pub fn of(points: &[Judged]) -> Option<Errors> {
        let sizes: Vec<f64> = points.iter().map(|point| point.error().abs()).collect();
        let worst = sizes.iter().copied().fold(0.0, f64::max);
        Some(Errors { count: sizes.len(), median: median(&sizes)?, worst })
    }
}

/// What the model says of a load nobody measured, for one fork.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub seconds: f64,
    /// Of the coefficients and of the errors on held-out points together.
    pub interval: Option<(f64, f64)>,
    /// Seconds of each term.
    pub parts: Vec<(Term, f64)>,
}

/// The fit of one engine.
#[derive(Clone, Debug)]
pub struct Fit {
    pub engine: String,
    pub scale: String,
    pub form: Form,
    pub model: Model,
    pub coefficients: Vec<Coefficient>,
    /// Every point against the model fitted to all of them.
    pub residuals: Vec<Judged>,
    /// Points held out against the model fitted to the others.
    pub held_out: Vec<Judged>,
    pub errors: Errors,
    /// Smallest heap but 0, and largest heap of the points, bytes.
    pub range: (f64, f64),
    refits: Vec<Model>,
}

/// A point as the algebra sees it.
struct Case {
    load: Load,
    bytes: f64,
    frac: f64,
    each: f64,
}

/// Distinct loads: without memory all fractions are one point, which would else count seven times.
fn cases(grid: &Grid) -> Vec<Case> {
    let mut cases: Vec<(Case, Vec<f64>)> = Vec::new();
    let good = |point: &&Point| point.each().is_finite() && point.each() > 0.0;
    for point in grid.points.iter().filter(good) {
        let load = Load::of(&grid.engine, point.bytes, point.frac);
        match cases.last_mut().filter(|(case, _)| case.load == load) {
            Some((_, values)) => values.push(point.each()),
            None => {
                let (bytes, frac) = (point.bytes, point.frac);
                cases.push((Case { load, bytes, frac, each: 0.0 }, vec![point.each()]));
            }
        }
    }
    let condense = |(case, values): (Case, Vec<f64>)| Some(Case { each: median(&values)?, ..case });
    cases.into_iter().filter_map(condense).collect()
}

/// Coefficients of a form for these cases, and the squares of relative errors they leave.
fn solve(form: &Form, cases: &[&Case]) -> Option<(Model, f64)> {
    let rows: Vec<Vec<f64>> = cases.iter().map(|case| form.row(&case.load)).collect();
    let values: Vec<f64> = cases.iter().map(|case| case.each).collect();
    let weights: Vec<f64> = values.iter().map(|value| 1.0 / (value * value)).collect();
    let coefficients = algebra::least_squares_of_costs(&rows, &values, &weights)?;
    let left = algebra::squares(&rows, &values, &weights, &coefficients);
    Some((Model::new(form, &coefficients)?, left))
}

/// The best of a family: where its knees are.
fn best_of(family: Vec<Form>, cases: &[&Case]) -> Option<Form> {
    let judged = family.into_iter().filter_map(|form| Some((solve(&form, cases)?.1, form)));
    judged.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, form)| form)
}

/// Mean size of the relative error on each case, when the others are fitted.
fn leave_one_out(form: &Form, cases: &[&Case]) -> Option<f64> {
    let mut sum = 0.0;
    for (index, case) in cases.iter().enumerate() {
        let others: Vec<&Case> = [&cases[..index], &cases[index + 1..]].concat();
        let (model, _) = solve(form, &others)?;
        sum += (model.time(&case.load) / case.each - 1.0).abs();
    }
    Some(sum / cases.len() as f64)
}

fn choose(cases: &[&Case]) -> Option<Form> {
    let families = Form::families().into_iter();
    let judged: Vec<(f64, Form)> = families
        .filter_map(|family| best_of(family, cases))
        .filter_map(|form| Some((leave_one_out(&form, cases)?, form)))
        .collect();
    let best = judged.iter().map(|(error, _)| *error).min_by(f64::total_cmp)?;
    judged.into_iter().find(|(error, _)| *error <= best * WORTH).map(|(_, form)| form)
}

fn judge(model: &Model, cases: &[&Case]) -> Vec<Judged> {
    let one = |case: &&Case| Judged {
        bytes: case.bytes,
        frac: case.frac,
        measured: case.each,
        predicted: model.time(&case.load),
    };
    cases.iter().map(one).collect()
}

/// Fits one engine.
pub fn fit(grid: &Grid, dice: &mut Dice) -> Result<Fit> {
    let cases = cases(grid);
    let engine = &grid.engine;
    if cases.len() < FEWEST {
        let found = cases.len();
        bail!("engine {engine} has {found} usable points of grid, a fit needs {FEWEST}: run `odfork bench grid`");
    }
    let all: Vec<&Case> = cases.iter().collect();
    let held = |index: &usize| index % 3 == HELD_OUT;
    let pick = |wanted: bool| -> Vec<&Case> {
        (0..all.len()).filter(|index| held(index) == wanted).map(|index| all[index]).collect()
    };
    let (training, unseen) = (pick(false), pick(true));
    let same = || {
        format!("the points of engine {engine} differ too little to tell the terms apart: measure several sizes and fractions")
    };
    let form = choose(&training).with_context(same)?;
    let (trained, _) = solve(&form, &training).with_context(same)?;
    let (model, _) = solve(&form, &all).with_context(same)?;
    let held_out = judge(&trained, &unseen);
    let errors = Errors::of(&held_out).with_context(same)?;
    let refits = refit(grid, &form, dice);
    let sizes = || cases.iter().map(|case| case.bytes);
    Ok(Fit {
        engine: engine.clone(),
        scale: grid.scale.clone(),
        coefficients: with_intervals(&model, &refits),
        residuals: judge(&model, &all),
        range: (
            sizes().filter(|bytes| *bytes > 0.0).fold(f64::INFINITY, f64::min),
            sizes().fold(0.0, f64::max),
        ),
        form,
        model,
        held_out,
        errors,
        refits,
    })
}

/// The same form fitted to resampled rounds; none when there are too few rounds.
fn refit(grid: &Grid, form: &Form, dice: &mut Dice) -> Vec<Model> {
    if grid.rounds().len() < SAMPLES_FOR_INTERVAL {
        return Vec::new();
    }
    let mut once = || {
        let drawn = cases(&grid.resample(dice));
        Some(solve(form, &drawn.iter().collect::<Vec<_>>())?.0)
    };
    (0..RESAMPLES).filter_map(|_| once()).collect()
}

fn with_intervals(model: &Model, refits: &[Model]) -> Vec<Coefficient> {
    let others: Vec<Vec<(Term, f64)>> = refits.iter().map(Model::coefficients).collect();
    let interval = |index: usize| middle_95(others.iter().map(|each| each[index].1).collect());
    let own = model.coefficients().into_iter().enumerate();
    own.map(|(index, (term, value))| Coefficient { term, value, interval: interval(index) })
        .collect()
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
