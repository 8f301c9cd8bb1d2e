//! Options that suites share, and what follows from them.

use std::path::PathBuf;

use anyhow::{bail, Result};
use clap::{value_parser, Args, Command};

use crate::configuration::Configuration;
use crate::plan::Effort;
use crate::recorder::{path_of, Head, Recorder};
use crate::suite::Suite;
use odfork_samples::environment::Environment;

// Options of every suite with configurations and a file of samples. No doc comments on these
// structs: they would take the place of what the command says of itself.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Small sizes, few rounds: shows that it runs
    #[arg(long)]
    quick: bool,
    /// Large sizes: the published scale, as far as memory goes
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Only these configurations
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    engine: Vec<String>,
    /// Write the samples (JSON Lines) here instead of DIR/NAME.jsonl
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder of the sample files
    #[arg(long, value_name = "DIR", default_value = "odfork-results")]
    pub dir: PathBuf,
    /// Seed of the order, and of accesses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Common {
    pub fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Default,
        }
    }

    /// The recorder of the file that is named here; says what machine this is.
    pub fn recorder(
        &self,
        suite: &Suite,
        engines: Vec<String>,
        more: bool,
    ) -> Result<(Recorder, Environment)> {
        let environment = Environment::observe();
        println!("{}", environment.summary());
        let (effort, seed) = (self.effort().word(), self.seed);
        let head = Head { experiment: suite.name, row: suite.row, effort, engines, seed };
        let path = path_of(self.json.as_ref(), &self.dir, suite.name)?;
        Ok((Recorder::open(&path, head, &environment, more)?, environment))
    }

    /// Whether `--engine` names it.
    pub fn asks_for(&self, word: &str) -> bool {
        self.engine.iter().any(|engine| engine == word)
    }

    /// Those of all configurations that were asked for and can be had; notes why others cannot.
    /// Only who was asked for is tried.
    pub fn choose<C: Copy>(
        &self,
        all: &[C],
        word: fn(C) -> &'static str,
        refusal: impl Fn(C) -> Option<String>,
    ) -> Result<(Vec<C>, Vec<String>)> {
        let is_asked = |one: C| self.engine.is_empty() || self.asks_for(word(one));
        let (mut chosen, mut notes) = (Vec::new(), Vec::new());
        for &one in all.iter().filter(|one| is_asked(**one)) {
            match refusal(one) {
                None => chosen.push(one),
                Some(why) => notes.push(format!("{} left out: {why}", word(one))),
            }
        }
        if chosen.is_empty() {
            bail!("no configuration is left to measure: {}", notes.join("; "));
        }
        Ok((chosen, notes))
    }
}

// Options of every suite that asks subjects.
#[derive(Clone, Debug, Args)]
pub struct SubjectOptions {
    #[command(flatten)]
    pub common: Common,
    /// Which backing file the configuration 'image' uses
    #[arg(long, value_name = "IMAGE", value_parser = ["auto", "huge", "small"])]
    pub image: Option<String>,
    /// Take N times as long: an emulated guest needs 10
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=1000)
    )]
    pub stretch: u32,
    /// Let subjects run on any processor
    #[arg(long)]
    pub unpinned: bool,
}

/// A command with such options; `--engine` takes the words of configurations.
pub fn subject_command<O: Args>(command: Command) -> Command {
    with_engines::<O>(command, &Configuration::ALL.map(Configuration::word))
}

pub fn with_engines<O: Args>(command: Command, words: &[&'static str]) -> Command {
    O::augment_args(command).mut_arg("engine", |engine| engine.value_parser(words.to_vec()))
}
