//! Observing without ptrace: reading /proc again and again. Sees only what lives long enough.
//!
//! Counts are lower bounds, and which call made a child is not known. A child counts as having
//! executed when it runs another file than its maker; a program that executes itself is taken for
//! a fork that stays.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

use super::fork_statistics::{Call, Class};
use super::log::{End, Log};
use odfork_proc::interrupt;
use odfork_proc::process::{self, Pid};
use odfork_proc::status::Status;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Samples `root`; `ours` says that it is our own child, to be waited for.
pub struct Sampler {
    root: Pid,
    ours: bool,
    /// Living processes and what they ran when last seen.
    known: HashMap<Pid, String>,
    /// Children from before.
    old: HashSet<Pid>,
    /// Ended and counted; their makers have not waited for them yet.
    zombies: HashSet<Pid>,
}

impl Sampler {
    pub fn new(root: Pid, ours: bool) -> Sampler {
        let old = if ours { HashSet::new() } else { children(root).into_iter().collect() };
        let known = HashMap::from([(root, runs(root))]);
        Sampler { root, ours, known, old, zombies: HashSet::new() }
    }

    /// Samples until the process ends, the time is over or Ctrl-C.
    pub fn run(&mut self, log: &mut Log, limit: Option<Duration>) -> End {
        loop {
            if let Some(end) = self.ended() {
                log.ended(self.root);
                return end;
            }
            if interrupt::asked() {
                return End::Interrupted;
            }
            if limit.is_some_and(|limit| log.elapsed() >= limit) {
                return End::Over;
            }
            self.scan(log);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn ended(&self) -> Option<End> {
        if !self.ours {
            let there = Status::of_process(self.root).is_some_and(|status| !status.is_zombie());
            return (!there).then_some(End::Gone(None));
        }
        let mut status = 0;
        // SAFETY: the status is a live variable; the process is our child.
        let pid = unsafe { libc::waitpid(self.root, &mut status, libc::WNOHANG) };
        (pid == self.root).then_some(End::Gone(Some(status)))
    }

    fn scan(&mut self, log: &mut Log) {
        self.zombies.retain(|&pid| Status::of_process(pid).is_some_and(|s| s.is_zombie()));
        for pid in self.known.keys().copied().collect::<Vec<_>>() {
            let now = runs(pid);
            if now.is_empty() {
                self.known.remove(&pid);
                self.zombies.insert(pid);
                log.ended(pid);
                continue;
            }
            if self.known.insert(pid, now.clone()).is_some_and(|before| before != now) {
                log.exec(pid, None);
            }
            for child in children(pid) {
                if !self.is_counted(child) {
                    log.born(pid, child, Call::Unknown, Class::Unknown);
                    let own = Some(runs(child)).filter(|own| !own.is_empty());
                    if own.as_ref().is_some_and(|own| *own != now) {
                        log.exec(child, None);
                    }
                    self.known.insert(child, own.unwrap_or_else(|| now.clone()));
                }
            }
        }
        if self.known.is_empty() {
            self.known.insert(self.root, String::new());
        }
    }

    fn is_counted(&self, child: Pid) -> bool {
        self.known.contains_key(&child)
            || self.old.contains(&child)
            || self.zombies.contains(&child)
    }
}

/// What a living process runs: its file, or its short name where the file may not be read. Empty
/// when it is gone.
fn runs(pid: Pid) -> String {
    match Status::of_process(pid) {
        Some(status) if !status.is_zombie() => process::program(pid).unwrap_or(status.name),
        _ => String::new(),
    }
}

/// Children of all threads of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => found.extend(text.split_whitespace().filter_map(|w| w.parse::<Pid>().ok())),
            // A kernel without this file (CONFIG_PROC_CHILDREN): everybody is asked for his parent.
            Err(_) => return found_by_parent(pid),
        }
    }
    found
}

fn found_by_parent(pid: Pid) -> Vec<Pid> {
    let is_child = |&other: &Pid| Status::of_process(other).is_some_and(|s| s.parent == pid);
    process::all().into_iter().filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::fork_statistics::{ForkStatistics, Summary};
    use crate::doctor::price::Prices;
    use crate::doctor::snapshot::Snapshots;
    use std::process::Command;

    #[test]
    fn children_are_found_both_ways() {
        let own = std::process::id() as Pid;
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as Pid;
        assert!(children(own).contains(&pid));
        assert!(found_by_parent(own).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(runs(pid), "");
    }

    /// What a sampler sees of a shell with this script, whose first children count too.
    fn sampled(script: &str) -> (End, Summary) {
        let mut shell = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let root = shell.id() as Pid;
        let prices = Prices::built_in();
        let snapshots = Snapshots::knowing(&prices, 0.0);
        let mut log = Log::begin(ForkStatistics::new(root, "sh"), snapshots);
        let mut sampler = Sampler::new(root, false);
        sampler.old.clear();
        let end = sampler.run(&mut log, Some(Duration::from_secs(20)));
        shell.wait().unwrap();
        (end, log.statistics.summary())
    }

    #[test]
    fn a_child_that_executes_and_stays_is_seen() {
        // The shell forks, and the child becomes sleep.
        let (end, seen) = sampled("sleep 0.3; :");
        assert_eq!((end, seen.forks.execs, seen.processes), (End::Gone(None), 1, 1), "{seen:?}");
    }

    #[test]
    fn a_child_that_nobody_waits_for_is_counted_once() {
        // The sleep that takes the place of the shell does not know of the other one.
        let (_, seen) = sampled("sleep 0.1 & exec sleep 0.5");
        assert_eq!(seen.processes, 1, "{seen:?}");
    }
}
