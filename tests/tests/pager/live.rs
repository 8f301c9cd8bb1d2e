//! `page compare --live`: the pagers read what the simulator says, on the same accesses. Counts
//! decide, not times.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::alone::said;
use super::any::Case;
use super::others::text;
use super::world::*;

/// Differences seen are below 3 %; where the daemon's hand moves by time, on a busy machine, more.
const MOST: f64 = 10.0;
const MOST_BY_TIME: f64 = 25.0;
const PAGES: u64 = 8_192;

/// Low pages are accessed more often, and some parts in a row.
fn trace() -> String {
    let (mut seed, mut text) = (5u64, String::new());
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for page in 0..PAGES {
        let _ = writeln!(text, "{page} w");
    }
    for _ in 0..20_000 {
        let page = next(PAGES) * next(PAGES) / PAGES;
        let run = if next(100) == 0 { 40 } else { 1 };
        let mode = if next(4) == 0 { 'w' } else { 'r' };
        for page in page..(page + run).min(PAGES) {
            let _ = writeln!(text, "{page} {mode}");
        }
    }
    text
}

fn agree(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let path = folder.path().join("small.trace");
    fs::write(&path, trace()).map_err(text)?;
    let mut command = Command::new(&stage.launcher);
    command
        .args(["page", "compare", "--live", "--runs", "1", "--dir"])
        .arg(folder.path())
        .arg(&path);
    let output = command.output().map_err(text)?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, said(&output)));
    }
    let study = fs::read_to_string(folder.path().join("paging.json")).map_err(text)?;
    let study: Value = serde_json::from_str(&study).map_err(text)?;
    let grids = study["grids"].as_array().ok_or("no tables")?;
    let is_live = |grid: &&Value| grid["caption"].as_str().is_some_and(|it| it.contains("Live"));
    let rows = grids.iter().find(is_live).and_then(|grid| grid["rows"].as_array());
    let rows = rows.ok_or("no live runs")?;
    if rows.len() != 9 {
        return Err(format!("not three memories of three pagers: {rows:?}"));
    }
    rows.iter().try_for_each(is_close)
}

fn is_close(row: &Value) -> Outcome {
    let cell = |at: usize| row[at].as_str().unwrap_or_default();
    let number = |at: usize| cell(at).trim_end_matches(" %").parse::<f64>().unwrap_or(f64::NAN);
    let most = if cell(2) == "daemon" { MOST_BY_TIME } else { MOST };
    // Enough was read for a count to mean something, and so much as both say.
    let [simulated, live] = [5, 7].map(number);
    let apart = 100.0 * (live / simulated - 1.0);
    let is_well = simulated > 1_000.0 && apart.abs() < most && (apart - number(8)).abs() < 0.1;
    match is_well {
        true => Ok(()),
        false => Err(format!("simulator and pager do not agree: {row}")),
    }
}

pub const CASES: [(&str, Case); 1] = [("agree", agree)];
