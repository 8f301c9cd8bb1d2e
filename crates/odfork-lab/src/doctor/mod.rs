//! odfork doctor: what fork costs this process.

use clap::{ArgMatches, Command};

pub fn command() -> Command {
    Command::new("doctor").about("Tell what fork costs a process and what would help")
}

pub fn run(_matches: &ArgMatches) -> u8 {
    crate::verbs::cannot("doctor", &anyhow::anyhow!("not written yet"))
}
