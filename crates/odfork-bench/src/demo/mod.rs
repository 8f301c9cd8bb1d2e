//! `odfork bench demo`: unit tests over a big SQLite database and a forking python3, each in a
//! process under stock fork and in one under odfork.
//!
//! Neither program knows of odfork; `demo/run.sh` compiles the first and starts this. The way of
//! one number: `program` starts a process and asks it, the points below say what in which order,
//! `tables` prints.

mod program;
mod tables;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Command, FromArgMatches};

use crate::recorder::{Head, Recorder};
use crate::runner::{conduct, Block, Budget, Executor, Group, Number, Outcome, Point, Reply};
use crate::suite::Suite;
use crate::words::words;
use odfork_proc::interrupt;
use odfork_samples::environment::{memory_available, Environment};
use odfork_samples::samples::Params;
use program::{Facts, Process, Test};
use tables::Statistics;

pub const NAME: &str = "demo";
pub const ROW: &str = "M10";
pub const QUESTION: &str =
    "How much faster are unit tests in forked children of a 1 GB database, and forks of python3?";
pub const PUBLISHED: &str =
    "fork 13.15 -> 0.12 ms (110x), test 0.18 -> 0.21 ms, together 13.33 -> 0.33 ms (40x)";

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const PYTHON: &str = "/usr/bin/python3";
/// The configurations, as samples name them.
pub const SIDES: [&str; 2] = ["stock", "odfork"];
/// Tests of the database; the published figures are about the first three.
pub const SQLITE: [&str; 4] = ["select", "delete", "update", "key"];
pub const DICT: [&str; 2] = ["idle", "busy"];
/// Free memory for a byte of content: both processes, and what their children copy.
const FACTOR: u64 = 4;

#[derive(Clone, Debug, Args)]
struct Options {
    /// The compiled sqlite_units
    #[arg(long, value_name = "FILE")]
    units: PathBuf,
    /// python_dict.py
    #[arg(long, value_name = "FILE")]
    python_dict: PathBuf,
    /// Bytes of database pages
    #[arg(long, value_name = "N", default_value_t = 1 << 30)]
    bytes: u64,
    /// Size of the dict
    #[arg(long, value_name = "N", default_value_t = 500_000_000)]
    dict_bytes: u64,
    /// Rounds of every kind of test
    #[arg(long, value_name = "N", default_value_t = 40)]
    rounds: u32,
    /// Longest time for the rounds of one part
    #[arg(long, value_name = "N", default_value_t = 50.0)]
    seconds: f64,
    /// Stock fork on both sides: shows the noise
    #[arg(long)]
    control: bool,
    /// Cycles of python3 in one burst
    #[arg(long, value_name = "N", default_value_t = 60)]
    burst: u32,
    /// Write the samples (JSON Lines) here [default: nowhere]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub fn command() -> Command {
    Options::augment_args(Command::new(NAME).about(QUESTION)).after_help(format!(
        "Examples:\n  demo/run.sh --rounds 10     compiles the program and runs this\n\n\
         Exit status: 0 when every check passed, 1 when one failed, 2 for a wrong setup,\n\
         130 when interrupted (what was measured is printed).\n\nPublished: {PUBLISHED}"
    ))
}

/// The experiment; returns the exit status.
pub fn run(matches: &clap::ArgMatches) -> Result<u8> {
    let options = Options::from_arg_matches(matches)?;
    interrupt::listen();
    let environment = Environment::observe();
    println!("{}", environment.summary());
    let mut recorder = recorder(&options, &environment)?;
    let mut demo = Demo {
        odfork: std::env::current_exe()?,
        folder: tempfile::tempdir()?,
        control: options.control,
        processes: Vec::new(),
        statistics: Vec::new(),
        checks: 0,
        begun: Instant::now(),
    };
    let groups = groups(&options, &mut recorder);
    conduct(&mut demo, &mut recorder, &groups, options.seed);
    if options.control {
        println!("control run: BOTH columns are stock fork, so a ratio that is not 1 is noise");
    }
    print!("{}", tables::tables(&recorder.recording.samples, &demo.statistics));
    let (seconds, failed) = (demo.begun.elapsed().as_secs(), recorder.wrongs.len());
    println!("checks: {} passed, {failed} failed; {seconds} s", demo.checks);
    recorder.close()
}

fn recorder(options: &Options, environment: &Environment) -> Result<Recorder> {
    let Some(path) = &options.json else { return Ok(Recorder::nowhere(NAME)) };
    let engines = SIDES.map(str::to_string).into();
    let head = Head { experiment: NAME, row: ROW, effort: "default", engines, seed: options.seed };
    Recorder::open(path, head, environment, false)
}

