//! `odfork bench afl`: executions a second of AFL++ on a target that holds a database in memory,
//! with stock fork, odfork, and many executions in one process.
//!
//! The way of one number: `target` compiles the programs of `programs/`, `trial` starts a `fuzzer`
//! for each arm and gives it slices, `replay` runs what it saved once more. `tables` prints.

mod fuzzer;
mod replay;
mod server;
mod tables;
mod target;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches};

use odfork_proc::text::{bytes, size};
use odfork_samples::environment::memory_available;
use odfork_samples::samples::Params;

use crate::baselines::journal::Undo;
use crate::configuration::Configuration;
use crate::foreign::arms::{named, LIVE};
use crate::foreign::found;
use crate::foreign::seats::{in_turn, Seats};
use crate::measure::library;
use crate::options::with_engines;
use crate::plan::{params, Effort};
use crate::room::Room;
use crate::rounds::{finish, measure, RoundOptions, Site};
use crate::runner::{Block, Budget, Group};
use crate::suite::Suite;
use target::{Case, Workshop, PACKAGE};
use trial::{Arm, Settings, Target, Trial};

const NAME: &str = "afl";
const ROW: &str = "M09";
const QUESTION: &str = "How many executions a second does a fuzzer reach on a database in memory?";
const PUBLISHED: &str = "AFL on SQLite with 1 GB: 63 executions a second with fork, 206 with \
                         on-demand-fork (2021)";

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();
/// Executions in one process of the arm `persistent`, as AFL's documents advise.
const LOOPS: u32 = 1000;
/// Arms with a name of their own: name, configuration, a variable, executions in one process.
type Known = (&'static str, Configuration, Option<(&'static str, &'static str)>, u32);
const ARMS: [Known; 5] = [
    ("plain", Configuration::Plain, None, 1),
    ("eager", Configuration::Image, Some(("ODFORK_FREEZE", "eager")), 1),
    ("persistent", Configuration::Plain, None, LOOPS),
    (LIVE, Configuration::Image, Some(("ODFORK_PROFILE", "live")), 1),
    ("kernel", Configuration::Kernel, None, 1),
];

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Sizes of the database, 0 for a program without [default: 0,256M,1G; quick 0,64M]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = database)]
    size: Vec<u64>,
    /// Seconds of a slice [default: 10; quick 3]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Folder of sqlite3.c and sqlite3.h [default: the crate libsqlite3-sys, by cargo]
    #[arg(long, value_name = "DIR")]
    sqlite: Option<PathBuf>,
    /// Folder of compiled targets, which stay [default: DIR/afl-build]
    #[arg(long, value_name = "DIR")]
    build: Option<PathBuf>,
    /// Targets with AddressSanitizer; freed memory stays with them
    #[arg(long)]
    asan: bool,
    /// One more arm: odfork with these variables
    #[arg(long, value_name = "NAME=VARIABLES", value_parser = arm)]
    arm: Vec<Arm>,
}

