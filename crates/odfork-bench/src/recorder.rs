//! Where what a run measures goes: all to its sample file at once, samples and notes also to the
//! text at its end.
//!
//! Owns the file of a run, the count of rounds, and the exit status. Does not own what tables look
//! like (`tables`), nor the format (`odfork_samples::samples`).

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{bail, Context, Result};

use odfork_samples::environment::Environment;
use odfork_samples::promises::Finding;
use odfork_samples::samples::{self, End, Line, Params, Recording, Run, Sample, Skip, Writer};

/// What the first line says of a run.
pub struct Head {
    /// Name of the suite.
    pub experiment: &'static str,
    /// Its mark in the list of experiments; may be empty.
    pub row: &'static str,
    /// quick, default or full.
    pub effort: &'static str,
    /// The configurations compared.
    pub engines: Vec<String>,
    /// What the order of points is drawn from.
    pub seed: u64,
}

/// Writes every line, and keeps what the text at the end is made from.
pub struct Recorder {
    /// None in tests.
    writer: Option<Writer>,
    experiment: &'static str,
    begun: Instant,
    /// Everything so far; with `more` also what the file had.
    pub recording: Recording,
    /// Wrong content, and processes that died or hung: the run fails in the end.
    pub wrongs: Vec<String>,
    /// The last round there is.
    pub round: u32,
    /// Ctrl-C came.
    pub interrupted: bool,
}

impl Recorder {
    /// A new file, or, with `more`, the old one: its samples belong to the run, its rounds are
    /// counted on.
    pub fn open(
        path: &Path,
        head: Head,
        environment: &Environment,
        more: bool,
    ) -> Result<Recorder> {
        let mut recorder = Recorder::nowhere(head.experiment);
        let writer = if more && path.exists() {
            let earlier = samples::read(path)?;
            if earlier.experiment() != head.experiment {
                let (path, other) = (path.display(), earlier.experiment());
                bail!("{path} holds samples of {other}, not of {}", head.experiment);
            }
            recorder.round = earlier.samples.iter().map(|sample| sample.round).max().unwrap_or(0);
            recorder.recording.samples = earlier.samples;
            Writer::append(path)?
        } else {
            Writer::create(path)?
        };
        recorder.writer = Some(writer);
        recorder.put(Line::Run(Box::new(Run {
            schema: samples::SCHEMA,
            experiment: head.experiment.into(),
            row: head.row.into(),
            effort: head.effort.into(),
            engines: head.engines,
            seed: head.seed,
            environment: serde_json::to_value(environment)?,
        })));
        Ok(recorder)
    }

    /// Keeps everything and writes nothing.
    pub fn nowhere(experiment: &'static str) -> Recorder {
        Recorder {
            writer: None,
            experiment,
            begun: Instant::now(),
            recording: Recording::default(),
            wrongs: Vec::new(),
            round: 0,
            interrupted: false,
        }
    }

    fn put(&mut self, line: Line) {
        if let Some(writer) = &mut self.writer {
            writer.put(&line);
        }
        self.recording.take(line);
    }

    /// The experiment and the time are filled in here.
    pub fn sample(&mut self, sample: Sample) {
        let at_s = (self.begun.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        self.put(Line::Sample(Sample { experiment: self.experiment.into(), at_s, ..sample }));
    }

    /// Said once, however often it happens.
    pub fn note(&mut self, text: String) {
        if !self.recording.notes.contains(&text) {
            self.put(Line::Note { text });
        }
    }

    /// A point that gives no more samples, once for each reason.
    pub fn skip(&mut self, engine: &str, params: &Params, reason: &str) {
        let skip = Skip { engine: engine.into(), params: params.clone(), reason: reason.into() };
        if !self.recording.skips.contains(&skip) {
            self.put(Line::Skip(skip));
        }
    }

    /// What a target says of the engine it used, and where it was.
    pub fn engine(&mut self, engine: &str, says: &str, params: &Params) {
        let place = serde_json::Value::from_iter(params.clone());
        let detail = format!("{says} {place}");
        self.put(Line::Engine { engine: engine.into(), detail });
    }

    /// A figure that was judged.
    pub fn figure(&mut self, finding: &Finding) {
        self.put(Line::Figure(Box::new(finding.into())));
    }

    /// Notes what makes the run fail.
    pub fn wrong(&mut self, what: String) {
        self.wrongs.push(what);
    }

    /// The closing line; prints notes, what was wrong, and where the file is. Returns the exit
    /// status.
    pub fn close(mut self) -> Result<u8> {
        let (samples, seconds) =
            (self.recording.samples.len() as u64, self.begun.elapsed().as_secs_f64());
        let (interrupted, wrongs) = (self.interrupted, self.wrongs.clone());
        self.put(Line::End(End { interrupted, samples, seconds, wrongs }));
        for note in &self.recording.notes {
            println!("note: {note}");
        }
        for wrong in &self.wrongs {
            println!("note: WRONG: {wrong}");
        }
        if let Some(writer) = self.writer {
            println!("{samples} samples in {}", writer.finish()?.display());
        }
        Ok(match (self.wrongs.is_empty(), self.interrupted) {
            (false, _) => 1,
            (true, true) => 130,
            (true, false) if samples == 0 => 2,
            (true, false) => 0,
        })
    }
}

/// The file of an experiment: the one named, or one in the folder, which is made.
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

    fn head(experiment: &'static str) -> Head {
        Head { experiment, row: "M18", effort: "quick", engines: vec!["pager".into()], seed: 1 }
    }

    #[test]
    fn more_goes_on_with_the_rounds_and_keeps_the_samples() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_of(None, folder.path(), "paging").unwrap();
        let environment = Environment::observe();
        for (more, before) in [(false, 0), (true, 1), (true, 2)] {
            let mut recorder = Recorder::open(&path, head("paging"), &environment, more).unwrap();
            assert_eq!(
                (recorder.round, recorder.recording.samples.len()),
                (before, before as usize)
            );
            recorder.round += 1;
            let sample = Sample::of("pager", ("rate", "1/s"), 5.0);
            recorder.sample(sample.in_round(recorder.round));
            recorder.note("one".into());
            recorder.note("one".into());
            assert_eq!(recorder.close().unwrap(), 0);
        }
        let whole = samples::read(&path).unwrap();
        assert_eq!((whole.samples.len(), whole.notes.len(), whole.end.unwrap().samples), (3, 3, 3));
        let other = Recorder::open(&path, head("sessions"), &environment, true);
        let other = other.err().unwrap().to_string();
        assert!(other.contains("samples of paging"), "{other}");
    }

    #[test]
    fn a_run_that_measured_nothing_has_failed() {
        assert_eq!(Recorder::nowhere("latency").close().unwrap(), 2);
    }

    #[test]
    fn wrong_content_is_the_status_whatever_else_happened() {
        let mut recorder = Recorder::nowhere("latency");
        recorder.interrupted = true;
        recorder.wrong("page 7".into());
        assert_eq!(recorder.close().unwrap(), 1);
        let interrupted = Recorder { interrupted: true, ..Recorder::nowhere("latency") };
        assert_eq!(interrupted.close().unwrap(), 130);
    }
}
