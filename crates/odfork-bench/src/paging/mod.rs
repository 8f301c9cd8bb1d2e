//! `odfork bench paging`: memory larger than what may be resident, paged by the kernel in three ways, by our pager in three,
//! and by umap where the user has it; every backend runs the same program and every page is checked.
//!
//! The way of one number: `backend` says how the workload process is started, `trial` sets up what it needs (`peers`) and
//! asks for acts, `program` is the process, `acts` what it does, `pattern` what stands in its pages; `targets` judges.

pub mod acts;
pub mod backend;
pub mod bare;
pub mod latency;
pub mod log;
pub mod pattern;
pub mod program;
pub mod region;
mod screen;
pub mod trial;
pub mod zipf;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;

use crate::bench::output_options;
use crate::peers::group::Place;
use crate::peers::ledger::{Shared, Undo};
use crate::progress::Progress;
use backend::{Backend, Site, ALL, WORDS};
use log::{Head, Log};
use odfork_proc::interrupt;
use odfork_samples::environment::memory_available;
use odfork_samples::samples::Params;
use odfork_samples::stats::Rng;
use trial::{Outcome, Trial};

pub const NAME: &str = "paging";
pub const ROW: &str = "M18";
pub const QUESTION: &str =
    "How fast is memory of which a quarter may be resident, by who pages it?";
pub const PUBLISHED: &str =
    "a reclaim 250 us, a page-in 30 ms; at most 10 % of a processor for reference bits (VAX, 1981)";

const EXAMPLES: &str = "\
Examples:
  odfork bench paging                       5 rounds of 1 GB in 256 MB: 15 minutes
  odfork bench paging --quick               128 MB in 32 MB, one round: 40 seconds
  odfork bench paging --rounds 1 --more     one round more in the same file
  odfork bench paging --engine swapfile,pager --store-dir /mnt/nvme
  odfork bench paging --umap ~/umap/build/src/umap

Engines: swapfile, zram (lz4) and mmap are the kernel's, under a memory limit;
they need root and are left out, with a note, where they cannot be had. pager
(store on disk), pager-lz4 (in memory), pager-lz4-2 (two handlers) are ours,
umap-4k and umap-64k the umap library. bare is the bare continue fault.

Swap, limits and files are put back at the end, after Ctrl-C and after a kill.
Exit status: 0 whatever the times are, 1 when a page had wrong content, 2 when
it could not run, 130 when interrupted (what was measured is kept).";

pub fn command() -> Command {
    let about = format!("{QUESTION} ({ROW})");
    let number = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    shared_options(Command::new(NAME).about(about), &WORDS)
        .arg(
            number("region", "SIZE", "Memory of the workload [default: 1G; quick 128M, full 4G]")
                .value_parser(size),
        )
        .arg(
            number("resident", "SIZE", "What of it may be resident [default: a quarter]")
                .value_parser(size),
        )
        .arg(
            number("seconds", "N", "Most seconds of one act [default: 5]")
                .value_parser(clap::value_parser!(u64).range(1..=600)),
        )
        .arg(
            number("umap", "DIR", "Folder of a built libumap.so")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .after_help(format!("{EXAMPLES}\n\nPublished: {PUBLISHED}"))
}

/// Options that `paging` and `sessions` share.
pub fn shared_options(command: Command, engines: &'static [&'static str]) -> Command {
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let command = command
        .arg(switch("quick").help("Small sizes, one round: shows that it runs"))
        .arg(switch("full").conflicts_with("quick").help("Large sizes, more rounds"))
        .arg(
            Arg::new("rounds")
                .long("rounds")
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..=1000))
                .help("Rounds [default: 5; quick 1, full 7]"),
        )
        .arg(switch("more").help("Add the rounds to those the file already has"))
        .arg(
            Arg::new("engine")
                .long("engine")
                .value_name("LIST")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(engines.to_vec())
                .help("Only these engines"),
        );
    output_options(command)
        .arg(
            Arg::new("store-dir")
                .long("store-dir")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .default_value("/var/tmp")
                .help("Folder on a disk for swap file, mapped file and store"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(clap::value_parser!(u64))
                .default_value("1")
                .help("Seed of order and accesses"),
        )
}

