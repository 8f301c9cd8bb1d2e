//! Where a prediction comes from: samples of `grid` in a folder, or the figures the runtime starts
//! from.
//!
//! Owns finding and fitting the data, and the warnings that belong to it. Fitting says what data
//! lack; one engine that cannot be fitted does not keep the others from being predicted.

use std::path::Path;

use anyhow::{bail, Result};
use odfork_model::{CostModel, ForkTerms};
use serde_json::Value;

use super::answer::{Answer, Answers};
use super::question::Question;
use super::size;
use odfork_proc::text::date;
use odfork_samples::environment::Environment;
use odfork_samples::fit::{self, Fit, Grid, Load, Model, Prediction};
use odfork_samples::samples::{self, Recording};
use odfork_samples::stats::Rng;

/// Where results lie when nothing is said.
const DEFAULT_DATA: &str = "odfork-results";
/// A fork, the child's write fault and the copy, picoseconds a page: 2.8 us measured where
/// `Defaults::MEASURED` was.
const BUILT_IN_COPY_PS: u64 = 2_800_000;
/// Same samples, same intervals.
const SEED: u64 = 1988;
/// Sizes this many times beyond the measured ones are extrapolated too far to pass without a word.
const FAR: f64 = 4.0;

pub fn answer(question: &Question) -> Result<Answers> {
    let default = Path::new(DEFAULT_DATA);
    match &question.data {
        Some(folder) => measured(question, folder),
        None if default.is_dir() => measured(question, default).or_else(|error| {
            let mut answers = built_in(question)?;
            answers.warnings.insert(0, format!("{DEFAULT_DATA} is not used: {error:#}"));
            Ok(answers)
        }),
        None => built_in(question),
    }
}

fn freeze_seconds(engine: &str, bytes: u64) -> Option<f64> {
    (engine == "image").then(|| CostModel::new().freeze_ns(bytes) as f64 / 1e9)
}

/// The figures of `Defaults::MEASURED`.
pub fn built_in(question: &Question) -> Result<Answers> {
    let Question { bytes, frac, forks, ref engines, .. } = *question;
    let plain = CostModel::new().round_terms(BUILT_IN_COPY_PS);
    // With a backing file no entry is copied; a written page is faulted in and copied all the same.
    let known = [("plain", plain), ("image", ForkTerms { entry_ps: 0, ..plain })];
    let wanted = |name: &str| engines.is_empty() || engines.iter().any(|engine| engine == name);
    let answer = |(engine, terms): (&str, ForkTerms)| {
        let model = Model { terms, extras: Vec::new() };
        let load = Load::of(engine, bytes as f64, frac);
        let (seconds, parts) = (model.time(&load), model.parts(&load));
        let one = Prediction { seconds, interval: None, parts };
        Answer::new(engine, forks, &one, freeze_seconds(engine, bytes))
    };
    let answers: Vec<Answer> =
        known.into_iter().filter(|(engine, _)| wanted(engine)).map(answer).collect();
    if answers.is_empty() {
        let asked = engines.join(", ");
        bail!(
            "no built-in figures for {asked} (there are: plain, image); \
             measure with `odfork bench grid`"
        );
    }
    let data = "none; built-in figures of a 2-core virtual machine, Linux 6.18. \
                Measure this machine: odfork bench grid";
    Ok(Answers::new(question, answers, data.into()))
}

fn measured(question: &Question, folder: &Path) -> Result<Answers> {
    let (mut grids, mut warnings) = samples::read_folder(folder)?;
    grids.retain(|recording| recording.experiment() == "grid");
    grids.sort_by_key(taken_at);
    if grids.len() > 1 {
        warnings.push(format!("{} files of grid: the newest is used", grids.len()));
    }
    let Some(recording) = grids.pop() else {
        bail!("no samples of grid in {}: run `odfork bench grid`", folder.display());
    };
    warnings.extend(differences(&recording));
    let known = fit::engines(&recording);
    if let Some(engine) = question.engines.iter().find(|engine| !known.contains(engine)) {
        let measured = known.join(", ");
        bail!(
            "engine {engine:?} is not among the measured ones ({measured}): \
             run `odfork bench grid` with it"
        );
    }
    let asked = if question.engines.is_empty() { &known } else { &question.engines };
    let mut answers = Vec::new();
    for engine in asked {
        match fit_engine(&recording, engine) {
            Ok(fit) => {
                warnings.extend(too_far(&fit, question.bytes as f64));
                answers.push(read_off(&fit, question));
            }
            Err(error) => warnings.push(format!("{error:#}")),
        }
    }
    if answers.is_empty() {
        bail!("{}", warnings.pop().unwrap_or_else(|| "no engine was measured".into()));
    }
    Ok(Answers { warnings, ..Answers::new(question, answers, describe(&recording)) })
}

