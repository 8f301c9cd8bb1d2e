//! Ranks drawn by Zipf's law, by rejection from the inverted integral (Hoermann and Derflinger
//! 1996): no table, any size.

use odfork_samples::stats::Rng;

/// Draws ranks from 0 to `count` - 1; rank r comes with probability proportional to 1 / (r + 1)^s.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    exponent: f64,
    /// Integral of the law at the first and behind the last rank.
    low: f64,
    high: f64,
    /// Below it the first try is always right.
    sure: f64,
}

impl Zipf {
    /// # Panics
    /// `count` is 0, or the exponent is not between 0 and 1 (both excluded): constants of this
    /// crate.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        assert!(count > 0 && exponent > 0.0 && exponent < 1.0);
        let mut zipf = Zipf { count, exponent, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(count as f64 + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-exponent));
        zipf
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, y: f64) -> f64 {
        (1.0 + y * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }

    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let share = rng.f64();
            let height = self.high + share * (self.low - self.high);
            let x = self.inverse(height);
            let rank = x.round().clamp(1.0, self.count as f64);
            if rank - x <= self.sure
                || height >= self.integral(rank + 0.5) - rank.powf(-self.exponent)
            {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the law itself: the share of the first rank, of the first ten and of the first
    /// tenth.
    #[test]
    fn shares_are_those_of_the_law() {
        let count = 10_000;
        let law: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-0.9)).collect();
        let all: f64 = law.iter().sum();
        let zipf = Zipf::new(count as u64, 0.9);
        let mut rng = Rng::with_seed(5);
        let draws = 400_000;
        let mut seen = vec![0u32; count as usize];
        for _ in 0..draws {
            seen[zipf.draw(&mut rng) as usize] += 1;
        }
        for first in [1, 10, 1000] {
            let expected: f64 = law[..first].iter().sum::<f64>() / all;
            let got = f64::from(seen[..first].iter().sum::<u32>()) / f64::from(draws);
            assert!((got / expected - 1.0).abs() < 0.02, "{first}: {got} for {expected}");
        }
    }

    #[test]
    fn one_page_is_always_the_same() {
        let (zipf, mut rng) = (Zipf::new(1, 0.9), Rng::with_seed(1));
        assert!((0..100).all(|_| zipf.draw(&mut rng) == 0));
    }
}
