//! Everything a run has measured: the series of samples, who fell silent and why, and what went wrong. Pure.
//!
//! A series is named by experiment, arm and label. Within one experiment the i-th samples of all arms were taken
//! in the same round, which is what makes ratios paired.

use std::collections::BTreeMap;

/// The name of a series of samples.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesName {
    pub experiment: String,
    pub arm: String,
    pub label: String,
}

impl SeriesName {
    pub fn new(experiment: &str, arm: &str, label: &str) -> Self {
        SeriesName { experiment: experiment.into(), arm: arm.into(), label: label.into() }
    }
}

/// The size an experiment ran at, and the size its goals speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub actual: u64,
    pub nominal: u64,
}

impl Sizes {
    pub fn is_scaled(self) -> bool {
        self.actual != self.nominal
    }
}

/// What one run knows so far. It is complete after every round: an interruption loses nothing.
#[derive(Debug, Default)]
pub struct Record {
    series: BTreeMap<SeriesName, Vec<f64>>,
    silences: BTreeMap<(String, String), String>,
    sizes: BTreeMap<String, Sizes>,
    engines: BTreeMap<String, Vec<String>>,
    /// Things the reader of the table must know.
    pub notes: Vec<String>,
    /// Failed correctness checks: the only thing that makes a run fail.
    pub wrongs: Vec<String>,
    pub interrupted: bool,
}

impl Record {
    pub fn add(&mut self, name: SeriesName, sample: f64) {
        self.series.entry(name).or_default().push(sample);
    }

    pub fn samples(&self, experiment: &str, arm: &str, label: &str) -> &[f64] {
        self.series.get(&SeriesName::new(experiment, arm, label)).map_or(&[], Vec::as_slice)
    }

    /// All series of an experiment, in the order of their names.
    pub fn series_of<'a>(
        &'a self,
        experiment: &'a str,
    ) -> impl Iterator<Item = (&'a SeriesName, &'a [f64])> {
        self.series
            .iter()
            .filter(move |(name, _)| name.experiment == experiment)
            .map(|(name, samples)| (name, samples.as_slice()))
    }

    /// Notes that an arm gives no more samples. The first reason stays.
    pub fn silence(&mut self, experiment: &str, arm: &str, reason: &str) {
        self.silences.entry((experiment.into(), arm.into())).or_insert_with(|| reason.into());
    }

    pub fn silence_of(&self, experiment: &str, arm: &str) -> Option<&str> {
        self.silences.get(&(experiment.into(), arm.into())).map(String::as_str)
    }

    /// Notes which engine a subject of the experiment says it used.
    pub fn set_engine(&mut self, experiment: &str, engine: &str) {
        let places = self.engines.entry(engine.into()).or_default();
        if places.last().is_none_or(|last| last != experiment) {
            places.push(experiment.into());
        }
    }

    /// Every engine that was used, and where.
    pub fn engines(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.engines.iter().map(|(engine, places)| (engine.as_str(), places.as_slice()))
    }

    pub fn set_sizes(&mut self, experiment: &str, sizes: Sizes) {
        self.sizes.insert(experiment.into(), sizes);
    }

    pub fn sizes_of(&self, experiment: &str) -> Option<Sizes> {
        self.sizes.get(experiment).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_their_order_and_their_names() {
        let mut record = Record::default();
        for sample in [3.0, 1.0, 2.0] {
            record.add(SeriesName::new("size-1g", "stock", "fork"), sample);
        }
        record.add(SeriesName::new("size-1g", "odfork", "fork"), 9.0);
        record.add(SeriesName::new("other", "stock", "fork"), 5.0);
        assert_eq!(record.samples("size-1g", "stock", "fork"), [3.0, 1.0, 2.0]);
        assert!(record.samples("size-1g", "stock", "read").is_empty());
        assert_eq!(record.series_of("size-1g").count(), 2);
    }

    #[test]
    fn an_engine_is_listed_once_for_each_experiment() {
        let mut record = Record::default();
        for experiment in ["a", "a", "b"] {
            record.set_engine(experiment, "huge");
        }
        let engines: Vec<_> = record.engines().collect();
        assert_eq!(engines, [("huge", ["a".to_string(), "b".into()].as_slice())]);
    }

    #[test]
    fn the_first_reason_for_silence_stays() {
        let mut record = Record::default();
        record.silence("e", "odfork", "no engine is loaded");
        record.silence("e", "odfork", "later");
        assert_eq!(record.silence_of("e", "odfork"), Some("no engine is loaded"));
        assert_eq!(record.silence_of("e", "stock"), None);
    }
}
