//! The paper's analysis: for each fraction written, the regression line of time over heap size, and
//! what follows from it.
//!
//! Owns slopes, intercepts, page-service rates (forks x frac / slope) and their ratio to the rate
//! of a plain memory copy. The lines are unweighted least squares over all sizes, as in Smith and
//! Maguire 1988, so that their figures come out again.

use std::collections::BTreeMap;

use anyhow::{bail, Result};

use super::algebra;
use super::points::Grid;
use crate::samples::Recording;
use crate::stats::median;

/// One regression line.
#[derive(Clone, Debug, PartialEq)]
pub struct FracLine {
    /// The share of its pages that the child writes.
    pub frac: f64,
    /// Seconds a byte.
    pub slope: f64,
    /// Seconds.
    pub intercept: f64,
    /// Bytes a second at which written pages are served; None when nothing is written or the line
    /// does not rise.
    pub service: Option<f64>,
    /// The points of the line: (bytes, seconds).
    pub points: Vec<(f64, f64)>,
}

/// All lines of one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// One line for each share.
    pub lines: Vec<FracLine>,
    /// The best page-service rate over that of a plain copy: 1 would mean that serving a fault
    /// costs nothing beside the copy.
    pub ratio: Option<f64>,
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
    let service = service_rate(slope, forks, frac);
    Some(FracLine { frac, slope, intercept, service, points })
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

/// The lines of a grid, and their ratio to `copy`, a plain copy's bytes a second.
pub fn analyse(grid: &Grid, copy: Option<f64>) -> Result<Analysis> {
    let lines = lines(grid);
    if lines.is_empty() {
        bail!(
            "engine {} has no two heap sizes at one fraction: a line needs two; \
             run `odfork bench grid`",
            grid.engine
        );
    }
    let best = lines.iter().filter_map(|line| line.service).max_by(f64::total_cmp);
    let copy = copy.filter(|rate| rate.is_finite() && *rate > 0.0);
    let ratio = best.zip(copy).map(|(best, copy)| best / copy);
    Ok(Analysis { lines, ratio })
}

/// Rates of a plain copy, by size, of a recording of `copy-rate`: of whatever engine.
pub fn copy_rates(recording: &Recording) -> Vec<f64> {
    let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for sample in recording.samples.iter().filter(|sample| sample.metric == "copy") {
        if sample.value.is_finite() && sample.value > 0.0 {
            sizes.entry(sample.number("bytes") as u64).or_default().push(sample.value);
        }
    }
    sizes.values().filter_map(|values| median(values)).collect()
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
        let found = analyse(&grid, Some(4e9)).unwrap();
        assert_eq!(found.lines.len(), 7);
        let half = &found.lines[3];
        assert!((half.slope / (10.0 * 2.7e-10) - 1.0).abs() < 1e-9, "{half:?}");
        assert!((half.intercept / 1e-3 - 1.0).abs() < 1e-6, "{half:?}");
        assert!((half.service.unwrap() / (0.5 / 2.7e-10) - 1.0).abs() < 1e-9);
        assert!((found.ratio.unwrap() - 1.0 / 5.2e-10 / 4e9).abs() < 1e-9);
        assert_eq!(found.lines[0].service, None);
    }

    #[test]
    fn a_falling_line_has_no_service_rate_and_one_size_no_line() {
        let falling = grid(|bytes, _| 1.0 - bytes * 1e-10);
        let found = analyse(&falling, Some(1.0)).unwrap();
        assert!(found.lines.iter().all(|line| line.service.is_none()) && found.ratio.is_none());
        let samples = (0..3).map(|i| fixtures::sample((4096.0, 0.5, 1.0), i, 1.0)).collect();
        let one = Recording { samples, ..Recording::default() };
        let one = Grid::gather(&one, "plain", "modern").unwrap();
        assert!(analyse(&one, None).is_err());
    }

    #[test]
    fn copy_rates_rise_with_size_whatever_the_engine() {
        let copy = |bytes, engine: &str, value| {
            let one = fixtures::sample((bytes, 1.0, 1.0), 1, value);
            Sample { metric: "copy".into(), engine: engine.into(), ..one }
        };
        let samples = vec![copy(8192.0, "thp", 9e9), copy(4096.0, "null", 8e9)];
        assert_eq!(copy_rates(&Recording { samples, ..Recording::default() }), [8e9, 9e9]);
    }
}
