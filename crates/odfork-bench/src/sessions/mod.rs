//! `odfork bench sessions`: one to four sessions in memory for about one, paged by the kernel, by our
//! pager, or swapped whole.
//!
//! The way of one number: `mode` sets up who pages, `op` starts the sessions and waits, `program`
//! is each process, `jobs` what it does; `tables` prints. The published experiment is the paper's
//! four-session script (figures 2 and 3).

mod jobs;
mod mode;
mod op;
pub mod program;
mod tables;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgMatches, Command};

use crate::baselines::cgroup::Parent;
use crate::baselines::journal::Journal;
use crate::options::{choose, effort, round_options, run_rounds, seed, store_folder};
use crate::recorder::Head;
use crate::runner::{Executor, Outcome, Point, Reply};
use crate::suite::Suite;
use mode::{Mode, Settings, ALL};
use odfork_proc::interrupt;
use odfork_samples::environment::memory_available;
use op::Op;

pub const NAME: &str = "sessions";
pub const ROW: &str = "M24";
pub const QUESTION: &str = "How do throughput and the response of a trivial command fall with more sessions than fit into memory?";
pub const PUBLISHED: &str = "paging degrades more linearly than swapping and keeps the trivial command's response low; system time 26 % against 20 % at the highest load (VAX, 1981)";
const MOST: u64 = 4;

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

pub fn command() -> Command {
    round_options(Command::new(NAME).about(QUESTION), &mode::WORDS)
        .arg(
            Arg::new("patience")
                .long("patience")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64).range(1..=3600))
                .default_value("90")
                .help("Most time of one point"),
        )
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

/// The experiment; returns the exit status.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let (effort, rounds) = effort(matches);
    let rounds =
        if effort == "default" && matches.get_one::<u32>("rounds").is_none() { 3 } else { rounds };
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    interrupt::listen();
    let journal = Journal::open(&program).map_err(anyhow::Error::msg)?;
    let (folder, _folder) = journal.folder().map_err(anyhow::Error::msg)?;
    let settings = settings(matches, effort, (program, folder))?;
    let (modes, notes) = choose(matches, &ALL, Mode::word, Mode::refusal)?;
    let seed = seed(matches);
    let engines = modes.iter().map(|mode| mode.word().to_string()).collect();
    let head = Head { experiment: NAME, row: ROW, effort, engines, seed };
    let points = modes.iter().flat_map(|&mode| (1..=MOST).map(move |count| (mode, count)));
    let points: Vec<Point<Op>> = points
        .map(|(mode, sessions)| Point {
            engine: mode.word(),
            targets: Vec::new(),
            params: settings.params(sessions),
            op: Op { mode, sessions },
        })
        .collect();
    let sessions: u64 = points.iter().map(|point| point.op.sessions).sum();
    let seconds = sessions as f64 * settings.bytes as f64 / f64::from(96 << 20) * 5.0;
    let mut environments =
        Environments { settings, journal, parent: Parent::find(), begun: Instant::now() };
    let recorder = run_rounds(matches, head, notes, &mut environments, (points, rounds, seconds))?;
    print!("{}", tables::tables(&recorder.recording.samples, MOST));
    println!("published: {PUBLISHED}");
    recorder.close()
}

fn settings(
    matches: &ArgMatches,
    effort: &str,
    (program, folder): (PathBuf, PathBuf),
) -> Result<Settings> {
    // A third more than one session needs, as with the published one.
    let (bytes, limit) = match effort {
        "quick" => (24 << 20, 32 << 20),
        "full" => (384 << 20, 512 << 20),
        _ => (96 << 20, 128 << 20),
    };
    let (needed, available) = (limit * 2 + (256 << 20), memory_available());
    if needed > available {
        let (needed, available) = (needed >> 20, available >> 20);
        bail!("{needed} MB of memory are needed and {available} MB are available; try --quick");
    }
    let store = store_folder(matches)?;
    let timeout = Duration::from_secs(*matches.get_one::<u64>("patience").unwrap_or(&90));
    Ok(Settings { program, bytes, limit, store, folder, timeout })
}

struct Environments {
    settings: Settings,
    journal: Journal,
    parent: Result<Parent, String>,
    begun: Instant,
}

impl Executor for Environments {
    type Target = ();
    type Op = Op;

    fn perform(&mut self, point: &Point<Op>, _round: u32) -> Reply {
        let machine = (&self.parent, &self.journal);
        let Op { mode, sessions } = point.op;
        let reply = match mode.environment(&self.settings, machine, sessions) {
            Ok(environment) => point.op.run(&self.settings, &environment),
            Err(why) => Outcome::Refused(why).into(),
        };
        // Interrupted in the middle, a point has nothing that can be compared.
        if self.interrupted() {
            Outcome::Interrupted.into()
        } else {
            reply
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound_and_memory_holds_one_session_and_not_two() {
        command().debug_assert();
        for line in ["sessions --quick --store-dir /tmp", "sessions --store-dir /tmp"] {
            let matches = command().get_matches_from(line.split(' '));
            let places = ("/bin/odfork".into(), "/tmp".into());
            let settings = settings(&matches, effort(&matches).0, places).unwrap();
            assert!(
                settings.bytes < settings.limit && settings.limit < 2 * settings.bytes,
                "{line}"
            );
        }
        let nowhere = command().get_matches_from(["sessions", "--store-dir", "/no/folder"]);
        assert!(settings(&nowhere, "quick", ("/bin/odfork".into(), "/tmp".into())).is_err());
    }
}
