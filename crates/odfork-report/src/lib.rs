//! odfork report: one HTML file and its plots from recorded samples.
//!
//! The way of a report: `digest` groups samples, `chapters` choose plots and tables (`blocks`),
//! `chart`, `bars`, `heat` and `surface` draw them (`drawing`: SVG, and PNG from it), `page` puts
//! everything into one file. Owns the command and the files it writes. Does not measure.

mod axis;
mod bars;
mod blocks;
mod chapters;
mod chart;
mod colour;
mod drawing;
mod font;
mod heat;
mod model;
mod output;
mod page;
mod regression;
pub mod study;
mod surface;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, ArgMatches, Command};

use blocks::Chapter;
use chapters::PLANS;
use odfork_proc::command::{cannot, Subcommand};
use odfork_samples::samples::{read_folder, Recording};
use output::{prepare, write, write_plots};

/// What this crate gives to the launcher.
pub const SUBCOMMANDS: [Subcommand; 1] = [Subcommand { name: "report", command, run }];

const EXAMPLES: &str = "Examples:
  odfork report                             report.html and plots/ in odfork-results
  odfork report results --out /tmp/report   read one folder, write another
  odfork bench latency && odfork report     a report of one experiment; the others are listed as \
                        missing";

/// Its options.
pub fn command() -> Command {
    Command::new("report")
        .about("Make one HTML file and plots from recorded samples")
        .long_about(
            "Reads the sample files (*.jsonl) of a folder (and what odfork page compare left \
             there) and writes report.html, which needs nothing else, and every plot as \
             plots/NAME.svg and plots/NAME.png. Files that are cut or broken are reported as far \
             as they can be read.",
        )
        .arg(
            Arg::new("folder")
                .value_name("DIR")
                .default_value("odfork-results")
                .help("Folder with the sample files of odfork bench"),
        )
        .arg(Arg::new("out").long("out").value_name("DIR").help(
            "Folder to write to; made when \
                                                                 missing [default: the folder \
                                                                 read]",
        ))
        .after_help(EXAMPLES)
}

/// Makes the report; the exit status.
pub fn run(matches: &ArgMatches) -> u8 {
    let folder =
        PathBuf::from(matches.get_one::<String>("folder").map_or("odfork-results", String::as_str));
    let out = matches.get_one::<String>("out").map_or_else(|| folder.clone(), PathBuf::from);
    match report(&folder, &out) {
        Ok(written) => {
            for remark in &written.remarks {
                eprintln!("odfork report: {remark}");
            }
            println!(
                "{}: {} experiments, {} plots",
                written.page.display(),
                written.experiments,
                written.plots
            );
            0
        }
        Err(error) => cannot("report", &error),
    }
}

/// What was made.
#[derive(Debug)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// Experiments that are in it.
    pub experiments: usize,
    /// Plots beside it.
    pub plots: usize,
    /// What could not be read, a line each.
    pub remarks: Vec<String>,
}

/// Reads `folder`, writes the page and all plots to `out`.
pub fn report(folder: &Path, out: &Path) -> Result<Written> {
    let study = study::Study::read(folder);
    let (mut recordings, mut remarks) = match read_folder(folder) {
        // A comparison of paging policies alone is a report, too.
        Err(_) if matches!(study, Ok(Some(_))) => (Vec::new(), Vec::new()),
        read => read?,
    };
    let study = study.unwrap_or_else(|error| {
        remarks.push(format!("{error:#}"));
        None
    });
    recordings.sort_by_key(|recording| order(recording.experiment()));
    prepare(out)?;
    let mut chapters = chapters_of(&recordings);
    let place = chapters
        .iter()
        .position(|chapter| !chapter.id.starts_with("grid"))
        .unwrap_or(chapters.len());
    chapters.insert(place, model::chapter(&recordings));
    chapters.extend(study.as_ref().map(study::Study::chapter));
    let study = study.is_some();
    // Damage stands in its own chapter; only files without a chapter are remarks of the page.
    let known = |remark: &String| {
        recordings.iter().any(|recording| recording.damage.as_ref() == Some(remark))
    };
    let outside: Vec<String> = remarks.iter().filter(|remark| !known(remark)).cloned().collect();
    let plots = write_plots(&chapters, out)?;
    let html =
        page::Page { recordings: &recordings, chapters: &chapters, remarks: &outside }.html();
    let page = out.join("report.html");
    write(&page, drawing::clean(&html.0).as_bytes())?;
    let experiments = recordings.len() + usize::from(study);
    Ok(Written { page, experiments, plots, remarks })
}

fn order(experiment: &str) -> usize {
    PLANS.iter().position(|plan| plan.name == experiment).unwrap_or(PLANS.len())
}

/// A second file of the same experiment gets names of its own.
fn chapters_of(recordings: &[Recording]) -> Vec<Chapter> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut make = |recording| {
        let experiment = Recording::experiment(recording);
        let key = if order(experiment) < PLANS.len() { experiment } else { "" };
        let count = seen.entry(key).or_insert(0);
        *count += 1;
        let suffix = if *count == 1 { String::new() } else { format!("-{count}") };
        chapters::chapter(recording, &suffix)
    };
    recordings.iter().map(&mut make).collect()
}
