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
pub mod live;
pub mod op;
pub mod page;
pub mod patterns;
pub mod program;
pub mod region;
pub mod replay;
mod tables;
pub mod trial;
pub mod workload;
pub mod zipf;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Result};
use clap::{value_parser, ArgMatches, Args, Command, FromArgMatches};

use crate::options::with_engines;
use crate::plan::Effort;
use crate::room;
use crate::rounds::{self, point, RoundOptions, Rounds, Site};
use crate::suite::Suite;
use backend::{Backend, Settings, ALL, WORDS};
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

#[derive(Debug, Args)]
struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Memory of the workload [default: 1G; quick 128M, full 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    region: Option<u64>,
    /// What of it may be resident [default: a quarter]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    resident: Option<u64>,
    /// Most seconds of one op
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u64).range(1..=600)
    )]
    seconds: u64,
    /// Folder of a built libumap.so
    #[arg(long, value_name = "DIR")]
    umap: Option<PathBuf>,
}

pub fn command() -> Command {
    with_engines::<Options>(Command::new(NAME).about(QUESTION), &WORDS)
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
    let options = Options::from_arg_matches(matches)?;
    let common = &options.rounds.common;
    let site = Site::open()?;
    let settings = settings(&options, (&site.program, &site.folder))?;
    let (backends, notes) =
        common.choose(&ALL, Backend::word, |backend| backend.refusal(&settings))?;
    let default = [1, 5, 7][common.effort() as usize];
    let seconds = settings.region as f64 / (1 << 30) as f64 * 30.0 * backends.len() as f64;
    let points = backends.into_iter().map(|op| point(op.word(), settings.params(), op)).collect();
    let plan = Rounds { points, rounds: options.rounds.rounds.unwrap_or(default), seconds, notes };
    let mut rng = Rng::with_seed(common.seed);
    let recorder = rounds::run(&SUITE, &options.rounds, plan, |backend| {
        let (parent, journal) = (&site.parent, &site.journal);
        Trial { settings: &settings, parent, journal, backend, seed: rng.u64(..) }.run()
    })?;
    print!("{}", tables::tables(&recorder.recording.samples));
    println!("published: {PUBLISHED}");
    recorder.close()
}

fn settings(options: &Options, (program, folder): (&Path, &Path)) -> Result<Settings> {
    let region = options.region.unwrap_or(match options.rounds.common.effort() {
        Effort::Quick => 128 << 20,
        Effort::Full => 4 << 30,
        Effort::Default => 1 << 30,
    });
    let resident = options.resident.unwrap_or((region / 4).max(4 << 20));
    let (all, part) = (region >> 20, resident >> 20);
    if resident > region {
        bail!("--resident {part} MB is more than --region {all} MB: nothing would be paged");
    }
    // Half of the region stays incompressible in memory stores.
    let (needed, available) = (resident + region * 3 / 4 + (512 << 20), memory_available());
    if needed > available {
        bail!("{}; take a smaller --region", room::words(needed, available));
    }
    let umap = options.umap.as_ref().map(|folder| folder.join("libumap.so"));
    if let Some(library) = umap.as_ref().filter(|library| !library.exists()) {
        let library = library.display();
        bail!(
            "{library} is not there; build umap 2 and give the folder of its library with --umap"
        );
    }
    Ok(Settings {
        program: program.into(),
        region,
        resident,
        limit: Duration::from_secs(options.seconds),
        store: options.rounds.store()?,
        folder: folder.into(),
        umap: umap.map(std::path::absolute).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
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
            let places = (Path::new("/bin/odfork"), Path::new("/tmp"));
            settings(&Options::from_arg_matches(&matches).unwrap(), places)
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
