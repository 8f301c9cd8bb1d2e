//! Programs in every place of `places.rs`: as on stock fork there, and frozen as the table says.
//!
//! Owns: which programs go to which place. A trial is named PLACE::PROGRAM. Without root, places
//! that need it are skipped.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use odfork_tests::confine::Confinement;
use odfork_tests::header::{Expect, Header};
use odfork_tests::machine;
use odfork_tests::mode::Mode;
use odfork_tests::places::{Place, PLACES};
use odfork_tests::run::{run, Order, Outcome};
use odfork_tests::stage::{find_library, programs_dir, read_program, Program, Stage};
use odfork_tests::verdict::{judge, judge_alone, Verdict};
use odfork_tests::{exit_code, trial};

/// In every check.
const FEW: [&str; 3] = ["mem_dontneed", "proc_errno", "thr_held"];
/// In longer ones too.
const MORE: [&str; 6] =
    ["thr_whole", "thr_written", "mem_realloc", "mem_chains", "proc_fds", "thr_alloc"];

struct Bench {
    stage: Stage,
    programs: Vec<(Program, PathBuf)>,
}

fn main() -> ExitCode {
    exit_code(try_main())
}

fn try_main() -> Result<ExitCode, String> {
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(2));
    let library = find_library()?;
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    let stage = Stage::new(Some(&library), &cache)?;
    let compile = |name: &&str| {
        let program = read_program(&programs_dir().join(format!("{name}.c")))?;
        let binary = stage.compile(&program)?;
        Ok((program, binary))
    };
    let is_quick = std::env::var("ODTEST_MODES").is_ok_and(|modes| modes == "one");
    let more: &[&str] = if is_quick { &[] } else { &MORE };
    let programs: Result<_, String> = FEW.iter().chain(more).map(compile).collect();
    let bench = Arc::new(Bench { programs: programs?, stage });
    let numbers = 0..bench.programs.len();
    let pairs = PLACES.iter().flat_map(|place| numbers.clone().map(move |number| (place, number)));
    let trials = pairs.map(|(place, number)| trial_of(&bench, place, number)).collect();
    Ok(libtest_mimic::run(&args, trials).exit_code())
}

fn trial_of(bench: &Arc<Bench>, place: &'static Place, number: usize) -> Trial {
    let bench = bench.clone();
    let name = format!("{}::{}", place.name, bench.programs[number].0.name);
    trial(name, move || match try_place(&bench, place, number) {
        Ok(Verdict::Pass) => Ok(Completion::Completed),
        Ok(Verdict::Skip(why)) => Ok(Completion::ignored_with(why)),
        Ok(Verdict::Fail(why)) | Err(why) => Err(Failed::from(why)),
    })
}

fn try_place(bench: &Bench, place: &'static Place, number: usize) -> Result<Verdict, String> {
    if !machine::is_root() {
        return Ok(Verdict::Skip("SKIP: needs root to put on what others put on".into()));
    }
    let there = Confinement::prepare(place)?;
    let (program, binary) = &bench.programs[number];
    let header = header_there(program, place);
    let run_as = |mode| {
        let order = Order {
            binary,
            args: &program.header.args,
            mode,
            unprivileged: place.user != 0,
            timeout: Duration::from_secs(program.header.timeout),
            place: Some(&there),
            env: &[],
        };
        run(&bench.stage, &order)
    };
    let stock = run_as(Mode::Stock)?;
    match judge_alone(&stock, &header) {
        Verdict::Pass => {}
        Verdict::Fail(why) => return Ok(Verdict::Fail(format!("fails on stock fork: {why}"))),
        skip => return Ok(skip),
    }
    let outcome = run_as(Mode::User)?;
    Ok(match judge(&outcome, &stock, &header, Mode::User) {
        Verdict::Pass => judge_kind(&outcome, place),
        other => other,
    })
}

/// What the program expects there: fallbacks may be part of it, freezing must be.
fn header_there(program: &Program, place: &Place) -> Header {
    // The harness's programs with threads say so in their names.
    let stays = program.name.starts_with("thr_") && !place.threads;
    let expect = if stays { Expect::Plain("threads".into()) } else { Expect::Froze };
    Header { expect_in: vec![(Mode::User, expect)], ..program.header.clone() }
}

/// The backing file must be of the kind that the table promises.
fn judge_kind(outcome: &Outcome, place: &Place) -> Verdict {
    let stats = outcome.stats.as_ref();
    let engine = stats.and_then(|stats| stats.pointer("/engine")?.as_str()).unwrap_or("not said");
    let want = if place.huge { "huge" } else { "small" };
    match engine == want || engine == "plain" {
        true => Verdict::Pass,
        false => Verdict::Fail(format!("the backing file is {engine}, the table says {want}")),
    }
}
