//! Who decides which pages of the sessions are in memory: the kernel, our pager, or whole sessions taking turns.
//!
//! Whole-process swapping: one session runs, the others are stopped (SIGSTOP) and written out whole (MADV_PAGEOUT by another
//! process, Linux 5.10); after its turn the next one comes. The memory limit is that of the kernel's paging.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::paging::backend::plain;
use crate::peers::group::{Bound, Group, Place};
use crate::peers::ledger::Shared;
use crate::peers::swap::{self, Swap};

/// Engines of this experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Kernel,
    Pager,
    Swapping,
}

pub const ALL: [Way; 3] = [Way::Kernel, Way::Pager, Way::Swapping];
pub use odfork_samples::configurations::SESSION_WAYS as WORDS;
/// A session's turn under whole-process swapping.
pub const TURN: Duration = Duration::from_secs(1);
/// A process's own memory beside what it is told to use.
const PROCESS: u64 = 1 << 20;

/// What a cell needs while it runs. Fields drop in this order: processes, then limit, then swap.
pub struct Stage {
    daemon: Option<Link>,
    pub group: Option<Group>,
    _swap: Option<Swap>,
}

/// What all cells of a run share.
#[derive(Clone, Debug)]
pub struct Site {
    pub program: PathBuf,
    /// Bytes of one session's jobs, and what all sessions together may have in memory.
    pub bytes: u64,
    pub limit: u64,
    pub store: PathBuf,
    pub office: PathBuf,
    /// Most time of a cell.
    pub patience: Duration,
}

impl Way {
    pub fn word(self) -> &'static str {
        WORDS[ALL.iter().position(|&way| way == self).unwrap_or(0)]
    }

    pub fn from_word(word: &str) -> Option<Way> {
        WORDS.iter().position(|known| *known == word).map(|at| ALL[at])
    }

    /// Why it cannot be had; None: it can, as far as one sees from outside.
    pub fn refusal(self) -> Option<String> {
        match self {
            Way::Kernel | Way::Swapping => swap::refusal(),
            Way::Pager => None,
        }
    }

    /// Sets up limit, swap or daemon for so many sessions.
    ///
    /// # Errors
    /// What is missing: one line.
    pub fn stage(
        self,
        site: &Site,
        place: &Result<Place, String>,
        ledger: &Shared,
        sessions: u64,
    ) -> Result<Stage, String> {
        if self == Way::Pager {
            let group = match place {
                Ok(place) => Some(place.make(ledger, "sessions", Bound::None)?),
                Err(_) => None,
            };
            let daemon = daemon(site, group.as_ref())?;
            return Ok(Stage { daemon: Some(daemon), group, _swap: None });
        }
        let swap = Swap::on_file(ledger, &site.store, sessions * site.bytes * 2 + (64 << 20))?;
        let limit = site.limit + 2 * sessions * PROCESS;
        let group = place.clone()?.make(ledger, "sessions", Bound::Wait(limit))?;
        Ok(Stage { daemon: None, group: Some(group), _swap: Some(swap) })
    }

    /// A process of a session, not yet started.
    pub fn command(self, site: &Site) -> Command {
        let mut command = plain(&site.program);
        if self == Way::Pager {
            command
                .args(["page", "run", "--socket"])
                .arg(socket(site))
                .arg("--")
                .arg(&site.program);
        }
        command.arg("session");
        command
    }
}

fn socket(site: &Site) -> PathBuf {
    site.office.join("sessions.sock")
}

/// The pager's daemon, answering.
fn daemon(site: &Site, group: Option<&Group>) -> Result<Link, String> {
    let mut command = plain(&site.program);
    command.args(["page", "daemon", "--limit", &site.limit.to_string(), "--store"]);
    command.arg(&site.store).arg("--socket").arg(socket(site));
    if let Some(group) = group {
        group.enter(&mut command)?;
    }
    let mut link = Link::spawn(&mut command).map_err(|error| format!("{error:#}"))?;
    let begin = Instant::now();
    loop {
        let mut status = plain(&site.program);
        status.args(["page", "status", "--json", "--socket"]).arg(socket(site));
        if status.output().is_ok_and(|output| output.status.success()) {
            return Ok(link);
        }
        if begin.elapsed() > Duration::from_secs(10) {
            link.kill();
            return Err(
                "`odfork page daemon` does not answer within 10 s; try it for the reason".into()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Stage {
    /// Page-ins the pager has made for all programs so far; None: there is no pager.
    pub fn page_ins(&self, site: &Site) -> Option<u64> {
        self.daemon.as_ref()?;
        let mut status = plain(&site.program);
        status.args(["page", "status", "--json", "--socket"]).arg(socket(site));
        let output = status.output().ok()?;
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        value.pointer("/totals/page_ins")?.as_u64()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.kill();
        }
    }
}

/// The processes of one session are stopped, and their memory is written out.
pub fn put_out(processes: &[u32]) {
    for &pid in processes {
        signal(pid, libc::SIGSTOP);
    }
    for &pid in processes {
        page_out(pid);
    }
}

pub fn bring_in(processes: &[u32]) {
    for &pid in processes {
        signal(pid, libc::SIGCONT);
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: a child of ours that was not waited for: the number is its own.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Failing costs nothing but that the kernel writes the pages out itself when it needs the memory.
fn page_out(pid: u32) {
    // SAFETY: a number; a new descriptor or -1.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if process < 0 {
        return;
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for (start, length) in anonymous(&maps) {
        let range = libc::iovec { iov_base: start as *mut _, iov_len: length };
        // SAFETY: advice about another process's memory; one range, valid for the call.
        unsafe {
            libc::syscall(libc::SYS_process_madvise, process, &range, 1, libc::MADV_PAGEOUT, 0)
        };
    }
    // SAFETY: our own descriptor.
    unsafe { libc::close(process) };
}

/// Start and length of the private writable anonymous mappings.
fn anonymous(maps: &str) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let fits = words.len() >= 5
            && words[1] == "rw-p"
            && words[4] == "0"
            && !words.get(5).is_some_and(|name| name.starts_with("[v"));
        let (start, end) = words.first().filter(|_| fits)?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        Some((start, usize::from_str_radix(end, 16).ok()? - start))
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_one_way() {
        for way in ALL {
            assert_eq!(Way::from_word(way.word()), Some(way));
        }
    }

    #[test]
    fn only_private_writable_anonymous_memory_is_put_out() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 [heap]\n4000-5000 r--p 00000000 00:00 0\n\
                    6000-7000 rw-p 00001000 08:01 77 /lib/x.so\n8000-a000 rw-p 00000000 00:00 0\nrubbish\n";
        assert_eq!(anonymous(maps), [(0x1000, 0x2000), (0x8000, 0x2000)]);
    }
}
