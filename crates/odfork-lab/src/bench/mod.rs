//! odfork bench: the experiments.

use clap::{ArgMatches, Command};

pub fn command() -> Command {
    Command::new("bench").about("Rerun published measurements of fork on this machine")
}

pub fn run(_matches: &ArgMatches) -> u8 {
    crate::verbs::cannot("bench", &anyhow::anyhow!("not written yet"))
}

pub fn subject_command() -> Command {
    Command::new("subject").hide(true)
}

pub fn run_subject(_matches: &ArgMatches) -> u8 {
    2
}
