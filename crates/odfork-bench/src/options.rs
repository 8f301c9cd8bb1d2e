//! Options that suites share, and what follows from them.

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};

use crate::configuration::Configuration;
use crate::progress::Progress;
use crate::recorder::{path_of, Head, Recorder};
use crate::runner::{Block, Budget, Executor, Group, Point, Runner};
use odfork_samples::environment::Environment;
use odfork_samples::stats::Rng;

const FOLDER: &str = "odfork-results";

/// An option without a value.
pub fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// An option with a value.
pub fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Where an experiment writes its samples.
pub fn output_options(command: Command) -> Command {
    let path = || value_parser!(PathBuf);
    let json = "Write the samples (JSON Lines) here instead of DIR/NAME.jsonl";
    command.arg(option("json", "FILE", json).value_parser(path())).arg(
        option("dir", "DIR", "Folder of the sample files")
            .value_parser(path())
            .default_value(FOLDER),
    )
}

/// Options of every suite that asks subjects.
pub fn subject_options(command: Command) -> Command {
    let full = switch("full", "The published scale, as far as memory goes");
    let engines = option("engine", "LIST", "Only these configurations")
        .value_delimiter(',')
        .action(ArgAction::Append)
        .value_parser(Configuration::ALL.map(Configuration::word).to_vec());
    let stretch = option("stretch", "N", "Take N times as long: an emulated guest needs 10")
        .value_parser(value_parser!(u32).range(1..=1000))
        .default_value("1");
    let command = command
        .arg(switch("quick", "Small sizes, few rounds: shows that it runs"))
        .arg(full.conflicts_with("quick"))
        .arg(engines);
    output_options(command)
        .arg(
            option("image", "IMAGE", "Which backing file the configuration 'image' uses")
                .value_parser(["auto", "huge", "small"]),
        )
        .arg(seed_option("Seed of the random order"))
        .arg(stretch)
        .arg(switch("unpinned", "Let subjects run on any processor"))
}

pub fn seed_option(help: &'static str) -> Arg {
    option("seed", "N", help).value_parser(value_parser!(u64)).default_value("1")
}

pub fn seed(matches: &ArgMatches) -> u64 {
    *matches.get_one::<u64>("seed").unwrap_or(&1)
}

/// The folder of the sample files.
pub fn folder(matches: &ArgMatches) -> &Path {
    matches.get_one::<PathBuf>("dir").map_or(Path::new(FOLDER), PathBuf::as_path)
}

/// Options of experiments that run in rounds; `configurations` are the words of `--engine`.
pub fn round_options(command: Command, configurations: &'static [&'static str]) -> Command {
    let rounds = option("rounds", "N", "Rounds [default: 5; quick 1, full 7]")
        .value_parser(value_parser!(u32).range(1..=1000));
    let engines = option("engine", "LIST", "Only these configurations")
        .value_delimiter(',')
        .action(ArgAction::Append)
        .value_parser(configurations.to_vec());
    let store = "Folder on a disk for swap file, mapped file and store";
    let command = command
        .arg(switch("quick", "Small sizes, one round: shows that it runs"))
        .arg(switch("full", "Large sizes, more rounds").conflicts_with("quick"))
        .arg(rounds)
        .arg(switch("more", "Add the rounds to those the file already has"))
        .arg(engines);
    output_options(command)
        .arg(
            option("store-dir", "DIR", store)
                .value_parser(value_parser!(PathBuf))
                .default_value("/var/tmp"),
        )
        .arg(seed_option("Seed of order and accesses"))
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
        bail!("no configuration is left to measure: {}", notes.join("; "));
    }
    Ok((chosen, notes))
}

/// The folder of --store-dir.
pub fn store_folder(matches: &ArgMatches) -> Result<PathBuf> {
    let store = matches.get_one::<PathBuf>("store-dir").cloned().unwrap_or_default();
    if !store.is_dir() {
        bail!("{} is no folder; name one on a disk with --store-dir", store.display());
    }
    Ok(std::path::absolute(&store)?)
}

/// Runs the rounds of one group of points, each of which is a run of its own; the recorder is still
/// to be closed.
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
