//! The suites of `odfork bench`, one file each; `catalogue` lists them.
//!
//! A suite says its question, what was published, and what it asks: plans of groups (`plan`), which
//! the one runner interleaves. Suites whose ops are not commands to subjects bring an executor and
//! a `run` of their own.

pub mod access;
pub mod copy_rate;
pub mod exec;
pub mod fault;
pub mod grid;
pub mod latency;
mod matrix;
pub mod parent_writes;
pub mod profile;
pub mod promises;

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde_json::{json, Value};

use odfork_samples::samples::Recording;

use crate::configuration::Configuration;
use crate::plan::{Config, Effort, Plan};

/// One suite.
pub struct Suite {
    pub name: &'static str,
    /// For the sample files only.
    pub row: &'static str,
    pub question: &'static str,
    pub published: &'static str,
    /// The first is the answer, the others explain it.
    pub metrics: &'static [&'static str],
    pub params: &'static [&'static str],
    /// What it can compare, in the order it is shown.
    pub configurations: &'static [Configuration],
    pub how: How,
}

impl Suite {
    /// One that has options, an executor and tables of its own, and so names its metrics itself.
    pub const fn own(
        [name, row, question, published]: [&'static str; 4],
        command: fn() -> Command,
        run: fn(&ArgMatches) -> Result<u8>,
    ) -> Suite {
        let how = How::Own { command, run };
        Suite {
            name,
            row,
            question,
            published,
            metrics: &[],
            params: &[],
            configurations: &[],
            how,
        }
    }
}

pub enum How {
    /// The points are asked of subjects.
    Subjects(Subjects),
    /// It has options, an executor and tables of its own.
    Own { command: fn() -> Command, run: fn(&ArgMatches) -> Result<u8> },
}

pub struct Subjects {
    pub plans: fn(&Config) -> Vec<Plan>,
    /// Seconds of measuring: quick, default, full (loading memory comes on top). None: as the plans
    /// say.
    pub seconds: Option<[f64; 3]>,
    /// What is printed of the samples.
    pub tables: fn(&Suite, &Recording) -> String,
}

impl Suite {
    /// The reruns of published experiments that take minutes and need nothing: those of `odfork
    /// bench all`.
    pub fn is_of_all(&self) -> bool {
        matches!(self.how, How::Subjects(_))
    }

    pub fn json(&self) -> Value {
        let engines: Vec<&str> = self.configurations.iter().map(|one| one.word()).collect();
        json!({
            "name": self.name, "row": self.row, "question": self.question,
            "published": self.published, "metrics": self.metrics, "params": self.params,
            "engines": engines,
        })
    }
}

impl Subjects {
    pub fn seconds(&self, effort: Effort) -> Option<f64> {
        self.seconds.map(|seconds| seconds[effort as usize])
    }
}
