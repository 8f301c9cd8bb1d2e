//! Observing by ptrace: every fork, exec and end of a process and its descendants, exactly.
//!
//! What the observed program could notice is kept from it: signals are passed on, job-control stops
//! stay stops, and at the end every task is let go in the state it is in. System calls are not
//! stopped, only births, execs and exits, so nothing is timed here. If we die, the kernel lets the
//! tasks go.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::fork_statistics::{Call, Class};
use super::log::{End, Log};
use odfork_proc::interrupt;
use odfork_proc::process::{self, Pid, Stat};
use odfork_proc::ptrace::{self, BlockedSigchld, Stop, Wake};
use odfork_proc::status::Status;

/// A pause this long at most, so that a Ctrl-C that came just before it is seen soon.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A task that does not stop for being let go (it waits for a vforked child) is left to the end of
/// this program.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Tracer {
    root: Pid,
    /// Task to process.
    tasks: HashMap<Pid, Pid>,
    end: Option<i32>,
    gone: bool,
    executed: bool,
}

impl Tracer {
    /// Attaches to all threads of a process. The error is that of its first thread.
    pub fn seize(root: Pid) -> std::io::Result<Tracer> {
        ptrace::seize(root, ptrace::ALL_CHILDREN)?;
        let mut tasks = HashMap::from([(root, root)]);
        // Threads made meanwhile by one not yet attached are found in the next round.
        loop {
            let fresh: Vec<Pid> =
                process::threads(root).into_iter().filter(|tid| !tasks.contains_key(tid)).collect();
            if fresh.is_empty() {
                return Ok(Tracer { root, tasks, end: None, gone: false, executed: false });
            }
            for tid in fresh {
                // EPERM: the kernel attached it already, as the child of one of ours. ESRCH: gone.
                let _ = ptrace::seize(tid, ptrace::ALL_CHILDREN);
                tasks.insert(tid, root);
            }
        }
    }

    /// Whether the process named first was seen to run a program.
    pub fn executed(&self) -> bool {
        self.executed
    }

    /// Observes until the process ends, the time is over or Ctrl-C; then lets everybody go.
    pub fn run(&mut self, log: &mut Log, limit: Option<Duration>) -> End {
        let sigchld = BlockedSigchld::new();
        let end = loop {
            if self.gone {
                break End::Gone(self.end);
            }
            if interrupt::asked() {
                break End::Interrupted;
            }
            let left = limit.map_or(POLL_INTERVAL, |limit| limit.saturating_sub(log.elapsed()));
            if left.is_zero() {
                break End::Over;
            }
            match ptrace::next() {
                Wake::Idle => sigchld.wait(left.min(POLL_INTERVAL)),
                Wake::Alone => self.gone = true,
                Wake::Gone(pid, status) => self.ended(pid, status, log),
                Wake::Stopped(tid, stop) => {
                    // A task that is gone by now is reported again, as gone.
                    self.note(tid, stop, log, |tid| {
                        let _ = match stop {
                            Stop::Signal(signal) => ptrace::resume(tid, signal),
                            Stop::Group => ptrace::listen(tid),
                            _ => ptrace::resume(tid, 0),
                        };
                    });
                }
            }
        };
        self.release(&sigchld, log);
        if self.gone {
            End::Gone(self.end)
        } else {
            end
        }
    }

    /// The process of a task; a new task may report before its birth does.
    fn process_of(&mut self, tid: Pid) -> Pid {
        *self
            .tasks
            .entry(tid)
            .or_insert_with(|| Status::of_process(tid).map_or(tid, |status| status.process))
    }

    /// Logs why a task has stopped, and lets it go by `go` as soon as nothing more is needed of it.
    fn note(&mut self, tid: Pid, stop: Stop, log: &mut Log, go: impl FnOnce(Pid)) {
        let pid = self.process_of(tid);
        match stop {
            Stop::Born(event) => {
                let (child, (call, class)) = (ptrace::message(tid), origin(tid, event));
                go(tid);
                let Ok(child) = child.map(|number| number as Pid) else { return };
                self.tasks.insert(child, if class == Class::Thread { pid } else { child });
                log.born(pid, child, call, class);
            }
            Stop::Exec => {
                self.executed |= pid == self.root;
                // All other threads are gone; the one that remains has the number of the process.
                self.tasks.retain(|task, process| *process != pid || *task == pid);
                self.tasks.insert(pid, pid);
                log.exec(pid, process::stat(pid, Stat::MinorFaults));
                go(tid);
            }
            // The memory is still there at this stop.
            Stop::Exiting if tid == self.root => {
                log.snapshots.last_of(pid);
                go(tid);
            }
            _ => go(tid),
        }
    }

