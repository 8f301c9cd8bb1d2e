//! Samples of `grid` condensed: one point a (bytes, frac), the median of its rounds, and what
//! resampling needs.
//!
//! Owns choosing samples: metric `real`, one engine, one scale, the largest number of forks of each
//! point (few forks drown in noise, as the paper found). Values that are no positive number are
//! left out and counted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, Result};

use crate::samples::{Recording, Sample};
use crate::stats::{median, Rng};

/// One (bytes, frac) of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Bytes of the parent.
    pub bytes: f64,
    /// Share of its pages that the child writes.
    pub frac: f64,
    /// Forks of the samples taken.
    pub forks: f64,
    /// Seconds for all of these forks: the median of the rounds.
    pub seconds: f64,
    /// (round, seconds)
    pub rounds: Vec<(u32, f64)>,
}

impl Point {
    /// Seconds of one fork.
    pub fn each(&self) -> f64 {
        self.seconds / self.forks
    }
}

/// The points of one engine at one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The configuration.
    pub engine: String,
    /// Which grid: `1988` or `modern`.
    pub scale: String,
    /// By bytes, then frac.
    pub points: Vec<Point>,
    /// Samples that were no positive number.
    pub refused: usize,
}

/// Engines a recording has grid samples of, without the bare harness.
pub fn engines(recording: &Recording) -> Vec<String> {
    let names = recording.samples.iter().filter(|s| s.metric == "real").map(|s| &s.engine);
    let names: BTreeSet<&String> = names.filter(|name| *name != "null").collect();
    names.into_iter().cloned().collect()
}

type Key = (u64, u64, u64);

/// Bits order like the numbers, for numbers that are not negative.
fn key(sample: &Sample) -> Option<Key> {
    let numbers = [sample.number("bytes"), sample.number("frac"), sample.number("forks")];
    let good = numbers.iter().all(|n| n.is_finite() && *n >= 0.0) && numbers[1] <= 1.0;
    // Adding zero turns the negative zero into the positive one.
    (good && numbers[2] >= 1.0).then(|| {
        let [bytes, frac, forks] = numbers.map(|number| (number + 0.0).to_bits());
        (bytes, frac, forks)
    })
}

impl Grid {
    /// The points of `engine` at `scale` ("modern" or "1988").
    pub fn gather(recording: &Recording, engine: &str, scale: &str) -> Result<Grid> {
        let mut cells: BTreeMap<Key, Vec<(u32, f64)>> = BTreeMap::new();
        let mut refused = 0;
        let wanted = recording.samples.iter().filter(|sample| {
            sample.engine == engine && sample.metric == "real" && sample.word("scale") == scale
        });
        for sample in wanted {
            match key(sample).filter(|_| sample.value.is_finite() && sample.value > 0.0) {
                Some(key) => cells.entry(key).or_default().push((sample.round, sample.value)),
                // No forks: the program alone, which no point is about.
                None if sample.number("forks") == 0.0 => {}
                None => refused += 1,
            }
        }
        let points = take_most_forks(cells);
        if points.is_empty() {
            bail!("no grid samples of engine {engine} at scale {scale}: run `odfork bench grid`");
        }
        Ok(Grid { engine: engine.into(), scale: scale.into(), points, refused })
    }

    /// The rounds that exist.
    pub fn rounds(&self) -> Vec<u32> {
        let all = self.points.iter().flat_map(|point| &point.rounds).map(|(round, _)| *round);
        all.collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// The grid as it might have come out: rounds drawn with replacement, each as a whole. A point
    /// none of whose rounds was drawn keeps its median.
    pub fn resample(&self, rng: &mut Rng) -> Grid {
        let rounds = self.rounds();
        let mut drawn: BTreeMap<u32, usize> = BTreeMap::new();
        for _ in 0..rounds.len() {
            *drawn.entry(rounds[rng.usize(..rounds.len())]).or_default() += 1;
        }
        let mut grid = self.clone();
        for point in &mut grid.points {
            let times = |round: &u32| drawn.get(round).copied().unwrap_or(0);
            let values: Vec<f64> = point
                .rounds
                .iter()
                .flat_map(|(round, value)| std::iter::repeat_n(*value, times(round)))
                .collect();
            point.seconds = median(&values).unwrap_or(point.seconds);
        }
        grid
    }
}

fn take_most_forks(cells: BTreeMap<Key, Vec<(u32, f64)>>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    // Forks come last in the key, so the largest number replaces the smaller ones before it.
    for ((bytes, frac, forks), rounds) in cells {
        let [bytes, frac, forks] = [bytes, frac, forks].map(f64::from_bits);
        let values: Vec<f64> = rounds.iter().map(|(_, value)| *value).collect();
        let seconds = median(&values).unwrap_or(f64::NAN);
        if points.last().is_some_and(|last| last.bytes == bytes && last.frac == frac) {
            points.pop();
        }
        points.push(Point { bytes, frac, forks, seconds, rounds });
    }
    points
}

/// Made-up samples, for tests here and in other crates.
#[doc(hidden)]
pub mod fixtures {
    use super::*;

