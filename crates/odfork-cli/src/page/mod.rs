//! `odfork page`: the pager, and its policies on traces.
//!
//! This file lists the commands of the group and carries one out. A new one is a file with
//! `command()` and `run()`, and a line in `COMMANDS`. Errors are one line and exit status 2, as
//! everywhere in `odfork`.

mod any;
mod any_status;
mod compare;
mod daemon;
mod group;
pub mod probe;
mod results;
mod run;
mod set;
mod simulate;
mod simulation;
mod sizes;
mod source;
mod status;
mod trace;

use anyhow::Result;
use clap::{ArgMatches, Command};
use odfork_proc::command::{cannot, Subcommand};

/// One command of the group.
struct Inner {
    command: fn() -> Command,
    /// Carries it out; returns the exit status.
    run: fn(&ArgMatches) -> Result<u8>,
}

const COMMANDS: [Inner; 8] = [
    Inner { command: run::command, run: run::run },
    Inner { command: status::command, run: status::run },
    Inner { command: set::command, run: set::run },
    Inner { command: daemon::command, run: daemon::run },
    Inner { command: daemon::serve_command, run: daemon::serve },
    Inner { command: simulate::command, run: simulate::run },
    Inner { command: trace::command, run: trace::run },
    Inner { command: compare::command, run: compare::run },
];

/// As `odfork` takes it.
pub const SUBCOMMAND: Subcommand = Subcommand { name: "page", command, run };

const HELP: &str = "\
Examples:
  odfork page run --limit 512M -- python3 big.py        page its memory
  odfork page status --watch                            what the pager does
  odfork page trace --out sort.gz -- sort words.txt     record a trace
  odfork page simulate --policy clock --frames 500 sort.gz
  odfork page simulate --policy lru --frames 10..2000:10 --json sort.gz
  odfork page compare sort.gz                           a chapter of the report";

fn command() -> Command {
    Command::new("page")
        .about("Page programs under a memory limit; simulate replacement on traces")
        .after_help(HELP)
        .subcommand_required(true)
        .arg_required_else_help(false)
        .disable_help_subcommand(true)
        .subcommands(COMMANDS.iter().map(|inner| (inner.command)()))
}

fn run(matches: &ArgMatches) -> u8 {
    let (name, given) = matches.subcommand().unwrap_or(("", matches));
    let Some(inner) = COMMANDS.iter().find(|inner| (inner.command)().get_name() == name) else {
        return 2;
    };
    (inner.run)(given).unwrap_or_else(|error| cannot(&format!("page {name}"), &error))
}
