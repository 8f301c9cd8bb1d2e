//! odfork doctor: what fork costs a process, who forks, and what would help.
//!
//! Owns the command line and the exit status. The way of an answer: `subject` reads a process
//! (`smaps` understands the text), `price` says what its fork costs by each engine, `watch` or
//! `sample` observe it and feed the `log` of `fork_statistics` and `snapshot`s at forks,
//! `eligibility` says whether odfork can help, `advice` recommends, `layout` makes the text.

mod advice;
mod eligibility;
mod fork_statistics;
#[cfg(test)]
mod golden;
mod inspection;
mod layout;
mod log;
mod machine;
mod price;
mod sample;
mod smaps;
mod snapshot;
mod subject;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};
use serde::Serialize;

use self::inspection::NotExecuted;
use self::price::Prices;
use odfork_proc::command::cannot;
use odfork_proc::interrupt;

const SECONDS_FOR_PROCESS: f64 = 5.0;

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

#[derive(Args)]
struct Options {
    /// One JSON object with a schema number
    #[arg(long)]
    json: bool,
    /// Observe so long [default: 5 for PID, its whole life for COMMAND]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    limit: Option<f64>,
    /// Fit fork times to the latency.jsonl in this folder [default: odfork-results]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
    /// A running process
    #[arg(value_name = "PID", value_parser = process)]
    pid: Option<i32>,
    /// A command to start and observe, after --
    #[arg(value_names = ["COMMAND", "ARGS"], num_args = 1.., last = true, conflicts_with = "pid")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Its options.
pub fn command() -> Command {
    Options::augment_args(Command::new("doctor"))
        .about("Tell what fork costs a process and what would help")
        .override_usage(
            "odfork doctor [--json] [--for SECONDS] [--data DIR] [PID | -- COMMAND ARGS...]",
        )
        .after_help(EXAMPLES)
}

/// A year is longer than anybody waits, and no clock overflows.
const LONGEST: f64 = 365.0 * 86_400.0;

fn seconds(word: &str) -> Result<f64, String> {
    let number = word.parse::<f64>().ok().filter(|n| (0.0..=LONGEST).contains(n));
    number.ok_or_else(|| "a number of seconds is needed, such as 5 or 0.5".to_owned())
}

fn process(word: &str) -> Result<i32, String> {
    let number = word.parse::<i32>().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "a process number is needed; a command goes after --".to_owned())
}

/// Inspects a process and prints what was found; the exit status.
pub fn run(matches: &ArgMatches) -> u8 {
    inspect(matches).unwrap_or_else(|error| cannot("doctor", &error))
}

fn inspect(matches: &ArgMatches) -> Result<u8> {
    let Options { json, limit, data, pid, command } = Options::from_arg_matches(matches)?;
    let prices = Prices::find(data.as_ref());
    if let Some(pid) = pid {
        interrupt::listen();
        let limit = Duration::from_secs_f64(limit.unwrap_or(SECONDS_FOR_PROCESS));
        let report = inspection::of_process(pid, limit, prices)?;
        return print(&report, json, layout::lay_out);
    }
    if command.is_empty() {
        return print(&machine::inspect(prices), json, layout::machine);
    }
    interrupt::listen();
    match inspection::of_command(&command, limit.map(Duration::from_secs_f64), prices, json)? {
        Ok(report) => print(&report, json, layout::lay_out),
        Err(NotExecuted(status, why)) => {
            eprintln!("odfork doctor: {why}");
            Ok(status)
        }
    }
}

fn print<T: Serialize>(report: &T, json: bool, lay_out: fn(&T) -> String) -> Result<u8> {
    let text = if json { serde_json::to_string_pretty(report)? + "\n" } else { lay_out(report) };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the report")?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from(["doctor"].iter().chain(words))
    }

    #[test]
    fn a_process_or_a_command_but_not_both() {
        assert_eq!(parse(&["--for", "0.5", "12"]).unwrap().get_one("pid"), Some(&12));
        let given = parse(&["--json", "--", "ls", "--json", "-l"]).unwrap();
        assert_eq!(given.get_many::<OsString>("command").unwrap().len(), 3);
        for wrong in [
            vec!["ls"],
            vec!["0"],
            vec!["-1"],
            vec!["12", "--", "ls"],
            vec!["--for", "-1"],
            vec!["--for", "nan"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
