//! Raw samples as JSON Lines: one object a line, written and flushed as soon as it is known.
//!
//! Records: `environment` once, `samples` per series, `engine` per odfork subject (the engine's own statistics),
//! `figure` and `end` at the end. Times are nanoseconds, amounts bytes. The schema number changes when a field
//! changes its meaning or goes away.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::experiments::Experiment;
use crate::figures::{Finding, Goal, Verdict};
use crate::record::Record;
use crate::session::Witness;
use odfork_samples::environment::Environment;
use odfork_samples::stats::Estimate;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Line<'a> {
    Environment {
        schema: u32,
        seed: u64,
        quick: bool,
        #[serde(flatten)]
        environment: &'a Environment,
    },
    Samples {
        experiment: &'a str,
        arm: &'a str,
        label: &'a str,
        size: u64,
        nominal_size: u64,
        unit: &'a str,
        values: &'a [f64],
    },
    Engine {
        experiment: &'a str,
        subject: usize,
        stats: Value,
    },
    Figure(Box<FigureLine<'a>>),
    End {
        interrupted: bool,
        notes: &'a [String],
        wrongs: &'a [String],
    },
}

#[derive(Serialize)]
struct FigureLine<'a> {
    name: &'a str,
    about: &'a str,
    experiment: &'a str,
    base: Option<Summary>,
    odfork: Option<Summary>,
    thp: Option<Summary>,
    ratio: Option<Summary>,
    reading: &'a str,
    goal: Option<f64>,
    verdict: &'a str,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Summary {
    median: f64,
    low: Option<f64>,
    high: Option<f64>,
    count: usize,
}

impl From<Estimate> for Summary {
    fn from(estimate: Estimate) -> Self {
        Summary {
            median: estimate.value,
            low: estimate.interval.map(|(low, _)| low),
            high: estimate.interval.map(|(_, high)| high),
            count: estimate.count,
        }
    }
}

/// Where the lines go; nowhere when the user wants none. A write that fails is told once, at the end.
pub struct Lines {
    out: Option<Box<dyn Write>>,
    failure: Option<std::io::Error>,
}

impl Lines {
    pub fn nowhere() -> Self {
        Lines { out: None, failure: None }
    }

    /// Opened before anything is measured, so that a bad path fails early.
    pub fn to_file(path: &Path) -> Result<Self> {
        let file = File::create(path)
            .with_context(|| format!("cannot write {}; choose another --json", path.display()))?;
        Ok(Lines::to(Box::new(BufWriter::new(file))))
    }

    fn to(out: Box<dyn Write>) -> Self {
        Lines { out: Some(out), failure: None }
    }

    fn put(&mut self, line: &Line) {
        let Some(out) = &mut self.out else { return };
        let written = serde_json::to_string(line)
            .map_err(std::io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
            .and_then(|()| out.flush());
        if let Err(error) = written {
            self.failure.get_or_insert(error);
        }
    }

    pub fn environment(&mut self, environment: &Environment, seed: u64, quick: bool) {
        self.put(&Line::Environment { schema: SCHEMA, seed, quick, environment });
    }

    pub fn findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            self.put(&Line::Figure(Box::new(figure_line(finding))));
        }
    }

    /// The last line; reports a write that failed.
    pub fn end(mut self, record: &Record) -> Result<()> {
        self.put(&Line::End {
            interrupted: record.interrupted,
            notes: &record.notes,
            wrongs: &record.wrongs,
        });
        match self.failure {
            None => Ok(()),
            Some(error) => Err(error).context("the --json file is incomplete"),
        }
    }
}

impl Witness for Lines {
    fn experiment_done(&mut self, experiment: &Experiment, record: &Record) {
        for (name, values) in record.series_of(experiment.name) {
            self.put(&Line::Samples {
                experiment: &name.experiment,
                arm: &name.arm,
                label: &name.label,
                size: experiment.size,
                nominal_size: experiment.nominal,
                unit: if name.label.starts_with("extra") { "bytes" } else { "ns" },
                values,
            });
        }
    }

    fn engine_stats(&mut self, experiment: &Experiment, subject: usize, stats: &str) {
        let stats = serde_json::from_str(stats).unwrap_or_else(|_| Value::String(stats.into()));
        self.put(&Line::Engine { experiment: experiment.name, subject, stats });
    }
}

fn figure_line(finding: &Finding) -> FigureLine<'_> {
    let (reading, goal) = match finding.figure.goal {
        Goal::Times(least) => ("base/odfork", Some(least)),
        Goal::TimesReported => ("base/odfork", None),
        Goal::Share(most) => ("odfork/base", Some(most)),
        Goal::ShareReported => ("odfork/base", None),
        Goal::Bytes(most) => ("bytes", Some(most as f64)),
    };
    let (verdict, reason) = match &finding.verdict {
        Verdict::Met { close: false } => ("met", None),
        Verdict::Met { close: true } => ("met", Some("close")),
        Verdict::Missed { close: false } => ("missed", None),
        Verdict::Missed { close: true } => ("missed", Some("close")),
        Verdict::Reported => ("reported", None),
        Verdict::Scaled { .. } => ("not judged", Some("another size than the goal's")),
        Verdict::Unavailable(reason) => ("n/a", Some(reason.as_str())),
    };
    FigureLine {
        name: finding.figure.name,
        about: finding.figure.about,
        experiment: finding.figure.experiment,
        base: finding.base.map(Summary::from),
        odfork: finding.subject.map(Summary::from),
        thp: finding.third.map(Summary::from),
        ratio: finding.ratio.map(Summary::from),
        reading,
        goal,
        verdict,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::figures;
    use crate::figures::judge;
    use crate::plan::{experiments, Effort};
    use crate::record::SeriesName;
    use odfork_samples::stats::Rng;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Page(Rc<RefCell<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_one_object_that_says_what_it_is() {
        let page = Page::default();
        let mut lines = Lines::to(Box::new(page.clone()));
        let mut record = Record::default();
        for value in [9.0, 8.0, 7.0] {
            record.add(SeriesName::new("size-8g", "stock", "fork"), value);
            record.add(SeriesName::new("size-8g", "odfork", "fork"), 1.0);
        }
        let plan = experiments(Effort::Full);
        let largest = plan.iter().find(|e| e.name == "size-8g").unwrap();
        lines.environment(&Environment::observe(), 42, false);
        lines.experiment_done(largest, &record);
        lines.engine_stats(largest, 1, r#"{"schema":1}"#);
        let figure = figures().into_iter().find(|f| f.name == "fork-8g").unwrap();
        lines.findings(&[judge(figure, &record, &mut Rng::with_seed(1))]);
        lines.end(&record).unwrap();

        let text = String::from_utf8(page.0.borrow().clone()).unwrap();
        let objects: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> =
            objects.iter().map(|object| object["record"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["environment", "samples", "samples", "engine", "figure", "end"]);
        assert_eq!(objects[0]["schema"], 1);
        assert_eq!(objects[0]["seed"], 42);
        assert_eq!(objects[1]["arm"], "odfork");
        assert_eq!(objects[2]["values"], serde_json::json!([9.0, 8.0, 7.0]));
        assert_eq!(objects[3]["stats"]["schema"], 1);
        assert_eq!(objects[4]["ratio"]["median"], 8.0);
        assert_eq!(objects[4]["verdict"], "missed");
    }

    #[test]
    fn a_bad_path_fails_early_and_says_what_to_do() {
        let error = Lines::to_file(Path::new("/no/such/folder/out.jsonl")).err().unwrap();
        assert!(error.to_string().contains("--json"));
    }
}
