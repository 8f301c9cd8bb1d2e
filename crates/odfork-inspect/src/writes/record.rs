//! The sample file of a measurement: experiment "writes", engine "plain". Format: docs/samples.md.
//!
//! Opened before anything is measured, so that a path that cannot be written fails early. Owns the
//! exit status that follows from what was recorded.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::method::Method;
use super::session::Phase;
use odfork_samples::environment::Environment;
use odfork_samples::samples::{End, Line, Run, Sample, Writer, SCHEMA};

const EXPERIMENT: &str = "writes";
const ENGINE: &str = "plain";

const EARLY: u8 = 1;
const INTERRUPTED: u8 = 130;

/// An open sample file, or none.
pub struct Record {
    writer: Option<Writer>,
    start: Instant,
    samples: u64,
    phases: u32,
}

impl Record {
    pub fn open(path: Option<&Path>, effort: &str) -> Result<Record> {
        let writer = path.map(Writer::create).transpose()?;
        let mut record = Record { writer, start: Instant::now(), samples: 0, phases: 0 };
        if record.writer.is_some() {
            record.put(&Line::Run(Box::new(Run {
                schema: SCHEMA,
                experiment: EXPERIMENT.into(),
                row: "M04".into(),
                effort: effort.into(),
                engines: vec![ENGINE.into()],
                seed: 0,
                environment: serde_json::to_value(Environment::observe()).unwrap_or(Value::Null),
            })));
        }
        Ok(record)
    }

    fn put(&mut self, line: &Line) {
        if let Some(writer) = &mut self.writer {
            writer.put(line);
        }
    }

    pub fn note(&mut self, text: &str) {
        self.put(&Line::Note { text: text.into() });
    }

    /// Shares and counts of one phase.
    pub fn phase(&mut self, program: &str, phase: &Phase, method: Method) {
        let counts = &phase.change.counts;
        let pages = [
            ("pages", "share", counts.page_share()),
            ("pages-changed", "count", counts.changed as f64),
            ("pages-new", "count", counts.new as f64),
            ("pages-all", "count", counts.pages as f64),
        ];
        let bytes = [
            ("bytes", "share", counts.byte_share()),
            ("bytes-changed", "count", counts.bytes as f64),
            ("bytes-all", "count", counts.bytes_all() as f64),
        ];
        let bytes = bytes.into_iter().filter(|_| method.counts_bytes());
        for (metric, unit, value) in pages.into_iter().chain(bytes) {
            self.samples += 1;
            let sample = Sample::of(ENGINE, (metric, unit), value).in_round(self.phases);
            let sample = sample.with("program", program).with("phase", phase.name.as_str());
            let at_s = self.start.elapsed().as_secs_f64();
            let sample = Sample { experiment: EXPERIMENT.into(), at_s, ..sample };
            self.put(&Line::Sample(sample.with("method", method.word())));
        }
        self.phases += 1;
    }

    /// Ends the file and says what went wrong; the status is that of the whole command.
    pub fn finish(mut self, interrupted: bool, complete: bool, wrongs: Vec<String>) -> Result<u8> {
        for wrong in &wrongs {
            eprintln!("odfork writes: {wrong}");
        }
        let early = !complete || !wrongs.is_empty();
        let (samples, seconds) = (self.samples, self.start.elapsed().as_secs_f64());
        self.put(&Line::End(End { interrupted, samples, seconds, wrongs }));
        self.writer.map(Writer::finish).transpose()?;
        Ok(match (interrupted, early) {
            (true, _) => INTERRUPTED,
            (false, true) => EARLY,
            _ => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::change::{Change, Counts};
    use odfork_samples::samples;

    #[test]
    fn a_phase_is_read_back_with_its_parameters() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut record = Record::open(Some(&path), "default").unwrap();
        let counts = Counts { pages: 8, changed: 2, new: 1, bytes: 5000 };
        let change = Change { counts, ..Change::default() };
        let phase = Phase { name: "load".into(), change };
        record.phase("python3", &phase, Method::Compare);
        record.phase("python3", &phase, Method::Scan);
        assert_eq!(record.finish(false, true, Vec::new()).unwrap(), 0);
        let read = samples::read(&path).unwrap();
        assert_eq!(read.experiment(), "writes");
        let share = |method: &str| read.values("plain", "pages", |s| s.word("method") == method);
        assert_eq!((share("compare"), share("scan")), (vec![0.25], vec![0.25]));
        assert_eq!(read.values("plain", "bytes-changed", |_| true), [5000.0]);
        assert_eq!(read.end.unwrap().samples, 11);
    }
}
