//! `odfork bench redis`: a server's requests while it makes snapshots, with stock fork and odfork.
//!
//! The way of one number: `trial` starts a server for each arm (`server`) and gives it a
//! slice of `load`, in which `snapshot` makes it fork; what that left is compared with `content`.
//! `tables` prints. `resp` is the servers' language.

mod content;
mod load;
mod resp;
mod server;
mod snapshot;
mod tables;
mod trial;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, Error, Result};
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches};

use odfork_proc::text::{bytes, size};
use odfork_samples::environment::memory_available;
use odfork_samples::samples::Params;
use odfork_samples::unit::Unit;

use crate::baselines::journal::Undo;
use crate::foreign::arms::{Arm, ArmOptions, WORDS};
use crate::foreign::seats::{in_turn, Seats};
use crate::foreign::user::User;
use crate::foreign::{found, make_folder};
use crate::measure::library;
use crate::options::with_engines;
use crate::plan::{params, Effort};
use crate::room::Room;
use crate::rounds::{finish, measure, RoundOptions, Site};
use crate::runner::{Block, Budget, Group};
use crate::suite::Suite;
use snapshot::Kind;
use trial::{Case, Settings, Target, Trial};

const NAME: &str = "redis";
const ROW: &str = "M11";
const QUESTION: &str = "How long do requests to a server wait while it makes snapshots?";
const PUBLISHED: &str =
    "1 GB, with fork and on-demand-fork: p99.9 6.34 and 4.80 ms, p99.99 16.3 and \
                         5.54 ms; fork 7.40 and 0.12 ms (2021)";

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Programs: names or paths
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "redis-server")]
    server: Vec<PathBuf>,
    /// Sizes of the data [default: 1G; quick 64M, full 1G,4G]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = data)]
    data: Vec<u64>,
    /// Sizes of a value [default: 700; full 64,700,4K,16K,64K]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value)]
    values: Vec<u64>,
    /// What makes the servers fork
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "bgsave,aof,sync",
          value_parser = ["bgsave", "aof", "sync"])]
    snapshots: Vec<String>,
    /// Writes between snapshots [default: 10000; quick 2000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(100..=100_000_000))]
    changes: Option<u64>,
    /// Writes a second [default: 24 MB of values, from 400 to 4000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=200_000))]
    rate: Option<u32>,
    /// The servers' setting of that name
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "yes",
          value_parser = ["yes", "no"])]
    disable_thp: Vec<String>,
    /// Who the servers run as
    #[arg(long, value_name = "NAME", value_parser = User::named)]
    user: Option<User>,
    /// Command that starts the servers: a container's, a filter's
    #[arg(long, value_name = "COMMAND")]
    through: Option<String>,
    #[command(flatten)]
    arms: ArmOptions,
}

