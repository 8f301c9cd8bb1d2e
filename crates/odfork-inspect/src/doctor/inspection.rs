//! One inspection from beginning to end: look at the process, observe it, judge, recommend.
//!
//! Owns the order of the steps and the report they fill (`layout` lays it out, serde makes the JSON). A process that
//! dies meanwhile leaves a report of what was known until then.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::advice::{self, Advice, Facts, Seen};
use super::eligibility::{self, Eligibility, Surroundings};
use super::fork_statistics::{ForkStatistics, Summary};
use super::price::{Prediction, Prices};
use super::ptrace::Pid;
use super::sample::Sampler;
use super::smaps::{Entries, PAGE};
use super::snapshot::Snapshots;
use super::subject::{self, Subject};
use super::watch::{self, End, Tracer};
use crate::launch::{status_of, Launch};

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
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
    let eligibility = match &subject.program {
        Some(_) => eligibility::of_program(format!("/proc/{pid}/exe").as_ref()),
        None => Eligibility { program: "unknown".into(), ..Eligibility::default() },
    };
    report.eligibility = Surroundings::observe().judge(eligibility, &subject);
    let mut snapshots = Snapshots::knowing(&prices, subject.memory.huge_share().unwrap_or(0.0));
    let mut statistics = ForkStatistics::new(pid, &subject.name);
    let start = Instant::now();
    let loaded = subject.map.as_ref().is_some_and(|map| map.loaded);
    let (end, method, reason) = if loaded {
        // The runtime leaves memory plain while a tracer is attached.
        let reason = "libodfork.so is loaded, and does not freeze while it is traced";
        let end = Sampler::new(pid, false).run(&mut statistics, &mut snapshots, Some(limit));
        (end, "sampling", Some(reason.to_owned()))
    } else {
        match Tracer::seize(pid) {
            Ok(mut watch) => {
                (watch.run(&mut statistics, &mut snapshots, Some(limit)), "ptrace", None)
            }
            Err(error) => {
                let reason = watch::refusal(pid, &error);
                let end =
                    Sampler::new(pid, false).run(&mut statistics, &mut snapshots, Some(limit));
                (end, "sampling", Some(reason))
            }
        }
    };
    report.subject = Some(subject);
    report.observation = Some(observation((end, method, reason), start, statistics.summary()));
    report.conclude(true, None);
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
    let asked = subject::printable(&line.join(" "));
    let mut report = report("command", asked, &prices, remark);
    let eligibility = eligibility::of_program(&words[0]);
    let mut launch = Launch::prepare(words, output_to_error.then_some(std::io::stderr().as_fd()))?;
    let (pid, start) = (launch.pid, Instant::now());
    let mut snapshots = Snapshots::empty(&prices);
    let mut statistics = ForkStatistics::new(pid, "");
    let watch = Tracer::seize(pid);
    launch.release();
    let (mut end, executed, method, reason) = match watch {
        Ok(mut watch) => {
            let end = watch.run(&mut statistics, &mut snapshots, limit);
            (end, watch.executed(), "ptrace", None)
        }
        Err(error) => {
            let reason = watch::refusal(pid, &error);
            let end = Sampler::new(pid, true).run(&mut statistics, &mut snapshots, limit);
            (end, false, "sampling", Some(reason))
        }
    };
    if let (End::Gone(_), false) = (end, executed) {
        if let Some(error) = launch.failure() {
            return Ok(Err(NotExecuted(status_of(&error), why_not(words, &error))));
        }
    }
    if end == End::Interrupted {
        end = reap(pid).unwrap_or(end);
    }
    report.subject = snapshots.largest();
    report.eligibility = match &report.subject {
        Some(subject) if subject.pid == pid => Surroundings::observe().judge(eligibility, subject),
        _ => eligibility,
    };
    report.observation = Some(observation((end, method, reason), start, statistics.summary()));
    report.conclude(false, Some(words));
    Ok(Ok(report))
}

fn why_not(words: &[OsString], error: &std::io::Error) -> String {
    let name = words[0].to_string_lossy();
    match status_of(error) {
        127 => format!("'{name}' was not found; check the name or PATH"),
        _ => format!(
            "'{name}' cannot be executed ({error}); allow it with chmod +x, or name another file"
        ),
    }
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

type Ended = (End, &'static str, Option<String>);

fn observation((end, method, reason): Ended, start: Instant, seen: Summary) -> Observation {
    let status = match end {
        End::Gone(Some(status)) if libc::WIFSIGNALED(status) => {
            Some(format!("signal {}", libc::WTERMSIG(status)))
        }
        End::Gone(Some(status)) => Some(format!("exit status {}", libc::WEXITSTATUS(status))),
        _ => None,
    };
    Observation {
        method,
        reason,
        seconds: start.elapsed().as_secs_f64(),
        alive: !matches!(end, End::Gone(_)),
        interrupted: end == End::Interrupted || odfork_proc::interrupt::asked(),
        status,
        seen,
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
        let clean = map.image_bytes.saturating_sub(map.image_rewritten) / PAGE;
        let left = Entries {
            small: now.small.saturating_sub(map.freezable.small),
            huge: now.huge.saturating_sub(map.freezable.huge),
        };
        Amounts { now, whole: Entries { small: now.small + clean, ..now }, left }
    }
}

impl Report {
    /// Prices, predictions and advice, from what has been gathered.
    fn conclude(&mut self, running: bool, words: Option<&[OsString]>) {
        let Some(subject) = &self.subject else {
            self.remarks.push("the command ended before its memory could be looked at".into());
            return;
        };
        let amounts = Amounts::of(subject);
        self.predictions = self.prices.predict(amounts.whole, amounts.left).into();
        let now_ns = self.prices.now_ns(amounts.now);
        self.now_ns = Some(now_ns);
        let by = |engine: &str| {
            let found = self.predictions.iter().find(|line| line.engine == engine);
            found.map_or(now_ns, |line| line.fork_ns)
        };
        let eligibility = &self.eligibility;
        let seen = self.observation.as_ref().map(|seen| {
            let (forks, lent) = if running {
                (seen.seen.own_forks, seen.seen.own_lent)
            } else {
                (seen.seen.forks, seen.seen.lent)
            };
            Seen { seconds: seen.seconds, forks, lent: lent.total(), alive: seen.alive }
        });
        let facts = Facts {
            running,
            command: words.map_or_else(|| subject.command.clone(), |_| self.asked.clone()),
            now_ns,
            plain_ns: by("plain"),
            thp_ns: by("thp"),
            image_ns: by("image"),
            bytes: amounts.whole.bytes(),
            huge_share: subject.memory.huge_share().unwrap_or(0.0),
            loaded: subject.map.as_ref().is_some_and(|map| map.loaded),
            frozen: subject.map.as_ref().is_some_and(|map| map.is_frozen()),
            obstacle: eligibility.obstacle.clone().map(|why| (why, eligibility.change.clone())),
            seen,
        };
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
            image_mappings: 1,
            image_bytes: 1010 * PAGE,
            image_rewritten: 10 * PAGE,
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
        let worded = |end| observation((end, "ptrace", None), Instant::now(), Summary::default());
        assert_eq!(worded(End::Gone(Some(3 << 8))).status.unwrap(), "exit status 3");
        assert_eq!(worded(End::Gone(Some(15))).status.unwrap(), "signal 15");
        assert!(worded(End::Over).alive && !worded(End::Gone(None)).alive);
    }
}
