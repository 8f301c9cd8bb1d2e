//! `odfork bench sessions`: one to four sessions in memory for about one, paged by the kernel, by our pager, or swapped whole.
//!
//! The way of one number: `stage` sets up who pages, `cell` starts the sessions and waits, `program` is each process, `jobs`
//! what it does; `screen` prints. The published experiment is the paper's four-session script (figures 2 and 3).

mod cell;
mod jobs;
pub mod program;
mod screen;
mod slab;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgMatches, Command};
use serde_json::json;

use crate::paging::log::{Head, Log};
use crate::paging::{choose, effort, open_log, seed, shared_options, temporary_folder};
use crate::peers::group::Place;
use crate::peers::ledger::Shared;
use crate::progress::Progress;
use odfork_proc::interrupt;
use odfork_samples::environment::memory_available;
use odfork_samples::samples::Params;
use odfork_samples::stats::Rng;
pub use stage::WORDS;
use stage::{Site, Way, ALL};

pub const NAME: &str = "sessions";
pub const ROW: &str = "M24";
pub const QUESTION: &str = "How do throughput and the response of a trivial command fall with more sessions than fit into memory?";
pub const PUBLISHED: &str = "paging degrades more linearly than swapping and keeps the trivial command's response low; system time 26 % against 20 % at the highest load (VAX, 1981)";
const MOST: u64 = 4;

const EXAMPLES: &str = "\
Examples:
  odfork bench sessions                   3 rounds, 1 to 4 sessions: 8 minutes
  odfork bench sessions --quick           24 MB each in 32 MB, one round: 1 minute
  odfork bench sessions --rounds 1 --more one round more in the same file

A session is a compile, a sort and a garbage-collecting program one after the
other, and a trivial command every 100 ms. Engines: kernel (memory limit and
swap file), pager (the same limit), swapping (one whole session at a time in
memory, the others stopped). kernel and swapping need root.

Exit status: 0 whatever the times are, 1 when a result was wrong, 2 when it
could not run, 130 when interrupted (what was measured is kept).";

pub fn command() -> Command {
    shared_options(Command::new(NAME).about(format!("{QUESTION} ({ROW})")), &WORDS)
        .arg(
            Arg::new("patience")
                .long("patience")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64).range(1..=3600))
                .default_value("90")
                .help("Most time of one cell"),
        )
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

/// The experiment; returns the exit status.
///
/// # Errors
/// Nothing can be measured: one line.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let (effort, rounds) = effort(matches);
    let rounds =
        if effort == "default" && matches.get_one::<u32>("rounds").is_none() { 3 } else { rounds };
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    interrupt::listen();
    let ledger = Shared::open(&program).map_err(anyhow::Error::msg)?;
    let (office, _office) = temporary_folder(&ledger)?;
    let site = site(matches, effort, (program, office))?;
    let (ways, notes) = choose(matches, &ALL, Way::from_word, Way::word, Way::refusal)?;
    let seed = seed(matches);
    let engines = ways.iter().map(|way| way.word().to_string()).collect();
    let head = Head { experiment: NAME, row: ROW, effort, engines, seed };
    let mut log = open_log(matches, &head, notes)?;
    let interrupted = measure(&site, (rounds, seed), &ways, (&ledger, &mut log));
    print!("{}", screen::tables(&log.samples, MOST));
    println!("published: {PUBLISHED}");
    log.finish(interrupted)
}

fn site(matches: &ArgMatches, effort: &str, (program, office): (PathBuf, PathBuf)) -> Result<Site> {
    // A third more than one session needs, as with the published one.
    let (bytes, limit) = match effort {
        "quick" => (24 << 20, 32 << 20),
        "full" => (384 << 20, 512 << 20),
        _ => (96 << 20, 128 << 20),
    };
    let (needed, available) = (limit * 2 + (256 << 20), memory_available());
    if needed > available {
        bail!(
            "{} MB of memory are needed and {} MB are available; try --quick",
            needed >> 20,
            available >> 20
        );
    }
    let store = matches.get_one::<PathBuf>("store-dir").cloned().unwrap_or_default();
    if !store.is_dir() {
        bail!("{} is no folder; name one on a disk with --store-dir", store.display());
    }
    let patience = Duration::from_secs(*matches.get_one::<u64>("patience").unwrap_or(&90));
    Ok(Site { program, bytes, limit, store: std::path::absolute(&store)?, office, patience })
}

/// All rounds, every cell of a round in random order; whether they were interrupted.
fn measure(
    site: &Site,
    (rounds, seed): (u32, u64),
    ways: &[Way],
    (ledger, log): (&Shared, &mut Log),
) -> bool {
    let place = Place::find();
    let mut rng = Rng::with_seed(seed.wrapping_add(u64::from(log.round)));
    let mut cells: Vec<(Way, u64)> =
        ways.iter().flat_map(|&way| (1..=MOST).map(move |sessions| (way, sessions))).collect();
    let cost = |sessions: u64| sessions as f64 * site.bytes as f64 / f64::from(96 << 20) * 5.0;
    let planned: f64 = cells.iter().map(|cell| cost(cell.1)).sum::<f64>() * f64::from(rounds);
    let mut progress = Progress::on_stderr(planned);
    for _ in 0..rounds {
        log.round += 1;
        rng.shuffle(&mut cells);
        for (way, sessions) in cells.clone() {
            if interrupt::asked() {
                progress.clear();
                return true;
            }
            progress.begin(
                &format!("round {}: {}, {sessions} sessions", log.round, way.word()),
                cost(sessions),
            );
            let outcome = cell::run(way, site, sessions, (&place, ledger));
            progress.end();
            if !take(site, (way, sessions), outcome, log) {
                cells.retain(|(other, _)| *other != way);
            }
        }
    }
    progress.clear();
    interrupt::asked()
}

/// Writes what a cell gave; whether its way is tried again.
fn take(site: &Site, (way, sessions): (Way, u64), outcome: cell::Outcome, log: &mut Log) -> bool {
    // Interrupted in the middle, a cell has nothing that can be compared.
    if interrupt::asked() {
        return true;
    }
    for number in outcome.numbers {
        let params = Params::from([
            ("sessions".to_string(), json!(sessions)),
            ("bytes".to_string(), json!(site.bytes)),
            ("limit".to_string(), json!(site.limit)),
        ]);
        log.sample(way.word(), number, params);
    }
    outcome.note.into_iter().for_each(|note| log.note(note));
    if let Some(why) = &outcome.refused {
        log.note(format!("{} left out from round {}: {why}", way.word(), log.round));
    }
    let goes_on = outcome.refused.is_none() && outcome.wrong.is_none();
    log.wrongs.extend(outcome.wrong);
    goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound_and_memory_holds_one_session_and_not_two() {
        command().debug_assert();
        for line in ["sessions --quick --store-dir /tmp", "sessions --store-dir /tmp"] {
            let matches = command().get_matches_from(line.split(' '));
            let site =
                site(&matches, effort(&matches).0, ("/bin/odfork".into(), "/tmp".into())).unwrap();
            assert!(site.bytes < site.limit && site.limit < 2 * site.bytes, "{line}");
        }
        let nowhere = command().get_matches_from(["sessions", "--store-dir", "/no/folder"]);
        assert!(site(&nowhere, "quick", ("/bin/odfork".into(), "/tmp".into())).is_err());
    }
}
