//! The chapter of the fitted cost model: coefficients, residuals, prediction against measurement.
//!
//! Owns the layout only. The fit is made elsewhere (`fit`) and handed over as ready rows; without one the chapter says
//! how to make it.

use super::blocks::{Block, Figure, Table};
use super::chapters::{Chapter, Content};
use super::chart::{self, Axis, Chart, Series};
use super::colour::Colour;
use super::scale::Kind;
use super::scene::{Scene, MARKS};
use super::svg;
use odfork_samples::unit::{trim, Unit};

/// One coefficient of one engine, in words: the fit knows its units.
#[derive(Clone, Debug, Default)]
pub struct Coefficient {
    pub engine: String,
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
    pub engine: String,
    /// "1 GB, 0.5 written".
    pub place: String,
    /// Seconds.
    pub predicted: f64,
    pub measured: f64,
}

/// (engine, points) of a plot.
pub type Cloud = (String, Vec<(f64, f64)>);

/// Everything the chapter shows.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What was fitted, how, on which samples: one or two sentences.
    pub intro: String,
    pub coefficients: Vec<Coefficient>,
    /// Per engine: (predicted seconds, (measured - predicted) / predicted).
    pub residuals: Vec<Cloud>,
    pub held_out: Vec<HeldOut>,
    /// Sentences: held-out error, what the model cannot say.
    pub notes: Vec<String>,
}

fn cloud((engine, points): &Cloud) -> Series {
    let rank = odfork_samples::configurations::rank(engine).min(MARKS.len() - 1);
    let mut series = Series::new(engine, Colour::of_engine(engine), MARKS[rank]);
    series.points = points.iter().map(|&(x, y)| chart::Point { x, y, interval: None }).collect();
    series
}

fn residual_scene(clouds: &[Cloud]) -> Scene {
    let axes = (
        Axis::new("predicted time", Kind::Log, Unit::Seconds),
        Axis::from_zero("(measured − predicted) / predicted", Unit::Share),
    );
    let about =
        "Relative residual of each fitted point against its predicted time, one mark per point.";
    let mut chart =
        Chart::new("Residuals of the cost model", about, axes, clouds.iter().map(cloud).collect());
    chart.level = Some(0.0);
    chart.scene()
}

/// The residual plot alone, as an SVG file: (predicted seconds, relative residual) per engine.
pub fn residual_plot(clouds: &[Cloud]) -> String {
    svg::file(&residual_scene(clouds))
}

fn agreement(held_out: &[HeldOut]) -> Scene {
    let mut clouds: Vec<Cloud> = Vec::new();
    for point in held_out {
        let place =
            clouds.iter().position(|(engine, _)| *engine == point.engine).unwrap_or_else(|| {
                clouds.push((point.engine.clone(), Vec::new()));
                clouds.len() - 1
            });
        clouds[place].1.push((point.measured, point.predicted));
    }
    let mut all: Vec<Series> = clouds.iter().map(cloud).collect();
    let measured = held_out.iter().map(|point| point.measured).filter(|value| *value > 0.0);
    let (low, high) =
        measured.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    if low < high {
        let mut equal = Series::new("predicted = measured", Colour::Quiet, MARKS[0]);
        equal.join = chart::Join::Dashed;
        let step = |index: i32| low * (high / low).powf(f64::from(index) / 64.0);
        equal.points =
            (0..=64).map(step).map(|x| chart::Point { x, y: x, interval: None }).collect();
        all.push(equal);
    }
    let axes = (
        Axis::new("measured", Kind::Log, Unit::Seconds),
        Axis::new("predicted", Kind::Log, Unit::Seconds),
    );
    let about = "Predicted against measured time of points that the fit has not seen; the dashed line is equality.";
    Chart::new("Prediction of points not fitted", about, axes, all).scene()
}

