//! odfork writes: what share of its memory a program changes.

use clap::{ArgMatches, Command};

pub fn command() -> Command {
    Command::new("writes").about("Measure what share of its pages and bytes a program changes")
}

pub fn run(_matches: &ArgMatches) -> u8 {
    crate::verbs::cannot("writes", &anyhow::anyhow!("not written yet"))
}
