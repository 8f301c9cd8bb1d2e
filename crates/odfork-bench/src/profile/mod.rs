//! Where the time of a fork goes, for one subject that forks again and again.
//!
//! Owns: the forks, and the counters that say something where perf cannot be used. Does not own:
//! recording with perf and reading its stacks (`perf`), the subject (`workload`) and how it is
//! started (`stage`).

mod perf;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use perf::{Recorder, Shares};

use crate::configuration::{Configuration, Subject};
use crate::link::Link;
use crate::runner::Number;
use crate::stage::Stage;
use crate::workload::protocol::{Answer, Command};
use crate::workload::PAGE;
use odfork_proc::process::{self, Stat};
use odfork_proc::status::{bytes_of, value_of};
use odfork_samples::stats::median;

/// Loading a large subject, or one command of it.
const TIMEOUT: Duration = Duration::from_secs(300);

/// One part of fork's time, of 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// A group of functions of the kernel.
    pub name: String,
    /// Its share of fork's time.
    pub share: f64,
}

/// Where the time of fork goes, for one configuration.
#[derive(Clone, Debug)]
pub struct Profile {
    /// "perf" or "counters": where the parts are from.
    pub source: &'static str,
    /// Why not perf.
    pub why: Option<String>,
    /// The largest first.
    pub parts: Vec<Part>,
    /// Name, number, unit; from the same forks, whatever the source.
    pub counters: Vec<(String, f64, &'static str)>,
}

impl Profile {
    /// As samples: a share for each part, a count for each counter.
    pub fn numbers(&self) -> Vec<Number> {
        let of = |metric, name: &str, (value, unit)| {
            Number::new(metric, unit, value).with("source", self.source).with("name", name)
        };
        let parts = self.parts.iter().map(|part| of("share", &part.name, (part.share, "share")));
        let counters = self.counters.iter();
        let counters = counters.map(|(name, value, unit)| of("count", name, (*value, *unit)));
        parts.chain(counters).collect()
    }

    /// A line for the reader where perf could not be had.
    pub fn why_not_perf(&self, configuration: &str) -> Vec<String> {
        self.why.iter().map(|why| format!("{configuration}: no perf: {why}")).collect()
    }
}

/// Lets a subject fork for about `seconds` and says where the time went.
pub fn profile(stage: &Stage, spec: &Subject, seconds: f64) -> Result<Profile> {
    if spec.configuration == Configuration::Null {
        bail!("with the harness alone nobody forks; choose another configuration to profile");
    }
    let mut subject = start(stage, spec)?;
    let recorder = Recorder::attach(subject.pid());
    let work = Work::observe(&mut subject, seconds)?;
    let stacks = recorder.and_then(Recorder::finish);
    drop(subject);
    let floor =
        Work::observe(&mut start(stage, &Subject { size: 0, ..spec.clone() })?, seconds / 10.0)?;
    let mut counters = work.counters(&floor, spec.size);
    let (source, why, mut parts) = match stacks.and_then(|text| Shares::of(&text)) {
        Ok(shares) => {
            counters.push(("samples".into(), shares.samples as f64, "count"));
            counters.push(("hottest-instruction".into(), shares.hottest, "share"));
            ("perf", None, shares.parts)
        }
        Err(why) => ("counters", Some(why), work.parts(&floor)),
    };
    parts.sort_by(|one, other| other.share.total_cmp(&one.share));
    Ok(Profile { source, why, parts, counters })
}

fn start(stage: &Stage, spec: &Subject) -> Result<Link> {
    let mut link = Link::spawn(&mut stage.subject(spec))?;
    match hear(&mut link)? {
        Answer::Text(_) => Ok(link),
        other => bail!("a subject of {} bytes began with: {other}", spec.size),
    }
}

fn hear(link: &mut Link) -> Result<Answer> {
    match link.receive(TIMEOUT) {
        Ok(line) => line.parse(),
        Err(loss) => bail!("{loss}"),
    }
}

/// What a subject and the kernel say of a series of forks.
struct Work {
    /// Median time of the call in ns.
    fork: f64,
    forks: f64,
    wall: f64,
    /// What was added meanwhile.
    used: Account,
    table_pages: f64,
}

/// The kernel's account of a process: /proc/PID/stat and status.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Account {
    faults: f64,
    system_seconds: f64,
    switches: f64,
    table_bytes: f64,
}