    fn ended(&mut self, tid: Pid, status: i32, log: &mut Log) {
        // A thread, or one that an exec of another thread has ended.
        let Some(pid) = self.tasks.remove(&tid).filter(|&pid| pid == tid) else { return };
        log.ended(pid);
        if pid == self.root {
            (self.gone, self.end) = (true, Some(status));
        }
    }

    /// Lets every task go, with the signal it was about to get. Who is made meanwhile is let go
    /// too.
    fn release(&mut self, sigchld: &BlockedSigchld, log: &mut Log) {
        let since = Instant::now();
        // An error: the task is gone already.
        self.tasks.retain(|&tid, _| ptrace::interrupt(tid).is_ok());
        while !self.tasks.is_empty() && since.elapsed() < RELEASE_TIMEOUT {
            match ptrace::next() {
                Wake::Idle => sigchld.wait(Duration::from_millis(20)),
                Wake::Alone => self.tasks.clear(),
                Wake::Gone(pid, status) => self.ended(pid, status, log),
                Wake::Stopped(tid, stop) => {
                    let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
                    // A process stopped by job control stays stopped: the kernel sees to that.
                    self.note(tid, stop, log, |tid| {
                        let _ = ptrace::detach(tid, signal);
                    });
                    self.tasks.remove(&tid);
                }
            }
        }
    }
}

/// Call and class of the task that a stopped one has just made.
fn origin(tid: Pid, event: i32) -> (Call, Class) {
    let by_event = match event {
        libc::PTRACE_EVENT_FORK => Class::Fork,
        libc::PTRACE_EVENT_VFORK => Class::Vfork,
        _ => Class::Thread,
    };
    match ptrace::system_call(tid) {
        Some((libc::SYS_clone, flags)) => (Call::Clone, Class::of_flags(flags)),
        Some((libc::SYS_clone3, arguments)) => {
            (Call::Clone3, ptrace::peek(tid, arguments).map_or(by_event, Class::of_flags))
        }
        #[cfg(target_arch = "x86_64")]
        Some((libc::SYS_fork, _)) => (Call::Fork, Class::Fork),
        #[cfg(target_arch = "x86_64")]
        Some((libc::SYS_vfork, _)) => (Call::Vfork, Class::Vfork),
        _ => (Call::Unknown, by_event),
    }
}

/// Why a process cannot be traced, in words for one line.
pub fn refusal(pid: Pid, error: &std::io::Error) -> String {
    let scope = process::ptrace_scope();
    let status = Status::of_process(pid).unwrap_or_default();
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    if error.raw_os_error() != Some(libc::EPERM) {
        format!("ptrace failed: {error}")
    } else if status.tracer != 0 {
        // The tracer is a task, perhaps not the first of its process.
        let tracer =
            Status::of_process(status.tracer).map_or(status.tracer, |tracer| tracer.process);
        format!("process {tracer} traces it already")
    } else if user != 0 && status.user_id != user {
        format!("it belongs to user {}; be that user, or root (CAP_SYS_PTRACE)", status.user_id)
    } else if let Some(scope) = scope.filter(|_| user != 0) {
        format!("kernel.yama.ptrace_scope is {scope}; be root, set it to 0, or start it as COMMAND")
    } else {
        "ptrace is not permitted (a sandbox, or the program is setuid or not dumpable)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_reason() {
        let own = std::process::id() as Pid;
        let denied = std::io::Error::from_raw_os_error(libc::EPERM);
        let gone = std::io::Error::from_raw_os_error(libc::ESRCH);
        assert!(!refusal(own, &denied).is_empty());
        assert!(refusal(own, &gone).starts_with("ptrace failed"));
    }
}
