//! Straight lines through points: least squares, with an interval of the slope by resampling.
//!
//! Owns what the figures draw. The model of costs with all its terms is fitted elsewhere (`fit`).

use odfork_samples::fit::algebra;
use odfork_samples::stats::{Estimate, Rng};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub slope: f64,
    pub intercept: f64,
    /// Share of the variance the line explains.
    pub explained: f64,
}

impl Line {
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// None below two different x.
pub fn fit(points: &[(f64, f64)]) -> Option<Line> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (slope, intercept) = algebra::line(&xs, &ys)?;
    let mean = ys.iter().sum::<f64>() / ys.len() as f64;
    let square =
        |part: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(|p| part(p).powi(2)).sum::<f64>();
    let (all, rest) = (square(&|(_, y)| y - mean), square(&|(x, y)| y - intercept - slope * x));
    let explained = if all > 0.0 { (1.0 - rest / all).clamp(0.0, 1.0) } else { 1.0 };
    Some(Line { slope, intercept, explained })
}

/// Slope with its 95 % interval: points are resampled with replacement.
pub fn estimate_slope(points: &[(f64, f64)], rng: &mut Rng) -> Option<Estimate> {
    let value = fit(points)?.slope;
    let count = points.len();
    let mut slopes: Vec<f64> = (0..1000)
        .filter_map(|_| {
            let drawn: Vec<(f64, f64)> = (0..count).map(|_| points[rng.usize(..count)]).collect();
            Some(fit(&drawn)?.slope)
        })
        .collect();
    slopes.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| slopes[((slopes.len() - 1) as f64 * share).round() as usize];
    let interval = (count >= 4 && slopes.len() >= 100).then(|| (quantile(0.025), quantile(0.975)));
    Some(Estimate { value, interval, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<(f64, f64)> =
            (0..8).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        let line = fit(&points).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.intercept - 3.0).abs() < 1e-12);
        assert_eq!(line.explained, 1.0);
        assert_eq!(line.at(10.0).round(), 23.0);
        let slope = estimate_slope(&points, &mut Rng::with_seed(1)).unwrap();
        let (low, high) = slope.interval.unwrap();
        assert!((low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
    }

    #[test]
    fn noise_lowers_what_is_explained_and_widens_the_interval() {
        let points: Vec<(f64, f64)> = (0..20)
            .map(|x| (f64::from(x), f64::from(x) + if x % 2 == 0 { 4.0 } else { -4.0 }))
            .collect();
        let line = fit(&points).unwrap();
        assert!(line.explained > 0.3 && line.explained < 0.95, "{line:?}");
        let (low, high) =
            estimate_slope(&points, &mut Rng::with_seed(1)).unwrap().interval.unwrap();
        assert!(low < 1.0 && 1.0 < high);
    }

    #[test]
    fn one_place_has_no_slope() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(1.0, 2.0), (1.0, 5.0)]), None);
        assert_eq!(estimate_slope(&[(1.0, 2.0)], &mut Rng::with_seed(1)), None);
    }
}
