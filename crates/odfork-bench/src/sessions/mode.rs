//! Who decides which pages of the sessions are in memory: the kernel, our pager, or whole sessions
//! taking turns.
//!
//! Whole-process swapping: one session runs, the others are stopped (SIGSTOP) and written out whole
//! (MADV_PAGEOUT by another process, Linux 5.10); after its turn the next one comes. The memory
//! limit is that of the kernel's paging.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, pidfd_open, Pid, PidfdFlags, Signal};

use crate::baselines::cgroup::{Group, Limit, Parent};
use crate::baselines::journal::Journal;
use crate::baselines::swap::{self, Swap};
use crate::link::Link;
use crate::pager::{plain, status};
use odfork_proc::maps::{self, Mapping};
use odfork_samples::samples::Params;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kernel,
    Pager,
    Any,
    Swapping,
}

pub const ALL: [Mode; 4] = [Mode::Kernel, Mode::Pager, Mode::Any, Mode::Swapping];
pub use odfork_samples::configurations::SESSION_MODES as WORDS;
const READ_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;
/// A session's turn under whole-process swapping.
pub const TURN: Duration = Duration::from_secs(1);
/// A process's own memory beside what it is told to use.
const PROCESS: u64 = 1 << 20;
const START_TIMEOUT: Duration = Duration::from_secs(10);
const REPORTS: &str = "sessions.reports";

/// What the sessions of a point need. Fields drop in this order: processes, then limit, then swap.
pub struct Environment {
    daemon: Option<Link>,
    /// Where processes that are paged without a daemon report what they counted; and how many.
    reports: Option<(PathBuf, u64)>,
    pub group: Option<Group>,
    _swap: Swap,
}

/// What all points of a run share.
#[derive(Clone, Debug)]
pub struct Settings {
    pub program: PathBuf,
    /// Bytes of one session's jobs, and what all sessions together may have in memory.
    pub bytes: u64,
    pub limit: u64,
    /// Folder on a disk: swap file, the pager's store.
    pub store: PathBuf,
    /// Temporary folder of the socket.
    pub folder: PathBuf,
    /// Most time of a point.
    pub timeout: Duration,
}

impl Settings {
    /// Of every sample.
    pub fn params(&self, sessions: u64) -> Params {
        [("sessions", sessions), ("bytes", self.bytes), ("limit", self.limit)]
            .map(|(name, number)| (name.to_string(), number.into()))
            .into()
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("sessions.sock")
    }

