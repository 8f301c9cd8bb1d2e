//! `odfork bench sessions`: one to four sessions in memory for about one, paged by the kernel, by
//! our pager, or swapped whole.
//!
//! The way of one number: `mode` sets up who pages, `op` starts the sessions and waits, `program`
//! is each process, `jobs` what it does; `tables` prints. The published experiment is the paper's
//! four-session script (figures 2 and 3).

mod jobs;
mod mode;
mod op;
pub mod program;
mod tables;

use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Result};
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches};

use crate::options::with_engines;
use crate::plan::Effort;
use crate::room;
use crate::rounds::{self, point, RoundOptions, Rounds, Site};
use crate::runner::Outcome;
use crate::suite::Suite;
use mode::{Mode, Settings, ALL};
use odfork_proc::interrupt;
use odfork_samples::environment::memory_available;
use op::Op;

pub const NAME: &str = "sessions";
pub const ROW: &str = "M24";
pub const QUESTION: &str =
    "How do throughput and the response of a trivial command fall with more \
     sessions than fit into memory?";
pub const PUBLISHED: &str = "paging degrades more linearly than swapping and keeps the trivial \
                             command's response low; system time 26 % against 20 % at the highest \
                             load (VAX, 1981)";
const MOST: u64 = 4;

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Most time of one point
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 90,
        value_parser = value_parser!(u64).range(1..=3600)
    )]
    patience: u64,
}

pub fn command() -> Command {
    with_engines::<Options>(Command::new(NAME).about(QUESTION), &mode::WORDS)
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

/// The experiment; returns the exit status.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let options = Options::from_arg_matches(matches)?;
    let common = &options.rounds.common;
    let site = Site::open()?;
    let settings = settings(&options, (&site.program, &site.folder))?;
    let (modes, notes) = common.choose(&ALL, Mode::word, Mode::refusal)?;
    let ops = modes.iter().flat_map(|&mode| (1..=MOST).map(move |sessions| Op { mode, sessions }));
    let sessions: u64 = ops.clone().map(|op| op.sessions).sum();
    let seconds = sessions as f64 * settings.bytes as f64 / f64::from(96 << 20) * 5.0;
    let points = ops.map(|op| point(op.mode.word(), settings.params(op.sessions), op)).collect();
    let default = [1, 3, 7][common.effort() as usize];
    let plan = Rounds { points, rounds: options.rounds.rounds.unwrap_or(default), seconds, notes };
    let recorder = rounds::run(&SUITE, &options.rounds, plan, |op| {
        let machine = (&site.parent, &site.journal);
        let reply = match op.mode.environment(&settings, machine, op.sessions) {
            Ok(environment) => op.run(&settings, &environment),
            Err(why) => Outcome::Refused(why).into(),
        };
        // Interrupted in the middle, a point has nothing that can be compared.
        if interrupt::asked() {
            Outcome::Interrupted.into()
        } else {
            reply
        }
    })?;
    print!("{}", tables::tables(&recorder.recording.samples, MOST));
    println!("published: {PUBLISHED}");
    recorder.close()
}

fn settings(options: &Options, (program, folder): (&Path, &Path)) -> Result<Settings> {
    // A third more than one session needs, as with the published one.
    let (bytes, limit) = match options.rounds.common.effort() {
        Effort::Quick => (24 << 20, 32 << 20),
        Effort::Full => (384 << 20, 512 << 20),
        Effort::Default => (96 << 20, 128 << 20),
    };
    let (needed, available) = (limit * 2 + (256 << 20), memory_available());
    if needed > available {
        bail!("{}; try --quick", room::words(needed, available));
    }
    let (program, folder) = (program.into(), folder.into());
    let timeout = Duration::from_secs(options.patience);
    Ok(Settings { program, bytes, limit, store: options.rounds.store()?, folder, timeout })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_one_session_and_not_two() {
        let try_settings = |line: &str| {
            let matches = command().get_matches_from(line.split(' '));
            let places = (Path::new("/bin/odfork"), Path::new("/tmp"));
            settings(&Options::from_arg_matches(&matches).unwrap(), places)
        };
        for line in ["sessions --quick --store-dir /tmp", "sessions --store-dir /tmp"] {
            let Settings { bytes, limit, .. } = try_settings(line).unwrap();
            assert!(bytes < limit && limit < 2 * bytes, "{line}");
        }
        assert!(try_settings("sessions --store-dir /no/folder").is_err());
    }
}
