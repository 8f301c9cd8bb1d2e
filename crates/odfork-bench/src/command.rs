//! `odfork bench`: parses, plans, runs, prints.
//!
//! The way of one suite: `suite` names it and makes its plans for the configurations and the memory
//! that are there, `measure` has the `runner` interleave their points and the `recorder` write
//! every number, `tables` prints the medians. What a subject does on command is in `workload`; what
//! becomes of the files is for `odfork report`.

use anyhow::{bail, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use odfork_proc::command::cannot;

use crate::catalogue::{find, SUITES};
use crate::measure::measure;
use crate::options::{subject_command, SubjectOptions};
use crate::suite::{How, Suite};
use crate::tables;

const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = include_str!("help.txt").trim_ascii_end();

/// The command and one subcommand for each suite.
pub fn command() -> Command {
    let suites = SUITES.iter().map(|suite| match &suite.how {
        How::Own { command, .. } => command(),
        How::Subjects(_) => {
            let command = Command::new(suite.name).about(suite.question);
            subject_command::<SubjectOptions>(command)
                .after_help(format!("Published: {}", suite.published))
        }
    });
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("As one JSON array");
    Command::new("bench")
        .about("Rerun published measurements of fork on this machine")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(suites)
        .subcommand(subject_command::<SubjectOptions>(Command::new("all").about(
            "Every experiment of a few minutes that needs no other program, one after the other",
        )))
        .subcommand(Command::new("list").about("List the experiments").arg(json))
}

pub fn run(matches: &ArgMatches) -> u8 {
    let outcome = match matches.subcommand() {
        Some(("list", inner)) => list(inner.get_flag("json")),
        Some(("all", inner)) => all(inner),
        Some((name, inner)) => match find(name) {
            Some(suite) => one(suite, inner),
            None => Err(anyhow::anyhow!("no experiment {name}; see `odfork bench list`")),
        },
        None => Err(anyhow::anyhow!("name an experiment; see `odfork bench list`")),
    };
    outcome.unwrap_or_else(|error| cannot("bench", &error))
}

fn list(json: bool) -> Result<u8> {
    if json {
        let all: Vec<_> =
            SUITES.iter().filter(|suite| suite.is_of_all()).map(|suite| suite.json()).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    for suite in SUITES {
        println!("{:<14} {}", suite.name, suite.question);
        println!("{:<14} published: {}", "", suite.published);
    }
    Ok(0)
}

fn all(matches: &ArgMatches) -> Result<u8> {
    let options = SubjectOptions::from_arg_matches(matches)?;
    if options.common.json.is_some() {
        bail!("--json names one file and `all` writes one for each experiment; use --dir");
    }
    let mut worst = 0;
    for suite in SUITES.into_iter().filter(|suite| suite.is_of_all()) {
        worst = worst.max(one(suite, matches)?);
        if worst == INTERRUPTED {
            break;
        }
    }
    println!(
        "\nsamples are in {0}; odfork report {0} makes the report",
        options.common.dir.display()
    );
    Ok(worst)
}

/// One suite from opening its file to printing its tables.
fn one(suite: &'static Suite, matches: &ArgMatches) -> Result<u8> {
    let subjects = match &suite.how {
        How::Own { run, .. } => return run(matches),
        How::Subjects(subjects) => subjects,
    };
    let options = SubjectOptions::from_arg_matches(matches)?;
    let recorder = measure(suite, subjects, &options, Vec::new())?;
    print!("{}", (subjects.tables)(suite, &recorder.recording));
    if let Some(line) = tables::harness(suite, &recorder.recording) {
        println!("{line}");
    }
    recorder.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_sound_and_no_mission_row_is_shown() {
        command().debug_assert();
        for suite in SUITES {
            let mut found = command().find_subcommand(suite.name).unwrap().clone();
            assert_eq!(found.get_about().unwrap().to_string(), suite.question);
            let about = found.render_long_help().to_string();
            assert!(suite.row.len() != 3 || !about.contains(suite.row), "{about}");
        }
    }
}
