//! `odfork bench apache` and `odfork bench postgres`: servers with a process for each connection,
//! which fork from a small parent. They gain nothing; they must lose nothing.
//!
//! The way of one number: `trial` starts a server for each arm (`apache`, `postgres`, both a
//! `service`) and gives it slices of load. `tables` prints.

mod apache;
mod postgres;
mod service;
mod tables;
mod trial;

use std::path::PathBuf;

use anyhow::{Error, Result};
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches};

use odfork_samples::environment::last_cpu;

use crate::baselines::journal::Undo;
use crate::foreign::arms::{Arm, ArmOptions, WORDS};
use crate::foreign::make_folder;
use crate::foreign::open_loop::Schedule;
use crate::foreign::seats::{in_turn, Seats};
use crate::measure::library;
use crate::options::with_engines;
use crate::plan::params;
use crate::rounds::{finish, measure, RoundOptions, Site};
use crate::runner::{Block, Budget, Group};
use crate::suite::Suite;
use crate::workload::pin;
use trial::{Kind, Settings, Trial};

const ROW: &str = "M13";
const APACHE: &str = "How long do requests to Apache's prefork server take?";
const POSTGRES: &str = "How long does a transaction take whose connection PostgreSQL forks for?";
const OF_APACHE: &str = "fork 34.3 us and on-demand-fork 33.7 us on average (2021)";
const OF_POSTGRES: &str = "nothing";

pub static APACHE_SUITE: Suite = Suite::own(
    ["apache", ROW, APACHE, OF_APACHE],
    || command(Kind::Apache),
    |matches| run(Kind::Apache, matches),
);
pub static POSTGRES_SUITE: Suite = Suite::own(
    ["postgres", ROW, POSTGRES, OF_POSTGRES],
    || command(Kind::Postgres),
    |matches| run(Kind::Postgres, matches),
);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Seconds of a slice [default: apache 2, postgres 5; quick 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Connections a second [default: apache 400, postgres 30]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Let Apache and its load run on any processor, not on the last one alone
    #[arg(long)]
    unpinned: bool,
    #[command(flatten)]
    arms: ArmOptions,
}

fn suite(kind: Kind) -> &'static Suite {
    match kind {
        Kind::Apache => &APACHE_SUITE,
        Kind::Postgres => &POSTGRES_SUITE,
    }
}

fn command(kind: Kind) -> Command {
    let suite = suite(kind);
    let command = Command::new(suite.name).about(suite.question);
    let text = EXAMPLES.replace("SUITE", suite.name);
    with_engines::<Options>(command, &WORDS)
        .after_help(format!("{text}\n\nPublished: {}", suite.published))
}

/// The experiment; returns the exit status.
fn run(kind: Kind, matches: &ArgMatches) -> Result<u8> {
    let options = Options::from_arg_matches(matches)?;
    let tools = kind.tools()?;
    let site = Site::open()?;
    let (arms, notes) = options.arms.chosen(&options.rounds.common, &library(&site.program))?;
    if kind.is_pinned() && !options.unpinned {
        // The servers and the threads of the load inherit it.
        pin(last_cpu());
    }
    let name = format!("odfork-{}-{}", kind.word(), std::process::id());
    let folder = options.rounds.store()?.join(name);
    let _cleanup = site.journal.record(Undo::RemoveFolder(folder.clone()));
    make_folder(&folder, None).map_err(Error::msg)?;
    let settings = settings(kind, &options, (&site, tools, folder));
    let names = arms.iter().map(|arm| arm.name.to_owned()).collect();
    let group = group(arms, &options, &settings);
    let mut trial = Seats::new(Trial::new(&settings));
    let recorder = measure(suite(kind), &options.rounds, (names, notes), &[group], &mut trial)?;
    finish(recorder, trial.stand.whole.samples(), tables::tables)
}

fn settings(kind: Kind, options: &Options, place: (&Site, PathBuf, PathBuf)) -> Settings {
    let (site, tools, folder) = place;
    let effort = options.rounds.common.effort() as usize;
    let seconds = options.seconds.unwrap_or(kind.seconds()[effort]);
    let rate = options.rate.unwrap_or(kind.rate());
    let (rate, requests) = (f64::from(rate), u64::from(rate) * u64::from(seconds));
    let schedule = Schedule { rate, requests, clients: kind.clients() };
    let (odfork, seed) = (site.program.clone(), options.rounds.common.seed);
    Settings { kind, odfork, tools, folder, schedule, seed }
}

/// The servers, and a slice of load for each in every round.
fn group(arms: Vec<Arm>, options: &Options, settings: &Settings) -> Group<Arm, ()> {
    let Schedule { rate, requests, .. } = settings.schedule;
    let place = params(&[("rate", rate.into()), ("requests", requests.into())]);
    let points = in_turn(arms.iter().map(|arm| arm.name), &place, ());
    let default = settings.kind.rounds()[options.rounds.common.effort() as usize];
    let rounds = options.rounds.rounds.unwrap_or(default);
    let each = requests as f64 / rate * f64::from(rounds) + 5.0;
    let expected = each * points.len() as f64;
    let blocks = vec![Block { points, budget: Budget::rounds(rounds) }];
    Group { title: settings.kind.word().into(), targets: arms, blocks, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_arm_has_a_server_and_a_slice_in_each_round() {
        let words = "apache --quick --rate 30 --arm small=--image";
        let matches = command(Kind::Apache).get_matches_from(words.split(' '));
        let options = Options::from_arg_matches(&matches).unwrap();
        let (arms, _) = options.arms.chosen(&options.rounds.common, Path::new("/bin/sh")).unwrap();
        let schedule = Schedule { rate: 30.0, requests: 60, clients: 1 };
        let (kind, nowhere) = (Kind::Apache, PathBuf::new());
        let (odfork, tools) = (nowhere.clone(), nowhere.clone());
        let settings = Settings { kind, odfork, tools, folder: nowhere, schedule, seed: 1 };
        let group = group(arms, &options, &settings);
        assert_eq!(group.targets.len(), 4);
        let places: Vec<_> = group.blocks[0].points.iter().map(|p| p.targets[0]).collect();
        assert_eq!(places, [0, 1, 2, 3]);
        assert_eq!(group.blocks[0].budget.at_most, 2);
    }
}
