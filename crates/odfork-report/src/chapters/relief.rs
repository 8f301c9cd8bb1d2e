//! The other figures of 1988: time over (memory, fraction) as a surface, and real time against system time.

use super::grid::{Part, HALF, METRIC};
use crate::blocks::{Block, Figure};
use crate::chart::{self, Axis, Chart, Series};
use crate::colour::Colour;
use crate::scale::Kind;
use crate::scene::MARKS;
use crate::surface::Surface;
use odfork_samples::configurations::rank;
use odfork_samples::digest::{pairs, Digest, Point};
use odfork_samples::stats::median;
use odfork_samples::unit::{digits, trim, Unit};

pub fn build(part: &Part) -> Vec<Block> {
    let mut surfaces = Vec::new();
    let mut counts = vec![part.forks, 1.0];
    counts.dedup();
    for engine in part.digest.engines(METRIC) {
        for forks in &counts {
            surfaces.extend(surface(part, &engine, *forks));
        }
    }
    let relations: Vec<Figure> = [(0.0, "whole"), (100.0, "detail")]
        .into_iter()
        .filter_map(|from| relation(part, from))
        .collect();
    vec![Block::Figures(surfaces), Block::Figures(relations)]
        .into_iter()
        .filter(|block| !matches!(block, Block::Figures(figures) if figures.is_empty()))
        .collect()
}

fn surface(part: &Part, engine: &str, forks: f64) -> Option<Figure> {
    let points: Vec<&Point> = part.points(engine, forks).collect();
    let distinct = |name: &str| {
        let mut values: Vec<f64> =
            points.iter().map(|p| p.number(name)).filter(|v| v.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        values
    };
    let (sizes, parts) = (distinct("bytes"), distinct("frac"));
    let height = |bytes: f64, frac: f64| {
        points
            .iter()
            .find(|p| p.number("bytes") == bytes && p.number("frac") == frac)
            .map(|p| p.median())
    };
    let words =
        if forks == 1.0 { "1 fork".to_string() } else { format!("{} forks", digits(forks)) };
    let surface = Surface {
        title: format!("{engine}: real time, {words}, {} grid", part.scale),
        about: "Real time as height over the size of the heap and the fraction written.".into(),
        across: ("heap".into(), sizes.iter().map(|size| Unit::Bytes.write(*size)).collect()),
        deep: ("fraction written".into(), parts.iter().map(|part| trim(&digits(*part))).collect()),
        heights: sizes
            .iter()
            .map(|size| parts.iter().map(|part| height(*size, *part)).collect())
            .collect(),
        unit: Unit::Seconds,
    };
    let figure = if forks == 1.0 { "Figure 4: one fork shows the noise" } else { "Figure 3" };
    let caption = format!("As {figure}. Medians; steps of both ground axes are evenly spaced, the far corner is the largest heap, all written.");
    surface.drawable().then(|| {
        Figure::new(&format!("{}-surface-{engine}-{forks}", part.id), &caption, surface.scene())
    })
}

/// (real - sys) / sys of one point, sample by sample; samples whose system time is zero have none.
fn relations_of(digest: &Digest, real: &Point) -> Vec<f64> {
    let Some(sys) = digest.beside(real, "sys") else { return Vec::new() };
    pairs(real, sys)
        .into_iter()
        .filter(|(_, sys)| *sys > 0.0)
        .map(|(real, sys)| (real - sys) / sys)
        .collect()
}

fn relation(part: &Part, (from, word): (f64, &str)) -> Option<Figure> {
    let mut all = Vec::new();
    for engine in part.digest.engines(METRIC) {
        let mut series = Series::new(
            &engine,
            Colour::of_engine(&engine),
            MARKS[rank(&engine).min(MARKS.len() - 1)],
        );
        let mut counts: Vec<f64> = part.digest.numbers(METRIC, "forks");
        counts.retain(|forks| *forks >= from.max(1.0));
        for forks in counts {
            let values: Vec<f64> = part
                .points(&engine, forks)
                .flat_map(|point| relations_of(part.digest, point))
                .collect();
            let Some(middle) = median(&values) else { continue };
            series.points.push(chart::Point { x: forks, y: middle, interval: None });
            series.raw.extend(values.into_iter().map(|value| (forks, value)));
        }
        series.join = chart::Join::Solid;
        if !series.points.is_empty() {
            all.push(series);
        }
    }
    if all.is_empty() {
        return None;
    }
    let axes = (
        Axis::new("number of forks", Kind::Log, Unit::Count),
        Axis::from_zero("(real − sys) / sys", Unit::Number),
    );
    let title = if from > 1.0 {
        "Real against system time, 100 forks and more"
    } else {
        "Real against system time"
    };
    let about =
        "How much longer real time is than system time, relative to it, by number of forks.";
    let mut chart = Chart::new(&format!("{title}, {} grid", part.scale), about, axes, all);
    chart.size = HALF;
    let caption = "As Figures 5 and 6: every sample of the grid as a dot, medians joined. Samples without measurable system time are left out. Published: up to 20 for few forks, below 0.2 for many.";
    Some(Figure::of_chart(&format!("{}-relation-{word}", part.id), caption, &chart))
}
