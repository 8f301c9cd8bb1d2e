//! The chapter of the fitted cost model: coefficients, residuals, prediction against measurement.
//!
//! Owns the way from samples of `grid` and `copy-rate` to the chapter; the fit itself is
//! `odfork_samples::fit`. Without samples the chapter says how to make them.

use anyhow::Result;

use crate::axis::Axis;
use crate::blocks::{Block, Chapter, Content, Figure, Table};
use crate::chart::{Chart, Join, Series, Style};
use crate::colour::Colour;
use crate::drawing::Mark;
use odfork_samples::fit::{self, Analysis, Fit, Grid, Judged};
use odfork_samples::samples::Recording;
use odfork_samples::stats::{median, Rng};
use odfork_samples::unit::{trim, Unit};

const SEED: u64 = 1;
const INTRO: &str = "Each configuration's points of the grid, the median of their rounds, fitted \
    by least squares of relative errors: process + page-table entries x cost + pages written x \
    cost, the three terms of Smith and Maguire, and further terms where points that were held out \
    ask for them. The time is that of one fork with child, exit and wait. The same sum is the \
                     freeze rule of the runtime.";
const NONE: &str =
    "No model was fitted: it needs samples of the experiment grid. Run `odfork bench \
     grid`, then make the report again.";

/// Every configuration that could be fitted, and sentences: held-out errors, the analysis of 1988,
/// what is missing.
#[derive(Default)]
struct Fitted {
    fits: Vec<Fit>,
    notes: Vec<String>,
}

impl Fitted {
    fn of(recordings: &[Recording]) -> Fitted {
        let named = |name: &str| recordings.iter().find(|one| one.experiment() == name);
        let mut fitted = Fitted::default();
        let Some(grid) = named("grid") else { return fitted };
        for configuration in fit::engines(grid) {
            for scale in ["modern", "1988"] {
                let place = (configuration.as_str(), scale);
                if let Err(why) = fitted.add(grid, named("copy-rate"), place) {
                    fitted.notes.push(format!("{configuration}: {why:#}"));
                }
            }
        }
        fitted
    }

    fn add(
        &mut self,
        grid: &Recording,
        rates: Option<&Recording>,
        (configuration, scale): (&str, &str),
    ) -> Result<()> {
        let gathered = match Grid::gather(grid, configuration, scale) {
            // The old scale is measured with plain alone unless there is time: nothing is amiss.
            Err(_) if scale == "1988" => return Ok(()),
            gathered => gathered?,
        };
        if scale == "modern" {
            match fit::fit(&gathered, &mut Rng::with_seed(SEED)) {
                Ok(fit) => {
                    self.notes.push(errors_of(&fit));
                    self.fits.push(fit);
                }
                Err(why) => self.notes.push(format!("{configuration}: {why:#}")),
            }
        }
        // The published heaps go with the smallest copy, today's with the largest.
        let rates = rates.map(fit::copy_rates).unwrap_or_default();
        let copy = if scale == "1988" { rates.first() } else { rates.last() };
        let analysis = fit::analyse(&gathered, copy.copied());
        self.notes.extend(analysis.ok().map(|found| analysis_of(configuration, scale, &found)));
        Ok(())
    }

    /// Every held-out point with its configuration.
    fn held_out(&self) -> impl Iterator<Item = (&str, &Judged)> {
        self.fits.iter().flat_map(|fit| fit.held_out.iter().map(|point| (&*fit.engine, point)))
    }
}

fn errors_of(fit: &Fit) -> String {
    format!(
        "{} ({}): on {} held-out points the prediction is off by {:.1} % in the median and {:.1} % \
         at worst.",
        fit.engine,
        fit.form.describe(),
        fit.errors.count,
        100.0 * fit.errors.median,
        100.0 * fit.errors.worst
    )
}

/// The analysis of 1988 with our numbers: lines, service rates, and their ratio to memory copy.
fn analysis_of(configuration: &str, scale: &str, analysis: &Analysis) -> String {
    let ratio = match analysis.ratio {
        Some(ratio) => format!("; service / copy {ratio:.3}, published 0.823 and 0.804"),
        None => String::new(),
    };
    let shown = analysis.lines.iter().filter(|line| [0.1, 0.5, 0.9].contains(&line.frac));
    let words = shown.map(|line| {
        format!("y = {:.3e} x + {:.3e} at {} written", line.slope, line.intercept, line.frac)
    });
    let words = words.collect::<Vec<_>>().join("; ");
    format!("{configuration}, {scale} scale, seconds over bytes: {words}{ratio}.")
}

fn cloud(fit: &Fit, points: &[Judged], spot: fn(&Judged) -> (f64, f64)) -> Series {
    Series::new(&fit.engine, Style::of_configuration(&fit.engine)).through(points.iter().map(spot))
}

fn residuals(fits: &[Fit]) -> Figure {
    let spot = |point: &Judged| (point.predicted, point.measured / point.predicted - 1.0);
    Chart {
        name: "model-residuals".into(),
        title: "Residuals of the cost model".into(),
        about: "Relative residual of each fitted point against its predicted time, one mark per \
                point."
            .into(),
        caption: "Every fitted point. A model that is right scatters around the dashed line \
                  without a shape."
            .into(),
        x: Axis::log("predicted time", Unit::Seconds),
        y: Axis::from_zero("(measured − predicted) / predicted", Unit::Share),
        series: fits.iter().map(|fit| cloud(fit, &fit.residuals, spot)).collect(),
        level: Some(0.0),
        ..Chart::default()
    }
    .figure()
}