words! {
    /// One of the two programs.
    Part: 2 { Sqlite = "sqlite", Python = "python", }
}

impl Part {
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            Part::Sqlite => &SQLITE,
            Part::Python => &DICT,
        }
    }
}

/// A process on one side.
#[derive(Clone, Debug)]
struct Target {
    part: Part,
    side: usize,
    command: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The first fork of a process: under odfork it holds the freeze.
    First,
    Test(&'static str),
    /// So many cycles on one clock: work, freeze, refreezes, forks, children, reaping.
    Burst {
        seed: u32,
        count: u32,
    },
}

/// Both parts, one after the other; each gives its memory back before the next begins.
fn groups(options: &Options, recorder: &mut Recorder) -> Vec<Group<Target, Op>> {
    let parts =
        [(Part::Sqlite, options.bytes, 16 << 20), (Part::Python, options.dict_bytes, 8 << 20)];
    parts.map(|(part, wanted, least)| group(options, part, fitting(wanted, least, recorder))).into()
}

/// What is wanted where four times as much memory is free, else less, and a note says so.
fn fitting(wanted: u64, least: u64, recorder: &mut Recorder) -> u64 {
    let free = memory_available();
    if free >= wanted * FACTOR {
        return wanted;
    }
    let fitting = least.max(((free / FACTOR) >> 20) << 20);
    let (from, to, free, needed) =
        (wanted >> 20, fitting >> 20, free >> 20, (wanted * FACTOR) >> 20);
    recorder.note(format!(
        "memory is short: {free} MB available, {needed} MB needed for the full \
         size; scaled down from {from} MB to {to} MB"
    ));
    fitting
}

fn group(options: &Options, part: Part, bytes: u64) -> Group<Target, Op> {
    let size = PathBuf::from(bytes.to_string());
    let command = match part {
        Part::Sqlite => vec![options.units.clone(), size],
        Part::Python => {
            vec![PYTHON.into(), "-B".into(), options.python_dict.clone(), size]
        }
    };
    let target = |side| Target { part, side, command: command.clone() };
    let points = |op: Op, kind: &str| {
        let params: Params = [("program", part.word()), ("kind", kind)]
            .map(|(name, word)| (name.into(), word.into()))
            .into();
        [0, 1].map(|side| Point {
            engine: SIDES[side],
            targets: vec![side],
            params: params.clone(),
            op,
        })
    };
    let once = |op, kind| Block { points: points(op, kind).into(), budget: Budget::rounds(1) };
    let burst = |seed, kind| once(Op::Burst { seed, count: options.burst }, kind);
    let tests = part.kinds().iter().flat_map(|kind| points(Op::Test(kind), kind));
    let budget = Budget::new(0, 1, options.rounds, options.seconds);
    let rounds = Block { points: tests.collect(), budget };
    let blocks = match part {
        Part::Sqlite => vec![once(Op::First, ""), rounds],
        Part::Python => vec![
            burst(100, "burst from the first fork on"),
            once(Op::First, ""),
            rounds,
            burst(200, "burst later"),
        ],
    };
    let title = format!("{}, {:.2} GB", part.word(), bytes as f64 / f64::from(1 << 30));
    let expected = options.seconds + bytes as f64 / 4e7;
    Group { title, targets: vec![target(0), target(1)], blocks, expected }
}

/// A process that holds its content, or why there is none.
struct Side {
    part: Part,
    process: Result<(Process, Facts), String>,
}

struct Demo {
    odfork: PathBuf,
    folder: tempfile::TempDir,
    control: bool,
    /// Of the group that runs, by side.
    processes: Vec<Side>,
    /// What odfork wrote at the end of each part.
    statistics: Vec<(Part, Statistics)>,
    /// Passed.
    checks: u32,
    begun: Instant,
}

impl Demo {
    fn process(&mut self, side: usize) -> Result<(&mut Process, Facts), Outcome> {
        match &mut self.processes[side].process {
            Ok((process, facts)) => Ok((process, *facts)),
            Err(why) => Err(Outcome::Wrong(why.clone())),
        }
    }

    /// One step of a process; what it gives is a check that passed.
    fn check<T>(
        &mut self,
        side: usize,
        step: impl FnOnce(&mut Process, Facts) -> Result<T, Outcome>,
    ) -> Result<T, Outcome> {
        let (process, facts) = self.process(side)?;
        let done = step(process, facts)?;
        self.checks += 1;
        Ok(done)
    }

    fn stats_file(&self, part: Part) -> PathBuf {
        self.folder.path().join(format!("{}.json", part.word()))
    }

