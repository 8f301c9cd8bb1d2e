//! odfork report: one HTML file and its plots from recorded samples.

mod bars;
mod chart;
mod heat;
mod ink;
mod letters;
mod quantity;
mod raster;
mod regression;
mod scale;
mod scene;
mod surface;
mod svg;
use clap::{ArgMatches, Command};

pub fn command() -> Command {
    Command::new("report").about("Make one HTML file and plots from recorded samples")
}

pub fn run(_matches: &ArgMatches) -> u8 {
    crate::verbs::cannot("report", &anyhow::anyhow!("not written yet"))
}
