//! One unit cost that starts as a default and follows measurements.
//!
//! Owns the robust estimate; knows nothing of what is measured. Measurements come from a machine
//! that preempts: some are many times too long, none is much too short. Hence a median of the last
//! few, never a mean, and a clamp around the default, so that no run of bad measurements can make a
//! decision absurd.

const KEPT: usize = 5;
const CLAMP: u64 = 16;

/// A unit cost: the default until measurements agree on something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    default: u64,
    samples: [u64; KEPT],
    seen: u64,
    value: u64,
}

impl Learned {
    /// Starts at `default`; zero becomes one, because unit costs are divided by.
    pub(crate) const fn new(default: u64) -> Self {
        let default = if default == 0 { 1 } else { default };
        Self { default, samples: [0; KEPT], seen: 0, value: default }
    }

    /// The present estimate, at least 1.
    pub(crate) const fn get(&self) -> u64 {
        self.value
    }

    /// Takes one measurement in. One alone never moves the estimate, two that agree do; once five
    /// are there the estimate is the median of the last five, so two outliers among them change
    /// nothing.
    pub(crate) fn observe(&mut self, sample: u64) {
        let lowest = (self.default / CLAMP).max(1);
        let highest = self.default.saturating_mul(CLAMP);
        let slot = (self.seen % KEPT as u64) as usize;
        if let Some(place) = self.samples.get_mut(slot) {
            *place = sample.clamp(lowest, highest);
        }
        self.seen = self.seen.saturating_add(1);
        self.value = self.estimate();
    }

    fn estimate(&self) -> u64 {
        let mut sorted = self.samples;
        let seen = self.seen.min(KEPT as u64) as usize;
        if seen == KEPT {
            sorted.sort_unstable();
            let [_, _, median, _, _] = sorted;
            return median;
        }
        // Too few: the default votes too, and of two middle values the one nearer to it wins.
        let mut votes = [u64::MAX; KEPT];
        for (vote, sample) in votes.iter_mut().zip(sorted.iter().take(seen)) {
            *vote = *sample;
        }
        if let Some(vote) = votes.get_mut(seen) {
            *vote = self.default;
        }
        votes.sort_unstable();
        let at = |i: usize| votes.get(i).copied().unwrap_or(self.default);
        let (low, high) = (at(seen / 2), at(seen.div_ceil(2)));
        if high.abs_diff(self.default) < low.abs_diff(self.default) {
            high
        } else {
            low
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(default: u64, samples: &[u64]) -> u64 {
        let mut learned = Learned::new(default);
        for sample in samples {
            learned.observe(*sample);
        }
        learned.get()
    }

    #[test]
    fn one_measurement_changes_nothing_two_that_agree_do() {
        assert_eq!(after(100, &[]), 100);
        assert_eq!(after(100, &[700]), 100);
        assert_eq!(after(100, &[250, 240]), 240);
        assert_eq!(after(100, &[250, 50]), 100);
        assert_eq!(after(100, &[250, 240, 260]), 240);
    }

    #[test]
    fn two_outliers_of_five_change_nothing() {
        assert_eq!(after(100, &[50, 51, 1600, 52, 1600]), 52);
        assert_eq!(after(100, &[1600, 1600, 50, 51, 52]), 52);
        assert_eq!(after(100, &[50; 100]), 50);
    }

    #[test]
    fn the_last_five_win_over_history() {
        let mut learned = Learned::new(100);
        (0..50).for_each(|_| learned.observe(50));
        (0..3).for_each(|_| learned.observe(200));
        assert_eq!(learned.get(), 200);
    }

    #[test]
    fn stays_within_the_clamp_and_above_zero() {
        assert_eq!(after(100, &[u64::MAX; 9]), 1600);
        assert_eq!(after(100, &[0; 9]), 6);
        assert_eq!(after(0, &[0; 9]), 1);
        assert_eq!(after(u64::MAX, &[u64::MAX; 9]), u64::MAX);
    }
}