    fn end(&mut self, side: usize) -> Result<Option<String>, Outcome> {
        self.check(side, |process, _| process.verify())?;
        self.check(side, |process, _| process.end())?;
        let part = self.processes[side].part;
        if self.control || side == 0 {
            return Ok(None);
        }
        let statistics = Statistics::read(&self.stats_file(part)).map_err(Outcome::Wrong)?;
        self.checks += 1;
        let words = statistics.engine();
        self.statistics.push((part, statistics));
        Ok(Some(words))
    }
}

impl Executor for Demo {
    type Target = Target;
    type Op = Op;

    /// Both at the same time: loaded one after the other, with stock fork on both sides, the first
    /// took 1.2 to 1.5 times as long to fork as the second.
    fn start(&mut self, targets: &[Target]) -> Vec<Option<String>> {
        let files: Vec<PathBuf> = targets.iter().map(|one| self.stats_file(one.part)).collect();
        let odfork = |target: &Target| (target.side == 1 && !self.control).then_some(&*self.odfork);
        let started: Vec<_> = targets
            .iter()
            .zip(&files)
            .map(|(target, file)| {
                Process::start(
                    &target.command,
                    odfork(target).map(|odfork| (odfork, Path::new(file))),
                )
            })
            .collect();
        let loaded = |process: Result<Process, String>| {
            let mut process = process?;
            let facts = process.loaded()?;
            Ok((process, facts))
        };
        self.processes = targets
            .iter()
            .zip(started)
            .map(|(target, process)| Side { part: target.part, process: loaded(process) })
            .collect();
        // Who did not start fails its first check.
        targets.iter().map(|_| None).collect()
    }

    fn prepare(&mut self, side: usize) -> Reply {
        outcome(self.check(side, |process, _| process.verify()))
    }

    fn perform(&mut self, point: &Point<Op>, round: u32) -> Reply {
        let side = point.targets[0];
        let part = self.processes[side].part;
        let numbers = match point.op {
            Op::First => self.check(side, |process, facts| first(process, facts, part)),
            Op::Test(kind) => self.check(side, |process, _| process.test(kind, round).map(numbers)),
            Op::Burst { seed, count } => self.check(side, |process, _| {
                let wall = process.burst(seed, count)?;
                Ok(vec![
                    Number::new("burst", "ns", wall),
                    Number::new("cycles", "count", f64::from(count)),
                ])
            }),
        };
        numbers.map_or_else(Reply::from, Reply::numbers)
    }

    fn verify(&mut self, side: usize) -> Reply {
        match self.end(side) {
            Ok(engine) => Reply { engine, ..Reply::default() },
            Err(outcome) => outcome.into(),
        }
    }

    fn stop(&mut self) {
        self.processes.clear();
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

fn outcome(done: Result<(), Outcome>) -> Reply {
    done.err().unwrap_or_default().into()
}

/// The warm-up of every kind; the first fork is kept, and what the process said when it was loaded.
fn first(process: &mut Process, facts: Facts, part: Part) -> Result<Vec<Number>, Outcome> {
    let tests: Result<Vec<Test>, Outcome> =
        part.kinds().iter().map(|kind| process.test(kind, 0)).collect();
    Ok(vec![
        Number::new("first-fork", "ns", tests?[0].fork),
        Number::new("initialise", "ns", facts.initialise),
        Number::new("content", "bytes", facts.bytes),
        Number::new("entries", "count", facts.entries),
    ])
}

fn numbers(test: Test) -> Vec<Number> {
    let metrics = [
        ("fork", test.fork),
        ("test", test.child),
        ("fork-test", test.fork + test.child),
        ("total", test.total),
        ("cpu", test.ran),
        ("waiting", test.waited),
    ];
    metrics.map(|(metric, ns)| Number::new(metric, "ns", ns)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_asked_the_same() {
        let line = ["demo", "--units", "/u", "--python-dict", "/p.py", "--rounds", "3"];
        let options = Options::from_arg_matches(&command().get_matches_from(line)).unwrap();
        let sqlite = group(&options, Part::Sqlite, 1 << 30);
        let tests = &sqlite.blocks[1].points;
        assert_eq!((tests.len(), sqlite.blocks[1].budget.at_most), (8, 3));
        assert!(tests.chunks(2).all(|pair| pair[0].params == pair[1].params));
        assert_eq!(sqlite.targets[0].command, [Path::new("/u"), Path::new("1073741824")]);
        let python = group(&options, Part::Python, 500_000_000);
        assert_eq!(python.blocks.len(), 4);
    }
}
