//! `odfork stats`: what a living process under odfork did and holds, and the way to switch it off.
//!
//! Owns the command and its output. Where the figures lie is in `find`; what they are is in the
//! crate `odfork-stats`.

mod find;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{bail, Context as _, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use odfork_proc::command::{cannot, Subcommand};
use odfork_proc::process;
use odfork_stats::{write_json, write_prometheus, write_text, Context, Metrics, IS_PLAIN};

use find::{ask_for_plain, find, Found};

/// As `odfork` takes it.
pub const SUBCOMMAND: Subcommand = Subcommand { name: "stats", command, run };

const HELP: &str = "\
Examples:
  odfork stats 1234                       what process 1234 did, holds, lacks
  odfork stats --all --format prometheus --output /var/lib/metrics/odfork.prom
  odfork stats 1234 --plain               unfreeze it, and keep it plain

Processes of the same user can be read, and by root all. Nothing is stopped.
--plain takes effect before the next fork of the process.

Exit status: 0, or 2 after one line that says why not.";

fn command() -> Command {
    Command::new("stats")
        .about("Show what a living process gained by odfork, or switch it off there")
        .override_usage("odfork stats [OPTIONS] <PID>...\n       odfork stats [OPTIONS] --all")
        .after_help(HELP)
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .num_args(1..)
                .required_unless_present("all")
                .value_parser(clap::value_parser!(i32).range(1..))
                .help("Processes to look into"),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .conflicts_with("pid")
                .help("Every process that has odfork and may be read"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("text")
                .value_parser(["text", "json", "prometheus"])
                .help("For people, one JSON object per process, or for a metrics collector"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("Replace FILE at once instead of printing"),
        )
        .arg(
            Arg::new("plain")
                .long("plain")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["format", "output", "all"])
                .help("Make the process unfreeze its memory and stay with plain fork"),
        )
}

fn run(given: &ArgMatches) -> u8 {
    match carry_out(given) {
        Ok(()) => 0,
        Err(error) => cannot("stats", &error),
    }
}

fn carry_out(given: &ArgMatches) -> Result<()> {
    let found = match given.get_flag("all") {
        true => process::all().into_iter().filter_map(|pid| find(pid).ok()).collect(),
        false => {
            let pids = given.get_many::<i32>("pid").into_iter().flatten();
            pids.map(|&pid| find(pid)).collect::<Result<Vec<Found>>>()?
        }
    };
    if given.get_flag("plain") {
        return found.iter().try_for_each(make_plain);
    }
    let format = given.get_one::<String>("format").map_or("text", String::as_str);
    let text = format_all(&found, format)?;
    match given.get_one::<PathBuf>("output") {
        Some(path) => replace(path, &text),
        None => Ok(std::io::stdout().write_all(text.as_bytes())?),
    }
}

fn make_plain(found: &Found) -> Result<()> {
    let pid = found.pid;
    if found.stats.wish.load(Relaxed) == IS_PLAIN {
        println!("process {pid} was unfrozen on demand before, and is plain");
        return Ok(());
    }
    ask_for_plain(found)?;
    println!("process {pid} unfreezes its memory before its next fork, and stays plain");
    Ok(())
}

fn format_all(all: &[Found], format: &str) -> Result<String> {
    let mut text = String::new();
    match format {
        "prometheus" => {
            let one = |f: &'_ Found| -> (i32, String) { (f.pid, process::printable(&f.program)) };
            let names: Vec<_> = all.iter().map(one).collect();
            let metrics: Vec<_> = names
                .iter()
                .zip(all)
                .map(|((pid, program), f)| Metrics { pid: *pid, program, stats: &f.stats })
                .collect();
            write_prometheus(&mut text, &metrics)?;
        }
        "text" if all.is_empty() => text.push_str("no process that may be read has odfork\n"),
        _ => {
            for one in all {
                write_one(&mut text, one, format == "json")?;
            }
        }
    }
    Ok(text)
}

fn write_one(text: &mut String, found: &Found, json: bool) -> Result<()> {
    let program = process::printable(&found.program);
    let context = Context { pid: found.pid, program: &program, calls: 0, injected: 0 };
    if json {
        return Ok(write_json(text, &found.stats, &context)?);
    }
    write_text(text, &found.stats, &context)?;
    if found.inherited {
        writeln!(text, "odfork:   these are its parent's figures: it has not forked itself yet")?;
    }
    Ok(())
}

/// Writes a file beside it and renames that, so that nobody reads half of it. A pipe or device is
/// written to instead. A link is neither followed nor replaced: it may be somebody else's, or the
/// machine's (/dev/stdout).
fn replace(path: &Path, text: &str) -> Result<()> {
    let there = path.symlink_metadata().ok();
    match there.as_ref().map(std::fs::Metadata::file_type) {
        Some(kind) if kind.is_symlink() => {
            bail!("{} is a link: name the file that it leads to", path.display())
        }
        Some(kind) if !kind.is_file() && !kind.is_dir() => {
            let written = File::options().write(true).open(path);
            return written
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| path.display().to_string());
        }
        _ => {}
    }
    let Some(name) = path.file_name() else { bail!("{}: not a file", path.display()) };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(hidden);
    // Not through a link that somebody else has put there.
    let new = File::options().write(true).create_new(true).open(&beside);
    let mut new = new.with_context(|| path.display().to_string())?;
    let mode = there.map_or(Ok(()), |there| new.set_permissions(there.permissions()));
    let done = mode
        .and_then(|()| new.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done.with_context(|| path.display().to_string())
}
