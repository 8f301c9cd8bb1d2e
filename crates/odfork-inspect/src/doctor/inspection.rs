//! One inspection from beginning to end: read the process, observe it, recommend.
//!
//! Owns the order of the steps and the report they fill (`layout` makes its text, serde its JSON).
//! A process that dies meanwhile leaves a report of what was known until then.

use std::ffi::OsString;
use std::io::Error;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::advice::{self, Advice, Facts, Seen};
use super::eligibility::{self, Eligibility, Surroundings};
use super::fork_statistics::{ForkStatistics, Summary};
use super::log::{End, Log};
use super::price::{Prediction, Prices};
use super::sample::Sampler;
use super::smaps::{Entries, PAGE};
use super::snapshot::Snapshots;
use super::subject::{self, Subject};
use super::watch::{self, Tracer};
use crate::launch::{status_of, Launch};
use odfork_proc::interrupt;
use odfork_proc::process::{self, Pid};

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub version: &'static str,
    /// process or command
    pub kind: &'static str,
    pub asked: String,
    /// Of a command: the process that held most memory when it forked (or when the command ended).
    pub subject: Option<Subject>,
    pub prices: Prices,
    pub now_ns: Option<f64>,
    pub predictions: Vec<Prediction>,
    #[serde(rename = "verdict")]
    pub eligibility: Eligibility,
    pub observation: Option<Observation>,
    pub advice: Option<Advice>,
    pub remarks: Vec<String>,
}

/// What was seen, how, and for how long.
#[derive(Debug, Serialize, Deserialize)]
pub struct Observation {
    /// ptrace, or sampling (lower bounds).
    pub method: &'static str,
    /// Why not ptrace.
    pub reason: Option<String>,
    pub seconds: f64,
    /// It was still running at the end.
    pub alive: bool,
    pub interrupted: bool,
    /// Of a command that ended: "exit status 3", "signal 15".
    pub status: Option<String>,
    pub seen: Summary,
}

/// A command that could not be executed, with a shell's exit status for it.
#[derive(Debug)]
pub struct NotExecuted(pub u8, pub String);

fn report(kind: &'static str, asked: String, prices: &Prices, remark: Option<String>) -> Report {
    Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        kind,
        asked,
        subject: None,
        prices: prices.clone(),
        now_ns: None,
        predictions: Vec::new(),
        eligibility: Eligibility::default(),
        observation: None,
        advice: None,
        remarks: remark.into_iter().collect(),
    }
}

/// Inspects a running process.
pub fn of_process(
    pid: Pid,
    limit: Duration,
    (prices, remark): (Prices, Option<String>),
) -> Result<Report> {
    let subject = subject::inspect(pid)?;
    let mut report = report("process", pid.to_string(), &prices, remark);
    // The link works even when the file was replaced, but only for who may trace the process.
    let program = match &subject.program {
        Some(_) => eligibility::of_program(format!("/proc/{pid}/exe").as_ref()),
        None => Eligibility { program: "unknown".into(), ..Eligibility::default() },
    };
    report.eligibility = Surroundings::observe().judge(program, &subject);
    let snapshots = Snapshots::knowing(&prices, subject.memory.huge_share().unwrap_or(0.0));
    let tracer = match &subject.map {
        // The runtime leaves memory plain while a tracer is attached.
        Some(map) if map.loaded => {
            Err("libodfork.so is loaded, and does not freeze while it is traced".to_owned())
        }
        _ => seize(pid),
    };
    let mut log = Log::begin(ForkStatistics::new(pid, &subject.name), snapshots);
    let (end, reason, _) = observe(tracer, || Sampler::new(pid, false), &mut log, Some(limit));
    report.subject = Some(subject);
    report.observation = Some(observation(end, reason, &log));
    report.conclude(true);
    Ok(report)
}

/// Starts a command and inspects it through its life (or for `limit`).
pub fn of_command(
    words: &[OsString],
    limit: Option<Duration>,
    (prices, remark): (Prices, Option<String>),
    output_to_error: bool,
) -> Result<std::result::Result<Report, NotExecuted>> {
    let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let asked = process::printable(&line.join(" "));
    let mut report = report("command", asked, &prices, remark);
    report.eligibility = eligibility::of_program(&words[0]);
    let error = std::io::stderr();
    let mut launch = Launch::prepare(words, output_to_error.then_some(error.as_fd()))?;
    let pid = launch.pid;
    let mut log = Log::begin(ForkStatistics::new(pid, ""), Snapshots::empty(&prices));
    let tracer = seize(pid);
    launch.release();
    let (mut end, reason, executed) = observe(tracer, || Sampler::new(pid, true), &mut log, limit);
    if let (End::Gone(_), false) = (end, executed) {
        if let Some(error) = launch.failure() {
            return Ok(Err(not_executed(words, &error)));
        }
    }
    if end == End::Interrupted {
        end = reap(pid).unwrap_or(end);
    }
    report.observation = Some(observation(end, reason, &log));
    report.subject = log.snapshots.largest();
    if let Some(subject) = report.subject.as_ref().filter(|subject| subject.pid == pid) {
        report.eligibility = Surroundings::observe().judge(report.eligibility, subject);
    }
    report.conclude(false);
    Ok(Ok(report))
}

/// Observes by ptrace, or by sampling for the reason given; says whether it was seen to exec.
fn observe(
    tracer: Result<Tracer, String>,
    sampler: impl FnOnce() -> Sampler,
    log: &mut Log,
    limit: Option<Duration>,
) -> (End, Option<String>, bool) {
    match tracer {
        Ok(mut tracer) => (tracer.run(log, limit), None, tracer.executed()),
        Err(reason) => (sampler().run(log, limit), Some(reason), false),
    }
}

