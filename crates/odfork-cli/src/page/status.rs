//! `odfork page status`: what the daemon holds and does, once or live.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Error, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use odfork_pager::endpoint;
use serde_json::Value;

use super::daemon;

pub fn command() -> Command {
    Command::new("status")
        .about("Show what the daemon holds and does")
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
        let text = ask()?;
        let now: Value = serde_json::from_str(&text)?;
        let mut out = io::stdout().lock();
        if given.get_flag("json") {
            writeln!(out, "{}", text.trim())?;
        } else {
            let clear = watch.is_some() && out.is_terminal();
            let table = table(&now, before.as_ref());
            write!(out, "{}{table}", if clear { "\x1b[H\x1b[2J" } else { "" })?;
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
    if super::run::is_nobody(error) {
        anyhow::anyhow!("no daemon is running at {at}; 'odfork page run' starts one")
    } else if error.kind() == io::ErrorKind::TimedOut {
        anyhow::anyhow!(
            "the daemon at {at} does not answer (stopped?); its programs wait, nothing is lost"
        )
    } else {
        anyhow::anyhow!("the daemon at {at} cannot be asked: {error}")
    }
}

fn megabytes(pages: &Value) -> String {
    format!("{:.1}", pages.as_f64().unwrap_or(0.0) / 256.0)
}

/// The table; rates when there is an earlier answer of the same daemon.
fn table(now: &Value, before: Option<&Value>) -> String {
    let mut text = String::new();
    let get = |name: &str| &now[name];
    let time = now["uptime_ns"].as_f64().unwrap_or(0.0);
    let then = before.map_or(0.0, |before| before["uptime_ns"].as_f64().unwrap_or(0.0));
    let seconds = if then > 0.0 && time > then { (time - then) / 1e9 } else { time / 1e9 };
    let rate = |path: &str| {
        let count = |value: &Value| value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
        let old = if then > 0.0 && time > then { before.map_or(0.0, count) } else { 0.0 };
        (count(now) - old) / seconds.max(0.001)
    };
    let _ = writeln!(
        text,
        "memory   limit {} MB: in use {}, pool {} (low watermark {}), leaving {}",
        get("limit_bytes").as_u64().unwrap_or(0) >> 20,
        megabytes(get("loop")),
        megabytes(get("pool")),
        megabytes(get("order_point")),
        megabytes(get("leaving")),
    );
    let store = get("store");
    let _ = writeln!(
        text,
        "store    {} ({}): {:.1} of {:.1} MB{}",
        store["medium"].as_str().unwrap_or("?"),
        store["compress"].as_str().unwrap_or("?"),
        store["used_bytes"].as_f64().unwrap_or(0.0) / 1048576.0,
        store["most_bytes"].as_f64().unwrap_or(0.0) / 1048576.0,
        if get("store_full_now").as_bool() == Some(true) {
            ", FULL: programs wait for room"
        } else {
            ""
        },
    );
    let _ = writeln!(
        text,
        "rates/s  faults {:.0}, reclaims {:.0}, page-ins {:.0}+{:.0}, page-outs {:.0}, zeros {:.0}, scanned {:.0} (law {})",
        rate("/totals/faults"),
        rate("/clock/reclaims_loop") + rate("/clock/reclaims_pool") + rate("/clock/prefetch_used"),
        rate("/totals/page_ins"),
        rate("/totals/prefetched"),
        rate("/totals/page_outs"),
        rate("/totals/zero_fills"),
        rate("/clock/scanned"),
        get("scan_rate"),
    );
    let micro = |path: &str| now.pointer(path).and_then(Value::as_f64).unwrap_or(0.0) / 1000.0;
    let _ = writeln!(
        text,
        "latency  reclaim p50 {:.0} p99 {:.0} us, page-in p50 {:.0} p99 {:.0} us (upper bounds of powers of two)",
        micro("/totals/reclaim/p50_ns"),
        micro("/totals/reclaim/p99_ns"),
        micro("/totals/page_in/p50_ns"),
        micro("/totals/page_in/p99_ns"),
    );
    let _ = writeln!(
        text,
        "\n{:>8} {:<16} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10}  state",
        "pid", "program", "mapped MB", "resident", "reclaim.", "faults", "page-ins", "reclaims"
    );
    for program in get("programs").as_array().into_iter().flatten() {
        let is = |name: &str| program[name].as_bool() == Some(true);
        let state = if is("swapped_out") {
            "swapped out"
        } else if is("frozen") {
            "forking"
        } else if is("anomalous") {
            "anomalous"
        } else {
            "runs"
        };
        let _ = writeln!(
            text,
            "{:>8} {:<16} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10}  {state}",
            program["pid"].to_string(),
            program["name"].as_str().unwrap_or("?"),
            megabytes(&program["mapped"]),
            megabytes(&program["resident"]),
            megabytes(&program["reclaimable"]),
            program["faults"].to_string(),
            program["page_ins"].to_string(),
            program["reclaims"].to_string(),
        );
    }
    text
}
