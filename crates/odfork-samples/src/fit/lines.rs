//! The paper's analysis: for each fraction written, the regression line of time over heap size, and
//! what follows from it.
//!
//! Owns slopes, intercepts, page-service rates (forks x frac / slope) and their ratio to the rate
//! of a plain memory copy. The lines are unweighted least squares over all sizes, as in Smith and
//! Maguire 1988, so that their figures come out again.

use anyhow::{bail, Result};

use super::algebra;
use super::points::Grid;
use crate::samples::Recording;
use crate::stats::{estimate_median, middle_95, Estimate, Rng, SAMPLES_FOR_INTERVAL};

/// Resamples for intervals of lines.
const RESAMPLES: usize = 500;

/// One regression line.
#[derive(Clone, Debug, PartialEq)]
pub struct FracLine {
    pub frac: f64,
    /// Forks that y is the time of.
    pub forks: f64,
    /// Seconds a byte.
    pub slope: f64,
    pub slope_interval: Option<(f64, f64)>,
    /// Seconds.
    pub intercept: f64,
    pub intercept_interval: Option<(f64, f64)>,
    /// Bytes a second at which written pages are served; None when nothing is written or the line
    /// does not rise.
    pub service: Option<f64>,
    /// The points of the line: (bytes, seconds).
    pub points: Vec<(f64, f64)>,
}

/// All lines of one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    pub engine: String,
    pub scale: String,
    pub lines: Vec<FracLine>,
    /// Seconds to create a process: the mean of the intercepts, for one fork.
    pub process: f64,
    /// The best page-service rate, bytes a second.
    pub service: Option<f64>,
    /// Rate of a plain copy, bytes a second.
    pub copy: Option<f64>,
    /// service / copy: 1 would mean that serving a fault costs nothing beside the copy.
    pub ratio: Option<f64>,
    pub ratio_interval: Option<(f64, f64)>,
}

/// Rates of one size of the experiment `copy-rate`.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRate {
    pub bytes: f64,
    pub copy: Option<Estimate>,
    /// Of the engine asked for.
    pub service: Option<Estimate>,
}

/// Bytes a second at which the pages of `forks` children that write `frac` are served, from the
/// slope in seconds a byte.
pub fn service_rate(slope: f64, forks: f64, frac: f64) -> Option<f64> {
    let rate = forks * frac / slope;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// The line through (bytes, seconds).
pub fn regress(points: Vec<(f64, f64)>, frac: f64, forks: f64) -> Option<FracLine> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (slope, intercept) = algebra::line(&xs, &ys)?;
    Some(FracLine {
        frac,
        forks,
        slope,
        slope_interval: None,
        intercept,
        intercept_interval: None,
        service: service_rate(slope, forks, frac),
        points,
    })
}

/// One line per fraction that has at least two sizes. Times are scaled to the largest number of
/// forks of the grid.
fn lines(grid: &Grid) -> Vec<FracLine> {
    let forks = grid.points.iter().map(|point| point.forks).fold(0.0, f64::max);
    let mut fracs: Vec<f64> = grid.points.iter().map(|point| point.frac).collect();
    fracs.sort_by(f64::total_cmp);
    fracs.dedup();
    let line = |frac: f64| {
        let chosen = grid.points.iter().filter(|point| point.frac == frac);
        regress(chosen.map(|point| (point.bytes, point.each() * forks)).collect(), frac, forks)
    };
    fracs.into_iter().filter_map(line).collect()
}

fn best_service(lines: &[FracLine]) -> Option<f64> {
    lines.iter().filter_map(|line| line.service).max_by(f64::total_cmp)
}

/// The lines of a grid with intervals, and their ratio to `copy`, a plain copy's bytes a second.
pub fn analyse(grid: &Grid, copy: Option<f64>, rng: &mut Rng) -> Result<Analysis> {
    let mut found = lines(grid);
    if found.is_empty() {
        bail!(
            "engine {} has no two heap sizes at one fraction: a line needs two; \
             run `odfork bench grid`",
            grid.engine
        );
    }
    let copy = copy.filter(|rate| rate.is_finite() && *rate > 0.0);
    let ratio = |lines: &[FracLine]| Some(best_service(lines)? / copy?);
    let mut ratios = Vec::new();
    if grid.rounds().len() >= SAMPLES_FOR_INTERVAL {
        let resamples: Vec<Vec<FracLine>> =
            (0..RESAMPLES).map(|_| lines(&grid.resample(rng))).collect();
        ratios = resamples.iter().filter_map(|lines| ratio(lines)).collect();
        for line in &mut found {
            let same = |lines: &Vec<FracLine>| lines.iter().find(|l| l.frac == line.frac).cloned();
            let (slopes, intercepts) =
                resamples.iter().filter_map(same).map(|l| (l.slope, l.intercept)).unzip();
            line.slope_interval = middle_95(slopes);
            line.intercept_interval = middle_95(intercepts);
        }
    }
    let intercepts: f64 = found.iter().map(|line| line.intercept / line.forks).sum();
    Ok(Analysis {
        engine: grid.engine.clone(),
        scale: grid.scale.clone(),
        process: intercepts / found.len() as f64,
        service: best_service(&found),
        copy,
        ratio: ratio(&found),
        ratio_interval: middle_95(ratios),
        lines: found,
    })
}

