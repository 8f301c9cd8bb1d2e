//! The sample file of a run that goes on where an earlier one ended, and what its tables are made from.

use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use odfork_samples::environment::Environment;
use odfork_samples::samples::{self, End, Line, Params, Run, Sample, Writer, SCHEMA};

/// Writes lines and keeps what the tables need.
pub struct Log {
    writer: Writer,
    experiment: &'static str,
    pub samples: Vec<Sample>,
    notes: Vec<String>,
    pub wrongs: Vec<String>,
    /// The last round there is.
    pub round: u32,
    begun: std::time::Instant,
}

/// What the first line says of a run.
pub struct Head<'a> {
    pub experiment: &'static str,
    pub row: &'static str,
    pub effort: &'a str,
    pub engines: Vec<String>,
    pub seed: u64,
}

impl Log {
    /// A new file, or, with `more`, the old one: its samples belong to the run, its rounds are counted on.
    ///
    /// # Errors
    /// The file cannot be written; with `more`, it is of another experiment.
    pub fn open(path: &Path, head: &Head, more: bool) -> Result<Log> {
        let (mut earlier, mut round) = (Vec::new(), 0);
        let writer = if more && path.exists() {
            let recording = samples::read(path)?;
            if recording.experiment() != head.experiment {
                bail!(
                    "{} holds samples of {}, not of {}",
                    path.display(),
                    recording.experiment(),
                    head.experiment
                );
            }
            round = recording.samples.iter().map(|sample| sample.round).max().unwrap_or(0);
            earlier = recording.samples;
            Writer::append(path)?
        } else {
            Writer::create(path)?
        };
        let environment = Environment::observe();
        println!("{}", environment.summary());
        let mut log = Log {
            writer,
            experiment: head.experiment,
            samples: earlier,
            notes: Vec::new(),
            wrongs: Vec::new(),
            round,
            begun: std::time::Instant::now(),
        };
        log.writer.put(&Line::Run(Box::new(Run {
            schema: SCHEMA,
            experiment: head.experiment.into(),
            row: head.row.into(),
            effort: head.effort.into(),
            engines: head.engines.clone(),
            seed: head.seed,
            environment: serde_json::to_value(&environment)?,
        })));
        Ok(log)
    }

    pub fn sample(
        &mut self,
        engine: &str,
        (metric, unit, value): (&str, &str, f64),
        params: Params,
    ) {
        let sample = Sample {
            experiment: self.experiment.into(),
            engine: engine.into(),
            metric: metric.into(),
            unit: unit.into(),
            value,
            params,
            round: self.round,
            at_s: (self.begun.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        };
        self.writer.put(&Line::Sample(sample.clone()));
        self.samples.push(sample);
    }

    /// Said once, however often it happens.
    pub fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.writer.put(&Line::Note { text: text.clone() });
            self.notes.push(text);
        }
    }

    /// The closing line; prints notes, wrongs and where the file is. Returns the exit status.
    pub fn finish(mut self, interrupted: bool) -> Result<u8> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let count = self.samples.len() as u64;
        let (wrongs, right) = (self.wrongs.clone(), self.wrongs.is_empty());
        self.writer.put(&Line::End(End { interrupted, samples: count, seconds, wrongs }));
        for note in &self.notes {
            println!("note: {note}");
        }
        for wrong in &self.wrongs {
            println!("note: WRONG: {wrong}");
        }
        let path = self.writer.finish()?;
        println!("{count} samples in {}", path.display());
        Ok(match (right, interrupted) {
            (false, _) => 1,
            (true, true) => 130,
            (true, false) => 0,
        })
    }
}

/// The file of an experiment: named by --json, or in the folder, which is made.
pub fn path_of(json: Option<&PathBuf>, folder: &Path, experiment: &str) -> Result<PathBuf> {
    if let Some(path) = json {
        return Ok(path.clone());
    }
    std::fs::create_dir_all(folder).with_context(|| {
        format!("cannot make the folder {}; name another with --dir", folder.display())
    })?;
    Ok(folder.join(format!("{experiment}.jsonl")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_goes_on_with_the_rounds_and_keeps_the_samples() {
        let path = std::env::temp_dir().join(format!("odfork-log-{}.jsonl", std::process::id()));
        let head = |experiment| Head {
            experiment,
            row: "M18",
            effort: "quick",
            engines: vec!["pager".into()],
            seed: 1,
        };
        for (more, before) in [(false, 0), (true, 1), (true, 2)] {
            let mut log = Log::open(&path, &head("paging"), more).unwrap();
            assert_eq!((log.round, log.samples.len()), (before, before as usize));
            log.round += 1;
            log.sample("pager", ("rate", "1/s", 5.0), Params::new());
            log.note("one".into());
            log.note("one".into());
            assert_eq!(log.finish(false).unwrap(), 0);
        }
        let whole = samples::read(&path).unwrap();
        assert_eq!((whole.samples.len(), whole.notes.len(), whole.end.unwrap().samples), (3, 3, 3));
        let other = Log::open(&path, &head("sessions"), true).err().unwrap().to_string();
        assert!(other.contains("samples of paging"), "{other}");
        std::fs::remove_file(path).unwrap();
    }
}