    pub fn sample(at: (f64, f64, f64), round: u32, value: f64) -> Sample {
        let (bytes, frac, forks) = at;
        let sample = Sample::of("plain", ("real", "s"), value).in_round(round);
        let sample = sample.with("bytes", bytes).with("frac", frac).with("forks", forks);
        Sample { experiment: "grid".into(), ..sample.with("scale", "modern") }
    }

    /// A recording of `time(bytes, frac)` seconds a fork over a grid, three rounds that differ by a
    /// thousandth.
    pub fn recording(time: impl Fn(f64, f64) -> f64) -> Recording {
        let mut recording = Recording::default();
        for bytes in [0.0, 1e6, 3.162e6, 1e7, 3.162e7, 1e8, 3.162e8, 1e9] {
            for frac in [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0] {
                for round in 0..3 {
                    let value = 10.0 * time(bytes, frac) * (1.0 + 0.001 * (f64::from(round) - 1.0));
                    recording.samples.push(sample((bytes, frac, 10.0), round, value));
                }
            }
        }
        recording
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::sample;
    use super::*;

    fn gather(samples: Vec<Sample>) -> Result<Grid> {
        Grid::gather(&Recording { samples, ..Recording::default() }, "plain", "modern")
    }

    #[test]
    fn the_median_of_the_most_forks_is_the_point() {
        let at = (4096.0, 0.5, 10.0);
        let grid = gather(vec![
            sample((4096.0, 0.5, 1.0), 0, 9.0),
            sample(at, 0, 1.0),
            sample(at, 1, 70.0),
            sample(at, 2, 2.0),
            sample((4096.0, 0.5, 0.0), 2, 2.0),
        ])
        .unwrap();
        assert_eq!(grid.points.len(), 1);
        assert_eq!((grid.points[0].seconds, grid.points[0].forks), (2.0, 10.0));
        assert_eq!((grid.points[0].each(), grid.refused), (0.2, 0));
        assert_eq!(grid.rounds(), [0, 1, 2]);
    }

    #[test]
    fn bad_values_are_left_out_and_counted() {
        let at = (4096.0, 0.5, 10.0);
        let bad = [f64::NAN, -1.0, 0.0, f64::INFINITY];
        let mut samples: Vec<Sample> = bad.map(|value| sample(at, 0, value)).to_vec();
        assert!(gather(samples.clone()).is_err());
        samples.push(sample((4096.0, 1.5, 1.0), 0, 1.0));
        samples.push(sample(at, 0, 1.0));
        assert_eq!(gather(samples).unwrap().refused, 5);
    }

    #[test]
    fn resampling_keeps_points_and_moves_medians() {
        let at = (4096.0, 0.5, 10.0);
        let grid = gather((0..9).map(|i| sample(at, i, f64::from(i + 1))).collect()).unwrap();
        let mut rng = Rng::with_seed(3);
        let medians: BTreeSet<u64> =
            (0..50).map(|_| grid.resample(&mut rng).points[0].seconds as u64).collect();
        assert!(medians.len() > 2, "{medians:?}");
        assert!(medians.iter().all(|m| (1..=9).contains(m)));
    }

    #[test]
    fn engines_are_named_without_the_harness() {
        let mut recording = Recording::default();
        for engine in ["thp", "null", "plain", "thp"] {
            let one = sample((1.0, 0.0, 1.0), 0, 1.0);
            recording.samples.push(Sample { engine: engine.into(), ..one });
        }
        assert_eq!(engines(&recording), ["plain", "thp"]);
        let missing = Grid::gather(&recording, "image", "modern").unwrap_err().to_string();
        assert!(missing.contains("image") && missing.contains("odfork bench grid"), "{missing}");
    }
}
