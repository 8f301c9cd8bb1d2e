//! The ptrace requests that observing needs, and waiting for what they report. Thin: no state, no decisions.
//!
//! All requests for one task must come from the thread that attached to it (the kernel's rule). Errors are errno
//! values as `std::io::Error`; a task that is gone answers ESRCH, which callers take as "it will be reaped soon".

use std::io::{Error, Result};
use std::time::Duration;

pub type Pid = i32;

/// Why a task stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// A signal is about to be delivered; it must be passed on.
    Signal(i32),
    /// A new task was made: by which event, and its number.
    Born(i32),
    Exec,
    Exiting,
    /// Job control stopped the process; it must stay stopped.
    Group,
    /// The first stop of a new task, or the answer to an interrupt.
    Trap,
}

/// What waiting brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wake {
    Stopped(Pid, Stop),
    /// Gone, with its wait status.
    Gone(Pid, i32),
    /// Nothing yet.
    Idle,
    /// There is nobody left to wait for.
    Alone,
}

const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

/// A request whose address and data are numbers.
fn request(request: libc::c_uint, pid: Pid, data: usize) -> Result<()> {
    // SAFETY: only requests that take numbers come here (SEIZE, INTERRUPT, CONT, LISTEN, DETACH): no memory of ours
    // is touched by the kernel.
    match unsafe { libc::ptrace(request, pid, 0usize, data) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Attaches without stopping the task. Its later children and threads are attached by the kernel.
pub fn seize(pid: Pid) -> Result<()> {
    request(libc::PTRACE_SEIZE, pid, OPTIONS as usize)
}

pub fn interrupt(pid: Pid) -> Result<()> {
    request(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Lets a stopped task go on; `signal` is delivered when it is not 0.
pub fn resume(pid: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_CONT, pid, signal as usize)
}

/// Leaves a task stopped by job control until SIGCONT, as it would be without us.
pub fn listen(pid: Pid) -> Result<()> {
    request(libc::PTRACE_LISTEN, pid, 0)
}

pub fn detach(pid: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_DETACH, pid, signal as usize)
}

/// What comes with an event: the number of the new task.
pub fn message(pid: Pid) -> Result<Pid> {
    let mut number: libc::c_ulong = 0;
    // SAFETY: the kernel writes one unsigned long to a live variable.
    match unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0usize, &mut number) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(number as Pid),
    }
}

/// Number and first argument of the system call a stopped task is in; None for a 32-bit task.
#[cfg(target_arch = "x86_64")]
pub fn system_call(pid: Pid) -> Option<(i64, u64)> {
    /// The code segment of 32-bit programs, whose calls have other numbers.
    const USER32: u64 = 0x23;
    // SAFETY: all zeros are a valid register set; the kernel fills exactly this structure.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let got = libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, &mut registers);
        (got != -1 && registers.cs != USER32).then_some((registers.orig_rax as i64, registers.rdi))
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn system_call(_pid: Pid) -> Option<(i64, u64)> {
    None
}

/// One word of the memory of a stopped task.
pub fn peek(pid: Pid, address: u64) -> Option<u64> {
    let mut word = 0u64;
    let ours = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 8 };
    // SAFETY: the kernel writes at most eight bytes to `word`; the other address belongs to the other process and is
    // checked there.
    let copied = unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) };
    (copied == 8).then_some(word)
}

/// What has happened to any traced task or child; does not block.
pub fn next() -> Wake {
    let mut status = 0;
    // SAFETY: the status is a live variable.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
    match pid {
        0 => Wake::Idle,
        -1 if Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => Wake::Alone,
        -1 => Wake::Idle,
        pid => read(pid, status),
    }
}

fn read(pid: Pid, status: i32) -> Wake {
    if !libc::WIFSTOPPED(status) {
        return Wake::Gone(pid, status);
    }
    let signal = libc::WSTOPSIG(status);
    let stop = match status >> 16 {
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            Stop::Born(status >> 16)
        }
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_EXIT => Stop::Exiting,
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Stop::Group,
        libc::PTRACE_EVENT_STOP => Stop::Trap,
        _ => Stop::Signal(signal),
    };
    Wake::Stopped(pid, stop)
}

/// While this lives, SIGCHLD waits to be taken by `pause`, so that no report is slept through.
pub struct Doorbell(libc::sigset_t);

impl Doorbell {
    /// To be made after a command was started: a mask is inherited.
    pub fn hang() -> Doorbell {
        // SAFETY: plain calls on live signal sets; failing is impossible with valid arguments.
        unsafe {
            let (mut only, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut only);
            libc::sigaddset(&mut only, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &only, &mut before);
            Doorbell(before)
        }
    }

    /// Sleeps until a task reports, a signal for us arrives, or the time is over.
    pub fn pause(&self, longest: Duration) {
        let time = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: longest.subsec_nanos().into(),
        };
        // SAFETY: live arguments; the information about the signal is not wanted.
        unsafe {
            let mut only = std::mem::zeroed();
            libc::sigemptyset(&mut only);
            libc::sigaddset(&mut only, libc::SIGCHLD);
            libc::sigtimedwait(&only, std::ptr::null_mut(), &time);
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // SAFETY: the mask was filled by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(event: i32, signal: i32) -> i32 {
        event << 16 | signal << 8 | 0x7f
    }

    #[test]
    fn reports_are_told_apart() {
        use libc::{SIGSTOP, SIGTERM, SIGTRAP};
        let stop = |event, signal| match read(7, stopped(event, signal)) {
            Wake::Stopped(7, stop) => stop,
            other => panic!("{other:?}"),
        };
        assert_eq!(stop(0, SIGTERM), Stop::Signal(SIGTERM));
        // A breakpoint of the program's own is a signal like any other; so is a SIGSTOP on its way.
        assert_eq!(stop(0, SIGTRAP), Stop::Signal(SIGTRAP));
        assert_eq!(stop(0, SIGSTOP), Stop::Signal(SIGSTOP));
        assert_eq!(stop(libc::PTRACE_EVENT_STOP, SIGSTOP), Stop::Group);
        assert_eq!(stop(libc::PTRACE_EVENT_STOP, SIGTRAP), Stop::Trap);
        assert_eq!(stop(libc::PTRACE_EVENT_VFORK, SIGTRAP), Stop::Born(2));
        assert_eq!(stop(libc::PTRACE_EVENT_EXEC, SIGTRAP), Stop::Exec);
        assert_eq!(stop(libc::PTRACE_EVENT_EXIT, SIGTRAP), Stop::Exiting);
        assert_eq!(read(7, 3 << 8), Wake::Gone(7, 3 << 8));
        assert_eq!(read(7, libc::SIGKILL), Wake::Gone(7, 9));
    }
}
