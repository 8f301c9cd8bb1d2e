//! Samples of one file, grouped: a point is one configuration, one metric and one set of
//! parameters.
//!
//! Owns pairing: a ratio is formed between samples of the same round only, as they were taken next
//! to each other. Values stay raw here; medians and intervals are asked of a point when a table or
//! plot needs them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::configurations::place;
use crate::samples::{Params, Recording, Sample};
use crate::stats::{self, Estimate, Rng};
use crate::unit::Unit;

/// All samples of one place in the space of an experiment: those of equal configuration, metric and
/// parameters.
#[derive(Clone, Debug)]
pub struct Point {
    /// The configuration: plain, thp, hugetlb, image, kernel or null.
    pub configuration: String,
    /// What was measured, in the words of the suite.
    pub metric: String,
    /// The unit of all values.
    pub unit: Unit,
    /// The parameters the samples share.
    pub params: Params,
    /// (round, value)
    pub samples: Vec<(u32, f64)>,
}

impl Point {
    /// The values in the order of their rounds.
    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, value)| *value).collect()
    }

    /// Their median; NaN without samples.
    pub fn median(&self) -> f64 {
        stats::median(&self.values()).unwrap_or(f64::NAN)
    }

    /// Seeded by nothing but the samples: the same file gives the same report.
    pub fn estimate(&self) -> Estimate {
        let nothing = Estimate { value: f64::NAN, interval: None, count: 0 };
        stats::estimate_median(&self.values(), &mut Rng::with_seed(SEED)).unwrap_or(nothing)
    }

    /// A parameter as a number; NaN when it is none.
    pub fn number(&self, name: &str) -> f64 {
        self.params.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// A parameter as a word; a number is written.
    pub fn word(&self, name: &str) -> String {
        match self.params.get(name) {
            Some(Value::String(word)) => word.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }
}

const SEED: u64 = 1;

/// The samples of a recording, put together to points.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// By metric, parameters (numbers as numbers), configuration.
    pub points: Vec<Point>,
    places: BTreeMap<(String, String, String), usize>,
}

impl Digest {
    /// The points of one recording.
    pub fn of(recording: &Recording) -> Digest {
        Digest::of_samples(&recording.samples)
    }

    /// The points of these samples, in the order of their first one.
    pub fn of_samples<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Digest {
        let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
        let mut points: Vec<Point> = Vec::new();
        for sample in samples.into_iter().filter(|sample| sample.value.is_finite()) {
            let key = (sample.metric.clone(), sample.engine.clone(), words(&sample.params));
            let place = *places.entry(key).or_insert_with(|| {
                points.push(Point {
                    configuration: sample.engine.clone(),
                    metric: sample.metric.clone(),
                    unit: Unit::of(&sample.unit),
                    params: sample.params.clone(),
                    samples: Vec::new(),
                });
                points.len() - 1
            });
            points[place].samples.push((sample.round, sample.value));
        }
        points.sort_by(order);
        let key = |(place, point): (usize, &Point)| {
            ((point.metric.clone(), point.configuration.clone(), words(&point.params)), place)
        };
        let places = points.iter().enumerate().map(key).collect();
        Digest { points, places }
    }

    /// The points of one metric.
    pub fn of_metric<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| point.metric == metric)
    }

    /// One point of a metric for each set of parameters.
    pub fn places<'a>(&'a self, metric: &'a str) -> Vec<&'a Point> {
        let mut places: Vec<&Point> = Vec::new();
        for point in self.of_metric(metric) {
            if !places.iter().any(|place| place.params == point.params) {
                places.push(point);
            }
        }
        places
    }

    /// Configurations that were measured with a metric, in the order of all legends; without the
    /// harness alone.
    pub fn configurations(&self, metric: &str) -> Vec<String> {
        let mut configurations: Vec<String> = self
            .of_metric(metric)
            .map(|point| point.configuration.clone())
            .filter(|e| e != "null")
            .collect();
        configurations.sort_by(|a, b| place(a).cmp(&place(b)).then(a.cmp(b)));
        configurations.dedup();
        configurations
    }

    /// The different values of a numeric parameter, rising.
    pub fn numbers(&self, metric: &str, name: &str) -> Vec<f64> {
        distinct(self.of_metric(metric), name)
    }

    /// The different words of a parameter.
    pub fn words(&self, metric: &str, name: &str) -> Vec<String> {
        let mut words: Vec<String> = self
            .of_metric(metric)
            .map(|point| point.word(name))
            .filter(|word| !word.is_empty())
            .collect();
        words.sort();
        words.dedup();
        words
    }

    /// The same measurement with another configuration.
    pub fn twin(&self, point: &Point, configuration: &str) -> Option<&Point> {
        let key = (point.metric.clone(), configuration.to_string(), words(&point.params));
        self.places.get(&key).map(|place| &self.points[*place])
    }

    /// The same configuration and parameters, another metric.
    pub fn beside(&self, point: &Point, metric: &str) -> Option<&Point> {
        let key = (metric.to_string(), point.configuration.clone(), words(&point.params));
        self.places.get(&key).map(|place| &self.points[*place])
    }

    /// plain / this configuration: how many times faster, for times.
    pub fn gain(&self, point: &Point) -> Option<Estimate> {
        if point.configuration == "plain" || point.configuration == "null" {
            return None;
        }
        paired_ratio(self.twin(point, "plain")?, point)
    }
}

