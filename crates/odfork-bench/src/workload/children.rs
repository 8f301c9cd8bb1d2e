//! Forking, timing and reaping the children of a subject.
//!
//! Owns the only place that calls fork: libc's dynamic symbol, so that a preloaded library stands
//! in its place. A child runs one closure and leaves by _exit: 0 when it saw what it had to see,
//! WRONG when not. Children are always reaped by pid before an operation ends. The one switch to
//! the harness alone is here too: then nobody is forked, and everything around it stays.

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{pipe_with, PipeFlags};
use rustix::time::{clock_gettime, ClockId};

use super::protocol::Answer;
use crate::mapping::Mapping;

/// Exit status of a child that saw wrong content.
const WRONG: libc::c_int = 9;

thread_local! {
    /// Of the thread that obeys, so that tests next to each other differ.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread forks nobody, starts no program and accesses no memory it holds: what is
/// left is what the harness itself costs. To be called before memory is held.
pub fn leave_harness_alone() {
    ALONE.set(true);
}

pub fn is_harness_alone() -> bool {
    ALONE.get()
}

/// Why an operation could not give a number.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// Not possible here, and nobody is to blame (no engine, fork refused).
    Unavailable(String),
    /// A correctness check failed.
    Wrong(String),
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable(reason) => Answer::Unavailable(reason),
            Failure::Wrong(what) => Answer::Wrong(what),
        }
    }
}

/// How long one fork took: the call itself, the processor time it used, and until the child was
/// reaped.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub call: f64,
    pub processor: f64,
    pub total: f64,
}

pub fn nanoseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// Nanoseconds of processor time this thread has used: does not grow while other work has the
/// processor.
pub fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A child that lives until it is reaped.
pub struct Child {
    /// None: the harness is alone.
    pid: Option<libc::pid_t>,
    pub started: Instant,
    pub call: f64,
    processor: f64,
}

impl Child {
    /// Forks. CHILD: runs `body`, which must use no heap and no locks, and leaves. With the harness
    /// alone nobody runs `body`: it may wait for what comes after the fork.
    pub fn fork(body: impl FnOnce() -> bool) -> Result<Child, Failure> {
        // Outside of the timed window: this clock costs a system call.
        let before = processor_time();
        let started = Instant::now();
        let pid = (!is_harness_alone()).then(|| bare_fork(body));
        let call = nanoseconds(started.elapsed());
        let processor = processor_time() - before;
        pid.map_or(Ok(()), require_child)?;
        Ok(Child { pid, started, call, processor })
    }

    /// Waits for the child and judges how it ended.
    pub fn reap(self) -> Result<Timing, Failure> {
        let status = self.pid.map_or(Ok(0), wait)?;
        let total = nanoseconds(self.started.elapsed());
        judge(status)?;
        Ok(Timing { call: self.call, processor: self.processor, total })
    }
}

/// The status of a child of ours, once it has ended.
fn wait(pid: libc::pid_t) -> Result<libc::c_int, Failure> {
    let mut status = 0;
    loop {
        // SAFETY: status is a valid place for the result; pid is a child of ours not yet reaped.
        let reaped = unsafe { libc::waitpid(pid, &mut status, 0) };
        if reaped == pid {
            return Ok(status);
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(Failure::Wrong(format!("waitpid of child {pid}: {error}")));
        }
    }
}

/// Waits for a child that was not made by `Child::fork`; it must end with 0.
pub fn await_success(pid: libc::pid_t) -> Result<(), Failure> {
    judge(wait(pid)?)
}

pub(super) fn judge(status: libc::c_int) -> Result<(), Failure> {
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    Err(Failure::Wrong(if libc::WIFSIGNALED(status) {
        format!("a child died of signal {}", libc::WTERMSIG(status))
    } else if libc::WEXITSTATUS(status) == WRONG {
        "a child saw memory that differs from the instant of its fork".into()
    } else {
        format!("a child ended with status {}", libc::WEXITSTATUS(status))
    }))
}

/// The call and nothing else: the pid, or -1. CHILD: runs `body`, which must use no heap and no
/// locks, and leaves.
fn bare_fork(body: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child only runs `body` (no heap, no locks: the promise above) and _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = if body() { 0 } else { WRONG };
        // SAFETY: _exit does not return and runs no handlers of the parent's.
        unsafe { libc::_exit(status) };
    }
    pid
}

fn require_child(pid: libc::pid_t) -> Result<(), Failure> {
    if pid < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Failure::Unavailable(format!("fork failed: {error}")));
    }
    Ok(())
}

