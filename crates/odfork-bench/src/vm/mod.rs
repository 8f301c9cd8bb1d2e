//! `odfork bench vm`: a guest that has booted in an unmodified QEMU is forked for each input.
//!
//! The way of one number: `guest` makes the guest and what is preloaded into QEMU (`programs/`),
//! `machine` starts one and speaks with it, `trial` gives each arm's machine slices. `tables`
//! prints.

mod guest;
mod machine;
mod tables;
mod trial;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Error, Result};
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches};

use odfork_proc::text::{bytes, size};
use odfork_samples::environment::memory_available;

use crate::baselines::journal::Undo;
use crate::foreign::arms::{Arm, ArmOptions, WORDS};
use crate::foreign::make_folder;
use crate::foreign::seats::{in_turn, Seats};
use crate::measure::library;
use crate::options::with_engines;
use crate::plan::{params, Effort};
use crate::room::Room;
use crate::rounds::{finish, measure, RoundOptions, Site};
use crate::runner::{Block, Budget, Group};
use crate::suite::Suite;
use guest::Workshop;
use machine::{overhead, Case};
use trial::{Settings, Target, Trial};

const NAME: &str = "vm";
const ROW: &str = "M12";
const QUESTION: &str = "How many inputs a second does a forked virtual machine take?";
const PUBLISHED: &str = "TriforceAFL, a machine of 188 MB: 91 executions a second with fork, 145 \
                         with on-demand-fork (2021)";

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Memory that the guest fills [default: 192M; full 192M,1G]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = held)]
    held: Vec<u64>,
    /// Huge pages for the guest's memory, as QEMU asks for them [default: yes,no; quick no]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["yes", "no"])]
    huge: Vec<String>,
    /// Seconds of a slice [default: 5; quick 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// The guest's Linux [default: Debian's linux-image-cloud-amd64, fetched by apt]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Folder of what is made and fetched, which stays [default: DIR/vm-build]
    #[arg(long, value_name = "DIR")]
    build: Option<PathBuf>,
    #[command(flatten)]
    arms: ArmOptions,
}

fn command() -> Command {
    with_engines::<Options>(Command::new(NAME).about(QUESTION), &WORDS)
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

fn held(text: &str) -> Result<u64, String> {
    let fits = |bytes: &u64| (16 << 20..2 << 30).contains(bytes);
    bytes(text).ok().filter(fits).ok_or_else(|| "a size from 16M to below 2G is needed".into())
}

/// The experiment; returns the exit status.
fn run(matches: &ArgMatches) -> Result<u8> {
    let options = Options::from_arg_matches(matches)?;
    let common = &options.rounds.common;
    let site = Site::open()?;
    let (arms, mut notes) = options.arms.chosen(common, &library(&site.program))?;
    let (cases, left_out) = cases(&options, arms.len() as u64, memory_available())?;
    notes.extend(left_out);
    let folder = options.rounds.store()?.join(format!("odfork-vm-{}", std::process::id()));
    let _cleanup = site.journal.record(Undo::RemoveFolder(folder.clone()));
    make_folder(&folder, None).map_err(Error::msg)?;
    let build = options.build.clone().unwrap_or_else(|| common.dir.join("vm-build"));
    let workshop = Workshop::make(std::path::absolute(build)?, options.kernel.as_deref())?;
    let seconds = options.seconds.unwrap_or([2, 5, 10][common.effort() as usize]);
    let (odfork, slice) = (site.program.clone(), Duration::from_secs(seconds));
    let settings = Settings { odfork, workshop, folder, slice };
    let names = arms.iter().map(|arm| arm.name.to_owned()).collect();
    let groups: Vec<_> =
        cases.into_iter().map(|case| group(case, &arms, &options, seconds)).collect();
    let mut trial = Seats::new(Trial::new(&settings));
    let recorder = measure(&SUITE, &options.rounds, (names, notes), &groups, &mut trial)?;
    finish(recorder, Vec::new(), tables::tables)
}

/// What fits into memory, and why the rest does not.
fn cases(options: &Options, arms: u64, available: u64) -> Result<(Vec<Case>, Vec<String>)> {
    let effort = options.rounds.common.effort();
    let sizes = match (&options.held[..], effort) {
        ([], Effort::Full) => vec![192 << 20, 1 << 30],
        ([], _) => vec![192 << 20],
        (given, _) => given.to_vec(),
    };
    let huge: Vec<bool> = match (&options.huge[..], effort) {
        ([], Effort::Quick) => vec![false],
        ([], _) => vec![true, false],
        (given, _) => given.iter().map(|word| word == "yes").collect(),
    };
    let mut room = Room::new(available);
    // Each arm's machine, and what its child and a freeze take.
    let needed = |bytes: u64| (bytes + 2 * overhead(bytes)) * arms + bytes;
    let sizes = sizes.into_iter().filter(|&bytes| room.has(needed(bytes), &size(bytes)));
    let of_size = |bytes| huge.iter().map(move |&huge| Case { bytes, huge });
    let cases = sizes.flat_map(of_size).collect();
    room.rest(cases)
}

/// The machines of a case, and a slice of each in every round.
fn group(case: Case, arms: &[Arm], options: &Options, seconds: u64) -> Group<Target, ()> {
    let huge = if case.huge { "yes" } else { "no" };
    let place = params(&[("bytes", case.bytes.into()), ("huge", huge.into())]);
    let target = |arm: &Arm| Target { arm: arm.clone(), case };
    let points = in_turn(arms.iter().map(|arm| arm.name), &place, ());
    let default = [2, 12, 20][options.rounds.common.effort() as usize];
    let rounds = options.rounds.rounds.unwrap_or(default);
    let expected = (30.0 + (seconds * u64::from(rounds)) as f64) * points.len() as f64;
    let title = format!("{}, huge pages: {huge}", size(case.bytes));
    let blocks = vec![Block { points, budget: Budget::rounds(rounds) }];
    Group { title, targets: arms.iter().map(target).collect(), blocks, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_size_is_a_case_with_and_without_huge_pages() {
        let of = |line: &str| {
            let matches = command().get_matches_from(line.split(' '));
            Options::from_arg_matches(&matches).unwrap()
        };
        let (all, notes) = cases(&of("vm --held 64M,1G"), 3, 2 << 30).unwrap();
        assert_eq!(all, [true, false].map(|huge| Case { bytes: 64 << 20, huge }));
        assert!(notes[0].contains("1 GB left out"), "{notes:?}");
        assert_eq!(cases(&of("vm --quick"), 3, 4 << 30).unwrap().0.len(), 1);
        assert!(held("1M").is_err() && held("2G").is_err());
        let (arms, _) =
            of("vm").arms.chosen(&of("vm").rounds.common, Path::new("/bin/sh")).unwrap();
        let group = group(all[0], &arms, &of("vm"), 5);
        let places: Vec<_> = group.blocks[0].points.iter().map(|p| p.targets[0]).collect();
        assert_eq!((group.targets.len(), places), (3, vec![0, 1, 2]));
    }
}
