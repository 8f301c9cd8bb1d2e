//! What both servers have in common: how they are started and ended, and what they weigh with
//! their children.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use odfork_proc::interrupt;
use odfork_proc::process::{family, stat, Stat};
use odfork_proc::status::proportional;

use crate::foreign::arms::Arm;
use crate::foreign::open_loop::{Schedule, Slice};
use crate::foreign::user::User;
use crate::foreign::{bind, clear, last_words};

const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

/// How a server is started.
pub struct Launch<'a> {
    pub odfork: &'a Path,
    pub arm: &'a Arm,
    pub tools: &'a Path,
    /// Its own; it is made.
    pub folder: &'a Path,
    pub seed: u64,
}

pub trait Server: Send {
    /// Every answer is checked.
    fn load(&mut self, schedule: Schedule) -> Result<Slice, String>;
    /// After the last slice.
    fn check(&mut self) -> Result<(), String>;
    /// Of the process that forks.
    fn pid(&self) -> i32;
}

impl Launch<'_> {
    /// The words of the arm, then the program.
    pub fn command(&self, program: &Path) -> Command {
        let mut words = self.arm.words(self.odfork);
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

/// Dropping it ends the server and its children.
pub struct Service {
    child: Child,
    log: PathBuf,
    /// By which it ends in order, its children too.
    signal: i32,
}

impl Service {
    pub fn start(
        mut command: Command,
        log: PathBuf,
        user: Option<&User>,
        signal: i32,
    ) -> Result<Service, String> {
        let said = |error| format!("cannot make {}: {error}", log.display());
        let file = File::create(&log).map_err(said)?;
        let copy = file.try_clone().map_err(said)?;
        clear(&mut command, &["ODFORK_"]);
        bind(&mut command, user, signal);
        command.stdin(Stdio::null()).stdout(file).stderr(copy);
        let child = command.spawn();
        let child =
            child.map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
        Ok(Service { child, log, signal })
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Until it answers.
    pub fn wait_until(&mut self, answers: impl Fn() -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !answers() {
            let waits = self.is_alive() && begin.elapsed() < PATIENCE && !interrupt::asked();
            if !waits {
                return Err(format!(
                    "the server did not start; it said: {}",
                    last_words(&self.log)
                ));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub fn said(&self) -> String {
        last_words(&self.log)
    }
}

/// Bytes of memory of a process and all that come from it, shared pages by their share.
pub fn weight(pid: i32) -> u64 {
    family(pid).into_iter().filter_map(proportional).sum()
}

/// Nanoseconds of what the kernel tells reaped time in.
const TICK: u64 = 10_000_000;

/// Nanoseconds of processor time of a server and all that came from it. Ticks of each would be off
/// by one for every child.
pub fn used(pid: i32) -> u64 {
    family(pid).into_iter().map(|pid| own_time(pid).unwrap_or(0) + reaped_time(pid)).sum()
}

/// Of a process that has one thread.
fn own_time(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn reaped_time(pid: i32) -> u64 {
    let reaped = [Stat::ReapedUserTicks, Stat::ReapedSystemTicks];
    reaped.iter().filter_map(|&field| stat(pid, field)).sum::<u64>() * TICK
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = self.pid();
        let begin = Instant::now();
        while self.is_alive() && begin.elapsed() < PATIENCE {
            // Again and again: a server that has only just been started misses it.
            // SAFETY: a child that is not reaped yet.
            unsafe { libc::kill(pid, self.signal) };
            std::thread::sleep(STEP);
        }
        // SAFETY: the process group of that child; nobody else's has the number so soon.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_misses_the_first_signal_ends_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let script = "n=0; trap 'n=$((n+1)); [ $n -lt 2 ] || { echo ended; exit; }' TERM
            echo ready; while :; do sleep 0.05; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let log = folder.path().join("log");
        let mut service = Service::start(command, log.clone(), None, libc::SIGTERM).unwrap();
        service.wait_until(|| last_words(&log) == "ready").unwrap();
        drop(service);
        assert_eq!(last_words(&log), "ready / ended");
    }

    #[test]
    fn time_of_the_living_is_exact_and_that_of_the_reaped_is_added() {
        let own = std::process::id() as i32;
        let Some(before) = own_time(own).map(|_| used(own)) else {
            println!("SKIPPED: this kernel has no schedstat");
            return;
        };
        let begin = Instant::now();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let spent = used(own) - before;
        assert!(spent >= 2 * TICK, "{spent} ns of {:?}", begin.elapsed());
    }

    #[test]
    fn children_are_weighed_and_end_with_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & trap 'kill %1; exit' TERM; echo ready; wait"]);
        let log = folder.path().join("log");
        let mut service = Service::start(command, log, None, libc::SIGTERM).unwrap();
        let pid = service.pid();
        let words = folder.path().join("log");
        service.wait_until(|| last_words(&words) == "ready").unwrap();
        let all = family(pid);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(weight(pid) > proportional(pid).unwrap());
        drop(service);
        // They were killed; being gone takes a moment.
        let is_there = || all.iter().any(|&pid| proportional(pid).is_some());
        let begin = Instant::now();
        while is_there() && begin.elapsed() < PATIENCE {
            std::thread::sleep(STEP);
        }
        assert!(!is_there(), "{all:?}");
    }
}
