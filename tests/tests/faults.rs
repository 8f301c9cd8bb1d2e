//! A failure at every system call of the freeze path: no byte is lost, fork still works.
//!
//! Owns: which call fails with which errno. `programs/fault_target.c` checks every byte of parent
//! and children; here the statistics must show that the failure was injected and that no fork
//! failed. Step 1: a run without failures tells how many calls there are. Step 2: `N:ERRNO` for N =
//! 1, 2, ... until nothing was injected any more. Step 3: `N+:ERRNO`, everything fails from there
//! on. With a huge image, ENOMEM and EPERM go through every N; the rest samples, and the later half
//! thinly.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use odfork_tests::machine;
use odfork_tests::mode::Mode;
use odfork_tests::run::{run, Order};
use odfork_tests::stage::{find_library, programs_dir, read_program, Program, Stage};
use odfork_tests::verdict::{judge_alone, number, Verdict};
use odfork_tests::{exit_code, trial};
use serde_json::Value;

const ERRNOS: [(&str, i32); 5] = [
    ("ENOMEM", libc::ENOMEM),
    ("EPERM", libc::EPERM),
    ("EMFILE", libc::EMFILE),
    ("EINVAL", libc::EINVAL),
    ("ENOSYS", libc::ENOSYS),
];
/// Errnos that go through every call; the rest sample.
const EXHAUSTIVE: usize = 2;
const FORKS: u64 = 3;

struct Target {
    program: Program,
    stage: Stage,
    binary: PathBuf,
}

/// One way of failing: in which mode, with which errno, once or for ever.
#[derive(Clone, Copy)]
struct Plan {
    mode: Mode,
    errno: i32,
    forever: bool,
    exhaustive: bool,
}

fn main() -> ExitCode {
    exit_code(try_main())
}

fn try_main() -> Result<ExitCode, String> {
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(2));
    args.filter = args.filter.or_else(|| std::env::var("ODTEST_FILTER").ok());
    let library = find_library();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let program = read_program(&programs_dir().join("fault_target.c"))?;
    let stage = Stage::new(library.as_deref().ok(), &cache)?;
    let binary = stage.compile(&program)?;
    let target = Arc::new(Target { program, stage, binary });
    let trials = all_trials(&target);
    if !args.list && trials.iter().any(|t| !args.is_filtered_out(t)) {
        library?;
    }
    Ok(libtest_mimic::run(&args, trials).exit_code())
}

fn all_trials(target: &Arc<Target>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for mode in [Mode::Huge, Mode::Small, Mode::User] {
        for (i, (name, errno)) in ERRNOS.into_iter().enumerate() {
            for forever in [false, true] {
                let plan = Plan {
                    mode,
                    errno,
                    forever,
                    exhaustive: i < EXHAUSTIVE && !forever && mode == Mode::Huge,
                };
                let form = if forever { "from" } else { "at" };
                let target = target.clone();
                let name = format!("fault_{form}_each_call::{name}::{}", mode.name());
                trials.push(trial(name, move || follow(&target, plan)));
            }
        }
    }
    trials
}

/// Steps 1 to 3 for one plan.
fn follow(target: &Target, plan: Plan) -> Result<Completion, Failed> {
    if plan.mode.unprivileged() && !machine::is_root() {
        return Ok(Completion::ignored_with("SKIP: mode user needs root"));
    }
    let calls = number(&run_with(target, plan.mode, None)?, "/calls");
    if calls == 0 {
        return Err("the run without failures made no freeze call at all".into());
    }
    // Where memory lies decides how many there are: 569 or 607 on Linux 6.1.
    let most = 2 * calls;
    let mut last = 0;
    let mut n = 1;
    while n <= most {
        let plus = if plan.forever { "+" } else { "" };
        let fault = format!("{n}{plus}:{}", plan.errno);
        let stats = run_with(target, plan.mode, Some(&fault))?;
        if number(&stats, "/faults_injected") == 0 {
            break;
        }
        last = n;
        n += stride(plan, n, calls);
    }
    if last == 0 {
        return Err(format!("no failure was ever injected, though there are {calls} calls").into());
    }
    if n > most {
        return Err(format!("still injecting at call {most}: {calls} without failures").into());
    }
    Ok(Completion::Completed)
}

/// How far to the next call that fails: every call, or fewer ones later.
fn stride(plan: Plan, n: u64, calls: u64) -> u64 {
    if plan.exhaustive {
        1
    } else if n < calls / 2 && !plan.forever {
        if plan.mode == Mode::Huge {
            2
        } else {
            5
        }
    } else {
        (calls / 12).clamp(3, 40)
    }
}

/// One run; the program and the statistics must both be content.
fn run_with(target: &Target, mode: Mode, fault: Option<&str>) -> Result<Value, Failed> {
    let env: Vec<(String, String)> =
        fault.map(|f| ("ODFORK_FAULT".to_string(), f.to_string())).into_iter().collect();
    let order = Order {
        binary: &target.binary,
        args: &[],
        mode,
        unprivileged: mode.unprivileged(),
        timeout: Duration::from_secs(20),
        place: None,
        env: &env,
    };
    let outcome = run(&target.stage, &order)?;
    let told = |why: String| format!("ODFORK_FAULT={}: {why}", fault.unwrap_or("(none)"));
    match judge_alone(&outcome, &target.program.header) {
        Verdict::Pass => {}
        Verdict::Skip(why) | Verdict::Fail(why) => return Err(told(why).into()),
    }
    if !outcome.stderr.is_empty() {
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        return Err(told(format!("wrote to stderr: {text}")).into());
    }
    let stats = outcome.stats.ok_or_else(|| told("no statistics".into()))?;
    let (forks, failed) = (number(&stats, "/fork/count"), number(&stats, "/fork/failed"));
    if forks != FORKS || failed != 0 {
        return Err(told(format!("{forks} forks, {failed} failed: {stats}")).into());
    }
    Ok(stats)
}
