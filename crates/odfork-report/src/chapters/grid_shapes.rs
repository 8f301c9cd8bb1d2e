//! The other figures of 1988: time over (memory, fraction) as a surface, and real time against
//! system time.

use super::grid_part::{Part, HALF, METRIC};
use crate::axis::Axis;
use crate::blocks::{Block, Figure};
use crate::chart::{Chart, Point, Series};
use crate::surface::Surface;
use odfork_samples::digest::{self, distinct, pairs, Digest};
use odfork_samples::stats::median;
use odfork_samples::unit::{digits, trim, Unit};

pub fn build(part: &Part) -> Vec<Block> {
    let mut surfaces = Vec::new();
    let mut counts = vec![part.forks, 1.0];
    counts.dedup();
    for configuration in part.configurations() {
        surfaces.extend(counts.iter().filter_map(|forks| surface(part, &configuration, *forks)));
    }
    let ranges = [(0.0, "whole"), (100.0, "detail")];
    let relations = ranges.into_iter().filter_map(|range| relation(part, range)).collect();
    let mut blocks = vec![Block::Figures(surfaces), Block::Figures(relations)];
    blocks.retain(|block| !matches!(block, Block::Figures(figures) if figures.is_empty()));
    blocks
}

fn surface(part: &Part, configuration: &str, forks: f64) -> Option<Figure> {
    let points: Vec<&digest::Point> = part.points(configuration, forks).collect();
    let values = |name: &str| distinct(points.iter().copied(), name);
    let (sizes, fractions) = (values("bytes"), values("frac"));
    let height = |bytes: f64, frac: f64| {
        let here = |p: &&&digest::Point| p.number("bytes") == bytes && p.number("frac") == frac;
        points.iter().find(here).map(|point| point.median())
    };
    let column = |bytes: &f64| fractions.iter().map(|frac| height(*bytes, *frac)).collect();
    let (words, figure) = match forks == 1.0 {
        true => ("1 fork".into(), "Figure 4: one fork shows the noise"),
        false => (format!("{} forks", digits(forks)), "Figure 3"),
    };
    let labels =
        |values: &[f64], label: fn(f64) -> String| values.iter().copied().map(label).collect();
    let surface = Surface {
        title: format!("{configuration}: real time, {words}, {} grid", part.scale),
        about: "Real time as height over the size of the heap and the fraction written.".into(),
        across: ("heap".into(), labels(&sizes, |size| Unit::Bytes.write(size))),
        deep: ("fraction written".into(), labels(&fractions, |frac| trim(&digits(frac)))),
        heights: sizes.iter().map(column).collect(),
        unit: Unit::Seconds,
    };
    let caption = format!(
        "As {figure}. Medians; steps of both ground axes are evenly spaced, the \
         far corner is the largest heap, all written."
    );
    let name = format!("{}-surface-{configuration}-{forks}", part.id);
    surface.drawable().then(|| Figure::new(&name, &caption, surface.drawing()))
}

/// (real - sys) / sys of one point, sample by sample; samples whose system time is zero have none.
fn relations_of(digest: &Digest, real: &digest::Point) -> Vec<f64> {
    let Some(sys) = digest.beside(real, "sys") else { return Vec::new() };
    let timed = pairs(real, sys).into_iter().filter(|(_, sys)| *sys > 0.0);
    timed.map(|(real, sys)| (real - sys) / sys).collect()
}

fn relation(part: &Part, (from, word): (f64, &str)) -> Option<Figure> {
    let mut counts = part.digest.numbers(METRIC, "forks");
    counts.retain(|forks| *forks >= from.max(1.0));
    let line = |configuration: String| {
        let mut series = Series::of_configuration(&configuration);
        for &forks in &counts {
            let points = part.points(&configuration, forks);
            let values: Vec<f64> =
                points.flat_map(|point| relations_of(part.digest, point)).collect();
            series.points.extend(median(&values).map(|middle| Point::new(forks, middle)));
            series.raw.extend(values.into_iter().map(|value| (forks, value)));
        }
        series
    };
    let series =
        part.configurations().into_iter().map(line).filter(|series| !series.points.is_empty());
    let detail = if from > 1.0 { ", 100 forks and more" } else { "" };
    let chart = Chart {
        name: format!("{}-relation-{word}", part.id),
        title: format!("Real against system time{detail}, {} grid", part.scale),
        about: "How much longer real time is than system time, relative to it, by number of \
                forks."
            .into(),
        caption: "As Figures 5 and 6: every sample of the grid as a dot, medians joined. Samples \
                  without measurable system time are left out. Published: up to 20 for few forks, \
                  below 0.2 for many."
            .into(),
        x: Axis::log("number of forks", Unit::Count),
        y: Axis::from_zero("(real − sys) / sys", Unit::Number),
        series: series.collect(),
        size: HALF,
        level: None,
    };
    (!chart.series.is_empty()).then(|| chart.figure())
}
