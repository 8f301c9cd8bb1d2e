//! A command of `odfork`: a name, its options, and what it does. Crates give theirs to the launcher
//! in a list.

use clap::{ArgMatches, Command};

/// One command.
#[derive(Debug)]
pub struct Subcommand {
    /// Its name, the word behind `odfork`.
    pub name: &'static str,
    /// Its options and help.
    pub command: fn() -> Command,
    /// Carries it out; returns the exit status.
    pub run: fn(&ArgMatches) -> u8,
}

/// Prints `odfork NAME: why` on standard error and gives the status of "could not".
pub fn cannot(name: &str, error: &anyhow::Error) -> u8 {
    eprintln!("odfork {name}: {error:#}");
    2
}
