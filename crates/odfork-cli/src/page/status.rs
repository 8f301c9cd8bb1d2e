//! `odfork page status`: what the daemon and the tasks of `--memory any` hold and do, once or live.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Error, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use odfork_pager::endpoint;
use serde_json::Value;

use super::any_status::{self, megabytes};
use super::daemon;

pub fn command() -> Command {
    Command::new("status")
        .about("Show what the pager holds and does")
        .arg(daemon::socket_argument())
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("One JSON object with a schema number, sizes in pages of 4096 bytes"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .short('w')
                .value_name("SECONDS")
                .num_args(0..=1)
                .default_missing_value("1")
                .value_parser(clap::value_parser!(u64).range(1..=3600))
                .help("Again and again until Ctrl-C, with rates"),
        )
}

pub fn run(given: &ArgMatches) -> Result<u8> {
    let socket = daemon::socket_of(given)?;
    let ask = || endpoint::status(&socket).map_err(|error| no_answer(&error, &socket));
    let watch = given.get_one::<u64>("watch").copied();
    let mut before: Option<Value> = None;
    loop {
        // A named socket is a question to its daemon alone.
        let others = match given.contains_id("socket") {
            true => Vec::new(),
            false => any_status::programs(),
        };
        let mut now: Value = match ask() {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) if !others.is_empty() => Value::Object(Default::default()),
            Err(error) => return Err(error),
        };
        let mut out = io::stdout().lock();
        if given.get_flag("json") {
            if !others.is_empty() {
                now["any"] = others.into();
            }
            writeln!(out, "{now}")?;
        } else {
            let clear = watch.is_some() && out.is_terminal();
            write!(out, "{}", if clear { "\x1b[H\x1b[2J" } else { "" })?;
            if now["limit_bytes"].is_u64() {
                write!(out, "{}", table(&now, before.as_ref()))?;
            }
            if !others.is_empty() {
                write!(out, "{}", any_status::table(&others))?;
            }
        }
        out.flush()?;
        drop(out);
        let Some(seconds) = watch else { return Ok(0) };
        before = Some(now);
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// Why there was no answer, in one line.
pub fn no_answer(error: &io::Error, socket: &Path) -> Error {
    let at = socket.display();
    if is_nobody(error) {
        anyhow::anyhow!("nothing is paged that this user can see, and no daemon is running at {at}")
    } else if error.kind() == io::ErrorKind::TimedOut {
        anyhow::anyhow!(
            "the daemon at {at} does not answer (stopped?); its programs wait, nothing is lost"
        )
    } else {
        anyhow::anyhow!("the daemon at {at} cannot be asked: {error}")
    }
}

/// No daemon there.
pub fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe)
}

/// The table; rates when there is an earlier answer of the same daemon.
fn table(now: &Value, before: Option<&Value>) -> String {
    format!("{}{}\n{}", memory(now), rates(now, before), programs(now))
}

fn memory(now: &Value) -> String {
    let (limit, store) = (now["limit_bytes"].as_u64().unwrap_or(0) >> 20, &now["store"]);
    let [held, pool, low, leaving] =
        ["loop", "pool", "order_point", "leaving"].map(|name| megabytes(&now[name]));
    let [medium, compress] = ["medium", "compress"].map(|name| store[name].as_str().unwrap_or("?"));
    let [used, most] =
        ["used_bytes", "most_bytes"].map(|name| store[name].as_f64().unwrap_or(0.0) / 1048576.0);
    let is_full = now["store_full_now"].as_bool() == Some(true);
    let full = if is_full { ", FULL: programs wait for room" } else { "" };
    format!(
        "memory   limit {limit} MB: in use {held}, pool {pool} (low watermark {low}), leaving \
         {leaving}\n\
         store    {medium} ({compress}): {used:.1} of {most:.1} MB{full}\n"
    )
}

/// Counts a second and latencies.
fn rates(now: &Value, before: Option<&Value>) -> String {
    let time = |value: &Value| value["uptime_ns"].as_f64().unwrap_or(0.0);
    let before = before.filter(|before| time(before) > 0.0 && time(now) > time(before));
    let seconds = (time(now) - before.map_or(0.0, time)) / 1e9;
    let rate = |path: &str| {
        let count = |value: &Value| value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
        (count(now) - before.map_or(0.0, count)) / seconds.max(0.001)
    };
    let reclaims =
        rate("/clock/reclaims_loop") + rate("/clock/reclaims_pool") + rate("/clock/prefetch_used");
    let counts = format!(
        "faults {:.0}, reclaims {reclaims:.0}, page-ins {:.0}+{:.0}, page-outs {:.0}, zeros {:.0}, \
         scanned {:.0} (law {})",
        rate("/totals/faults"),
        rate("/totals/page_ins"),
        rate("/totals/prefetched"),
        rate("/totals/page_outs"),
        rate("/totals/zero_fills"),
        rate("/clock/scanned"),
        now["scan_rate"],
    );
    let micro = |path: &str| now.pointer(path).and_then(Value::as_f64).unwrap_or(0.0) / 1000.0;
    format!(
        "rates/s  {counts}\n\
         latency  reclaim p50 {:.0} p99 {:.0} us, page-in p50 {:.0} p99 {:.0} us (upper bounds of \
         powers of two)\n",
        micro("/totals/reclaim/p50_ns"),
        micro("/totals/reclaim/p99_ns"),
        micro("/totals/page_in/p50_ns"),
        micro("/totals/page_in/p99_ns"),
    )
}

/// A line for each program.
fn programs(now: &Value) -> String {
    let line = |[pid, name, rest @ ..]: [&str; 8]| {
        let [mapped, resident, reclaimable, faults, page_ins, reclaims] = rest;
        format!(
            "{pid:>8} {name:<16} {mapped:>9} {resident:>9} {reclaimable:>9} {faults:>10} \
             {page_ins:>9} {reclaims:>10}"
        )
    };
    let head =
        ["pid", "program", "mapped MB", "resident", "reclaim.", "faults", "page-ins", "reclaims"];
    let mut text = format!("{}  state\n", line(head));
    for program in now["programs"].as_array().into_iter().flatten() {
        let is = |name: &str| program[name].as_bool() == Some(true);
        let states =
            [("swapped_out", "swapped out"), ("frozen", "forking"), ("anomalous", "anomalous")];
        let state = states.iter().find(|(name, _)| is(name)).map_or("runs", |(_, words)| words);
        let pages = ["mapped", "resident", "reclaimable"].map(|name| megabytes(&program[name]));
        let counts =
            ["pid", "faults", "page_ins", "reclaims"].map(|name| program[name].to_string());
        let [pid, faults, page_ins, reclaims] = counts.each_ref().map(String::as_str);
        let [mapped, resident, reclaimable] = pages.each_ref().map(String::as_str);
        let name = program["name"].as_str().unwrap_or("?");
        let cells = [pid, name, mapped, resident, reclaimable, faults, page_ins, reclaims];
        let _ = writeln!(text, "{}  {state}", line(cells));
    }
    text
}