fn seize(pid: Pid) -> Result<Tracer, String> {
    Tracer::seize(pid).map_err(|error| watch::refusal(pid, &error))
}

fn not_executed(words: &[OsString], error: &Error) -> NotExecuted {
    let name = words[0].to_string_lossy();
    let status = status_of(error);
    let why = match status {
        127 => format!("'{name}' was not found; check the name or PATH"),
        _ => format!(
            "'{name}' cannot be executed ({error}); allow it with chmod +x, or name another file"
        ),
    };
    NotExecuted(status, why)
}

/// The same Ctrl-C has most likely ended the command; a moment shows.
fn reap(pid: Pid) -> Option<End> {
    for _ in 0..20 {
        let mut status = 0;
        // SAFETY: the status is a live variable; the process is our child.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return Some(End::Gone(Some(status)));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// `reason`: why it was not observed by ptrace.
fn observation(end: End, reason: Option<String>, log: &Log) -> Observation {
    let status = match end {
        End::Gone(Some(status)) if libc::WIFSIGNALED(status) => {
            Some(format!("signal {}", libc::WTERMSIG(status)))
        }
        End::Gone(Some(status)) => Some(format!("exit status {}", libc::WEXITSTATUS(status))),
        _ => None,
    };
    Observation {
        method: if reason.is_some() { "sampling" } else { "ptrace" },
        reason,
        seconds: log.elapsed().as_secs_f64(),
        alive: !matches!(end, End::Gone(_)),
        interrupted: end == End::Interrupted || interrupt::asked(),
        status,
        seen: log.statistics.summary(),
    }
}

/// Entries of a process as it is, as it would be unfrozen, and what an image would leave.
struct Amounts {
    now: Entries,
    whole: Entries,
    left: Entries,
}

impl Amounts {
    fn of(subject: &Subject) -> Amounts {
        let now = subject.memory.entries;
        let Some(map) = &subject.map else {
            // Not known what could be frozen: hope for all.
            return Amounts { now, whole: now, left: Entries::default() };
        };
        let clean = map.backing_bytes.saturating_sub(map.backing_rewritten) / PAGE;
        let left = Entries {
            small: now.small.saturating_sub(map.freezable.small),
            huge: now.huge.saturating_sub(map.freezable.huge),
        };
        Amounts { now, whole: Entries { small: now.small + clean, ..now }, left }
    }
}

impl Report {
    /// Prices, predictions and advice, from what has been gathered.
    fn conclude(&mut self, running: bool) {
        let Some(subject) = &self.subject else {
            self.remarks.push("the command ended before its memory could be read".into());
            return;
        };
        let amounts = Amounts::of(subject);
        let predictions = self.prices.predict(amounts.whole, amounts.left);
        let [plain_ns, thp_ns, image_ns, _] = predictions.each_ref().map(|line| line.fork_ns);
        let now_ns = self.prices.now_ns(amounts.now);
        let seen = self.observation.as_ref().map(|Observation { seconds, alive, seen, .. }| {
            let (forks, lent) =
                if running { (seen.own_forks, seen.own_lent) } else { (seen.forks, seen.lent) };
            Seen { seconds: *seconds, forks, lent: lent.total(), alive: *alive }
        });
        let Eligibility { obstacle, change, .. } = &self.eligibility;
        let facts = Facts {
            running,
            command: if running { &subject.command } else { &self.asked }.clone(),
            now_ns,
            plain_ns,
            thp_ns,
            image_ns,
            bytes: amounts.whole.bytes(),
            huge_share: subject.memory.huge_share().unwrap_or(0.0),
            loaded: subject.map.as_ref().is_some_and(|map| map.loaded),
            frozen: subject.map.as_ref().is_some_and(|map| map.is_frozen()),
            obstacle: obstacle.clone().map(|why| (why, change.clone())),
            seen,
        };
        self.now_ns = Some(now_ns);
        self.predictions = predictions.into();
        self.advice = Some(advice::recommend(&facts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::smaps::Map;

    #[test]
    fn an_image_counts_as_memory_that_plain_would_copy() {
        let mut subject = subject::inspect(std::process::id() as Pid).unwrap();
        subject.memory.entries = Entries { small: 110, huge: 3 };
        subject.map = Some(Map {
            freezable: Entries { small: 100, huge: 2 },
            backing_mappings: 1,
            backing_bytes: 1010 * PAGE,
            backing_rewritten: 10 * PAGE,
            ..Map::default()
        });
        let amounts = Amounts::of(&subject);
        assert_eq!(amounts.whole, Entries { small: 1110, huge: 3 });
        assert_eq!(amounts.left, Entries { small: 10, huge: 1 });
        subject.map = None;
        assert_eq!(Amounts::of(&subject).left, Entries::default());
    }

    #[test]
    fn ends_are_worded() {
        let prices = Prices::built_in();
        let log = Log::begin(ForkStatistics::new(1, ""), Snapshots::empty(&prices));
        let worded = |end| observation(end, None, &log);
        assert_eq!(worded(End::Gone(Some(3 << 8))).status.unwrap(), "exit status 3");
        assert_eq!(worded(End::Gone(Some(15))).status.unwrap(), "signal 15");
        assert!(worded(End::Over).alive && !worded(End::Gone(None)).alive);
    }
}
