//! The fitted cost model in the words of the report.
//!
//! Owns the way from samples of `grid` and `copy-rate` to the rows of the model's chapter. The fit
//! is `fit`'s, the layout is `model`'s.

use super::model::{Coefficient, HeldOut, Model};
use odfork_samples::fit::{self, Analysis, Fit, Grid};
use odfork_samples::samples::Recording;
use odfork_samples::stats::Rng;
use odfork_samples::unit::Unit;

const SEED: u64 = 1;

/// Fits every configuration of the grid; None when there is nothing to fit.
pub fn model(recordings: &[Recording]) -> Option<Model> {
    let named = |name: &str| recordings.iter().find(|recording| recording.experiment() == name);
    let grid = named("grid")?;
    let mut model = Model {
        intro: "Each configuration's points of the grid, the median of their rounds, fitted by least squares of relative \
                errors: process + page-table entries x cost + pages written x cost, the three terms of Smith and Maguire, \
                and further terms where points that were held out ask for them. The time is that of one fork with child, \
                exit and wait. The same sum is the freeze rule of the runtime."
            .into(),
        ..Model::default()
    };
    for configuration in fit::engines(grid) {
        for scale in ["modern", "1988"] {
            let mut rng = Rng::with_seed(SEED);
            let gathered = match Grid::gather(grid, &configuration, scale) {
                Ok(gathered) => gathered,
                Err(why) => {
                    // The old scale is measured with plain alone unless there is time: nothing is
                    // amiss.
                    if scale == "modern" {
                        model.notes.push(format!("{configuration}: {why:#}"));
                    }
                    continue;
                }
            };
            if scale == "modern" {
                match fit::fit(&gathered, &mut rng) {
                    Ok(fit) => add_fit(&mut model, &fit),
                    Err(why) => model.notes.push(format!("{configuration}: {why:#}")),
                }
            }
            let rates =
                named("copy-rate").map(|rates| fit::copy_rates(rates, &configuration, &mut rng));
            // The published heaps go with the smallest copy, today's with the largest.
            let rate = rates.and_then(|rates| match scale {
                "1988" => rates.into_iter().next(),
                _ => rates.into_iter().next_back(),
            });
            let copy = rate.and_then(|rate| rate.copy).map(|copy| copy.value);
            if let Ok(analysis) = fit::analyse(&gathered, copy, &mut rng) {
                add_analysis(&mut model, &configuration, scale, &analysis);
            }
        }
    }
    (!model.coefficients.is_empty()).then_some(model)
}

fn add_fit(model: &mut Model, fit: &Fit) {
    let seconds = |value: f64| Unit::Seconds.write(value);
    for coefficient in &fit.coefficients {
        let interval = coefficient.interval;
        model.coefficients.push(Coefficient {
            configuration: fit.engine.clone(),
            name: format!("{}: {}", coefficient.term.name(), coefficient.term.meaning()),
            value: seconds(coefficient.value),
            interval: interval
                .map(|(low, high)| format!("{} to {}", seconds(low), seconds(high)))
                .unwrap_or_default(),
            published: String::new(),
        });
    }
    let residual = |point: &fit::Judged| (point.predicted, point.measured / point.predicted - 1.0);
    model.residuals.push((fit.engine.clone(), fit.residuals.iter().map(residual).collect()));
    model.held_out.extend(fit.held_out.iter().map(|point| HeldOut {
        configuration: fit.engine.clone(),
        place: format!("{}, {} written", Unit::Bytes.write(point.bytes), point.frac),
        predicted: point.predicted,
        measured: point.measured,
    }));
    model.notes.push(format!(
        "{} ({}): on {} held-out points the prediction is off by {:.1} % in the median and {:.1} % at worst.",
        fit.engine,
        fit.form.describe(),
        fit.errors.count,
        100.0 * fit.errors.median,
        100.0 * fit.errors.worst
    ));
}

/// The analysis of 1988 with our numbers: lines, service rates, and their ratio to memory copy.
fn add_analysis(model: &mut Model, configuration: &str, scale: &str, analysis: &Analysis) {
    let ratio = match analysis.ratio {
        Some(ratio) => format!("; service / copy {ratio:.3}, published 0.823 and 0.804"),
        None => String::new(),
    };
    let lines: Vec<String> = analysis
        .lines
        .iter()
        .filter(|line| [0.1, 0.5, 0.9].contains(&line.frac))
        .map(|line| {
            format!("y = {:.3e} x + {:.3e} at {} written", line.slope, line.intercept, line.frac)
        })
        .collect();
    model.notes.push(format!(
        "{configuration}, {scale} scale, seconds over bytes: {}{ratio}.",
        lines.join("; ")
    ));
}