fn command() -> Command {
    with_engines::<Options>(Command::new(NAME).about(QUESTION), &ARMS.map(|(name, ..)| name))
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

fn database(text: &str) -> Result<u64, String> {
    let fits = |bytes: &u64| *bytes == 0 || (1 << 20..=1 << 40).contains(bytes);
    bytes(text).ok().filter(fits).ok_or_else(|| "0 or a size from 1M on is needed".into())
}

/// "NAME=VARIABLE=VALUE VARIABLE=VALUE"
fn arm(text: &str) -> Result<Arm, String> {
    let (name, words) = named(text, &ARMS.map(|(name, ..)| name))?;
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').ok_or(format!("{word:?} is not NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let variables = words.split_whitespace().map(pair).collect::<Result<_, String>>()?;
    Ok(Arm { name, configuration: Configuration::Image, variables, loops: 1 })
}

/// The experiment; returns the exit status.
fn run(matches: &ArgMatches) -> Result<u8> {
    let options = Options::from_arg_matches(matches)?;
    let site = Site::open()?;
    let folder = options.rounds.store()?.join(format!("odfork-afl-{}", std::process::id()));
    let settings = settings(&options, &site.program, folder)?;
    let (arms, mut notes) = arms(&options, &settings.library)?;
    let (cases, left_out) = cases(&options, arms.len() as u64, memory_available())?;
    notes.extend(left_out);
    let _cleanup = site.journal.record(Undo::RemoveFolder(settings.folder.clone()));
    let names = arms.iter().map(|arm| arm.name.to_owned()).collect();
    let groups: Vec<_> = cases.iter().map(|&case| group(case, &arms, &options)).collect();
    let mut trial = Seats::new(Trial::new(&settings));
    let recorder = measure(&SUITE, &options.rounds, (names, notes), &groups, &mut trial)?;
    finish(recorder, trial.stand.findings, tables::tables)
}

fn settings(options: &Options, program: &Path, folder: PathBuf) -> Result<Settings> {
    let common = &options.rounds.common;
    let quick = common.effort() == Effort::Quick;
    let build = options.build.clone().unwrap_or_else(|| common.dir.join("afl-build"));
    let library = library(program);
    Ok(Settings {
        odfork: program.into(),
        library,
        fuzz: found(Path::new("afl-fuzz"), PACKAGE)?,
        folder,
        workshop: Workshop {
            folder: std::path::absolute(if options.asan { build.join("asan") } else { build })?,
            asan: options.asan,
            sqlite: options.sqlite.clone(),
            // Compiling SQLite well takes a minute, and quick rates mean nothing.
            optimise: if quick { "-O0" } else { "-O2" },
        },
        slice: Duration::from_secs(options.seconds.unwrap_or(slice(common.effort()))),
        compared: if quick { 20 } else { 200 },
        seed: common.seed,
    })
}

/// Seconds.
fn slice(effort: Effort) -> u64 {
    [3, 10, 20][effort as usize]
}

fn arms(options: &Options, library: &Path) -> Result<(Vec<Arm>, Vec<String>)> {
    let common = &options.rounds.common;
    let known = |(name, configuration, variable, loops): Known| {
        let variables = variable.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Arm { name, configuration, variables: variables.into_iter().collect(), loops }
    };
    let all: Vec<_> =
        ARMS.into_iter().filter(|one| one.0 != LIVE || common.asks_for(LIVE)).collect();
    let (chosen, notes) = common.choose(&all, |one| one.0, |one| one.1.refusal(library))?;
    let mut arms: Vec<Arm> = chosen.into_iter().map(known).collect();
    arms.extend(options.arm.iter().cloned());
    Ok((arms, notes))
}

/// What fits into memory, and why the rest does not.
fn cases(options: &Options, arms: u64, available: u64) -> Result<(Vec<Case>, Vec<String>)> {
    let sizes = match (&options.size[..], options.rounds.common.effort()) {
        ([], Effort::Quick) => vec![0, 64 << 20],
        ([], Effort::Default) => vec![0, 256 << 20, 1 << 30],
        ([], Effort::Full) => vec![0, 256 << 20, 1 << 30, 4 << 30],
        (given, _) => given.to_vec(),
    };
    let mut room = Room::new(available);
    // Each arm's target, what replays what was found, and room to freeze one.
    let fits = |bytes: &u64| room.has(bytes / 4 * (5 * arms + 10), &size(*bytes));
    let cases = sizes.into_iter().filter(fits).map(|bytes| Case { bytes }).collect();
    room.rest(cases)
}

/// The fuzzers of a case, and a slice of each in every round.
fn group(case: Case, arms: &[Arm], options: &Options) -> Group<Target, ()> {
    let effort = options.rounds.common.effort();
    let mut place: Params = params(&[("target", case.word().into()), ("bytes", case.bytes.into())]);
    if options.asan {
        place.insert("sanitizer".into(), "address".into());
    }
    let target = |arm: &Arm| Target { arm: arm.clone(), case, params: place.clone() };
    let points = in_turn(arms.iter().map(|arm| arm.name), &place, ());
    let rounds = options.rounds.rounds.unwrap_or([2, 12, 20][effort as usize]);
    let each = options.seconds.unwrap_or(slice(effort)) as f64;
    let start = 5.0 + case.bytes as f64 / 5e7;
    let expected = (start * 2.0 + each * f64::from(rounds)) * points.len() as f64;
    let title = if case.bytes == 0 { "small".into() } else { size(case.bytes) };
    let blocks = vec![Block { points, budget: Budget::rounds(rounds) }];
    Group { title, targets: arms.iter().map(target).collect(), blocks, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        let matches = command().get_matches_from(line.split(' '));
        Options::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn sizes_are_cases_and_what_does_not_fit_is_said() {
        let chosen = cases(&options("afl --size 0,64M,4G"), 3, 4 << 30).unwrap();
        assert_eq!(chosen.0, [Case { bytes: 0 }, Case { bytes: 64 << 20 }]);
        assert!(chosen.1[0].contains("4 GB left out"), "{:?}", chosen.1);
        assert!(cases(&options("afl --size 4G"), 3, 4 << 30).is_err());
        assert_eq!(cases(&options("afl --quick"), 3, 4 << 30).unwrap().0.len(), 2);
        assert!(database("1").is_err() && database("0") == Ok(0));
    }

    #[test]
    fn arms_are_the_known_ones_and_those_that_are_named() {
        let options = options("afl --engine plain,eager --arm auto= --arm a=ODFORK_IMAGE=small");
        let (arms, _) = arms(&options, Path::new("/bin/sh")).unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["plain", "eager", "auto", "a"]);
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!(arms[1].variables, pair("ODFORK_FREEZE", "eager"));
        assert_eq!((arms[2].configuration, arms[2].variables.len()), (Configuration::Image, 0));
        assert_eq!(arms[3].variables, pair("ODFORK_IMAGE", "small"));
        assert!(arm("plain=").is_err() && arm("n=word").is_err());
    }

    #[test]
    fn every_arm_has_a_fuzzer_and_a_slice_in_each_round() {
        let options = options("afl --engine plain,eager,persistent --quick --size 64M --arm auto=");
        let (arms, _) = arms(&options, Path::new("/bin/sh")).unwrap();
        let group = group(Case { bytes: 64 << 20 }, &arms, &options);
        assert_eq!(group.targets.len(), 4);
        let places: Vec<_> = group.blocks[0].points.iter().map(|p| p.targets[0]).collect();
        assert_eq!(places, [0, 1, 2, 3]);
        assert_eq!(group.blocks[0].budget.at_most, 2);
        assert!(!group.blocks[0].points[0].params.contains_key("sanitizer"));
    }
}
