//! Raw samples on disk: JSON Lines, one object a line, flushed as soon as it is known, read back
//! tolerantly.
//!
//! The format is described for people in docs/samples.md. A file holds one experiment: a `run`
//! line, then `sample`, `note` and `engine` lines, then one `end` line (missing when the run was
//! killed). Files are only ever appended to line by line, so what a crash or a full disk cuts is at
//! most the last line; reading drops it and says so.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::promises::line::FigureLine;

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// Parameters of a sample: the same keys in every sample of a file.
pub type Params = BTreeMap<String, Value>;

/// One line of a sample file. The word in `kind` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// The first line.
    Run(Box<Run>),
    /// A measured number.
    Sample(Sample),
    /// What a reader of the numbers must know.
    Note {
        /// One sentence.
        text: String,
    },
    /// A point that was given up.
    Skip(Skip),
    /// A figure that was judged.
    Figure(Box<FigureLine>),
    /// Which engine a configuration says it used.
    Engine {
        /// The configuration.
        engine: String,
        /// The engine, and why it is that one.
        detail: String,
    },
    /// The last line; missing in a file that was cut off.
    End(End),
}

/// What was run, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of the format, now 1.
    pub schema: u32,
    /// Name of the suite.
    pub experiment: String,
    /// Number of the goal that the experiment serves, such as "M08".
    pub row: String,
    /// quick, default or full.
    pub effort: String,
    /// The configurations that were compared.
    pub engines: Vec<String>,
    /// What the order of points was drawn from.
    pub seed: u64,
    /// The machine: see `environment::Environment`.
    pub environment: Value,
}

/// One measured number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the suite.
    pub experiment: String,
    /// plain, thp, hugetlb, image, kernel or null.
    pub engine: String,
    /// What was measured.
    pub metric: String,
    /// ns, s, bytes/s, 1/s, bytes, share or count.
    pub unit: String,
    /// The number, in `unit`.
    pub value: f64,
    /// Where in the space of the experiment.
    pub params: Params,
    /// Samples of the same round were taken next to each other, in random order.
    pub round: u32,
    /// Seconds since the run began.
    pub at_s: f64,
}

/// A point that gave no more samples, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skip {
    /// The configuration.
    pub engine: String,
    /// Where in the space of the experiment.
    pub params: Params,
    /// Why, for people.
    pub reason: String,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// By Ctrl-C; its last round may be in part.
    pub interrupted: bool,
    /// Samples in the file.
    pub samples: u64,
    /// How long it took.
    pub seconds: f64,
    /// Wrong memory content or lost subjects; empty in a good run.
    pub wrongs: Vec<String>,
}

impl Sample {
    /// A number of a configuration; experiment and time are the recorder's to fill in.
    pub fn of(engine: &str, (metric, unit): (&str, &str), value: f64) -> Sample {
        let (engine, metric, unit) = (engine.into(), metric.into(), unit.into());
        Sample { engine, metric, unit, value, ..Sample::default() }
    }

    /// With one more parameter.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Sample {
        self.params.insert(name.into(), value.into());
        self
    }

    /// As a sample of this round.
    pub fn in_round(self, round: u32) -> Sample {
        Sample { round, ..self }
    }

    /// A parameter as a number; NaN when it is none.
    pub fn number(&self, name: &str) -> f64 {
        self.params.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// A parameter as a word; empty when it is none.
    pub fn word(&self, name: &str) -> &str {
        self.params.get(name).and_then(Value::as_str).unwrap_or("")
    }
}

/// Writes one file. A write that fails is remembered and reported at the end: measuring goes on.
pub struct Writer {
    file: File,
    path: PathBuf,
    failure: Option<std::io::Error>,
}

impl Writer {
    /// Opened before anything is measured, so that a bad path fails early.
    pub fn create(path: &Path) -> Result<Writer> {
        let file = File::create(path).with_context(|| {
            format!("cannot write {}; name a file or folder that can be written", path.display())
        })?;
        Ok(Writer { file, path: path.to_path_buf(), failure: None })
    }

    /// Goes on at the end of a file of ours.
    pub fn append(path: &Path) -> Result<Writer> {
        let file = File::options().append(true).open(path);
        let file = file.with_context(|| format!("cannot add to {}", path.display()))?;
        Ok(Writer { file, path: path.to_path_buf(), failure: None })
    }

    /// Writes one line; a failure is remembered for [`Writer::finish`].
    pub fn put(&mut self, line: &Line) {
        let written = serde_json::to_string(line)
            .map_err(std::io::Error::from)
            .and_then(|text| self.file.write_all((text + "\n").as_bytes()));
        if let Err(error) = written {
            self.failure.get_or_insert(error);
        }
    }

    /// Tells about the first write that failed.
    pub fn finish(self) -> Result<PathBuf> {
        match self.failure {
            None => Ok(self.path),
            Some(error) => Err(error).with_context(|| {
                format!("{} is incomplete; what was written before is good", self.path.display())
            }),
        }
    }
}

