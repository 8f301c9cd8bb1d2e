//! `odfork page compare`: the chapter of the report about replacement. Faults and cost against
//! memory for every policy and trace, and what the numbers say to the claims of Babaoglu and Joy.
//!
//! With `--live`, whether the simulator counts what the pagers do.
//!
//! The way: `programs` records traces when asked, `cases` simulates, `mix` runs several programs in
//! one memory, `claims` judges, `curves` makes plots and tables, `live` runs what is live and
//! judges it; odfork-report writes the chapter (`odfork_report::study`).

mod cases;
mod claims;
mod curves;
mod live;
mod mix;
mod programs;

use std::path::PathBuf;

use anyhow::{ensure, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use odfork_proc::interrupt;
use odfork_report::study::{Claim, Study};

use cases::{Results, Trace};

const HELP: &str = "\
Examples:
  odfork page compare sort.gz cc1.zst      simulate these, judge the claims
  odfork page compare --record             record four programs first (minutes)
  odfork page compare --record && odfork report
  odfork page compare --live               the same accesses, under the pagers

Writes paging.md, plots/paging-*.svg, and paging.json, of which 'odfork report'
makes a chapter. Recorded traces are kept in DIR/traces and used again.
With --live the same accesses are made by a real process, under the
pager of all memory and under the daemon: their page-ins are compared with the
simulator's. That takes some minutes.

Exit status: 0; 2 for a wrong option or trace; 130 after Ctrl-C.";

pub fn command() -> Command {
    Command::new("compare")
        .about("Compare policies on traces and judge the paper's claims")
        .after_help(HELP)
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .default_value("odfork-results")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("Folder to write to; made when missing"),
        )
        .arg(
            Arg::new("record")
                .long("record")
                .action(ArgAction::SetTrue)
                .help("Record sort, sqlite3, cc1 and a collecting python3 into DIR/traces first"),
        )
        .arg(
            Arg::new("live").long("live").action(ArgAction::SetTrue).help(
                "Compare the simulator with the pagers, too; without TRACE by accesses made up",
            ),
        )
        .arg(
            Arg::new("runs")
                .long("runs")
                .value_name("N")
                .requires("live")
                .default_value("5")
                .value_parser(clap::value_parser!(u32).range(1..=100))
                .help("With --live: runs of each case"),
        )
        .arg(
            Arg::new("traces")
                .value_name("TRACE")
                .num_args(0..)
                .help("Trace files, plain, .gz or .zst"),
        )
}

pub fn run(matches: &ArgMatches) -> Result<u8> {
    let folder = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let mut paths: Vec<String> =
        matches.get_many("traces").into_iter().flatten().cloned().collect();
    let (is_live, is_named) = (matches.get_flag("live"), !paths.is_empty());
    interrupt::listen();
    if matches.get_flag("record") {
        paths.extend(programs::record(&folder.join("traces"))?);
    }
    ensure!(is_live || !paths.is_empty(), "no trace is given; name some, or record with --record");
    let mut traces = Vec::new();
    for path in &paths {
        let Some(trace) = Trace::load(path)? else { return Ok(130) };
        traces.push(trace);
    }
    let Some(mut study) = study(&traces)? else { return Ok(130) };
    if is_live {
        let runs = matches.get_one("runs").copied().unwrap_or(1);
        let Some(live) = live::compare(&traces, !is_named, runs)? else { return Ok(130) };
        print!("{}", live.table());
        study.intro.push(live.intro);
        study.claims.extend(live.claims);
        study.grids.push(live.grid);
    }
    let written = study.write(&folder)?;
    print(&study.claims);
    println!("{}: {} traces, {} plots", written.display(), traces.len(), study.curves.len());
    Ok(0)
}

/// `None` after Ctrl-C.
fn study(traces: &[Trace]) -> Result<Option<Study>> {
    if traces.is_empty() {
        return Ok(Some(Study::default()));
    }
    let Some(results) = Results::simulate(traces)? else { return Ok(None) };
    let mut claims = claims::judge(&results);
    let mut grids = vec![curves::traces(&results), curves::sampling(&results)];
    if traces.len() > 1 {
        let together = mix::simulate(traces)?;
        claims.insert(4, claims::global(&together));
        grids.push(curves::together(&together));
    }
    grids.push(curves::partitions(&results));
    Ok(Some(Study {
        intro: curves::intro(&results),
        claims,
        curves: curves::plots(&results),
        grids,
        ..Study::default()
    }))
}

fn print(claims: &[Claim]) {
    for claim in claims {
        println!("{}: {}: {}", claim.name, claim.claim, claim.verdict);
        claim.numbers.iter().for_each(|line| println!("    {line}"));
    }
}