/// Forks one child and waits for it, without a clock: for series that are timed as a whole, because
/// reading clocks is more than a hundredth of a small fork.
pub fn fork_untimed(body: impl FnOnce() -> bool) -> Result<(), Failure> {
    if is_harness_alone() {
        return judge(if body() { 0 } else { WRONG << 8 });
    }
    let pid = bare_fork(body);
    require_child(pid)?;
    judge(wait(pid)?)
}

/// Forks one child and waits for it. With the harness alone `body` runs here, between the two.
pub fn fork_and_wait(body: impl FnOnce() -> bool) -> Result<Timing, Failure> {
    if !is_harness_alone() {
        return Child::fork(body)?.reap();
    }
    let nobody = Child::fork(|| true)?;
    judge(if body() { 0 } else { WRONG << 8 })?;
    nobody.reap()
}

/// A gate that holds children until the parent opens it: a pipe, open means closed for writing.
pub struct Gate {
    read: OwnedFd,
    write: OwnedFd,
}

impl Gate {
    pub fn shut() -> Result<Gate, Failure> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| Failure::Unavailable(format!("pipe failed: {error}")))?;
        Ok(Gate { read, write })
    }

    /// Waits until the parent opens the gate (or dies). CHILD: raw calls only.
    pub fn wait(&self) {
        // SAFETY: the child's own copy, which it does not close again: it leaves by _exit.
        unsafe { libc::close(self.write.as_raw_fd()) };
        let _ = rustix::io::read(&self.read, &mut [0u8; 1]);
    }

    pub fn open(self) {
        // Dropping closes both ends: every waiting child reads end of file.
    }
}

/// One page shared with children, where a child leaves a number for its parent.
pub struct Slate(Mapping);

impl Slate {
    pub fn new() -> Result<Slate, Failure> {
        let refused = |error| Failure::Unavailable(format!("shared page refused: {error}"));
        Mapping::shared(super::PAGE as u64).map(Slate).map_err(refused)
    }

    /// CHILD: one store.
    pub fn write(&self, number: u64) {
        // SAFETY: the page is mapped for the life of the slate.
        unsafe { self.0.base().write_volatile(number) };
    }

    pub fn read(&self) -> u64 {
        // SAFETY: as in `write`.
        unsafe { self.0.base().read_volatile() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::Usage;

    #[test]
    fn a_good_child_is_timed() {
        let timing = fork_and_wait(|| true).unwrap();
        assert!(timing.call > 0.0 && timing.total >= timing.call);
        assert!(timing.processor > 0.0);
    }

    #[test]
    fn a_child_that_saw_wrong_content_is_a_wrong_answer() {
        let Err(Failure::Wrong(text)) = fork_and_wait(|| false) else {
            panic!("accepted");
        };
        assert!(text.contains("differs"), "{text}");
    }

    #[test]
    fn a_child_that_died_is_a_wrong_answer() {
        let died = fork_and_wait(|| {
            // SAFETY: kills this child only.
            unsafe { libc::raise(libc::SIGKILL) };
            true
        });
        let Err(Failure::Wrong(text)) = died else {
            panic!("accepted");
        };
        assert!(text.contains("signal 9"), "{text}");
    }

    #[test]
    fn usage_grows_with_work_of_children() {
        let before = Usage::with_children();
        fork_and_wait(|| (0..20_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)) < !0)
            .unwrap();
        let used = Usage::with_children().since(before);
        assert!(used.user_ns + used.system_ns > 0);
    }

    #[test]
    fn with_the_harness_alone_nobody_is_forked_and_clocks_still_run() {
        // A thread of its own: the switch is never turned back.
        let alone = std::thread::spawn(|| {
            leave_harness_alone();
            let own = std::process::id();
            let timing = fork_and_wait(|| std::process::id() == own).unwrap();
            assert!(timing.total > 0.0 && timing.processor > 0.0);
            assert!(matches!(fork_and_wait(|| false), Err(Failure::Wrong(_))));
        });
        alone.join().unwrap();
        assert!(!is_harness_alone());
    }

    #[test]
    fn a_gate_holds_a_child_until_it_opens_and_a_slate_brings_its_number() {
        let (gate, slate) = (Gate::shut().unwrap(), Slate::new().unwrap());
        let child = Child::fork(|| {
            gate.wait();
            slate.write(42);
            true
        })
        .unwrap();
        assert_eq!(slate.read(), 0);
        gate.open();
        child.reap().unwrap();
        assert_eq!(slate.read(), 42);
    }
}