/// One file read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The file.
    pub path: PathBuf,
    /// Its first line.
    pub run: Option<Run>,
    /// Its samples, in the order of the file.
    pub samples: Vec<Sample>,
    /// In the order of the file; of skipped points the engine and the reason, once.
    pub notes: Vec<String>,
    /// Points that were given up.
    pub skips: Vec<Skip>,
    /// (engine, what it says of itself)
    pub engines: Vec<(String, String)>,
    /// None: the run was killed or the file is cut.
    pub end: Option<End>,
    /// What could not be read, in one line.
    pub damage: Option<String>,
}

impl Recording {
    /// Name of the experiment: from the run line, else from a sample.
    pub fn experiment(&self) -> &str {
        let from_sample = || self.samples.first().map_or("", |sample| sample.experiment.as_str());
        self.run.as_ref().map_or_else(from_sample, |run| &run.experiment)
    }

    /// Values of one metric of one engine whose parameters satisfy `wanted`.
    pub fn values(&self, engine: &str, metric: &str, wanted: impl Fn(&Sample) -> bool) -> Vec<f64> {
        self.samples
            .iter()
            .filter(|s| s.engine == engine && s.metric == metric && wanted(s))
            .map(|s| s.value)
            .collect()
    }
}

/// Reads a file; broken lines are counted, not fatal. An error: nothing in it is a sample file of
/// ours.
pub fn read(path: &Path) -> Result<Recording> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut recording = Recording { path: path.to_path_buf(), ..Recording::default() };
    let mut broken = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<Line>(line) {
            Ok(line) => recording.take(line),
            Err(_) => broken.push(index + 1),
        }
    }
    if recording.run.is_none() && recording.samples.is_empty() {
        bail!("{} holds no samples of odfork bench", path.display());
    }
    if let Some(run) = recording.run.as_ref().filter(|run| run.schema > SCHEMA) {
        let (theirs, path) = (run.schema, path.display());
        bail!("{path} has schema {theirs}, this program knows {SCHEMA}: use a newer odfork");
    }
    if let Some(first) = broken.first() {
        let count = broken.len();
        recording.damage =
            Some(format!("{}: {count} broken line(s), the first is {first}", path.display()));
    }
    Ok(recording)
}

/// Reads every `*.jsonl` of a folder, by name. Files that are not ours become remarks.
pub fn read_folder(folder: &Path) -> Result<(Vec<Recording>, Vec<String>)> {
    let entries = fs::read_dir(folder).with_context(|| {
        format!("cannot read the folder {}; `odfork bench all` makes one", folder.display())
    })?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .collect();
    paths.sort();
    let (mut recordings, mut remarks) = (Vec::new(), Vec::new());
    for path in paths {
        match read(&path) {
            Ok(recording) => {
                remarks.extend(recording.damage.clone());
                recordings.push(recording);
            }
            Err(error) => remarks.push(format!("{error:#}")),
        }
    }
    if recordings.is_empty() {
        bail!("no sample files (*.jsonl) in {}; run `odfork bench all`", folder.display());
    }
    Ok((recordings, remarks))
}

impl Recording {
    /// Adds what a line says.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Run(run) => self.run = Some(*run),
            Line::Sample(sample) => self.samples.push(sample),
            // Whoever reads samples judges them.
            Line::Figure(_) => {}
            Line::Note { text } => self.notes.push(text),
            Line::Skip(skip) => {
                let text = format!("{}: {}", skip.engine, skip.reason);
                if !self.notes.contains(&text) {
                    self.notes.push(text);
                }
                self.skips.push(skip);
            }
            Line::Engine { engine, detail } => self.engines.push((engine, detail)),
            Line::End(end) => self.end = Some(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f64) -> Sample {
        Sample::of("plain", ("fork", "ns"), value).with("bytes", 4096)
    }

    #[test]
    fn what_is_written_is_read_and_a_cut_line_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency.jsonl");
        let mut writer = Writer::create(&path).unwrap();
        for value in [1.0, 2.0] {
            writer.put(&Line::Sample(sample(value)));
        }
        writer.put(&Line::Note { text: "cut to 2 GB".into() });
        writer.finish().unwrap();
        let whole = read(&path).unwrap();
        assert_eq!(whole.values("plain", "fork", |s| s.number("bytes") == 4096.0), [1.0, 2.0]);
        assert_eq!((whole.notes.len(), whole.damage.clone()), (1, None));

        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let cut = read(&path).unwrap();
        assert_eq!(cut.samples, whole.samples);
        assert!(cut.damage.unwrap().contains("the first is 3"));
        let (recordings, remarks) = read_folder(folder.path()).unwrap();
        assert_eq!((recordings.len(), remarks.len()), (1, 1));
    }

    #[test]
    fn a_foreign_file_and_an_empty_folder_are_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("other.jsonl"), "{\"a\":1}\n\u{0}\n").unwrap();
        let error = read_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no sample files"), "{error}");
        assert!(read(&folder.path().join("none.jsonl")).is_err());
    }
}