fn command() -> Command {
    with_engines::<Options>(Command::new(NAME).about(QUESTION), &WORDS)
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

fn data(text: &str) -> Result<u64, String> {
    let fits = |bytes: &u64| (1 << 20..=1 << 40).contains(bytes);
    bytes(text).ok().filter(fits).ok_or_else(|| "a size from 1M on is needed".into())
}

fn value(text: &str) -> Result<u64, String> {
    let fits = |bytes: &u64| (1..=1 << 20).contains(bytes);
    bytes(text).ok().filter(fits).ok_or_else(|| "a size from 1 to 1M is needed".into())
}

/// The experiment; returns the exit status.
fn run(matches: &ArgMatches) -> Result<u8> {
    let options = Options::from_arg_matches(matches)?;
    let site = Site::open()?;
    let (arms, mut notes) = options.arms.chosen(&options.rounds.common, &library(&site.program))?;
    let (cases, left_out) = cases(&options, arms.len() as u64, memory_available())?;
    notes.extend(left_out);
    if let Err(why) = &site.parent {
        notes.push(format!("memory is not measured: {why}"));
    }
    let folder = options.rounds.store()?.join(format!("odfork-redis-{}", std::process::id()));
    let _cleanup = site.journal.record(Undo::RemoveFolder(folder.clone()));
    let settings = settings(&options, folder)?;
    make_folder(&settings.folder, settings.user.as_ref()).map_err(Error::msg)?;
    let names = arms.iter().map(|arm| arm.name.to_owned()).collect();
    let groups: Vec<_> = cases.iter().map(|case| group(case, &arms, &options, &settings)).collect();
    let mut trial = Seats::new(Trial::new(&site, &settings));
    let recorder = measure(&SUITE, &options.rounds, (names, notes), &groups, &mut trial)?;
    finish(recorder, trial.stand.whole.samples(), tables::tables)
}

/// Every combination that fits into memory, and why the others do not.
fn cases(options: &Options, arms: u64, available: u64) -> Result<(Vec<Case>, Vec<String>)> {
    let effort = options.rounds.common.effort();
    let or = |given: &[u64], default: [&[u64]; 3]| match given {
        [] => default[effort as usize].to_vec(),
        given => given.to_vec(),
    };
    let sizes = or(&options.values, [&[700], &[700], &[64, 700, 4 << 10, 16 << 10, 64 << 10]]);
    let data = or(&options.data, [&[64 << 20], &[1 << 30], &[1 << 30, 4 << 30]]);
    let (mut cases, mut room) = (Vec::new(), Room::new(available));
    for server in &options.server {
        let server = found(server, "the package of that name")?;
        for &bytes in &data {
            // Each server, copies on write, one that is read back, what is written meanwhile.
            if !room.has(bytes * (3 * arms + 5) / 2, &format!("{} of data", size(bytes))) {
                continue;
            }
            for disable_thp in &options.disable_thp {
                let disable_thp = if disable_thp == "yes" { "yes" } else { "no" };
                let case = |&size: &u64| Case {
                    server: server.clone(),
                    bytes,
                    size: size as usize,
                    disable_thp,
                };
                cases.extend(sizes.iter().map(case));
            }
        }
    }
    room.rest(cases)
}

fn settings(options: &Options, folder: PathBuf) -> Result<Settings> {
    if options.user.is_some() && !rustix::process::geteuid().is_root() {
        bail!("--user needs root");
    }
    let quick = options.rounds.common.effort() == Effort::Quick;
    let words = options.through.iter().flat_map(|text| text.split_whitespace());
    Ok(Settings {
        folder,
        through: words.map(OsString::from).collect(),
        user: options.user.clone(),
        changes: options.changes.unwrap_or(if quick { 2_000 } else { 10_000 }),
        rate: options.rate.map(f64::from),
        seed: options.rounds.common.seed,
    })
}

/// The servers of a case and the snapshots they make, one kind after the other.
fn group(case: &Case, arms: &[Arm], options: &Options, settings: &Settings) -> Group<Target, Kind> {
    let target = |arm: &Arm| Target { arm: arm.clone(), case: case.clone() };
    let rounds =
        options.rounds.rounds.unwrap_or([2, 10, 20][options.rounds.common.effort() as usize]);
    let slice = settings.changes as f64 / trial::rate(settings, case.size);
    let (mut blocks, mut expected) = (Vec::new(), case.bytes as f64 / 2e8 * arms.len() as f64);
    let wanted = |kind: &Kind| options.snapshots.iter().any(|word| word == kind.word());
    for kind in Kind::ALL.into_iter().filter(wanted) {
        let rounds = if kind == Kind::Dump { rounds } else { rounds.div_ceil(3) };
        let names = arms.iter().map(|arm| arm.name);
        let points = in_turn(names, &params_of(case, kind, options), kind);
        let each = slice.max(case.bytes as f64 / 2e8) + case.bytes as f64 / 1e8;
        expected += each * f64::from(rounds) * points.len() as f64;
        blocks.push(Block { points, budget: Budget::rounds(rounds) });
    }
    let title = format!("{}, values of {}", size(case.bytes), Unit::Bytes.write(case.size as f64));
    Group { title, targets: arms.iter().map(target).collect(), blocks, expected }
}

/// Of every sample.
fn params_of(case: &Case, kind: Kind, options: &Options) -> Params {
    let user = options.user.as_ref().map_or("", |user| &user.name);
    let server = case.server.file_name().unwrap_or_default().to_string_lossy();
    params(&[
        ("server", server.into_owned().into()),
        ("bytes", case.bytes.into()),
        ("value", case.size.into()),
        ("snapshot", kind.word().into()),
        ("user", user.into()),
        ("through", options.through.as_deref().unwrap_or("").into()),
        ("disable-thp", case.disable_thp.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn options(line: &str) -> Options {
        let matches = command().get_matches_from(line.split(' '));
        Options::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn every_combination_is_a_case_and_what_does_not_fit_is_said() {
        let options =
            options("redis --server /bin/sh --data 1M,900G --values 64,64K --disable-thp yes,no");
        let (cases, notes) = cases(&options, 3, 64 << 30).unwrap();
        assert_eq!((cases.len(), notes.len()), (4, 1));
        assert!(cases.iter().all(|case| case.bytes == 1 << 20), "{cases:?}");
    }

    #[test]
    fn every_arm_has_a_server_and_its_turn_in_each_block() {
        let options = options("redis --quick --snapshots bgsave,sync --server /bin/sh");
        let (arms, _) = options.arms.chosen(&options.rounds.common, Path::new("/bin/sh")).unwrap();
        let (cases, _) = cases(&options, 3, 64 << 30).unwrap();
        let settings = settings(&options, "/nowhere".into()).unwrap();
        let group = group(&cases[0], &arms, &options, &settings);
        assert_eq!((group.targets.len(), group.blocks.len()), (3, 2));
        for block in &group.blocks {
            let places: Vec<_> = block.points.iter().map(|point| point.targets[0]).collect();
            assert_eq!(places, [0, 1, 2]);
        }
    }
}
