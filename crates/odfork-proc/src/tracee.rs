//! A process under ptrace: all threads seized, stopped together, let go together, its end seen.
//!
//! Owns the states of the threads and what a report of the kernel means. Signals of the program
//! reach it as they would without us; only the marker signal is kept. Forked children are not
//! followed. The last thread is held at its exit while the memory is still whole
//! (PTRACE_EVENT_EXIT).

use std::collections::{BTreeMap, VecDeque};
use std::io::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};

use crate::ptrace::{self, Status};
use crate::{interrupt, process};

/// Between two looks for reports: short against a phase, long against a context switch.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// A thread inside vfork cannot stop before its child execs.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// What happened, as the measuring sees it. At all but `Time` and `Gone` the thread concerned is
/// held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The marker signal came.
    Marker,
    /// Another program replaced the process.
    Exec,
    /// The last thread ends; the memory is still there.
    Ending,
    /// The process has ended, with this wait status if we are its parent or tracer.
    Gone(Status),
    /// The time waited for has come, or the user asked to stop.
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Stopped by a report that has not been dealt with yet.
    Stopped,
    /// In its exit; not to be stopped again.
    Leaving,
}

/// A seized process.
#[derive(Debug)]
pub struct Tracee {
    /// The process.
    pub pid: i32,
    marker: Option<i32>,
    threads: BTreeMap<i32, State>,
    /// Reports to be dealt with.
    reports: VecDeque<(i32, Status)>,
    /// The thread stopped at the marker signal.
    marked: Option<i32>,
    gone: Option<Status>,
}