/// Copy and service rates by size, of a recording of `copy-rate`. The plain copy is taken from any
/// engine.
pub fn copy_rates(recording: &Recording, engine: &str, rng: &mut Rng) -> Vec<CopyRate> {
    let mut sizes: Vec<f64> = recording.samples.iter().map(|s| s.number("bytes")).collect();
    sizes.retain(|bytes| bytes.is_finite());
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let mut rate = |bytes: f64, metric: &str, of: Option<&str>| {
        let good = recording.samples.iter().filter(|s| {
            s.metric == metric
                && s.number("bytes") == bytes
                && of.is_none_or(|engine| s.engine == engine)
                && s.value.is_finite()
                && s.value > 0.0
        });
        estimate_median(&good.map(|s| s.value).collect::<Vec<f64>>(), rng)
    };
    let row = |bytes| CopyRate {
        bytes,
        copy: rate(bytes, "copy", None),
        service: rate(bytes, "service", Some(engine)),
    };
    sizes.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::points::fixtures;
    use super::*;
    use crate::samples::Sample;

    fn grid(time: impl Fn(f64, f64) -> f64) -> Grid {
        Grid::gather(&fixtures::recording(time), "plain", "modern").unwrap()
    }

    #[test]
    fn slopes_and_service_rates_come_out_of_exact_data() {
        let grid = grid(|bytes, frac| 1e-4 + bytes * (2e-11 + 5e-10 * frac));
        let found = analyse(&grid, Some(4e9), &mut Rng::with_seed(1)).unwrap();
        assert_eq!(found.lines.len(), 7);
        let half = &found.lines[3];
        assert!((half.slope / (10.0 * 2.7e-10) - 1.0).abs() < 1e-9, "{half:?}");
        assert!((half.intercept / 1e-3 - 1.0).abs() < 1e-6, "{half:?}");
        assert!((half.service.unwrap() / (0.5 / 2.7e-10) - 1.0).abs() < 1e-9);
        let (low, high) = half.slope_interval.unwrap();
        assert!(low < half.slope && half.slope < high);
        assert!((found.process / 1e-4 - 1.0).abs() < 1e-6);
        assert!((found.ratio.unwrap() - 1.0 / 5.2e-10 / 4e9).abs() < 1e-9);
        assert_eq!(found.lines[0].service, None);
    }

    #[test]
    fn a_falling_line_has_no_service_rate_and_one_size_no_line() {
        let falling = grid(|bytes, _| 1.0 - bytes * 1e-10);
        let found = analyse(&falling, None, &mut Rng::with_seed(1)).unwrap();
        assert!(found.service.is_none() && found.ratio.is_none());
        let samples = (0..3).map(|i| fixtures::sample((4096.0, 0.5, 1.0), i, 1.0)).collect();
        let one = Recording { samples, ..Recording::default() };
        let one = Grid::gather(&one, "plain", "modern").unwrap();
        assert!(analyse(&one, None, &mut Rng::with_seed(1)).is_err());
    }

    #[test]
    fn copy_rates_are_told_by_size_and_engine() {
        let mut recording = Recording::default();
        for (metric, engine, value) in
            [("copy", "null", 8e9), ("service", "plain", 2e9), ("service", "thp", 3e9)]
        {
            for round in 0..3 {
                let one = fixtures::sample((4096.0, 1.0, 1.0), round, value);
                let (metric, engine) = (metric.into(), engine.into());
                recording.samples.push(Sample { metric, engine, ..one });
            }
        }
        let rates = copy_rates(&recording, "plain", &mut Rng::with_seed(1));
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].copy.unwrap().value, 8e9);
        assert_eq!(rates[0].service.unwrap().value, 2e9);
    }
}
