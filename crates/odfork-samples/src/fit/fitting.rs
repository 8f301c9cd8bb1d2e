//! The fit of one engine: which form, which coefficients, and how far off on unseen points.
//!
//! Relative errors count, because times span four decades; a point far off the others counts less
//! (Huber), because machines disturb. The form is chosen by leaving out one training point after
//! the other: the simplest whose error is within a tenth of the best. Held out are, of the distinct
//! points in the order of bytes and frac, the second of every three (so the largest of a whole grid
//! is among them); neither form nor knee nor coefficient sees them before they are judged. The
//! coefficients reported are then fitted to all points.

use anyhow::{bail, Context, Result};

use super::algebra;
use super::forms::{Form, Load, Term};
use super::model::{Coefficient, Errors, Fit, Judged, Model};
use super::points::{Grid, Point};
use crate::stats::{median, middle_95, Rng, SAMPLES_FOR_INTERVAL};

/// Refits of resampled rounds.
const RESAMPLES: usize = 400;
/// Of every three points the one with this index is held out.
const HELD_OUT: usize = 1;
/// A richer form must be better than a simpler one by this factor to be worth its terms.
const WORTH: f64 = 1.1;
/// Fewer distinct points do not carry three terms and a check.
const FEWEST: usize = 9;
/// Times that points are weighed again by how far off they are.
const REWEIGHTINGS: usize = 4;
/// Errors up to so many typical errors count in full.
const TYPICAL: f64 = 2.0;
/// When forms are compared, a point counts at most as half wrong: it is then a disturbed one.
const DISTURBED: f64 = 0.5;

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

/// Coefficients of a form for these cases, and the weighted squares of relative errors they leave.
fn solve(form: &Form, cases: &[&Case]) -> Option<(Model, f64)> {
    let rows: Vec<Vec<f64>> = cases.iter().map(|case| form.row(&case.load)).collect();
    let values: Vec<f64> = cases.iter().map(|case| case.each).collect();
    let relative: Vec<f64> = values.iter().map(|value| 1.0 / (value * value)).collect();
    let mut weights = relative.clone();
    let mut coefficients = algebra::least_squares_of_costs(&rows, &values, &weights)?;
    for _ in 0..REWEIGHTINGS {
        let errors = algebra::residuals(&rows, &values, &coefficients);
        let errors: Vec<f64> =
            errors.iter().zip(&values).map(|(error, value)| (error / value).abs()).collect();
        // Exact data have no typical error: then all count in full.
        let full = (median(&errors)? * 1.48 * TYPICAL).max(1e-6);
        weights =
            relative.iter().zip(&errors).map(|(w, error)| w * (full / error).min(1.0)).collect();
        coefficients = algebra::least_squares_of_costs(&rows, &values, &weights)?;
    }
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
        sum += (model.time(&case.load) / case.each - 1.0).abs().min(DISTURBED);
    }
    Some(sum / cases.len() as f64)
}

