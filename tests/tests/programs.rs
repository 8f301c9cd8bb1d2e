//! Every C program of `programs/` under every mode its header names, against the same run on stock.
//!
//! Owns: the list of trials and their order. Two run at once unless `--test-threads` says
//! otherwise; a program with `serial=yes` runs alone. `ODTEST_FILTER` or a plain argument selects
//! by name.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use odfork_tests::machine;
use odfork_tests::mode::Mode;
use odfork_tests::run::{run, Order, Outcome};
use odfork_tests::stage::{all_programs, find_library, Program, Stage};
use odfork_tests::verdict::{judge, judge_alone, Verdict};
use odfork_tests::{exit_code, trial};

/// What a program needs once, however many modes it runs in.
struct Subject {
    program: Program,
    binary: OnceLock<Result<std::path::PathBuf, String>>,
    as_self: OnceLock<Result<Outcome, String>>,
    as_user: OnceLock<Result<Outcome, String>>,
}

struct Bench {
    stage: Stage,
    alone: RwLock<()>,
}

fn main() -> ExitCode {
    exit_code(try_main())
}

fn try_main() -> Result<ExitCode, String> {
    let mut args = Arguments::from_args();
    // A third of the time they wait.
    args.test_threads = args.test_threads.or(Some(4));
    args.filter = args.filter.or_else(|| std::env::var("ODTEST_FILTER").ok());
    let library = find_library();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    let stage = Stage::new(library.as_deref().ok(), &cache)?;
    let bench = Arc::new(Bench { stage, alone: RwLock::new(()) });
    let mut trials = Vec::new();
    for (number, program) in all_programs()?.into_iter().enumerate() {
        trials.extend(trials_of(program, number, &bench));
    }
    let wants_library = |t: &Trial| !args.is_filtered_out(t) && !t.name().ends_with("::stock");
    if !args.list && trials.iter().any(wants_library) {
        library?;
    }
    Ok(libtest_mimic::run(&args, trials).exit_code())
}

fn trials_of(program: Program, number: usize, bench: &Arc<Bench>) -> Vec<Trial> {
    let subject = Arc::new(Subject {
        program,
        binary: OnceLock::new(),
        as_self: OnceLock::new(),
        as_user: OnceLock::new(),
    });
    let modes = modes_of(&subject.program, number);
    let in_mode = |mode: Mode| {
        let (subject, bench) = (subject.clone(), bench.clone());
        let name = format!("{}::{}", subject.program.name, mode.name());
        trial(name, move || match try_mode(&subject, &bench, mode) {
            Ok(Verdict::Pass) => Ok(Completion::Completed),
            Ok(Verdict::Skip(why)) => Ok(Completion::ignored_with(why)),
            Ok(Verdict::Fail(why)) | Err(why) => Err(Failed::from(why)),
        })
    };
    modes.into_iter().map(in_mode).collect()
}

/// The modes of the header that `ODTEST_MODES` asks for. `all` (also ODTEST_FULL=1): every one.
/// `one`: stock and one other, another one for the next program, so that each mode has its share.
/// Otherwise what says little new is left out: threads and processes with a 4 KB image, and memory
/// contents without privileges. `live`, `slices`: in that mode whatever runs in mode huge.
fn modes_of(program: &Program, number: usize) -> Vec<Mode> {
    let modes = &program.header.modes;
    let wish = match std::env::var_os("ODTEST_FULL") {
        Some(_) => "all".to_owned(),
        None => std::env::var("ODTEST_MODES").unwrap_or_default(),
    };
    let left_out = match program.name.starts_with("mem_") {
        true => Mode::User,
        false => Mode::Small,
    };
    let others: Vec<Mode> = modes.iter().copied().filter(|mode| mode.preloads()).collect();
    let one = others.get(number % others.len().max(1)).copied();
    if wish == "live" {
        let named = modes.contains(&Mode::Huge) || modes.contains(&Mode::Live);
        let fits = named && !program.header.not_live;
        return if fits { vec![Mode::Live] } else { Vec::new() };
    }
    if wish == "slices" {
        let named = modes.contains(&Mode::Huge) || modes.contains(&Mode::Slices);
        let fits = named && !program.header.not_slices;
        return if fits { vec![Mode::Slices] } else { Vec::new() };
    }
    let is_wanted = |mode: Mode| match wish.as_str() {
        "all" => true,
        "one" => mode == Mode::Stock || Some(mode) == one,
        _ => mode != left_out,
    };
    modes.iter().copied().filter(|&mode| is_wanted(mode)).collect()
}

fn try_mode(subject: &Subject, bench: &Bench, mode: Mode) -> Result<Verdict, String> {
    if let Some(why) = skip_reason(subject, mode)? {
        return Ok(Verdict::Skip(why));
    }
    let header = &subject.program.header;
    let (_many, _one);
    if header.serial {
        _one = bench.alone.write().map_err(|e| e.to_string())?;
    } else {
        _many = bench.alone.read().map_err(|e| e.to_string())?;
    }
    let stock = stock_of(subject, bench, mode.unprivileged())?;
    let verdict = judge_alone(stock, header);
    if mode == Mode::Stock || matches!(verdict, Verdict::Skip(_)) {
        return Ok(verdict);
    }
    if let Verdict::Fail(why) = verdict {
        return Ok(Verdict::Fail(format!("already fails on stock fork: {why}")));
    }
    let outcome = run_in(subject, bench, mode, mode.unprivileged())?;
    Ok(judge(&outcome, stock, header, mode))
}

/// Why this program cannot run in this mode on this machine.
fn skip_reason(subject: &Subject, mode: Mode) -> Result<Option<String>, String> {
    if mode.unprivileged() && !machine::is_root() {
        let why = "SKIP: mode user needs root to drop privileges; the other modes ran without any";
        return Ok(Some(why.to_string()));
    }
    let header = &subject.program.header;
    for need in &header.needs {
        if let Some(why) = machine::missing(need)? {
            return Ok(Some(format!("SKIP: {why}")));
        }
    }
    let want = header.mem + 256;
    match machine::available_mb() {
        Some(have) if have < want => {
            Ok(Some(format!("SKIP: needs {want} MB of available memory, found {have}")))
        }
        _ => Ok(None),
    }
}

/// The run under stock fork, made once for each user.
fn stock_of<'a>(
    subject: &'a Subject,
    bench: &Bench,
    unprivileged: bool,
) -> Result<&'a Outcome, String> {
    let cell = if unprivileged { &subject.as_user } else { &subject.as_self };
    let outcome = cell.get_or_init(|| run_in(subject, bench, Mode::Stock, unprivileged));
    outcome.as_ref().map_err(Clone::clone)
}

fn run_in(
    subject: &Subject,
    bench: &Bench,
    mode: Mode,
    unprivileged: bool,
) -> Result<Outcome, String> {
    let program = &subject.program;
    let binary = subject.binary.get_or_init(|| bench.stage.compile(program));
    let order = Order {
        binary: binary.as_ref().map_err(Clone::clone)?,
        args: &program.header.args,
        mode,
        unprivileged,
        timeout: Duration::from_secs(program.header.timeout),
        place: None,
        env: &[],
    };
    run(&bench.stage, &order)
}
