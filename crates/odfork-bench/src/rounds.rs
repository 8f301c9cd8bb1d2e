//! Experiments in rounds whose ops start and end everything they need: of memory that is paged, on
//! a machine that is changed for it and put back.
//!
//! Owns their options, what they find and leave of the machine, and the way from options to
//! samples.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Error, Result};
use clap::{value_parser, Args};

use odfork_proc::interrupt;
use odfork_samples::samples::{Params, Sample};

use crate::baselines::cgroup::Parent;
use crate::baselines::journal::{Cleanup, Journal};
use crate::options::Common;
use crate::recorder::Recorder;
use crate::runner::{conduct, Block, Budget, Executor, Group, GroupOf, Point, Reply};
use crate::suite::Suite;

#[derive(Clone, Debug, Args)]
pub struct RoundOptions {
    #[command(flatten)]
    pub common: Common,
    /// Rounds [default: 1 with --quick, more otherwise]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Add the rounds to those the file already has
    #[arg(long)]
    pub more: bool,
    /// Folder on a disk for swap file, mapped file, store and dumps
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    store_dir: PathBuf,
}

impl RoundOptions {
    /// The folder of --store-dir.
    pub fn store(&self) -> Result<PathBuf> {
        let store = &self.store_dir;
        if !store.is_dir() {
            bail!("{} is no folder; name one on a disk with --store-dir", store.display());
        }
        Ok(std::path::absolute(store)?)
    }
}

/// Where a run takes place.
pub struct Site {
    pub program: PathBuf,
    /// Temporary, of sockets and files.
    pub folder: PathBuf,
    pub journal: Journal,
    pub parent: Result<Parent, String>,
    _folder: Cleanup,
}

impl Site {
    pub fn open() -> Result<Site> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        interrupt::listen();
        let journal = Journal::open(&program).map_err(Error::msg)?;
        let (folder, _folder) = journal.folder().map_err(Error::msg)?;
        Ok(Site { program, folder, journal, parent: Parent::find(), _folder })
    }
}

/// What is to be done in each round.
pub struct Rounds<O> {
    pub points: Vec<Point<O>>,
    pub rounds: u32,
    /// About, of one round.
    pub seconds: f64,
    pub notes: Vec<String>,
}

pub fn point<O>(engine: &'static str, params: Params, op: O) -> Point<O> {
    Point { engine, targets: Vec::new(), params, op }
}

struct Each<O, F> {
    begun: Instant,
    perform: F,
    op: PhantomData<O>,
}

impl<O: Copy, F: FnMut(O) -> Reply> Executor for Each<O, F> {
    type Target = ();
    type Op = O;

    fn perform(&mut self, point: &Point<O>, _round: u32) -> Reply {
        (self.perform)(point.op)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// Runs the rounds; the recorder is still to be closed.
pub fn run<O: Copy>(
    suite: &Suite,
    options: &RoundOptions,
    plan: Rounds<O>,
    perform: impl FnMut(O) -> Reply,
) -> Result<Recorder> {
    let mut engines: Vec<String> = plan.points.iter().map(|point| point.engine.into()).collect();
    engines.dedup();
    let expected = plan.seconds * f64::from(plan.rounds);
    let blocks = vec![Block { points: plan.points, budget: Budget::rounds(plan.rounds) }];
    let group = Group { title: suite.name.into(), targets: Vec::new(), blocks, expected };
    let mut executor = Each { begun: Instant::now(), perform, op: PhantomData };
    measure(suite, options, (engines, plan.notes), &[group], &mut executor)
}

/// Runs the groups of such an experiment; the recorder is still to be closed.
pub fn measure<E: Executor>(
    suite: &Suite,
    options: &RoundOptions,
    (engines, notes): (Vec<String>, Vec<String>),
    groups: &[GroupOf<E>],
    executor: &mut E,
) -> Result<Recorder> {
    let (mut recorder, _) = options.common.recorder(suite, engines, options.more)?;
    notes.into_iter().for_each(|note| recorder.note(note));
    let seed = options.common.seed.wrapping_add(u64::from(recorder.round));
    conduct(executor, &mut recorder, groups, seed);
    Ok(recorder)
}

/// Adds what is known at the end of a run, prints the tables, closes; the exit status.
pub fn finish(
    mut recorder: Recorder,
    last: Vec<Sample>,
    tables: fn(&[Sample]) -> String,
) -> Result<u8> {
    for sample in last {
        let round = recorder.round;
        recorder.sample(sample.in_round(round));
    }
    print!("{}", tables(&recorder.recording.samples));
    recorder.close()
}
