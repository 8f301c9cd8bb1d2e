//! odfork writes: what share of its memory a program changes.
//!
//! The way of a measurement: `options` reads the request, `command` or `tracee` gets hold of the
//! process, `session` says when it is scanned, `method` says how (`snapshot`, or `marks` with
//! `inject`), both over `scan` (`maps`, `pages`); `change` is the result, `table` and `record`
//! print it. `suite` is the standard set. This file only connects them.

mod change;
mod command;
mod inject;
mod marks;
mod method;
mod options;
mod record;
mod scan;
mod session;
mod snapshot;
mod suite;
mod table;
mod traffic;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use clap::ArgMatches;

use self::command::{exit_status, launch, wait_for, NotStarted};
use self::options::{Request, Subject};
use self::record::Record;
use self::session::{measure, Outcome};
use odfork_proc::interrupt;
use odfork_proc::tracee::Tracee;

pub use self::options::command;

/// Counts the pages that a process writes; the exit status.
pub fn run(matches: &ArgMatches) -> u8 {
    let done = options::request(matches).and_then(|request| carry_out(&request));
    done.unwrap_or_else(|error| odfork_proc::command::cannot("writes", &error))
}

fn carry_out(request: &Request) -> Result<u8> {
    let effort = if matches!(request.subject, Subject::Suite(true)) { "quick" } else { "default" };
    let mut record = Record::open(request.json.as_deref(), effort)?;
    for remark in &request.remarks {
        eprintln!("odfork writes: {remark}");
        record.note(remark);
    }
    interrupt::listen();
    match &request.subject {
        Subject::Suite(quick) => suite::run(*quick, request, record),
        Subject::Process(pid) => {
            let mut tracee = Tracee::seize(*pid, request.plan.marker)?;
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let program = format!("{} ({pid})", name.trim());
            report(&program, measure(&mut tracee, &request.plan), request, record)
        }
        Subject::Command(words) => of_command(words, request, record),
    }
}

fn of_command(words: &[OsString], request: &Request, record: Record) -> Result<u8> {
    let mut tracee = match launch(words, request.plan.marker, None)? {
        Ok(tracee) => tracee,
        Err(NotStarted { status, line }) => {
            eprintln!("odfork writes: {line}");
            return Ok(status);
        }
    };
    let mut outcome = measure(&mut tracee, &request.plan);
    if outcome.ended.is_none() {
        outcome.ended = wait_for(tracee.pid, outcome.interrupted);
    }
    let ended = outcome.ended.unwrap_or(0);
    let program = Path::new(&words[0]).file_name().unwrap_or(&words[0]);
    let interrupted = outcome.interrupted;
    let status = report(&program.to_string_lossy(), outcome, request, record)?;
    Ok(if interrupted || status != 0 { status } else { exit_status(ended) })
}

/// Prints and records what there is; the status tells whether it is all that was asked for.
fn report(program: &str, outcome: Outcome, request: &Request, mut record: Record) -> Result<u8> {
    let method = request.plan.method;
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
    for note in notes(&outcome, request) {
        println!("note: {note}");
        record.note(&note);
    }
    let complete = !outcome.phases.is_empty();
    let wrongs = outcome.failure.iter().map(|failure| format!("{failure:#}")).collect();
    record.finish(outcome.interrupted, complete, wrongs)
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