fn choose(engine: &str, cases: &[&Case]) -> Option<Form> {
    let families = Form::families(engine).into_iter();
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
pub fn fit(grid: &Grid, rng: &mut Rng) -> Result<Fit> {
    let cases = cases(grid);
    let engine = &grid.engine;
    if cases.len() < FEWEST {
        let found = cases.len();
        bail!(
            "engine {engine} has {found} usable points of grid, a fit needs {FEWEST}: \
             run `odfork bench grid`"
        );
    }
    let all: Vec<&Case> = cases.iter().collect();
    let held = |index: &usize| index % 3 == HELD_OUT;
    let pick = |wanted: bool| -> Vec<&Case> {
        (0..all.len()).filter(|index| held(index) == wanted).map(|index| all[index]).collect()
    };
    let (training, unseen) = (pick(false), pick(true));
    let same = || {
        format!(
            "the points of engine {engine} differ too little to tell the terms apart: \
             measure several sizes and fractions"
        )
    };
    let form = choose(engine, &training).with_context(same)?;
    let (trained, _) = solve(&form, &training).with_context(same)?;
    let (model, _) = solve(&form, &all).with_context(same)?;
    let held_out = judge(&trained, &unseen);
    let errors = Errors::of(&held_out).with_context(same)?;
    let refits = refit(grid, &form, rng);
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
fn refit(grid: &Grid, form: &Form, rng: &mut Rng) -> Vec<Model> {
    if grid.rounds().len() < SAMPLES_FOR_INTERVAL {
        return Vec::new();
    }
    let mut once = || {
        let drawn = cases(&grid.resample(rng));
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

#[cfg(test)]
mod tests {
    use super::super::points::fixtures;
    use super::*;
    use crate::samples::Recording;

    /// About three percent up or down, the same for the same point.
    fn noise(bytes: f64, frac: f64) -> f64 {
        let seed = bytes.to_bits() ^ frac.to_bits().rotate_left(17);
        // Mixed here, so that the data of these tests stay the same whatever generator resamples.
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let below = (u128::from(mixed) * 601) >> 64;
        1.0 + (below as f64 - 300.0) / 1e4
    }

    fn fitted(engine: &str, time: impl Fn(f64, f64) -> f64) -> Fit {
        let mut recording = fixtures::recording(time);
        recording.samples.iter_mut().for_each(|sample| sample.engine = engine.into());
        let grid = Grid::gather(&recording, engine, "modern").unwrap();
        fit(&grid, &mut Rng::with_seed(1)).unwrap()
    }

    fn three(bytes: f64, frac: f64) -> f64 {
        let load = Load::of("plain", bytes, frac);
        1.2e-4 + load.entries as f64 * 1.1e-7 + load.written as f64 * 2.6e-6
    }

    #[test]
    fn three_terms_come_out_of_three_terms() {
        let fit = fitted("plain", three);
        assert_eq!(fit.form, Form::with(&[]));
        for (found, expected) in fit.coefficients.iter().zip([1.2e-4, 1.1e-7, 2.6e-6]) {
            assert!((found.value / expected - 1.0).abs() < 1e-3, "{found:?}");
            let (low, high) = found.interval.unwrap();
            assert!(low <= found.value * 1.0001 && found.value <= high * 1.0001, "{found:?}");
        }
        assert!(fit.errors.worst < 1e-3, "{:?}", fit.errors);
        // Without memory seven fractions are one point: 50 distinct ones, of which every third is
        // held out.
        assert_eq!((fit.residuals.len(), fit.held_out.len()), (50, 17));
        assert!(fit.held_out.iter().any(|point| point.bytes == 1e9 && point.frac == 1.0));
    }

    #[test]
    fn noise_does_not_buy_terms_and_one_wild_point_moves_nothing() {
        let noisy = |bytes, frac| three(bytes, frac) * noise(bytes, frac);
        let fit = fitted("plain", noisy);
        assert_eq!(fit.form, Form::with(&[]));
        assert!(fit.errors.worst < 0.1, "{:?}", fit.errors);
        let wild = fitted("plain", |bytes, frac| {
            noisy(bytes, frac) * if bytes == 1e8 && frac == 0.3 { 4.0 } else { 1.0 }
        });
        let copy = |fit: &Fit| fit.coefficients[2].value;
        assert!((copy(&wild) / copy(&fit) - 1.0).abs() < 0.02, "{} {}", copy(&wild), copy(&fit));
    }

    #[test]
    fn a_knee_in_the_cost_of_copies_is_found() {
        let fit = fitted("plain", |bytes, frac| {
            let load = Load::of("plain", bytes, frac);
            let far = load.written.saturating_sub(2048) as f64 * 1.0e-6;
            (three(bytes, frac) + far) * noise(bytes, frac)
        });
        assert!(fit.errors.worst < 0.1, "{} {:?}", fit.form.describe(), fit.errors);
        assert!(fit.form.terms.iter().any(|term| matches!(term, Term::FarCopy { .. })));
    }

    #[test]
    fn split_huge_pages_are_a_term_of_their_own() {
        let fit = fitted("thp", |bytes, frac| {
            let load = Load::of("thp", bytes, frac);
            let tables = Term::Table.amount(&load) as f64 * 3e-4 + load.huge as f64 * 3e-6;
            1.2e-4 + load.entries as f64 * 1e-7 + load.written as f64 * 2e-8 + tables
        });
        assert!(fit.form.terms.contains(&Term::Table), "{}", fit.form.describe());
        assert!(fit.errors.worst < 0.01, "{:?}", fit.errors);
    }

    #[test]
    fn a_prediction_beyond_the_grid_has_parts_and_an_interval() {
        let fit = fitted("plain", |bytes, frac| three(bytes, frac) * noise(bytes, frac));
        let found = fit.predict(8e9, 0.5);
        assert!((found.seconds / three(8e9, 0.5) - 1.0).abs() < 0.05, "{found:?}");
        let (low, high) = found.interval.unwrap();
        assert!(low < found.seconds && found.seconds < high && high < 1.2 * low, "{found:?}");
        let sum: f64 = found.parts.iter().map(|(_, seconds)| seconds).sum();
        assert!((sum / found.seconds - 1.0).abs() < 1e-9);
    }

    fn refusal(recording: &Recording) -> String {
        let grid = Grid::gather(recording, "plain", "modern");
        let error = grid.and_then(|grid| fit(&grid, &mut Rng::with_seed(1))).unwrap_err();
        let text = format!("{error:#}");
        assert!(!text.contains('\n') && text.contains("plain"), "{text}");
        text
    }

    #[test]
    fn too_little_to_fit_is_refused() {
        let mut few = fixtures::recording(three);
        few.samples.truncate(25);
        assert!(refusal(&few).contains("a fit needs 9"));
        let mut nothing_written = fixtures::recording(three);
        nothing_written.samples.retain(|sample| sample.number("frac") == 0.0);
        refusal(&nothing_written);
        let mut one_size = fixtures::recording(three);
        one_size.samples.retain(|sample| sample.number("bytes") == 1e9);
        refusal(&one_size);
        let mut none = fixtures::recording(three);
        none.samples.iter_mut().for_each(|sample| sample.value = f64::NAN);
        refusal(&none);
    }

    #[test]
    fn one_round_fits_without_intervals() {
        let mut recording = fixtures::recording(three);
        recording.samples.retain(|sample| sample.round == 1);
        let grid = Grid::gather(&recording, "plain", "modern").unwrap();
        let fit = fit(&grid, &mut Rng::with_seed(1)).unwrap();
        assert!(fit.coefficients.iter().all(|each| each.interval.is_none()));
        assert!(fit.predict(1e9, 0.5).interval.is_none());
    }

    /// Nothing written at several sizes, and all that engines do: the copy term cannot be seen.
    #[test]
    fn extreme_values_do_not_panic() {
        for scale in [1e-300, 1e-30, 1e30, 1e300] {
            let recording = fixtures::recording(|bytes, frac| three(bytes, frac) * scale);
            let grid = Grid::gather(&recording, "plain", "modern");
            let _ = grid.and_then(|grid| fit(&grid, &mut Rng::with_seed(1)));
        }
    }

    /// Every number of a fit that no random draw has touched, as it was first recorded.
    #[test]
    fn a_fit_of_fixed_samples_is_as_recorded() {
        let uneven = |bytes: f64, frac: f64| 1.0 + 0.03 * (bytes.sqrt() * 0.7 + frac * 11.0).sin();
        let mut text = String::new();
        for engine in ["plain", "thp"] {
            let fit = fitted(engine, |bytes, frac| {
                let load = Load::of("plain", bytes, frac);
                let far = load.written.saturating_sub(2048) as f64 * 1.0e-6;
                (three(bytes, frac) + far) * uneven(bytes, frac)
            });
            text += &format!("{}\n{:?} {:?}\n", fit.form.describe(), fit.model, fit.range);
            for point in fit.held_out.iter().chain(&fit.residuals[40..]) {
                text += &format!("{:e} {:.1} {:e}\n", point.bytes, point.frac, point.predicted);
            }
        }
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/fit.txt"), &text)
                .unwrap();
        }
        let recorded =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/fit.txt"));
        assert!(text == recorded.unwrap(), "{text}");
    }
}
