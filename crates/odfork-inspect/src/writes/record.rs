//! The sample file of a measurement: experiment "writes", row M04, engine "plain". Format: docs/samples.md.
//!
//! Opened before anything is measured, so that a path that cannot be written fails early.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::method::Method;
use super::session::Phase;
use odfork_samples::environment::Environment;
use odfork_samples::samples::{End, Line, Params, Run, Sample, Writer};

const EXPERIMENT: &str = "writes";
const ENGINE: &str = "plain";

/// An open sample file, or none.
pub struct Record {
    writer: Option<Writer>,
    start: Instant,
    samples: u64,
    phases: u32,
}

impl Record {
    pub fn open(path: Option<&Path>, effort: &str) -> Result<Record> {
        let mut writer = path.map(Writer::create).transpose()?;
        if let Some(writer) = &mut writer {
            writer.put(&Line::Run(Box::new(Run {
                schema: odfork_samples::samples::SCHEMA,
                experiment: EXPERIMENT.into(),
                row: "M04".into(),
                effort: effort.into(),
                engines: vec![ENGINE.into()],
                seed: 0,
                environment: serde_json::to_value(Environment::observe()).unwrap_or(Value::Null),
            })));
        }
        Ok(Record { writer, start: Instant::now(), samples: 0, phases: 0 })
    }

    pub fn note(&mut self, text: &str) {
        if let Some(writer) = &mut self.writer {
            writer.put(&Line::Note { text: text.into() });
        }
    }

    /// Shares and counts of one phase.
    pub fn phase(&mut self, program: &str, phase: &Phase, method: Method) {
        let counts = &phase.change.counts;
        let params = Params::from([
            ("program".into(), program.into()),
            ("phase".into(), phase.name.as_str().into()),
            ("method".into(), method.word().into()),
        ]);
        let mut metrics = vec![
            ("pages", "share", counts.page_share()),
            ("pages-changed", "count", counts.changed as f64),
            ("pages-new", "count", counts.new as f64),
            ("pages-all", "count", counts.pages as f64),
        ];
        if method.counts_bytes() {
            metrics.push(("bytes", "share", counts.byte_share()));
            metrics.push(("bytes-changed", "count", counts.bytes as f64));
            metrics.push(("bytes-all", "count", counts.bytes_all() as f64));
        }
        for (metric, unit, value) in metrics {
            self.sample(metric, unit, value, params.clone());
        }
        self.phases += 1;
    }

    fn sample(&mut self, metric: &str, unit: &str, value: f64, params: Params) {
        let Some(writer) = &mut self.writer else { return };
        self.samples += 1;
        writer.put(&Line::Sample(Sample {
            experiment: EXPERIMENT.into(),
            engine: ENGINE.into(),
            metric: metric.into(),
            unit: unit.into(),
            value,
            params,
            round: self.phases,
            at_s: self.start.elapsed().as_secs_f64(),
        }));
    }

    pub fn finish(self, interrupted: bool, wrongs: Vec<String>) -> Result<()> {
        let Some(mut writer) = self.writer else { return Ok(()) };
        writer.put(&Line::End(End {
            interrupted,
            samples: self.samples,
            seconds: self.start.elapsed().as_secs_f64(),
            wrongs,
        }));
        writer.finish().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::change::{Change, Counts};
    use odfork_samples::samples;

    #[test]
    fn a_phase_is_read_back_with_its_parameters() {
        let path = std::env::temp_dir().join(format!("odfork-writes-{}.jsonl", std::process::id()));
        let mut record = Record::open(Some(&path), "default").unwrap();
        let counts = Counts { pages: 8, changed: 2, new: 1, bytes: 5000 };
        let change = Change { counts, ..Change::default() };
        let phase = Phase { name: "load".into(), change, from: 0.0, to: 1.0 };
        record.phase("python3", &phase, Method::Compare);
        record.phase("python3", &phase, Method::Scan);
        record.finish(false, Vec::new()).unwrap();
        let read = samples::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.experiment(), "writes");
        let share = |method: &str| read.values("plain", "pages", |s| s.word("method") == method);
        assert_eq!((share("compare"), share("scan")), (vec![0.25], vec![0.25]));
        assert_eq!(read.values("plain", "bytes-changed", |_| true), [5000.0]);
        assert_eq!(read.end.unwrap().samples, 11);
    }
}