impl Work {
    fn observe(link: &mut Link, seconds: f64) -> Result<Work> {
        // The first forks are unlike the others: an engine may freeze.
        let calls = 3;
        ask_forks(link, calls)?;
        let before = Account::read(link.pid());
        let start = Instant::now();
        let mut times = Vec::new();
        while times.is_empty() || start.elapsed().as_secs_f64() < seconds {
            times.push(ask_forks(link, calls)?);
        }
        let (after, wall) = (Account::read(link.pid()), start.elapsed().as_secs_f64());
        Ok(Work {
            fork: median(&times).unwrap_or(0.0),
            forks: times.len() as f64 * f64::from(calls),
            wall,
            used: Account {
                faults: after.faults - before.faults,
                system_seconds: after.system_seconds - before.system_seconds,
                switches: after.switches - before.switches,
                table_bytes: after.table_bytes,
            },
            table_pages: after.table_bytes / PAGE as f64,
        })
    }

    fn rest(&self, floor: &Work) -> f64 {
        (self.fork - floor.fork).max(0.0)
    }

    fn counters(&self, floor: &Work, size: u64) -> Vec<(String, f64, &'static str)> {
        let pages = (size / PAGE as u64).max(1) as f64;
        [
            ("fork", self.fork, "ns"),
            ("fork-of-empty-process", floor.fork, "ns"),
            ("rest-per-page-table-entry", self.rest(floor) / pages, "ns"),
            ("system-time", self.used.system_seconds / self.wall, "share"),
            ("page-table-pages", self.table_pages, "count"),
            ("minor-faults", self.used.faults / self.forks, "count"),
            ("context-switches", self.used.switches / self.forks, "count"),
        ]
        .map(|(name, number, unit)| (name.to_string(), number, unit))
        .into()
    }

    /// All that can be told apart without perf.
    fn parts(&self, floor: &Work) -> Vec<Part> {
        let fixed = if self.fork > 0.0 { (floor.fork / self.fork).min(1.0) } else { 1.0 };
        let part = |name: &str, share| Part { name: name.into(), share };
        vec![
            part("fork of an empty process", fixed),
            part("what grows with memory: page tables and their entries", 1.0 - fixed),
        ]
    }
}

/// Median time of the call in ns.
fn ask_forks(link: &mut Link, calls: u32) -> Result<f64> {
    if let Err(loss) = link.send(&Command::Fork { calls }.to_string()) {
        bail!("{loss}");
    }
    let answer = hear(link)?;
    let Answer::Values(values) = &answer else {
        bail!("a subject answered to fork: {answer}");
    };
    let fork = values.iter().find(|(label, _)| label == "fork");
    Ok(fork.map_or(0.0, |(_, time)| *time))
}

impl Account {
    fn read(pid: u32) -> Account {
        // SAFETY: always succeeds on Linux.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let stat = |field| process::stat(pid, field).unwrap_or(0) as f64;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let count =
            |name| value_of(&status, name).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        Account {
            faults: stat(Stat::MinorFaults),
            system_seconds: stat(Stat::SystemTicks) / ticks,
            switches: count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches"),
            table_bytes: bytes_of(&status, "VmPTE") as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(fork: f64) -> Work {
        let used = Account { faults: 30.0, system_seconds: 1.5, switches: 20.0, table_bytes: 0.0 };
        Work { fork, forks: 10.0, wall: 2.0, used, table_pages: 5.0 }
    }

    #[test]
    fn without_perf_fork_is_divided_by_the_floor() {
        let parts = work(1000.0).parts(&work(250.0));
        assert_eq!(parts.iter().map(|part| part.share).collect::<Vec<_>>(), [0.25, 0.75]);
        // Noise: a floor above the fork itself.
        let parts = work(100.0).parts(&work(250.0));
        assert_eq!(parts.iter().map(|part| part.share).collect::<Vec<_>>(), [1.0, 0.0]);
        let counters = work(1000.0).counters(&work(200.0), 16 * PAGE as u64);
        let number = |name: &str| counters.iter().find(|(known, ..)| known == name).unwrap().1;
        assert_eq!(number("rest-per-page-table-entry"), 50.0);
        assert_eq!(number("system-time"), 0.75);
        assert_eq!((number("minor-faults"), number("context-switches")), (3.0, 2.0));
    }

    #[test]
    fn the_account_is_the_kernels() {
        let own = Account::read(std::process::id());
        assert!(own.faults > 0.0 && own.switches > 0.0 && own.table_bytes > 0.0, "{own:?}");
        assert_eq!(Account::read(u32::MAX), Account::default());
    }
}
