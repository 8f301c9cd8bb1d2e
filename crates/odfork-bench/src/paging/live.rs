//! The accesses of a trace under our pagers: of all memory, and of the daemon.
//!
//! Owns the processes of one run, and what the pager counted. What a run should have counted is the
//! caller's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use odfork_proc::pagemap::Pagemap;
use odfork_proc::smaps;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::page::PAGE;
use super::replay::{Answer, Start};
use crate::link::{Link, Loss};
use crate::pager::{plain, status};

/// For one part of the accesses, on however busy a machine.
const TIMEOUT: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(20);

/// What a run needs.
#[derive(Clone, Debug)]
pub struct Site {
    /// This program.
    pub program: PathBuf,
    /// A folder for files of a run.
    pub folder: PathBuf,
}

/// What a run was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Pages read.
    pub page_ins: u64,
    /// Pages written.
    pub page_outs: u64,
    /// Touches of pages that were in memory, but away.
    pub reclaims: u64,
    /// What one of them takes, as the pager measured it.
    pub reclaim_ns: u64,
    /// Pages of the limit that are none of the trace's, looked at several times: those of the
    /// process itself, or frames that the daemon keeps empty.
    pub own: Vec<u64>,
    /// All that were made.
    pub accesses: u64,
    /// Nanoseconds for them.
    pub ns: u64,
}

impl Site {
    /// Without a pager.
    ///
    /// # Errors
    /// One line: what failed, as below.
    pub fn unpaged(&self, file: &Path) -> Result<Counts> {
        let mut command = plain(&self.program);
        command.arg("replay").arg(file);
        let (mut link, start) = begin(&mut command)?;
        let answer = go(&mut link, start, |_| Ok(()))?;
        Ok(Counts { accesses: answer.accesses, ns: answer.ns, ..Counts::default() })
    }

    /// Under the pager of all memory, with so many pages; reference bits as `page run` says it.
    ///
    /// # Errors
    /// It cannot be had here, or a page had wrong content.
    pub fn any(&self, file: &Path, limit: u64, bits: &str) -> Result<Counts> {
        let report = self.folder.join("report");
        let _ = fs::remove_file(&report);
        let mut command = plain(&self.program);
        command.args(["page", "run", "--memory", "any", "--store", "memory"]);
        command.args(["--limit", &(limit * PAGE).to_string(), "--reference-bits", bits, "--"]);
        command.arg(&self.program).arg("replay").arg(file);
        command.env("ODFORK_PAGE_REPORT", &report);
        let (mut link, start) = begin(&mut command)?;
        let mut own = Vec::new();
        let pid = link.pid();
        let answer = go(&mut link, start, |start| {
            own.push(own_pages(pid, start)?);
            Ok(())
        })?;
        link.finish(SHORT).map_err(lost)?;
        let counts = reported(&report, pid)?;
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        ensure!(count("page_ins") > 0 && count("limit") == limit, "it was not paged: {counts}");
        Ok(Counts {
            page_ins: count("page_ins") + count("ahead"),
            page_outs: count("page_outs"),
            reclaims: count("reclaims"),
            reclaim_ns: 0,
            own,
            accesses: answer.accesses,
            ns: answer.ns,
        })
    }

    /// Under the daemon, which keeps nothing but the trace's pages, and reads none ahead.
    ///
    /// # Errors
    /// As for `any`.
    pub fn daemon(&self, file: &Path, limit: u64) -> Result<Counts> {
        // Another one for each run: the daemon of the last one may still be there.
        let socket = tempfile::Builder::new().prefix("live").tempfile_in(&self.folder)?;
        let socket = socket.path().with_extension("sock");
        let mut command = plain(&self.program);
        command.args(["page", "run", "--memory", "large", "--malloc", "0", "--store", "memory"]);
        command.args(["--store-size", "4G", "--limit", &(limit * PAGE).to_string(), "--socket"]);
        command.arg(&socket).arg("--").arg(&self.program).arg("replay").arg(file);
        let (mut link, start) = begin(&mut command)?;
        for tunable in ["cluster-in=1", "load-control=0"] {
            let mut set = plain(&self.program);
            set.args(["page", "set", tunable, "--socket"]).arg(&socket).stdout(Stdio::null());
            ensure!(set.status()?.success(), "the daemon does not take {tunable}");
        }
        let (mut own, mut last) = (Vec::new(), Value::Null);
        let answer = go(&mut link, start, |_| {
            last = status(&self.program, &socket).context("the daemon does not answer")?;
            let count = |name: &str| last[name].as_u64().unwrap_or(0);
            let held = count("loop") + count("pool") + count("leaving");
            own.push(count("frames").saturating_sub(held));
            Ok(())
        })?;
        link.finish(SHORT).map_err(lost)?;
        let count = |path: &str| last.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        ensure!(count("/totals/page_ins") > 0 && count("/frames") == limit, "it was not paged");
        Ok(Counts {
            page_ins: count("/totals/page_ins"),
            page_outs: count("/totals/page_outs"),
            reclaims: count("/clock/reclaims_loop") + count("/clock/reclaims_pool"),
            reclaim_ns: count("/reclaim_cost_ns"),
            own,
            accesses: answer.accesses,
            ns: answer.ns,
        })
    }
}

fn lost(loss: Loss) -> anyhow::Error {
    anyhow::anyhow!("{loss}")
}

fn line<T: DeserializeOwned>(link: &mut Link, timeout: Duration) -> Result<T> {
    let line = link.receive(timeout).map_err(lost)?;
    serde_json::from_str(&line).with_context(|| format!("it said {line:?} instead of an answer"))
}

fn begin(command: &mut Command) -> Result<(Link, Start)> {
    let mut link = Link::spawn(command)?;
    let start = line(&mut link, TIMEOUT)?;
    Ok((link, start))
}

/// All parts, with a look after each.
fn go(link: &mut Link, start: Start, mut look: impl FnMut(Start) -> Result<()>) -> Result<Answer> {
    loop {
        link.send("go").map_err(lost)?;
        let answer: Answer = line(link, TIMEOUT)?;
        if let Some(page) = answer.wrong {
            bail!("wrong content of page {page}: the pager lost or mixed up pages");
        }
        look(start)?;
        if answer.accesses == start.accesses {
            return Ok(answer);
        }
    }
}

/// Anonymous pages in memory that are none of the trace's: neither present nor in the pool, which
/// is the pager's own memory that is watched.
fn own_pages(pid: u32, start: Start) -> Result<u64> {
    let all = smaps::of_process(pid)?;
    let is_pool = |usage: &&smaps::Usage| usage.has("dc") && usage.is_watched();
    let pages = |bytes: u64| bytes / PAGE;
    let sum: u64 = all.iter().map(|usage| pages(usage.anonymous)).sum();
    let parked: u64 = all.iter().filter(is_pool).map(|usage| pages(usage.anonymous)).sum();
    let end = start.base + start.pages * PAGE;
    let runs = Pagemap::open(pid as i32)?.runs(start.base, end)?;
    let present: u64 = runs.iter().map(|run| run.pages()).sum();
    Ok(sum.saturating_sub(parked + present))
}

/// What the pager counted for this process, which has ended: its task does so a little later.
fn reported(report: &Path, pid: u32) -> Result<Value> {
    let begin = Instant::now();
    while begin.elapsed() < SHORT {
        let text = fs::read_to_string(report).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(counts) = lines.find(|counts| counts["pid"].as_u64() == Some(pid.into())) {
            return Ok(counts);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("the pager of all memory did not report: root and Linux 6.11 are needed")
}
