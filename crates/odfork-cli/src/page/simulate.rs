//! `odfork page simulate`: counts of policies on traces.

use std::io::Write;

use anyhow::{ensure, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use odfork_policy::policy::{Spec, NAMES};
use odfork_proc::interrupt;
use odfork_proc::table::columns;

use super::results::{head, Prices, Row};
use super::simulation::{simulate, Outcome};
use super::sizes::{frames, policies};
use super::source::Source;

/// Ctrl-C ended a trace early; what was counted until then was printed.
const INTERRUPTED: u8 = 130;

const ABOUT: &str = "\
Reads traces (one page number a line, decimal or 0x hexadecimal, then optional columns: r or w, \
and a process) and simulates demand paging into an empty memory of so many frames. Counts page \
faults (the first touch of every page included), reclaims (faults without I/O that a policy needs \
in place of reference bits), write-backs, and their cost in units of one reclaim.";

fn help() -> String {
    let mut text = String::from("Policies and their options, as NAME:KEY=VALUE,KEY=VALUE:\n");
    for name in NAMES {
        text += &format!("  {name}\n");
        for (key, meaning) in Spec::keys(name) {
            text += &format!("      {key:<11}{meaning}\n");
        }
    }
    text + "
Examples:
  odfork page simulate --policy fifo,lru,clock --frames 100,200 trace.zst
  odfork page simulate --policy lru --frames 1..5000 --json trace.gz
  zcat trace.gz | odfork page simulate --policy vms:fraction=0.8 --frames 64 -

Exit status: 0; 2 for a wrong option or trace; 130 after Ctrl-C (what was
counted so far is printed)."
}

pub fn command() -> Command {
    Command::new("simulate")
        .about("Count faults, reclaims and write-backs of policies on traces")
        .long_about(ABOUT)
        .after_help(help())
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("NAME")
                .required(true)
                .action(ArgAction::Append)
                .help(
                    "Policy, with options after a colon; may be given several times or with commas",
                ),
        )
        .arg(
            Arg::new("frames")
                .long("frames")
                .value_name("N")
                .required(true)
                .allow_hyphen_values(true)
                .action(ArgAction::Append)
                .help("Frames of memory: numbers and ranges, as 50,100..1000:100"),
        )
        .arg(
            Arg::new("ratio")
                .long("ratio")
                .value_name("R")
                .allow_negative_numbers(true)
                .action(ArgAction::Append)
                .value_parser(clap::value_parser!(f64))
                .help("Cost of a fault in reclaims [default: 2, 8.6 and 120]"),
        )
        .arg(
            Arg::new("write-cost")
                .long("write-cost")
                .value_name("W")
                .allow_negative_numbers(true)
                .default_value("0")
                .value_parser(clap::value_parser!(f64))
                .help("Cost of a write-back in faults"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("One JSON object a line for each trace, policy and number of frames"),
        )
        .arg(
            Arg::new("traces")
                .value_name("TRACE")
                .num_args(1..)
                .default_value("-")
                .hide_default_value(true)
                .help("Trace files, plain, .gz or .zst; - or none: standard input"),
        )
}

pub fn run(matches: &ArgMatches) -> Result<u8> {
    let named = policies(matches.get_many("policy").into_iter().flatten())?;
    let frames = frames(matches.get_many("frames").into_iter().flatten())?;
    let prices = prices(matches)?;
    let specs: Vec<Spec> = named.iter().map(|(_, spec)| *spec).collect();
    let traces: Vec<&String> = matches.get_many("traces").into_iter().flatten().collect();
    interrupt::listen();
    for (at, trace) in traces.iter().enumerate() {
        let outcome = simulate(Source::open(trace)?, &specs, &frames)?;
        if at > 0 && !matches.get_flag("json") {
            println!();
        }
        print(trace, &outcome, &named, &prices, matches.get_flag("json"))?;
        if outcome.interrupted {
            eprintln!(
                "odfork page simulate: {trace}: interrupted after {} references; the counts are of \
                 these",
                outcome.summary.references
            );
            return Ok(INTERRUPTED);
        }
    }
    Ok(0)
}

fn prices(matches: &ArgMatches) -> Result<Prices> {
    let mut prices = Prices::default();
    let ratios: Vec<f64> = matches.get_many("ratio").into_iter().flatten().copied().collect();
    if !ratios.is_empty() {
        prices.ratios = ratios;
    }
    prices.write = matches.get_one("write-cost").copied().unwrap_or(0.0);
    let fit = |value: &f64| value.is_finite() && *value >= 0.0;
    ensure!(
        prices.ratios.iter().all(fit) && fit(&prices.write),
        "--ratio and --write-cost should be numbers of 0 or more"
    );
    Ok(prices)
}

fn print(
    trace: &str,
    outcome: &Outcome,
    named: &[(String, Spec)],
    prices: &Prices,
    json: bool,
) -> Result<()> {
    let pages = outcome.summary.pages();
    let rows = outcome.counts.iter().map(|count| Row {
        trace,
        policy: &named[count.policy].0,
        frames: count.frames,
        pages,
        tally: count.tally,
        interrupted: outcome.interrupted,
    });
    let text: String = if json {
        rows.map(|row| format!("{}\n", row.json(prices))).collect()
    } else {
        let cells: Vec<_> =
            std::iter::once(head(prices)).chain(rows.map(|row| row.cells(prices))).collect();
        let references = outcome.summary.references;
        format!("{trace}: {references} references to {pages} pages\n{}", columns(&cells))
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
