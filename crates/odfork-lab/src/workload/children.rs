//! Forking, timing and reaping the children of a subject.
//!
//! Owns the only place that calls fork: libc's dynamic symbol, so that a preloaded library stands in its
//! place. A child runs one closure and leaves by _exit: 0 when it saw what it had to see, WRONG when not.
//! Children are always reaped by pid before an act ends.

use std::time::{Duration, Instant};

use super::protocol::Answer;

/// Exit status of a child that saw wrong content.
const WRONG: libc::c_int = 9;

/// Why an act could not give a number.
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

/// How long one fork took: the call itself, the processor time it used, and until the child was reaped.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub call: f64,
    pub processor: f64,
    pub total: f64,
}

pub fn nanoseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// Nanoseconds of processor time this thread has used: does not grow while other work has the processor.
fn processor_time() -> f64 {
    // SAFETY: a zeroed timespec is valid and the call fills it.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
}

/// A child that lives until it is reaped.
pub struct Child {
    pid: libc::pid_t,
    pub started: Instant,
    pub call: f64,
    processor: f64,
}

impl Child {
    /// Forks. CHILD: runs `body`, which must use no heap and no locks, and leaves.
    pub fn fork(body: impl FnOnce() -> bool) -> Result<Child, Failure> {
        // Outside of the timed window: this clock costs a system call.
        let before = processor_time();
        let started = Instant::now();
        // SAFETY: the child only runs `body` (no heap, no locks: the promise above) and _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let status = if body() { 0 } else { WRONG };
            // SAFETY: _exit does not return and runs no handlers of the parent's.
            unsafe { libc::_exit(status) };
        }
        let call = nanoseconds(started.elapsed());
        let processor = processor_time() - before;
        if pid < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Failure::Unavailable(format!("fork failed: {error}")));
        }
        Ok(Child { pid, started, call, processor })
    }

    /// Waits for the child and judges how it ended.
    pub fn reap(self) -> Result<Timing, Failure> {
        let mut status = 0;
        loop {
            // SAFETY: status is a valid place for the result; pid is a child of ours not yet reaped.
            let reaped = unsafe { libc::waitpid(self.pid, &mut status, 0) };
            if reaped == self.pid {
                break;
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                let text = format!("waitpid of child {}: {error}", self.pid);
                return Err(Failure::Wrong(text));
            }
        }
        let total = nanoseconds(self.started.elapsed());
        judge(status)?;
        Ok(Timing { call: self.call, processor: self.processor, total })
    }
}

fn judge(status: libc::c_int) -> Result<(), Failure> {
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

/// Forks one child and waits for it.
pub fn fork_and_wait(body: impl FnOnce() -> bool) -> Result<Timing, Failure> {
    Child::fork(body)?.reap()
}

/// A gate that holds children until the parent opens it: a pipe, open means closed for writing.
pub struct Gate {
    read: libc::c_int,
    write: libc::c_int,
}

impl Gate {
    pub fn shut() -> Result<Gate, Failure> {
        let mut ends = [0; 2];
        // SAFETY: ends has room for the two descriptors.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Failure::Unavailable(format!("pipe failed: {error}")));
        }
        Ok(Gate { read: ends[0], write: ends[1] })
    }

    /// Waits until the parent opens the gate (or dies). CHILD: raw calls only.
    pub fn wait(&self) {
        let mut byte = 0u8;
        // SAFETY: the child's own copies of two descriptors; byte has room for one.
        unsafe {
            libc::close(self.write);
            libc::read(self.read, std::ptr::from_mut(&mut byte).cast(), 1);
        }
    }

    pub fn open(self) {
        // Dropping closes both ends: every waiting child reads end of file.
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: both descriptors are ours and closed once.
        unsafe {
            libc::close(self.write);
            libc::close(self.read);
        }
    }
}

/// One page shared with children, where a child leaves a number for its parent.
pub struct Slate(*mut u64);

impl Slate {
    pub fn new() -> Result<Slate, Failure> {
        // SAFETY: asks for new shared memory; nothing of ours is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                super::memory::PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(Failure::Unavailable(format!("shared page refused: {error}")));
        }
        Ok(Slate(start.cast()))
    }

    /// CHILD: one store.
    pub fn write(&self, number: u64) {
        // SAFETY: the page is mapped for the life of the slate.
        unsafe { self.0.write_volatile(number) };
    }

    pub fn read(&self) -> u64 {
        // SAFETY: as in `write`.
        unsafe { self.0.read_volatile() }
    }
}

impl Drop for Slate {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, unmapped once.
        unsafe { libc::munmap(self.0.cast(), super::memory::PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