/// The different values of a numeric parameter among some points, rising.
pub fn distinct<'a>(points: impl Iterator<Item = &'a Point>, name: &str) -> Vec<f64> {
    let mut numbers: Vec<f64> =
        points.map(|point| point.number(name)).filter(|number| number.is_finite()).collect();
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

/// median(top) / median(bottom) over the rounds that have both.
pub fn paired_ratio(top: &Point, bottom: &Point) -> Option<Estimate> {
    let (tops, bottoms): (Vec<f64>, Vec<f64>) = pairs(top, bottom).into_iter().unzip();
    stats::estimate_ratio(&tops, &bottoms, &mut Rng::with_seed(SEED))
}

/// The median of the ratios of the rounds that have both. Where the machine changes from round to
/// round it is known better than [`paired_ratio`], whose medians may come from different rounds.
pub fn ratio_of_rounds(top: &Point, bottom: &Point) -> Option<Estimate> {
    let ratios = pairs(top, bottom).into_iter().map(|(top, bottom)| top / bottom);
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    stats::estimate_median(&ratios, &mut Rng::with_seed(SEED))
}

/// Samples of the same round: several of a round pair in the order they were taken.
pub fn pairs(a: &Point, b: &Point) -> Vec<(f64, f64)> {
    let mut waiting: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (round, value) in b.samples.iter().rev() {
        waiting.entry(*round).or_default().push(*value);
    }
    let pair = |(round, value): &(u32, f64)| Some((*value, waiting.get_mut(round)?.pop()?));
    a.samples.iter().filter_map(pair).collect()
}

fn words(params: &Params) -> String {
    serde_json::to_string(params).unwrap_or_default()
}

fn order(a: &Point, b: &Point) -> Ordering {
    let params = || {
        let both = a.params.iter().zip(b.params.iter());
        both.map(|((_, a), (_, b))| compare(a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    let configurations = || {
        place(&a.configuration)
            .cmp(&place(&b.configuration))
            .then(a.configuration.cmp(&b.configuration))
    };
    a.metric.cmp(&b.metric).then_with(params).then_with(configurations)
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(configuration: &str, bytes: u64, round: u32, value: f64) -> Sample {
        Sample::of(configuration, ("fork", "ns"), value).with("bytes", bytes).in_round(round)
    }

    fn digest(samples: Vec<Sample>) -> Digest {
        Digest::of(&Recording { samples, ..Recording::default() })
    }

    #[test]
    fn numbers_sort_as_numbers_and_engines_in_their_order() {
        let digest = digest(vec![
            sample("image", 10, 1, 1.0),
            sample("plain", 10, 1, 1.0),
            sample("plain", 9, 1, 1.0),
            sample("null", 9, 1, 1.0),
        ]);
        let order: Vec<(f64, &str)> =
            digest.points.iter().map(|p| (p.number("bytes"), p.configuration.as_str())).collect();
        assert_eq!(order, [(9.0, "plain"), (9.0, "null"), (10.0, "plain"), (10.0, "image")]);
        assert_eq!(digest.configurations("fork"), ["plain", "image"]);
        assert_eq!(digest.numbers("fork", "bytes"), [9.0, 10.0]);
    }

    #[test]
    fn a_ratio_uses_only_rounds_that_have_both() {
        let mut samples = Vec::new();
        for round in 1..=5 {
            samples.push(sample("plain", 1, round, 100.0 * f64::from(round)));
            samples.push(sample("image", 1, round, 2.0 * f64::from(round)));
        }
        samples.push(sample("plain", 1, 9, 1e9));
        let digest = digest(samples);
        let image = digest.points.iter().find(|point| point.configuration == "image").unwrap();
        let gain = digest.gain(image).unwrap();
        assert_eq!((gain.value, gain.count), (50.0, 5));
        let plain = digest.twin(image, "plain").unwrap();
        assert_eq!(plain.samples.len(), 6);
        assert_eq!(digest.gain(plain), None);
    }

    #[test]
    fn what_changes_from_round_to_round_cancels_in_each() {
        let mut samples = Vec::new();
        for (round, machine) in [(1, 1.0), (2, 3.0), (3, 1.0), (4, 8.0), (5, 2.0)] {
            samples.push(sample("plain", 1, round, 100.0 * machine));
            samples.push(sample("image", 1, round, 101.0 * machine));
        }
        samples.push(sample("image", 1, 6, 1e9));
        let digest = digest(samples);
        let ratio = ratio_of_rounds(&digest.points[1], &digest.points[0]).unwrap();
        let (low, high) = ratio.interval.unwrap();
        assert!((low - 1.01).abs() < 1e-9 && (high - 1.01).abs() < 1e-9 && ratio.count == 5);
    }

    #[test]
    fn several_samples_of_a_round_pair_in_order() {
        let samples = vec![
            sample("plain", 1, 1, 10.0),
            sample("plain", 1, 1, 20.0),
            sample("image", 1, 1, 1.0),
            sample("image", 1, 1, 2.0),
        ];
        let digest = digest(samples);
        assert_eq!(pairs(&digest.points[0], &digest.points[1]), [(10.0, 1.0), (20.0, 2.0)]);
    }

    #[test]
    fn what_is_not_finite_is_no_sample() {
        assert!(digest(vec![sample("plain", 1, 1, f64::INFINITY)]).points.is_empty());
    }
}