fn agreement(fitted: &Fitted) -> Figure {
    let spot = |point: &Judged| (point.measured, point.predicted);
    let mut series: Vec<Series> =
        fitted.fits.iter().map(|fit| cloud(fit, &fit.held_out, spot)).collect();
    let measured = fitted.held_out().map(|(_, point)| point.measured).filter(|value| *value > 0.0);
    let (low, high) =
        measured.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    if low < high {
        let step = |index: i32| low * (high / low).powf(f64::from(index) / 64.0);
        let style = Style { colour: Colour::Quiet, mark: Mark::Circle };
        let equal = Series::new("predicted = measured", style).joined(Join::Dashed);
        series.push(equal.through((0..=64).map(step).map(|x| (x, x))));
    }
    Chart {
        name: "model-held-out".into(),
        title: "Prediction of points not fitted".into(),
        about: "Predicted against measured time of points that the fit has not seen; the dashed \
                line is equality."
            .into(),
        caption: "Points the fit has not seen. On the dashed line the prediction is exact.".into(),
        x: Axis::log("measured", Unit::Seconds),
        y: Axis::log("predicted", Unit::Seconds),
        series,
        ..Chart::default()
    }
    .figure()
}

/// The chapter; without a model it says what to run.
pub fn chapter(recordings: &[Recording]) -> Chapter {
    let fitted = Fitted::of(recordings);
    let content = match fitted.fits[..] {
        [] => Content { blocks: vec![Block::Text(NONE.into())], headlines: Vec::new() },
        _ => contents(&fitted),
    };
    Chapter {
        id: "model".into(),
        title: "A model of the cost of fork".into(),
        question: "Can the time of a fork be predicted from the size of the memory and the \
                   fraction written?"
            .into(),
        published: "three terms: copy a page, page-table entry, process (Smith and Maguire \
                    1988)"
            .into(),
        content,
    }
}

fn contents(fitted: &Fitted) -> Content {
    let mut blocks = vec![Block::Text(INTRO.into()), coefficients(&fitted.fits).into()];
    blocks.push(residuals(&fitted.fits).into());
    blocks.push(agreement(fitted).into());
    blocks.push(held_out_table(fitted).into());
    blocks.extend(fitted.notes.iter().cloned().map(Block::Text));
    let errors = fitted.held_out().map(|(_, point)| point.error().abs());
    let errors: Vec<f64> = errors.filter(|error| error.is_finite()).collect();
    let headline = |middle: f64| {
        let place = format!("median error of {} predictions", errors.len());
        (place, trim(&Unit::Share.write(middle)))
    };
    Content { blocks, headlines: median(&errors).map(headline).into_iter().collect() }
}

fn coefficients(fits: &[Fit]) -> Table {
    let head = ["configuration", "coefficient", "value", "95 % interval", "published"];
    let seconds = |value: f64| Unit::Seconds.write(value);
    let rows = fits.iter().flat_map(|fit| {
        fit.coefficients.iter().map(move |one| {
            let name = format!("{}: {}", one.term.name(), one.term.meaning());
            let interval =
                one.interval.map(|(low, high)| format!("{} to {}", seconds(low), seconds(high)));
            let (value, interval) = (seconds(one.value), interval.unwrap_or_default());
            vec![fit.engine.clone(), name, value, interval, String::new()]
        })
    });
    Table::new("Coefficients", &head, 2).with(rows)
}

fn held_out_table(fitted: &Fitted) -> Table {
    let head = ["configuration", "point", "predicted", "measured", "error"];
    let row = |(configuration, point): (&str, &Judged)| {
        let place = format!("{}, {} written", Unit::Bytes.write(point.bytes), point.frac);
        let [predicted, measured] =
            [point.predicted, point.measured].map(|time| Unit::Seconds.write(time));
        let error = Unit::Share.write(point.error().abs());
        vec![configuration.into(), place, predicted, measured, error]
    };
    Table::new("Predicted against measured, points not fitted", &head, 2)
        .with(fitted.held_out().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::Render;
    use odfork_samples::fit::points::fixtures;

    #[test]
    fn without_a_fit_the_chapter_says_what_to_run() {
        let chapter = chapter(&[]);
        assert!(chapter.content.blocks[0].render().0.contains("odfork bench grid"));
        assert!(chapter.content.headlines.is_empty());
    }

    #[test]
    fn a_model_is_shown_with_its_error() {
        let grid = fixtures::recording(|bytes, frac| 1e-4 + bytes * (2e-11 + 5e-10 * frac));
        let chapter = chapter(&[grid]);
        let html: String = chapter.content.blocks.iter().map(|block| block.render().0).collect();
        for part in ["100 µs", "model-residuals", "model-held-out", "on 17 held-out points"] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(chapter.content.headlines[0].0, "median error of 17 predictions");
    }
}