/// "512M" in bytes, for clap.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("write it as 512M, 2G or in bytes".into()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let most = 1 << 44;
    bytes
        .filter(|bytes| (4 << 20..=most).contains(bytes))
        .ok_or_else(|| "a size from 4M to 16384G is needed, as 512M or 2G".into())
}

/// What quick, full and --rounds mean.
pub fn effort(matches: &ArgMatches) -> (&'static str, u32) {
    let (word, rounds) = match (matches.get_flag("quick"), matches.get_flag("full")) {
        (true, _) => ("quick", 1),
        (_, true) => ("full", 7),
        _ => ("default", 5),
    };
    (word, matches.get_one::<u32>("rounds").copied().unwrap_or(rounds))
}

struct Plan {
    site: Site,
    rounds: u32,
    seed: u64,
    engines: Vec<Backend>,
}

/// The experiment; returns the exit status.
///
/// # Errors
/// Nothing can be measured: one line.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let (effort, rounds) = effort(matches);
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    interrupt::listen();
    let ledger = Shared::open(&program).map_err(anyhow::Error::msg)?;
    let (office, _office) = temporary_folder(&ledger)?;
    let site = site(matches, effort, (program, office))?;
    let (engines, notes) =
        choose(matches, &ALL, Backend::from_word, Backend::word, |one| one.refusal(&site))?;
    let seed = seed(matches);
    let words = engines.iter().map(|engine| engine.word().to_string()).collect();
    let head = Head { experiment: NAME, row: ROW, effort, engines: words, seed };
    let mut log = open_log(matches, &head, notes)?;
    let interrupted = measure(&Plan { site, rounds, seed, engines }, &ledger, &mut log);
    print!("{}", screen::tables(&log.samples));
    println!("published: {PUBLISHED}");
    log.finish(interrupted)
}

/// Those of all engines that were asked for and can be had; notes why others cannot. Only who was asked for is tried.
///
/// # Errors
/// None is left: one line.
pub fn choose<E: Copy + PartialEq>(
    matches: &ArgMatches,
    all: &[E],
    from_word: fn(&str) -> Option<E>,
    word: fn(E) -> &'static str,
    refusal: impl Fn(E) -> Option<String>,
) -> Result<(Vec<E>, Vec<String>)> {
    let asked = matches.get_many::<String>("engine").into_iter().flatten();
    let asked: Vec<E> = asked.filter_map(|name| from_word(name)).collect();
    let (mut engines, mut notes) = (Vec::new(), Vec::new());
    for &engine in all.iter().filter(|engine| asked.is_empty() || asked.contains(engine)) {
        match refusal(engine) {
            None => engines.push(engine),
            Some(why) => notes.push(format!("{} left out: {why}", word(engine))),
        }
    }
    if engines.is_empty() {
        bail!("no engine is left to measure: {}", notes.join("; "));
    }
    Ok((engines, notes))
}

pub fn seed(matches: &ArgMatches) -> u64 {
    *matches.get_one::<u64>("seed").unwrap_or(&1)
}

/// The file the options name, with these notes in it.
///
/// # Errors
/// It cannot be written: one line.
pub fn open_log(matches: &ArgMatches, head: &Head, notes: Vec<String>) -> Result<Log> {
    let folder = matches.get_one::<PathBuf>("dir").map_or(Path::new("."), PathBuf::as_path);
    let path = log::path_of(matches.get_one("json"), folder, head.experiment)?;
    let mut log = Log::open(&path, head, matches.get_flag("more"))?;
    notes.into_iter().for_each(|note| log.note(note));
    Ok(log)
}

/// A folder that goes away with the run.
pub fn temporary_folder(ledger: &Shared) -> Result<(PathBuf, crate::peers::ledger::Debt)> {
    let path = std::env::temp_dir().join(format!("odfork-bench-{}", std::process::id()));
    let debt = ledger.owe(Undo::RemoveFolder(path.clone()));
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok((path, debt))
}

