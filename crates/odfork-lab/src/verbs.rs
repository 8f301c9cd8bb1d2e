//! The commands of the laboratory, as `odfork` takes them: a name, its options, and what it does.
//!
//! `odfork` (crate odfork-cli) adds these to its own. Each verb lives in its own folder; this file only lists them.

use clap::{ArgMatches, Command};

use crate::peers::ledger;
use crate::{bench, doctor, dossier, paging, predict, sessions, writes};

/// One command of the laboratory.
#[derive(Debug)]
pub struct Verb {
    pub name: &'static str,
    pub command: fn() -> Command,
    /// Carries it out; returns the exit status.
    pub run: fn(&ArgMatches) -> u8,
}

pub const VERBS: [Verb; 9] = [
    Verb { name: "bench", command: bench::command, run: bench::run },
    Verb { name: "doctor", command: doctor::command, run: doctor::run },
    Verb { name: "predict", command: predict::command, run: predict::run },
    Verb { name: "writes", command: writes::command, run: writes::run },
    Verb { name: "report", command: dossier::command, run: dossier::run },
    Verb { name: "subject", command: bench::subject_command, run: bench::run_subject },
    Verb { name: "paged", command: paging::program::command, run: paging::program::run },
    Verb { name: "session", command: sessions::program::command, run: sessions::program::run },
    Verb { name: "tidy", command: ledger::command, run: ledger::run },
];

/// Prints `odfork VERB: why` on standard error and gives the status of "could not".
pub fn cannot(verb: &str, error: &anyhow::Error) -> u8 {
    eprintln!("odfork {verb}: {error:#}");
    2
}