/// The modern scale reaches the sizes people ask for; that of 1988 is better than nothing.
fn fit_engine(recording: &Recording, engine: &str) -> Result<Fit> {
    let grid = Grid::gather(recording, engine, "modern")
        .or_else(|modern| Grid::gather(recording, engine, "1988").map_err(|_| modern))?;
    fit::fit(&grid, &mut Rng::with_seed(SEED))
}

fn read_off(fit: &Fit, question: &Question) -> Answer {
    let one = fit.predict(question.bytes as f64, question.frac);
    let freeze = freeze_seconds(&fit.engine, question.bytes);
    Answer::new(&fit.engine, question.forks, &one, freeze).with_fit(fit)
}

fn too_far(fit: &Fit, bytes: f64) -> Option<String> {
    let (smallest, largest) = fit.range;
    (bytes > largest * FAR || (bytes > 0.0 && bytes < smallest / FAR)).then(|| {
        let (low, high) = (size::name(smallest), size::name(largest));
        let (engine, asked) = (&fit.engine, size::name(bytes));
        format!("{engine}: {asked} is far outside of what was measured ({low} to {high})")
    })
}

fn environment(recording: &Recording) -> &Value {
    recording.run.as_ref().map_or(&Value::Null, |run| &run.environment)
}

fn taken_at(recording: &Recording) -> u64 {
    environment(recording)["unix_seconds"].as_u64().unwrap_or(0)
}

/// File, date, machine.
fn describe(recording: &Recording) -> String {
    let there = environment(recording);
    let word = |name: &str| there[name].as_str().unwrap_or("unknown").to_string();
    let date = match taken_at(recording) {
        0 => "date unknown".into(),
        seconds => date(seconds)[..10].to_owned(),
    };
    let cores = there["cores"].as_u64().map_or_else(String::new, |cores| format!("{cores} x "));
    let path = recording.path.display();
    let (kernel, cpu) = (word("kernel"), word("cpu"));
    format!("{path}, {date}, Linux {kernel}, {cores}{cpu}")
}

/// What the data's machine has that this one has not.
fn differences(recording: &Recording) -> Vec<String> {
    let there = environment(recording);
    let here = serde_json::to_value(Environment::observe()).unwrap_or_default();
    let differs = |name: &str| !there[name].is_null() && there[name] != here[name];
    let tell = |name: &str| {
        let word = |value: &Value| value.to_string().trim_matches('"').to_string();
        let (then, now) = (word(&there[name]), word(&here[name]));
        format!("measured with {name} {then}, this machine has {now}: figures may not hold here")
    };
    let facts = ["kernel", "cpu", "cores"].into_iter();
    let mut found: Vec<String> = facts.filter(|name| differs(name)).map(tell).collect();
    if recording.end.as_ref().is_none_or(|end| end.interrupted) {
        found.push("the measurement was cut short: intervals are wider than they might be".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_samples::fit::points::fixtures;

    fn question(engines: &[&str]) -> Question {
        let engines = engines.iter().map(|name| name.to_string()).collect();
        Question { bytes: 1 << 30, frac: 0.5, forks: 10, engines, data: None }
    }

    #[test]
    fn measured_data_answer_and_say_where_they_come_from() {
        let folder = tempfile::tempdir().unwrap();
        let recording = fixtures::recording(|bytes, frac| 1e-4 + bytes * (2e-11 + 5e-10 * frac));
        let line = |s: &samples::Sample| {
            serde_json::to_string(&samples::Line::Sample(s.clone())).unwrap() + "\n"
        };
        let text: String = recording.samples.iter().map(line).collect();
        std::fs::write(folder.path().join("grid.jsonl"), text).unwrap();
        let asked = Question { data: Some(folder.path().into()), ..question(&[]) };
        let found = answer(&asked).unwrap();
        assert_eq!(found.answers.len(), 1);
        let expected = 1e-4 + (1u64 << 30) as f64 * 2.7e-10;
        assert!((found.answers[0].each_s / expected - 1.0).abs() < 0.01, "{found:?}");
        assert!(found.data.contains("grid.jsonl") && found.warnings.len() == 1, "{found:?}");
        let unknown = Question { engines: vec!["image".into()], ..asked.clone() };
        assert!(answer(&unknown).unwrap_err().to_string().contains("plain"));
        let huge = answer(&Question { bytes: 1 << 40, ..asked }).unwrap();
        assert!(huge.warnings.iter().any(|w| w.contains("far outside")), "{huge:?}");
    }

    #[test]
    fn built_in_figures_are_those_of_the_runtime() {
        let found = built_in(&Question { frac: 0.0, ..question(&["plain"]) }).unwrap();
        let model = CostModel::new();
        let expected = (model.floor_ns() + model.avoidable_ns(262_144)) as f64 / 1e9;
        assert!((found.answers[0].each_s / expected - 1.0).abs() < 1e-6, "{found:?}");
        assert!(built_in(&question(&["hugetlb"])).is_err());
    }
}
