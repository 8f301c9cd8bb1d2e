//! The chapter of the fitted cost model: coefficients, residuals, prediction against measurement.
//!
//! Owns the layout only. The fit is made elsewhere (`fit`) and handed over as ready rows; without
//! one the chapter says how to make it.

use crate::axis::Axis;
use crate::blocks::{Block, Chapter, Content, Figure, Table};
use crate::chart::{grouped, Chart, Join, Series, Style};
use crate::colour::Colour;
use crate::drawing::Mark;
use odfork_samples::stats::median;
use odfork_samples::unit::{trim, Unit};

/// One coefficient of one configuration, in words: the fit knows its units.
#[derive(Clone, Debug, Default)]
pub struct Coefficient {
    pub configuration: String,
    /// "copy a page", "page-table entry", "process".
    pub name: String,
    pub value: String,
    pub interval: String,
    /// "" when nothing was published.
    pub published: String,
}

/// A point the fit has not seen.
#[derive(Clone, Debug, Default)]
pub struct HeldOut {
    pub configuration: String,
    /// "1 GB, 0.5 written".
    pub place: String,
    /// Seconds.
    pub predicted: f64,
    pub measured: f64,
}

/// (configuration, points) of a plot.
pub type Cloud = (String, Vec<(f64, f64)>);

/// Everything the chapter shows.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What was fitted, how, on which samples: one or two sentences.
    pub intro: String,
    pub coefficients: Vec<Coefficient>,
    /// Per configuration: (predicted seconds, (measured - predicted) / predicted).
    pub residuals: Vec<Cloud>,
    pub held_out: Vec<HeldOut>,
    /// Sentences: held-out error, what the model cannot say.
    pub notes: Vec<String>,
}

fn cloud((configuration, points): &Cloud) -> Series {
    Series::new(configuration, Style::of_configuration(configuration))
        .through(points.iter().copied())
}

fn residuals(clouds: &[Cloud]) -> Figure {
    Chart {
        name: "model-residuals".into(),
        title: "Residuals of the cost model".into(),
        about: "Relative residual of each fitted point against its predicted time, one mark per point.".into(),
        caption: "Every fitted point. A model that is right scatters around the dashed line without a shape.".into(),
        x: Axis::log("predicted time", Unit::Seconds),
        y: Axis::from_zero("(measured − predicted) / predicted", Unit::Share),
        series: clouds.iter().map(cloud).collect(),
        level: Some(0.0),
        ..Chart::default()
    }
    .figure()
}

fn agreement(held_out: &[HeldOut]) -> Figure {
    let spots = held_out.iter().map(|p| (p.configuration.clone(), (p.measured, p.predicted)));
    let clouds: Vec<Cloud> = grouped(spots);
    let mut series: Vec<Series> = clouds.iter().map(cloud).collect();
    let measured = held_out.iter().map(|point| point.measured).filter(|value| *value > 0.0);
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
        about: "Predicted against measured time of points that the fit has not seen; the dashed line is equality.".into(),
        caption: "Points the fit has not seen. On the dashed line the prediction is exact.".into(),
        x: Axis::log("measured", Unit::Seconds),
        y: Axis::log("predicted", Unit::Seconds),
        series,
        ..Chart::default()
    }
    .figure()
}

/// The chapter; without a model it says what to run.
pub fn chapter(model: Option<&Model>) -> Chapter {
    let content = model.map_or_else(
        || Content { blocks: vec![Block::Text("No model was fitted: it needs samples of the experiment grid. Run `odfork bench grid`, then make the report again.".into())], headlines: Vec::new() },
        contents,
    );
    Chapter {
        id: "model".into(),
        title: "A model of the cost of fork".into(),
        question: "Can the time of a fork be predicted from the size of the memory and the fraction written?".into(),
        published: "three terms: copy a page, page-table entry, process (Smith and Maguire 1988)".into(),
        content,
    }
}

fn contents(model: &Model) -> Content {
    let mut headlines = Vec::new();
    let mut blocks = vec![Block::Text(model.intro.clone())];
    let head = ["configuration", "coefficient", "value", "95 % interval", "published"];
    let row = |line: &Coefficient| {
        let Coefficient { configuration, name, value, interval, published } = line.clone();
        vec![configuration, name, value, interval, published]
    };
    let rows = model.coefficients.iter().map(row);
    blocks.push(Table::new("Coefficients", &head, 2).with(rows).into());
    if model.residuals.iter().any(|(_, points)| !points.is_empty()) {
        blocks.push(residuals(&model.residuals).into());
    }
    if !model.held_out.is_empty() {
        blocks.push(agreement(&model.held_out).into());
        blocks.push(held_out_table(&model.held_out).into());
        let errors = model.held_out.iter().map(error).filter(|error| error.is_finite());
        let errors: Vec<f64> = errors.collect();
        if let Some(middle) = median(&errors) {
            let place = format!("median error of {} predictions", errors.len());
            headlines.push((place, trim(&Unit::Share.write(middle))));
        }
    }
    blocks.extend(model.notes.iter().cloned().map(Block::Text));
    Content { blocks, headlines }
}

fn error(point: &HeldOut) -> f64 {
    ((point.predicted - point.measured) / point.measured).abs()
}

fn held_out_table(held_out: &[HeldOut]) -> Table {
    let head = ["configuration", "point", "predicted", "measured", "error"];
    let row = |point: &HeldOut| {
        let times = [point.predicted, point.measured].map(|time| Unit::Seconds.write(time));
        let [predicted, measured] = times;
        let error = Unit::Share.write(error(point));
        vec![point.configuration.clone(), point.place.clone(), predicted, measured, error]
    };
    Table::new("Predicted against measured, points not fitted", &head, 2)
        .with(held_out.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::Render;

    #[test]
    fn without_a_fit_the_chapter_says_what_to_run() {
        let chapter = chapter(None);
        assert!(chapter.content.blocks[0].render().0.contains("odfork bench grid"));
        assert!(chapter.content.headlines.is_empty());
    }

    #[test]
    fn a_model_is_shown_with_its_error() {
        let point = |measured: f64| HeldOut {
            configuration: "plain".into(),
            place: "1 GB".into(),
            predicted: measured * 1.1,
            measured,
        };
        let model = Model {
            intro: "Fitted <here>.".into(),
            coefficients: vec![Coefficient {
                configuration: "plain".into(),
                value: "0.25 µs".into(),
                ..Coefficient::default()
            }],
            residuals: vec![("plain".into(), vec![(0.01, 0.05), (0.1, -0.02)])],
            held_out: vec![point(0.01), point(0.1)],
            notes: vec!["A note.".into()],
        };
        let chapter = chapter(Some(&model));
        let html: String = chapter.content.blocks.iter().map(|block| block.render().0).collect();
        assert!(
            html.contains("0.25 µs") && html.contains("&lt;here&gt;") && html.contains("A note.")
        );
        assert!(html.contains("model-residuals") && html.contains("model-held-out"));
        assert_eq!(chapter.content.headlines[0].1, "10 %");
        assert!(residuals(&model.residuals).drawing.file().starts_with("<?xml"));
        assert!(residuals(&[]).drawing.file().contains("<svg"));
    }
}