fn site(matches: &ArgMatches, effort: &str, (program, office): (PathBuf, PathBuf)) -> Result<Site> {
    let region = matches.get_one::<u64>("region").copied().unwrap_or(match effort {
        "quick" => 128 << 20,
        "full" => 4 << 30,
        _ => 1 << 30,
    });
    let resident = matches.get_one::<u64>("resident").copied().unwrap_or((region / 4).max(4 << 20));
    if resident > region {
        bail!(
            "--resident {} MB is more than --region {} MB: nothing would be paged",
            resident >> 20,
            region >> 20
        );
    }
    // Half of the region stays incompressible in memory stores.
    let (needed, available) = (resident + region * 3 / 4 + (512 << 20), memory_available());
    if needed > available {
        bail!(
            "{} MB of memory are needed and {} MB are available; take a smaller --region",
            needed >> 20,
            available >> 20
        );
    }
    let store = matches.get_one::<PathBuf>("store-dir").cloned().unwrap_or_default();
    if !store.is_dir() {
        bail!("{} is no folder; name one on a disk with --store-dir", store.display());
    }
    let umap = matches.get_one::<PathBuf>("umap").map(|folder| folder.join("libumap.so"));
    if let Some(library) = umap.as_ref().filter(|library| !library.exists()) {
        bail!(
            "{} is not there; build umap 2 and give the folder of its library with --umap",
            library.display()
        );
    }
    let limit = Duration::from_secs(matches.get_one::<u64>("seconds").copied().unwrap_or(5));
    let store = std::path::absolute(&store)?;
    let umap = umap.map(std::path::absolute).transpose()?;
    Ok(Site { program, region, resident, limit, store, office, umap })
}

/// All rounds; whether they were interrupted.
fn measure(plan: &Plan, ledger: &Shared, log: &mut Log) -> bool {
    let place = Place::find();
    let mut rng = Rng::with_seed(plan.seed.wrapping_add(u64::from(log.round)));
    let mut engines = plan.engines.clone();
    let seconds = plan.site.region as f64 / (1 << 30) as f64 * 30.0;
    let planned = seconds * f64::from(plan.rounds) * engines.len() as f64;
    let mut progress = Progress::on_stderr(planned);
    for _ in 0..plan.rounds {
        log.round += 1;
        rng.shuffle(&mut engines);
        for backend in engines.clone() {
            if interrupt::asked() {
                progress.clear();
                return true;
            }
            progress.begin(&format!("round {}: {}", log.round, backend.word()), seconds);
            let seed = rng.u64(..);
            let outcome = Trial { site: &plan.site, place: &place, ledger, backend, seed }.run();
            progress.end();
            let goes_on = take(&plan.site, backend, outcome, log);
            if !goes_on {
                engines.retain(|&other| other != backend);
            }
        }
    }
    progress.clear();
    interrupt::asked()
}

/// Writes what a trial gave; whether the backend is tried again.
fn take(site: &Site, backend: Backend, outcome: Outcome, log: &mut Log) -> bool {
    for (act, number) in outcome.numbers {
        let word = act.map(|act| act.word()).unwrap_or_default();
        let params = Params::from([
            ("act".to_string(), json!(word)),
            ("bytes".to_string(), json!(site.region)),
            ("resident".to_string(), json!(site.resident)),
        ]);
        log.sample(backend.word(), number, params);
    }
    outcome.notes.into_iter().for_each(|note| log.note(note));
    let refused = outcome.refused.filter(|_| !outcome.interrupted && !interrupt::asked());
    if let Some(why) = &refused {
        log.note(format!("{} left out from round {}: {why}", backend.word(), log.round));
    }
    let right = outcome.wrong.is_none();
    log.wrongs.extend(outcome.wrong);
    refused.is_none() && right
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
        let try_site = |line: &str| {
            let matches = command().get_matches_from(line.split(' '));
            site(&matches, effort(&matches).0, ("/bin/odfork".into(), "/tmp".into()))
        };
        let site = try_site("paging --quick --store-dir /tmp").unwrap();
        assert_eq!((site.region, site.resident), (128 << 20, 32 << 20));
        for (line, part) in [
            ("paging --region 64M --resident 65M", "nothing would be paged"),
            ("paging --region 16000G", "available"),
            ("paging --quick --store-dir /no/folder", "--store-dir"),
            ("paging --quick --store-dir /tmp --umap /no/umap", "libumap.so"),
        ] {
            let error = try_site(line).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