    /// An empty file for reports.
    fn reports(&self) -> Result<PathBuf, String> {
        let path = self.folder.join(REPORTS);
        match fs::write(&path, "") {
            Ok(()) => Ok(path),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Page-ins the pager has made for all programs so far; None: no pager answers.
    fn page_ins(&self) -> Option<u64> {
        status(&self.program, &self.socket())?.pointer("/totals/page_ins")?.as_u64()
    }
}

impl Mode {
    pub fn word(self) -> &'static str {
        WORDS[self as usize]
    }

    /// Why it cannot be had; None: it can, as far as one sees from outside.
    pub fn refusal(self) -> Option<String> {
        match self {
            Mode::Kernel | Mode::Swapping => swap::refusal(),
            Mode::Pager | Mode::Any => None,
        }
    }

    /// Sets up limit, swap or daemon for so many sessions.
    pub fn environment(
        self,
        settings: &Settings,
        (parent, journal): (&Result<Parent, String>, &Journal),
        sessions: u64,
    ) -> Result<Environment, String> {
        if matches!(self, Mode::Pager | Mode::Any) {
            let group = match parent {
                Ok(parent) => Some(parent.make(journal, "sessions", Limit::None)?),
                Err(_) => None,
            };
            let (daemon, reports) = match self {
                Mode::Pager => (Some(daemon(settings, group.as_ref())?), None),
                _ => (None, Some((settings.reports()?, 2 * sessions))),
            };
            return Ok(Environment { daemon, reports, group, _swap: Vec::new() });
        }
        let bytes = sessions * settings.bytes * 2 + (64 << 20);
        let swap = swap::on_file(journal, &settings.store, bytes)?;
        let limit = Limit::Wait(settings.limit + 2 * sessions * PROCESS);
        let group = parent.clone()?.make(journal, "sessions", limit)?;
        Ok(Environment { daemon: None, reports: None, group: Some(group), _swap: swap })
    }

    /// A process of a session, not yet started.
    pub fn command(self, settings: &Settings) -> Command {
        let mut command = plain(&settings.program);
        if self == Mode::Pager {
            command.args(["page", "run", "--socket"]).arg(settings.socket());
            command.arg("--").arg(&settings.program);
        } else if self == Mode::Any {
            let own = format!("sessions-{}", std::process::id());
            command.env("ODFORK_PAGE_REPORT", settings.folder.join(REPORTS));
            command.args(["page", "run", "--memory", "any", "--group", &own, "--limit"]);
            command.arg(settings.limit.to_string()).arg("--store").arg(&settings.store);
            command.arg("--").arg(&settings.program);
        }
        command.arg("session");
        command
    }
}

/// The pager's daemon, answering.
fn daemon(settings: &Settings, group: Option<&Group>) -> Result<Link, String> {
    let mut command = plain(&settings.program);
    command.args(["page", "daemon", "--limit", &settings.limit.to_string(), "--store"]);
    command.arg(&settings.store).arg("--socket").arg(settings.socket());
    if let Some(group) = group {
        group.enter(&mut command)?;
    }
    let mut link = Link::spawn(&mut command).map_err(|error| format!("{error:#}"))?;
    let begin = Instant::now();
    while settings.page_ins().is_none() {
        if begin.elapsed() > START_TIMEOUT {
            link.kill();
            return Err(
                "`odfork page daemon` does not answer within 10 s; try it for the reason".into()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(link)
}

impl Environment {
    /// Page-ins of the pager before the sessions; None: there is no pager.
    pub fn page_ins_before(&self, settings: &Settings) -> Option<u64> {
        match &self.reports {
            Some(_) => Some(0),
            None => self.daemon.as_ref().and_then(|_| settings.page_ins()),
        }
    }

    /// The same when all have ended: a report is written a moment after its process' end.
    pub fn page_ins(&self, settings: &Settings) -> Option<u64> {
        let Some((path, processes)) = &self.reports else {
            return self.page_ins_before(settings);
        };
        let begin = Instant::now();
        loop {
            let text = fs::read_to_string(path).unwrap_or_default();
            let counts = text.lines().filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line).ok()?["page_ins"].as_u64()
            });
            let counts: Vec<u64> = counts.collect();
            if counts.len() as u64 >= *processes || begin.elapsed() > START_TIMEOUT {
                return Some(counts.iter().sum());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.kill();
        }
    }
}

/// Stops the processes of one session and writes their memory out.
pub fn swap_out(processes: &[u32]) {
    signal(processes, Signal::STOP);
    // Failing costs only that the kernel writes the pages out itself when it needs the memory.
    for &pid in processes {
        let _ = page_out(pid);
    }
}

pub fn swap_in(processes: &[u32]) {
    signal(processes, Signal::CONT);
}

/// Children of ours that were not waited for: the numbers are their own.
fn signal(processes: &[u32], signal: Signal) {
    for pid in processes.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
        let _ = kill_process(pid, signal);
    }
}

fn page_out(pid: u32) -> Option<()> {
    let process = pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    for (start, length) in anonymous(&maps) {
        let range = libc::iovec { iov_base: start as *mut _, iov_len: length as usize };
        let (process, advice) = (process.as_raw_fd(), libc::MADV_PAGEOUT);
        // SAFETY: advice about another process's memory; one range, valid for the call.
        unsafe { libc::syscall(libc::SYS_process_madvise, process, &range, 1, advice, 0) };
    }
    Some(())
}

/// Start and length of the private writable anonymous mappings.
fn anonymous(maps: &str) -> Vec<(u64, u64)> {
    let is_wanted = |one: &Mapping| {
        let is_private = one.prot == READ_WRITE && !one.shared && one.inode == 0;
        is_private && !one.name.starts_with("[v")
    };
    let wanted = maps::parse(maps).into_iter().filter(is_wanted);
    wanted.map(|one| (one.start, one.bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_one_mode() {
        assert_eq!(ALL.map(Mode::word), WORDS);
    }

    #[test]
    fn only_private_writable_anonymous_memory_is_swapped_out() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 [heap]\n4000-5000 r--p 00000000 00:00 0\n\
                    6000-7000 rw-p 00001000 08:01 77 /lib/x.so\n8000-a000 rw-p 00000000 00:00 \
                    0\nrubbish\n";
        assert_eq!(anonymous(maps), [(0x1000, 0x2000), (0x8000, 0x2000)]);
    }
}