/// The chapter; without a model it says what to run.
pub fn chapter(model: Option<&Model>) -> Chapter {
    let mut content = Content::default();
    match model {
        None => content.blocks.push(Block::Text("No model was fitted: it needs samples of the experiment grid. Run `odfork bench grid`, then make the report again.".into())),
        Some(model) => fill(model, &mut content),
    }
    Chapter {
        id: "model".into(),
        row: "M02".into(),
        title: "A model of the cost of fork".into(),
        question: "Can the time of a fork be predicted from the size of the memory and the fraction written?".into(),
        published: "three terms: copy a page, page-table entry, process (Smith and Maguire 1988)".into(),
        content,
    }
}

fn fill(model: &Model, content: &mut Content) {
    let blocks = &mut content.blocks;
    blocks.push(Block::Text(model.intro.clone()));
    let head = ["engine", "coefficient", "value", "95 % interval", "published"];
    let mut table = Table::new("Coefficients", &head, 2);
    for line in &model.coefficients {
        let Coefficient { engine, name, value, interval, published } = line.clone();
        table.rows.push(vec![engine, name, value, interval, published]);
    }
    blocks.push(Block::Table(table));
    if model.residuals.iter().any(|(_, points)| !points.is_empty()) {
        let caption = "Every fitted point. A model that is right scatters around the dashed line without a shape.";
        blocks.push(Block::Figures(vec![Figure::new(
            "model-residuals",
            caption,
            residual_scene(&model.residuals),
        )]));
    }
    if !model.held_out.is_empty() {
        let caption = "Points the fit has not seen. On the dashed line the prediction is exact.";
        blocks.push(Block::Figures(vec![Figure::new(
            "model-held-out",
            caption,
            agreement(&model.held_out),
        )]));
        blocks.push(Block::Table(held_out_table(&model.held_out)));
        let errors: Vec<f64> =
            model.held_out.iter().map(error).filter(|error| error.is_finite()).collect();
        if let Some(middle) = odfork_samples::stats::median(&errors) {
            let place = format!("median error of {} predictions", errors.len());
            content.headlines.push((place, trim(&Unit::Share.write(middle))));
        }
    }
    content.blocks.extend(model.notes.iter().cloned().map(Block::Text));
}

fn error(point: &HeldOut) -> f64 {
    ((point.predicted - point.measured) / point.measured).abs()
}

fn held_out_table(held_out: &[HeldOut]) -> Table {
    let head = ["engine", "point", "predicted", "measured", "error"];
    let mut table = Table::new("Predicted against measured, points not fitted", &head, 2);
    for point in held_out {
        table.rows.push(vec![
            point.engine.clone(),
            point.place.clone(),
            Unit::Seconds.write(point.predicted),
            Unit::Seconds.write(point.measured),
            Unit::Share.write(error(point)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_fit_the_chapter_says_what_to_run() {
        let chapter = chapter(None);
        assert!(chapter.content.blocks[0].html().contains("odfork bench grid"));
        assert!(chapter.content.headlines.is_empty());
    }

    #[test]
    fn a_model_is_shown_with_its_error() {
        let point = |measured: f64| HeldOut {
            engine: "plain".into(),
            place: "1 GB".into(),
            predicted: measured * 1.1,
            measured,
        };
        let model = Model {
            intro: "Fitted <here>.".into(),
            coefficients: vec![Coefficient {
                engine: "plain".into(),
                value: "0.25 µs".into(),
                ..Coefficient::default()
            }],
            residuals: vec![("plain".into(), vec![(0.01, 0.05), (0.1, -0.02)])],
            held_out: vec![point(0.01), point(0.1)],
            notes: vec!["A note.".into()],
        };
        let chapter = chapter(Some(&model));
        let html: String = chapter.content.blocks.iter().map(Block::html).collect();
        assert!(
            html.contains("0.25 µs") && html.contains("&lt;here&gt;") && html.contains("A note.")
        );
        assert!(html.contains("model-residuals") && html.contains("model-held-out"));
        assert_eq!(chapter.content.headlines[0].1, "10 %");
        assert!(residual_plot(&model.residuals).starts_with("<?xml"));
        assert!(residual_plot(&[]).contains("<svg"));
    }
}
