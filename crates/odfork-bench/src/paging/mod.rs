//! `odfork bench paging`: memory larger than what may be resident, paged by the kernel in three
//! ways, by our pager in three, and by umap where the user has it. Every backend runs the same
//! program, and every page is checked.
//!
//! The way of one number: `backend` says how the workload process is started, `trial` sets up what
//! it needs (`baselines`) and asks its ops, `program` is the process, `workload` what it does,
//! `page` the content of its pages; `tables` prints, `odfork_samples::targets` judges.

pub mod backend;
pub mod continue_fault;
pub mod latencies;
pub mod op;
pub mod page;
pub mod program;
pub mod region;
mod tables;
pub mod trial;
pub mod workload;
pub mod zipf;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgMatches, Command};

use crate::baselines::cgroup::Parent;
use crate::baselines::journal::Journal;
use crate::options::{choose, effort, round_options, run_rounds, seed, store_folder};
use crate::recorder::Head;
use crate::runner::{Executor, Point, Reply};
use crate::suite::Suite;
use backend::{Backend, Settings, ALL, WORDS};
use odfork_proc::interrupt;
use odfork_proc::text::bytes;
use odfork_samples::environment::memory_available;
use odfork_samples::stats::Rng;
use trial::Trial;

pub const NAME: &str = "paging";
pub const ROW: &str = "M18";
pub const QUESTION: &str =
    "How fast is memory of which a quarter may be resident, by who pages it?";
pub const PUBLISHED: &str =
    "a reclaim 250 us, a page-in 30 ms; at most 10 % of a processor for reference bits (VAX, 1981)";

pub static SUITE: Suite = Suite::own([NAME, ROW, QUESTION, PUBLISHED], command, run);

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

pub fn command() -> Command {
    let number = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    round_options(Command::new(NAME).about(QUESTION), &WORDS)
        .arg(
            number("region", "SIZE", "Memory of the workload [default: 1G; quick 128M, full 4G]")
                .value_parser(size),
        )
        .arg(
            number("resident", "SIZE", "What of it may be resident [default: a quarter]")
                .value_parser(size),
        )
        .arg(
            number("seconds", "N", "Most seconds of one op [default: 5]")
                .value_parser(clap::value_parser!(u64).range(1..=600)),
        )
        .arg(
            number("umap", "DIR", "Folder of a built libumap.so")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

/// A size of memory that can be paged, for clap.
fn size(text: &str) -> Result<u64, String> {
    let fits = |bytes: &u64| (4 << 20..=1 << 44).contains(bytes);
    let told = "a size from 4M to 16384G is needed, as 512M or 2G";
    bytes(text).ok().filter(fits).ok_or_else(|| told.into())
}

/// The experiment; returns the exit status.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let (effort, rounds) = effort(matches);
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    interrupt::listen();
    let journal = Journal::open(&program).map_err(anyhow::Error::msg)?;
    let (folder, _folder) = journal.folder().map_err(anyhow::Error::msg)?;
    let settings = settings(matches, effort, (program, folder))?;
    let (backends, notes) =
        choose(matches, &ALL, Backend::word, |backend| backend.refusal(&settings))?;
    let seed = seed(matches);
    let engines = backends.iter().map(|backend| backend.word().to_string()).collect();
    let head = Head { experiment: NAME, row: ROW, effort, engines, seed };
    let seconds = settings.region as f64 / (1 << 30) as f64 * 30.0 * backends.len() as f64;
    let params = settings.params();
    let points = backends.into_iter().map(|op| Point {
        engine: op.word(),
        targets: Vec::new(),
        params: params.clone(),
        op,
    });
    let points = points.collect();
    let mut trials = Trials {
        settings,
        journal,
        parent: Parent::find(),
        begun: Instant::now(),
        rng: Rng::with_seed(seed),
    };
    let recorder = run_rounds(matches, head, notes, &mut trials, (points, rounds, seconds))?;
    print!("{}", tables::tables(&recorder.recording.samples));
    println!("published: {PUBLISHED}");
    recorder.close()
}

fn settings(
    matches: &ArgMatches,
    effort: &str,
    (program, folder): (PathBuf, PathBuf),
) -> Result<Settings> {
    let region = matches.get_one::<u64>("region").copied().unwrap_or(match effort {
        "quick" => 128 << 20,
        "full" => 4 << 30,
        _ => 1 << 30,
    });
    let resident = matches.get_one::<u64>("resident").copied().unwrap_or((region / 4).max(4 << 20));
    let (all, part) = (region >> 20, resident >> 20);
    if resident > region {
        bail!("--resident {part} MB is more than --region {all} MB: nothing would be paged");
    }
    // Half of the region stays incompressible in memory stores.
    let (needed, available) = (resident + region * 3 / 4 + (512 << 20), memory_available());
    if needed > available {
        let (needed, available) = (needed >> 20, available >> 20);
        bail!("{needed} MB of memory are needed and {available} MB are available; take a smaller --region");
    }
    let store = store_folder(matches)?;
    let umap = matches.get_one::<PathBuf>("umap").map(|folder| folder.join("libumap.so"));
    if let Some(library) = umap.as_ref().filter(|library| !library.exists()) {
        let library = library.display();
        bail!(
            "{library} is not there; build umap 2 and give the folder of its library with --umap"
        );
    }
    let limit = Duration::from_secs(matches.get_one::<u64>("seconds").copied().unwrap_or(5));
    let umap = umap.map(std::path::absolute).transpose()?;
    Ok(Settings { program, region, resident, limit, store, folder, umap })
}

struct Trials {
    settings: Settings,
    journal: Journal,
    parent: Result<Parent, String>,
    begun: Instant,
    rng: Rng,
}

impl Executor for Trials {
    type Target = ();
    type Op = Backend;

    fn perform(&mut self, point: &Point<Backend>, _round: u32) -> Reply {
        let Trials { settings, journal, parent, rng, .. } = self;
        Trial { settings, parent, journal, backend: point.op, seed: rng.u64(..) }.run()
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound_and_sizes_are_read() {
        command().debug_assert();
        assert_eq!(
            (size("512M"), size("2g"), size("8388608")),
            (Ok(512 << 20), Ok(2 << 30), Ok(8 << 20))
        );
        for bad in ["", "M", "1M", "12Q", "-5M", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused_in_one_line() {
        let try_settings = |line: &str| {
            let matches = command().get_matches_from(line.split(' '));
            settings(&matches, effort(&matches).0, ("/bin/odfork".into(), "/tmp".into()))
        };
        let settings = try_settings("paging --quick --store-dir /tmp").unwrap();
        assert_eq!((settings.region, settings.resident), (128 << 20, 32 << 20));
        for (line, part) in [
            ("paging --region 64M --resident 65M", "nothing would be paged"),
            ("paging --region 16000G", "available"),
            ("paging --quick --store-dir /no/folder", "--store-dir"),
            ("paging --quick --store-dir /tmp --umap /no/umap", "libumap.so"),
        ] {
            let error = try_settings(line).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
