//! odfork writes: what share of its memory a program changes.
//!
//! The way of a measurement: `options` reads the request, `launch` or `target` gets hold of the process, `session`
//! says when it is looked at, `method` says how (`compare`, or `marks` with `inject`), both over `scan` (`maps`, `pages`);
//! `change` is the result, `table` and `record` print it. `suite` is the standard set. This file only connects them.

mod change;
mod inject;
mod launch;
mod maps;
mod marks;
mod method;
mod options;
mod pages;
mod ptrace;
mod record;
mod scan;
mod session;
mod snapshot;
mod suite;
mod table;
pub mod target;
mod traffic;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{ArgMatches, Command};

use launch::{launch, NotStarted};
use odfork_proc::interrupt;
use options::{Request, Subject};
use record::Record;
use session::{measure, Outcome};
use target::Target;

const EARLY: u8 = 1;
const INTERRUPTED: u8 = 130;
/// After Ctrl-C, before a command that goes on is asked harder to end.
const SIGNAL_INTERVAL: Duration = Duration::from_secs(3);

pub fn command() -> Command {
    options::command()
}

pub fn run(matches: &ArgMatches) -> u8 {
    let done = options::request(matches).and_then(|request| carry_out(&request));
    done.unwrap_or_else(|error| odfork_proc::command::cannot("writes", &error))
}

fn carry_out(request: &Request) -> Result<u8> {
    let effort = match request.subject {
        Subject::Suite(true) => "quick",
        _ => "default",
    };
    let mut record = Record::open(request.json.as_deref(), effort)?;
    for remark in &request.remarks {
        eprintln!("odfork writes: {remark}");
        record.note(remark);
    }
    interrupt::listen();
    match &request.subject {
        Subject::Suite(quick) => suite::run(*quick, request, record),
        Subject::Process(pid) => {
            let mut target = Target::seize(*pid, request.plan.marker)?;
            let program = program_of(*pid);
            let outcome = measure(&mut target, &request.plan);
            report(&program, outcome, request, record)
        }
        Subject::Command(words) => of_command(words, request, record),
    }
}

fn of_command(words: &[OsString], request: &Request, record: Record) -> Result<u8> {
    let mut target = match launch(words, request.plan.marker, None)? {
        Ok(launched) => launched.target,
        Err(NotStarted { status, line }) => {
            eprintln!("odfork writes: {line}");
            return Ok(status);
        }
    };
    let mut outcome = measure(&mut target, &request.plan);
    if outcome.ended.is_none() {
        outcome.ended = wait_for(target.pid, outcome.interrupted);
    }
    let ended = outcome.ended.unwrap_or(0);
    let program = Path::new(&words[0]).file_name().unwrap_or(&words[0]);
    let interrupted = outcome.interrupted;
    let status = report(&program.to_string_lossy(), outcome, request, record)?;
    Ok(if interrupted || status != 0 { status } else { exit_status(ended) })
}

/// Waits for a command of ours that runs on unmeasured; after Ctrl-C it is told to end.
fn wait_for(pid: i32, interrupted: bool) -> Option<i32> {
    let mut told = interrupted;
    let mut requests = [libc::SIGINT, libc::SIGTERM, libc::SIGKILL].into_iter();
    let mut next = Instant::now();
    loop {
        match ptrace::wait(-1) {
            Ok(Some((found, status))) if !libc::WIFSTOPPED(status) && found == pid => {
                return Some(status);
            }
            // A thread that could not be let go of before, because it was just being killed.
            Ok(Some((tid, status))) if libc::WIFSTOPPED(status) => {
                let _ = ptrace::detach(tid, 0);
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return None,
            _ => {}
        }
        told |= interrupt::asked();
        if told && Instant::now() >= next {
            if let Some(signal) = requests.next() {
                // SAFETY: a child of ours that has not been waited for: the number is still its own.
                unsafe { libc::kill(pid, signal) };
            }
            next = Instant::now() + SIGNAL_INTERVAL;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As a shell has it.
fn exit_status(status: i32) -> u8 {
    if libc::WIFSIGNALED(status) {
        128u8.saturating_add(libc::WTERMSIG(status) as u8)
    } else {
        libc::WEXITSTATUS(status) as u8
    }
}

fn program_of(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({pid})", name.trim())
}

/// Prints and records what there is; the status tells whether it is all that was asked for.
fn report(program: &str, outcome: Outcome, request: &Request, mut record: Record) -> Result<u8> {
    let method = request.plan.method;
    let notes = notes(&outcome, request);
    if outcome.phases.is_empty() {
        println!("{program}: no phase was measured");
    } else {
        println!("{program}: private memory changed");
        print!("{}", table::phases(&outcome, method));
    }
    for phase in &outcome.phases {
        record.phase(program, phase, method);
        if outcome.phases.len() <= 4 {
            print!("{}", table::hot_spots(phase, method, request.top));
        }
    }
    for note in &notes {
        println!("note: {note}");
        record.note(note);
    }
    let mut wrongs = Vec::new();
    if let Some(failure) = &outcome.failure {
        eprintln!("odfork writes: {failure:#}");
        wrongs.push(format!("{failure:#}"));
    }
    let early = outcome.failure.is_some() || outcome.phases.is_empty();
    record.finish(outcome.interrupted, wrongs)?;
    Ok(match (outcome.interrupted, early) {
        (true, _) => INTERRUPTED,
        (false, true) => EARLY,
        _ => 0,
    })
}

fn notes(outcome: &Outcome, request: &Request) -> Vec<String> {
    let mut notes = outcome.notes.clone();
    let plan = &request.plan;
    let of_command = matches!(request.subject, Subject::Command(_));
    if of_command && plan.after.is_zero() && plan.marker.is_none() && plan.interval.is_none() {
        notes.push(
            "the phase began at exec, when nearly nothing was there: most is new; --after SECONDS \
             or --phases begins later"
                .into(),
        );
    }
    if plan.marker.is_some() && outcome.phases.len() < plan.names.len() {
        let (found, wanted) = (outcome.phases.len(), plan.names.len());
        notes.push(format!("{wanted} phases were named, {found} came: see Phases in --help"));
    }
    if let (Subject::Process(pid), Some(status)) = (&request.subject, outcome.ended) {
        let how = match libc::WIFSIGNALED(status) {
            true => format!("was killed by signal {}", libc::WTERMSIG(status)),
            false => "ended".into(),
        };
        notes.push(format!("process {pid} {how} meanwhile; what was measured before is shown"));
    }
    if outcome.interrupted {
        notes.push("interrupted: the last phase was ended early".into());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_the_shells() {
        assert_eq!(exit_status(3 << 8), 3);
        assert_eq!(exit_status(9), 137);
    }
}