impl Tracee {
    /// Seizes a process and all its threads.
    pub fn seize(pid: i32, marker: Option<i32>) -> Result<Tracee> {
        let mut tracee = Tracee {
            pid,
            marker,
            threads: BTreeMap::new(),
            reports: VecDeque::new(),
            marked: None,
            gone: None,
        };
        // Threads may come while we list: twice without a new one is enough, for children of seized
        // ones are seized.
        loop {
            let new: Vec<i32> = process::threads(pid)
                .into_iter()
                .filter(|tid| !tracee.threads.contains_key(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match ptrace::seize(tid, ptrace::OWN_THREADS) {
                    Ok(()) => {
                        tracee.threads.insert(tid, State::Running);
                    }
                    Err(_) if tid != pid => {}
                    Err(error) => bail!(refusal(pid, &error)),
                }
            }
        }
        if tracee.threads.is_empty() {
            bail!("there is no process {pid}");
        }
        Ok(tracee)
    }

    /// Deals with reports until something happens that concerns the measuring.
    pub fn next(&mut self, until: Option<Instant>) -> Result<Event> {
        loop {
            while let Some((tid, status)) = self.report()? {
                if let Some(event) = self.take(tid, status) {
                    return Ok(event);
                }
            }
            if let Some(status) = self.gone {
                return Ok(Event::Gone(status));
            }
            if interrupt::asked() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Event::Time);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn report(&mut self) -> Result<Option<(i32, Status)>> {
        if let Some(report) = self.reports.pop_front() {
            return Ok(Some(report));
        }
        match ptrace::wait(-1) {
            Ok(report) => Ok(report),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                self.gone.get_or_insert(0);
                Ok(None)
            }
            Err(error) => Err(error).context("waiting for the process"),
        }
    }

    /// Stops every thread. Reports that come meanwhile are dealt with later.
    pub fn stop(&mut self) -> Result<()> {
        let end = Instant::now() + STOP_TIMEOUT;
        for tid in self.running() {
            // A thread that has just ended cannot be stopped: its report is on the way.
            let _ = ptrace::interrupt(tid);
        }
        while let Some(tid) = self.running().first().copied() {
            match ptrace::wait(tid) {
                Ok(Some((tid, status))) => self.stopped(tid, status),
                Ok(None) if Instant::now() > end => {
                    bail!("thread {tid} of process {} does not stop", self.pid)
                }
                Ok(None) => std::thread::sleep(Duration::from_micros(50)),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => {
                    self.threads.remove(&tid);
                }
            }
        }
        Ok(())
    }

    fn stopped(&mut self, tid: i32, status: Status) {
        if libc::WIFSTOPPED(status) {
            self.threads.insert(tid, State::Stopped);
            if event_of(status) == libc::PTRACE_EVENT_CLONE {
                self.expect_thread(tid);
            }
        } else {
            self.threads.remove(&tid);
        }
        self.reports.push_back((tid, status));
    }

    fn expect_thread(&mut self, parent: i32) {
        if let Ok(tid) = ptrace::message(parent) {
            self.threads.entry(tid as i32).or_insert(State::Running);
        }
    }

    fn running(&self) -> Vec<i32> {
        let is_running = |(tid, state): (&i32, &State)| (*state == State::Running).then_some(*tid);
        self.threads.iter().filter_map(is_running).collect()
    }

    /// Lets a thread go on that `next` held for an event; the others by their own reports.
    pub fn go_on(&mut self, event: Event) {
        self.marked = None;
        if event == Event::Ending {
            for (tid, _) in std::mem::take(&mut self.threads) {
                self.threads.insert(tid, State::Leaving);
                let _ = ptrace::resume(tid, 0);
            }
            return;
        }
        let waiting: Vec<i32> = self.reports.iter().map(|(tid, _)| *tid).collect();
        let stopped: Vec<i32> = self.threads.keys().copied().collect();
        for tid in stopped.into_iter().filter(|tid| !waiting.contains(tid)) {
            if self.threads[&tid] == State::Stopped {
                self.run(tid, 0);
            }
        }
    }

    fn run(&mut self, tid: i32, signal: i32) {
        self.threads.insert(tid, State::Running);
        let _ = ptrace::resume(tid, signal);
    }

    /// Deals with one report.
    fn take(&mut self, tid: i32, status: Status) -> Option<Event> {
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&tid);
            if tid == self.pid {
                self.gone = Some(status);
            }
            return None;
        }
        if !self.threads.contains_key(&tid) && !is_thread(self.pid, tid) {
            // A process made by clone with an unusual signal: not a thread, not ours.
            let _ = ptrace::detach(tid, 0);
            return None;
        }
        self.threads.insert(tid, State::Stopped);
        match event_of(status) {
            libc::PTRACE_EVENT_EXEC => {
                self.threads.retain(|&other, _| other == self.pid);
                self.threads.insert(self.pid, State::Stopped);
                self.reports.retain(|(other, _)| *other == self.pid);
                return Some(Event::Exec);
            }
            libc::PTRACE_EVENT_EXIT => return self.leave(tid),
            libc::PTRACE_EVENT_CLONE => {
                self.expect_thread(tid);
                self.run(tid, 0);
            }
            libc::PTRACE_EVENT_STOP => self.take_stop(tid, libc::WSTOPSIG(status)),
            0 => return self.take_signal(tid, libc::WSTOPSIG(status)),
            _ => self.run(tid, 0),
        }
        None
    }

    /// Either our interruption, or the program was stopped by SIGSTOP and the like and stays so.
    fn take_stop(&mut self, tid: i32, signal: i32) {
        if [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
            self.threads.insert(tid, State::Running);
            let _ = ptrace::listen(tid);
        } else {
            self.run(tid, 0);
        }
    }

    fn take_signal(&mut self, tid: i32, signal: i32) -> Option<Event> {
        if Some(signal) == self.marker {
            self.marked = Some(tid);
            return Some(Event::Marker);
        }
        self.run(tid, signal);
        None
    }

    fn leave(&mut self, tid: i32) -> Option<Event> {
        let others = self.threads.iter().any(|(&t, &s)| t != tid && s != State::Leaving);
        if !others {
            return Some(Event::Ending);
        }
        self.threads.insert(tid, State::Leaving);
        let _ = ptrace::resume(tid, 0);
        None
    }

    /// A thread that can be made to carry out a system call: stopped by our interruption or the
    /// marker.
    pub fn interrupted_thread(&self) -> Option<i32> {
        let ours = |status: Status| {
            event_of(status) == libc::PTRACE_EVENT_STOP && libc::WSTOPSIG(status) == libc::SIGTRAP
        };
        let interrupted = self.reports.iter().find(|(_, status)| ours(*status));
        interrupted.map(|(tid, _)| *tid).or(self.marked)
    }

    /// A thread that is being killed leaves our stop and soon stands in its exit: only then it can
    /// be let go.
    fn detach(&mut self, tid: i32, signal: i32, end: Instant) {
        while ptrace::detach(tid, signal).is_err() && Instant::now() < end {
            match ptrace::wait(tid) {
                Ok(Some((_, status))) if !libc::WIFSTOPPED(status) => {
                    if tid == self.pid {
                        self.gone = Some(status);
                    }
                    return;
                }
                Ok(_) => std::thread::sleep(Duration::from_micros(100)),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    /// How the process ended, if it has.
    pub fn ended(&self) -> Option<Status> {
        self.gone
    }

    /// Lets go of the process for good: it runs on untraced.
    pub fn release(&mut self) {
        if self.stop().is_err() {
            return;
        }
        let mut signals = BTreeMap::new();
        for (tid, status) in self.reports.drain(..) {
            if libc::WIFSTOPPED(status) && event_of(status) == 0 {
                let signal = libc::WSTOPSIG(status);
                if Some(signal) != self.marker {
                    signals.insert(tid, signal);
                }
            } else if !libc::WIFSTOPPED(status) && tid == self.pid {
                self.gone = Some(status);
            }
        }
        let end = Instant::now() + RELEASE_TIMEOUT;
        for (tid, _) in std::mem::take(&mut self.threads) {
            self.detach(tid, signals.get(&tid).copied().unwrap_or(0), end);
        }
    }
}

fn event_of(status: Status) -> i32 {
    status >> 16
}

fn is_thread(pid: i32, tid: i32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

fn refusal(pid: i32, error: &Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => anyhow!("there is no process {pid}"),
        Some(libc::EPERM) => {
            let scope = process::ptrace_scope();
            let scope = scope.map(|scope| format!(" (kernel.yama.ptrace_scope is {scope})"));
            let scope = scope.unwrap_or_default();
            anyhow!(
                "process {pid} may not be looked at{scope}: be its user, root or have \
                 CAP_SYS_PTRACE; a process that is traced already (gdb, strace) cannot be traced \
                 twice"
            )
        }
        _ => anyhow!("process {pid} cannot be traced: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_told() {
        let error = Tracee::seize(i32::MAX - 1, None).unwrap_err().to_string();
        assert_eq!(error, format!("there is no process {}", i32::MAX - 1));
    }

    #[test]
    fn a_refusal_says_what_is_needed() {
        let text = refusal(7, &Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(text.contains("CAP_SYS_PTRACE") && text.contains("root"), "{text}");
    }

    #[test]
    fn events_are_in_the_high_bits() {
        let status = libc::PTRACE_EVENT_EXIT << 16 | libc::SIGTRAP << 8 | 0x7f;
        assert!(libc::WIFSTOPPED(status));
        assert_eq!(event_of(status), libc::PTRACE_EVENT_EXIT);
    }
}
