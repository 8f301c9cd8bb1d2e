//! `page run --memory any`: all memory of a program, without a daemon. The programs check every
//! byte; here it is seen that pages did leave and come back, and what is refused.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::others::text;
use super::world::*;

/// Paged under this limit; what the pager counted for the first process, which ends last.
fn run(stage: &Stage, limit: &str, words: &[&str]) -> Result<Value, String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let report = folder.path().join("report");
    let mut command = Command::new(&stage.launcher);
    command.args(["page", "run", "--memory", "any", "--limit", limit, "--store"]);
    command.arg(folder.path()).arg("--").arg(stage.programs.join(words[0])).args(&words[1..]);
    command.env("ODFORK_PAGE_REPORT", &report);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(text)?;
    let pid = child.id();
    finish(child)?;
    let mut found = None;
    wait_for("the report", || {
        let said = fs::read_to_string(&report).unwrap_or_default();
        let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found = lines.find(|line| line["pid"].as_u64() == Some(u64::from(pid)));
        found.is_some()
    })?;
    found.ok_or_else(|| "no report".into())
}

/// It says ok, and pages of it were in the store. On a busy machine a short program may end before
/// it is looked at: then it runs again.
fn paged(stage: &Stage, limit: &str, words: &[&str]) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = run(stage, limit, words)?;
        let names = ["faults", "taken", "page_outs", "page_ins"];
        match names.into_iter().find(|&name| counts[name].as_u64().unwrap_or(0) == 0) {
            None => return Ok(()),
            Some(name) if Instant::now() > deadline => {
                return Err(format!("no {name}: nothing was tested: {counts}"));
            }
            Some(_) => {}
        }
    }
}

fn forked(stage: &Stage, which: &str) -> Outcome {
    let counts = run(stage, "8M", &["any", which])?;
    match counts["forks"].as_u64() {
        Some(3) => Ok(()),
        _ => Err(format!("not three forks: {counts}")),
    }
}

/// With room to spare nothing is taken and no fault comes to us.
fn room(stage: &Stage) -> Outcome {
    let counts = run(stage, "64M", &["mappings", "200", "3"])?;
    let idle = ["faults", "taken"].iter().all(|name| counts[name].as_u64() == Some(0));
    idle.then_some(()).ok_or_else(|| format!("it was paged: {counts}"))
}

fn refused(stage: &Stage) -> Outcome {
    for (options, why) in [
        (&["--store", "memory"][..], "has its store in a folder"),
        (&["--compress", "lz4"], "has its store in a folder"),
        (&["--store", "/dev/null"], "it is a folder"),
        (&["--socket", "here"], "has no daemon"),
    ] {
        let mut command = Command::new(&stage.launcher);
        command.args(["page", "run", "--memory", "any", "--limit", "8M"]).args(options);
        let output = command.args(["--", "true"]).output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(2) || said.lines().count() != 1 || !said.contains(why) {
            return Err(format!("{options:?}: {}: {said}", output.status));
        }
    }
    Ok(())
}

type Case = fn(&Stage) -> Outcome;

pub const CASES: [(&str, Case); 12] = [
    ("content", |s| paged(s, "8M", &["content", "16", "3", "2", "11", "40"])),
    ("mappings", |s| paged(s, "2M", &["mappings", "600", "9"])),
    ("heap", |s| paged(s, "8M", &["heap", "3", "3", "9"])),
    ("small", |s| paged(s, "8M", &["any", "small"])),
    ("given", |s| paged(s, "8M", &["any", "given"])),
    ("robust", |s| paged(s, "8M", &["any", "robust"])),
    ("written", |s| paged(s, "8M", &["any", "written"])),
    ("forked", |s| forked(s, "forked")),
    ("forked_raw", |s| forked(s, "raw")),
    ("forks", |s| paged(s, "2M", &["forks", "6", "2", "5", "2"])),
    ("room", room),
    ("refused", refused),
];
