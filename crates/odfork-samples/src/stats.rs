//! Medians, bootstrap intervals and ratios of two series. Pure: no clock, no system call.
//!
//! Times of forks are skewed and have outliers, so nothing here assumes a normal distribution: the
//! middle is the median, the interval is the 2.5 % and 97.5 % quantile of medians of resamples. The
//! resampling is seeded, so the same samples give the same report.

/// A small seeded generator: order of points, resampling, choice of pages.
pub use fastrand::Rng;

/// Resamples per interval; the quantiles of a report do not move visibly beyond this.
const RESAMPLES: usize = 2000;

/// Fewer samples than this and an interval would only pretend to know something.
pub const SAMPLES_FOR_INTERVAL: usize = 3;

/// A number and the interval that holds it with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// None when there were too few samples to say.
    pub interval: Option<(f64, f64)>,
    /// Samples behind it.
    pub count: usize,
}

impl Estimate {
    /// Whether the interval lies on both sides of `border`: then one run does not decide.
    pub fn straddles(&self, border: f64) -> bool {
        self.interval.is_some_and(|(low, high)| low < border && border < high)
    }
}

/// The middle value; the mean of the two middle ones when the count is even. None for no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The arithmetic mean; `None` without samples.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// The standard deviation of a population known by these samples; None below two.
pub fn deviation(samples: &[f64]) -> Option<f64> {
    let middle = mean(samples).filter(|_| samples.len() > 1)?;
    let squares: f64 = samples.iter().map(|one| (one - middle).powi(2)).sum();
    Some((squares / (samples.len() - 1) as f64).sqrt())
}

/// The 2.5 % and the 97.5 % quantile of the finite values.
pub fn middle_95(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let quantile = |share: f64| values[(last as f64 * share).round() as usize];
    Some((quantile(0.025), quantile(0.975)))
}

/// The median of a series with its interval.
pub fn estimate_median(samples: &[f64], rng: &mut Rng) -> Option<Estimate> {
    let value = median(samples)?;
    Some(Estimate { value, interval: bootstrap(samples, rng, median), count: samples.len() })
}

/// median(top) / median(bottom) where sample i of both was taken in the same round: a round is
/// resampled as a whole, so a disturbance that slowed both sides cancels.
pub fn estimate_ratio(top: &[f64], bottom: &[f64], rng: &mut Rng) -> Option<Estimate> {
    let rounds: Vec<(f64, f64)> = top.iter().copied().zip(bottom.iter().copied()).collect();
    let ratio = |rounds: &[(f64, f64)]| {
        let (tops, bottoms): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
        let bottom = median(&bottoms).filter(|bottom| *bottom > 0.0)?;
        Some(median(&tops)? / bottom)
    };
    let value = ratio(&rounds).filter(|_| top.len() == bottom.len())?;
    Some(Estimate { value, interval: bootstrap(&rounds, rng, ratio), count: rounds.len() })
}

/// The 95 % percentile interval of `statistic` over resamples.
fn bootstrap<T: Copy>(
    samples: &[T],
    rng: &mut Rng,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<(f64, f64)> {
    if samples.len() < SAMPLES_FOR_INTERVAL {
        return None;
    }
    let mut drawn = samples.to_vec();
    let mut resample = || {
        drawn.fill_with(|| samples[rng.usize(..samples.len())]);
        statistic(&drawn)
    };
    middle_95((0..RESAMPLES).filter_map(|_| resample()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_an_outlier_and_knows_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 900.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn mean_and_deviation_are_of_all_samples() {
        assert_eq!((mean(&[1.0, 2.0, 6.0]), mean(&[])), (Some(3.0), None));
        let found = deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!((found - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(deviation(&[2.0]), None);
    }

    #[test]
    fn equal_samples_give_an_interval_of_no_width() {
        let estimate = estimate_median(&[5.0; 9], &mut Rng::with_seed(1)).unwrap();
        assert_eq!(estimate.interval, Some((5.0, 5.0)));
        assert_eq!(estimate.count, 9);
    }

    #[test]
    fn the_interval_holds_the_median_and_shrinks_with_more_samples() {
        let mut rng = Rng::with_seed(7);
        let mut noisy = |count: usize| -> Vec<f64> {
            (0..count).map(|_| 100.0 + rng.usize(..40) as f64).collect()
        };
        let (few, many) = (noisy(10), noisy(400));
        let width = |samples: &[f64]| {
            let estimate = estimate_median(samples, &mut Rng::with_seed(3)).unwrap();
            let (low, high) = estimate.interval.unwrap();
            assert!(low <= estimate.value && estimate.value <= high);
            high - low
        };
        assert!(width(&many) < width(&few));
    }

    /// The true median is known (119.5 for uniform 100..140): about 95 in 100 intervals must hold
    /// it.
    #[test]
    fn about_95_of_100_intervals_hold_the_true_median() {
        let mut rng = Rng::with_seed(99);
        let mut holding = 0;
        for _ in 0..200 {
            let samples: Vec<f64> =
                (0..25).map(|_| 100.0 + rng.usize(..40_000) as f64 / 1000.0).collect();
            let (low, high) = estimate_median(&samples, &mut rng).unwrap().interval.unwrap();
            holding += usize::from(low <= 120.0 && 120.0 <= high);
        }
        assert!((180..=200).contains(&holding), "{holding} of 200");
    }

    #[test]
    fn a_disturbance_shared_by_a_round_cancels_in_the_ratio() {
        let disturbance = [1.0, 1.0, 3.0, 1.0, 2.0, 1.0, 1.5, 1.0];
        let slow: Vec<f64> = disturbance.iter().map(|factor| 400.0 * factor).collect();
        let fast: Vec<f64> = disturbance.iter().map(|factor| 2.0 * factor).collect();
        let ratio = estimate_ratio(&slow, &fast, &mut Rng::with_seed(5)).unwrap();
        assert_eq!(ratio.value, 200.0);
        let (low, high) = ratio.interval.unwrap();
        assert!((low - 200.0).abs() < 1e-9 && (high - 200.0).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_needs_pairs_and_a_positive_bottom() {
        let mut rng = Rng::with_seed(1);
        assert_eq!(estimate_ratio(&[1.0, 2.0], &[1.0], &mut rng), None);
        assert_eq!(estimate_ratio(&[1.0], &[0.0], &mut rng), None);
        assert_eq!(estimate_ratio(&[], &[], &mut rng), None);
    }

    #[test]
    fn two_samples_have_no_interval() {
        let estimate = estimate_median(&[1.0, 2.0], &mut Rng::with_seed(1)).unwrap();
        assert_eq!(estimate.interval, None);
        assert!(!estimate.straddles(1.5));
    }

    #[test]
    fn straddling_means_strictly_inside() {
        let estimate = Estimate { value: 1.0, interval: Some((0.9, 1.1)), count: 10 };
        assert!(estimate.straddles(1.05));
        assert!(!estimate.straddles(1.1));
        assert!(!estimate.straddles(2.0));
    }
}
