//! odfork predict: the cost of forks from the fitted model.

use clap::{ArgMatches, Command};

pub fn command() -> Command {
    Command::new("predict").about("Predict the cost of forks from measured coefficients")
}

pub fn run(_matches: &ArgMatches) -> u8 {
    crate::verbs::cannot("predict", &anyhow::anyhow!("not written yet"))
}
