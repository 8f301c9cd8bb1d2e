//! Attacks on the crate: storms, leaks, failures, filters, and every promise of its documents
//! turned against it.
//!
//! Owns the runner: each case changes properties of the whole process (signals, limits, user,
//! system-call filter), so each runs in a process of its own, this binary executed again. Started
//! with `--probe` it is the program that is spawned, and writes down what it finds itself to be. It
//! does not own the cases (the other files).
//!
//!   cargo test --release -p odfork-spawn --test attack [-- WORDS]   cases whose name has one of
//!   the words

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

mod failures;
mod files;
mod filters;
mod kernel;
mod leaks;
mod probe;
mod promises;
mod storm;
mod strangers;
mod user;

/// A case: `Err` when it could not be tried here, and why. What is wrong panics.
type Case = fn() -> Result<(), String>;
const LIMIT: Duration = Duration::from_secs(120);
const SKIPPED: i32 = 77;

fn cases() -> Vec<(&'static str, Case)> {
    let all: [&[(&'static str, Case)]; 8] = [
        storm::CASES,
        leaks::CASES,
        failures::CASES,
        files::CASES,
        user::CASES,
        filters::CASES,
        promises::CASES,
        strangers::CASES,
    ];
    all.concat()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--probe", ..] => probe::report(),
        ["--case", name] => run_here(name),
        _ => run_all(&arguments),
    }
}

fn run_here(name: &str) -> ExitCode {
    let Some((_, case)) = cases().into_iter().find(|(known, _)| *known == name) else {
        eprintln!("no case {name}");
        return ExitCode::FAILURE;
    };
    // What the caller of this test left open is none of the cases' business; nothing else is open
    // yet. SAFETY: nobody in this process has opened anything but 0, 1 and 2.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    match case() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            ExitCode::from(SKIPPED as u8)
        }
    }
}

fn run_all(arguments: &[String]) -> ExitCode {
    let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(*word));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, _) in cases().into_iter().filter(|(name, _)| chosen(name)) {
        let before = Instant::now();
        let (word, text) = match run_apart(name) {
            Verdict::Passed => (&mut passed, "ok".to_owned()),
            Verdict::Skipped(reason) => (&mut skipped, format!("skipped: {reason}")),
            Verdict::Failed(text) => (&mut failed, format!("FAILED\n{text}")),
        };
        *word += 1;
        println!("attack {name} ({:.1} s) ... {text}", before.elapsed().as_secs_f32());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

enum Verdict {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Output goes to a file: a program a case left behind must not keep a pipe open.
fn run_apart(name: &str) -> Verdict {
    let log = std::env::temp_dir().join(format!("odfork-attack-{}-{name}", std::process::id()));
    let file = std::fs::File::create(&log).expect("a file for the case's output");
    let mut command = Command::new("/proc/self/exe");
    command.args(["--case", name]).stdin(std::process::Stdio::null());
    command.stdout(file.try_clone().expect("a second descriptor")).stderr(file);
    let mut child = command.spawn().expect("this binary runs");
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().expect("our child") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = std::fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    match status {
        Some(status) if status.success() => Verdict::Passed,
        Some(status) if status.code() == Some(SKIPPED) => Verdict::Skipped(text.trim().into()),
        Some(status) => Verdict::Failed(format!("{text}{status}")),
        None => {
            let _ = child.kill().and_then(|()| child.wait());
            Verdict::Failed(format!("{text}not done after {} s", LIMIT.as_secs()))
        }
    }
}
