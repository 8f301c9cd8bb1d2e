//! Options of experiments that run in rounds, and what follows from them.

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::bench::output_options;
use crate::progress::Progress;
use crate::recorder::{path_of, Head, Recorder};
use crate::runner::{Block, Budget, Executor, Group, Point, Runner};
use odfork_samples::environment::Environment;
use odfork_samples::stats::Rng;

/// Adds them to a command; `configurations` are the words of `--engine`.
pub fn round_options(command: Command, configurations: &'static [&'static str]) -> Command {
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let value =
        |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let command = command
        .arg(switch("quick", "Small sizes, one round: shows that it runs"))
        .arg(switch("full", "Large sizes, more rounds").conflicts_with("quick"))
        .arg(
            value("rounds", "N")
                .value_parser(clap::value_parser!(u32).range(1..=1000))
                .help("Rounds [default: 5; quick 1, full 7]"),
        )
        .arg(switch("more", "Add the rounds to those the file already has"))
        .arg(
            value("engine", "LIST")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(configurations.to_vec())
                .help("Only these configurations"),
        );
    output_options(command)
        .arg(
            value("store-dir", "DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .default_value("/var/tmp")
                .help("Folder on a disk for swap file, mapped file and store"),
        )
        .arg(
            value("seed", "N")
                .value_parser(clap::value_parser!(u64))
                .default_value("1")
                .help("Seed of order and accesses"),
        )
}

/// What --quick, --full and --rounds mean.
pub fn effort(matches: &ArgMatches) -> (&'static str, u32) {
    let (word, rounds) = match (matches.get_flag("quick"), matches.get_flag("full")) {
        (true, _) => ("quick", 1),
        (_, true) => ("full", 7),
        _ => ("default", 5),
    };
    (word, matches.get_one::<u32>("rounds").copied().unwrap_or(rounds))
}

/// Those of all configurations that were asked for and can be had; notes why others cannot. Only
/// who was asked for is tried.
///
/// # Errors
/// None is left: one line.
pub fn choose<C: Copy>(
    matches: &ArgMatches,
    all: &[C],
    word: fn(C) -> &'static str,
    refusal: impl Fn(C) -> Option<String>,
) -> Result<(Vec<C>, Vec<String>)> {
    let asked: Vec<&String> = matches.get_many("engine").into_iter().flatten().collect();
    let is_asked = |one: C| asked.is_empty() || asked.iter().any(|asked| *asked == word(one));
    let (mut chosen, mut notes) = (Vec::new(), Vec::new());
    for &one in all.iter().filter(|one| is_asked(**one)) {
        match refusal(one) {
            None => chosen.push(one),
            Some(why) => notes.push(format!("{} left out: {why}", word(one))),
        }
    }
    if chosen.is_empty() {
        bail!("no engine is left to measure: {}", notes.join("; "));
    }
    Ok((chosen, notes))
}

pub fn seed(matches: &ArgMatches) -> u64 {
    *matches.get_one::<u64>("seed").unwrap_or(&1)
}

/// The folder of --store-dir.
///
/// # Errors
/// It is none: one line.
pub fn store_folder(matches: &ArgMatches) -> Result<PathBuf> {
    let store = matches.get_one::<PathBuf>("store-dir").cloned().unwrap_or_default();
    if !store.is_dir() {
        bail!("{} is no folder; name one on a disk with --store-dir", store.display());
    }
    Ok(std::path::absolute(&store)?)
}

/// Runs the rounds of one group of points, each of which is a run of its own; the recorder is still
/// to be closed.
///
/// # Errors
/// The file cannot be written: one line.
pub fn run_rounds<E: Executor>(
    matches: &ArgMatches,
    head: Head,
    notes: Vec<String>,
    executor: &mut E,
    (points, rounds, seconds): (Vec<Point<E::Op>>, u32, f64),
) -> Result<Recorder> {
    let folder = matches.get_one::<PathBuf>("dir").map_or(Path::new("."), PathBuf::as_path);
    let path = path_of(matches.get_one("json"), folder, head.experiment)?;
    let environment = Environment::observe();
    println!("{}", environment.summary());
    let (title, seed) = (head.experiment.to_string(), head.seed);
    let mut recorder = Recorder::open(&path, head, &environment, matches.get_flag("more"))?;
    notes.into_iter().for_each(|note| recorder.note(note));
    let blocks = vec![Block { points, budget: Budget::rounds(rounds) }];
    let rng = Rng::with_seed(seed.wrapping_add(u64::from(recorder.round)));
    let expected = seconds * f64::from(rounds);
    let mut progress = Progress::on_stderr(expected);
    Runner { executor, recorder: &mut recorder, progress: &mut progress, rng }.run(&[Group {
        title,
        targets: Vec::new(),
        blocks,
        expected,
    }]);
    Ok(recorder)
}
