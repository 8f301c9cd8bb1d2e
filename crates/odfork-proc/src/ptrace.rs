//! The ptrace requests that are used, each as one safe call, and what a wait reports.
//!
//! Thin: no state, no decisions. Seizing (Linux 3.4) instead of attaching: the program is not
//! stopped by it and sees no signal. All requests for a task must come from the thread that seized
//! it. A task that is gone answers ESRCH, which callers take as "its end will be reported".

use std::io::{Error, Result};
use std::ptr;
use std::time::Duration;

pub use crate::process::Pid;

/// What a wait gave.
pub type Status = libc::c_int;

/// Threads, exec and exit are reported; forked children are left alone.
pub const OWN_THREADS: i32 =
    libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEEXIT;
/// Children are seized by the kernel as well.
pub const ALL_CHILDREN: i32 = OWN_THREADS | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;

/// Why a task stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// A signal is about to be delivered; it must be passed on.
    Signal(i32),
    /// A new task was made: by which event.
    Born(i32),
    /// It has executed a program.
    Exec,
    /// It is about to end.
    Exiting,
    /// Job control stopped the process; it must stay stopped.
    Group,
    /// The first stop of a new task, or the answer to an interrupt.
    Trap,
}

/// What waiting brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wake {
    /// A task has stopped.
    Stopped(Pid, Stop),
    /// Gone, with its wait status.
    Gone(Pid, Status),
    /// Nothing yet.
    Idle,
    /// There is nobody left to wait for.
    Alone,
}

fn request(what: libc::c_uint, tid: Pid, data: usize) -> Result<()> {
    let data = ptr::with_exposed_provenance_mut::<libc::c_void>(data);
    // SAFETY: callers pass requests whose data is a number, or a pointer valid during the call.
    match unsafe { libc::ptrace(what, tid, ptr::null_mut::<libc::c_void>(), data) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Attaches without stopping the task; `options` says what is reported.
pub fn seize(tid: Pid, options: i32) -> Result<()> {
    request(libc::PTRACE_SEIZE, tid, options as usize)
}

/// Stops a seized task; the stop is reported as [`Stop::Trap`].
///
/// # Errors
/// ESRCH: it is gone, or not ours.
pub fn interrupt(tid: Pid) -> Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped task go on; `signal` is delivered when it is not 0.
pub fn resume(tid: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_CONT, tid, signal as usize)
}

/// Leaves a task stopped by job control until SIGCONT, as it would be without us.
pub fn listen(tid: Pid) -> Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Lets a stopped task go for good; `signal` is delivered when it is not 0.
///
/// # Errors
/// ESRCH: it is gone, or not stopped.
pub fn detach(tid: Pid, signal: i32) -> Result<()> {
    request(libc::PTRACE_DETACH, tid, signal as usize)
}

/// The number that came with an event: the new task, or the exit status.
pub fn message(tid: Pid) -> Result<u64> {
    let mut number: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, ptr::from_mut(&mut number).expose_provenance())?;
    Ok(number)
}

/// Number and first argument of the system call a stopped task is in; `None` for a 32-bit task.
#[cfg(target_arch = "x86_64")]
pub fn system_call(tid: Pid) -> Option<(i64, u64)> {
    /// The code segment of 32-bit programs, whose calls have other numbers.
    const USER32: u64 = 0x23;
    let registers = registers::get(tid).ok()?;
    (registers.cs != USER32).then_some((registers.orig_rax as i64, registers.rdi))
}

/// Not known on this architecture: events say what they can.
#[cfg(not(target_arch = "x86_64"))]
pub fn system_call(_: Pid) -> Option<(i64, u64)> {
    None
}

/// One word of the memory of a task.
pub fn peek(tid: Pid, address: u64) -> Option<u64> {
    let mut word = [0u8; 8];
    let got = crate::memory::read(tid, address, &mut word).ok()?;
    (got == word.len()).then_some(u64::from_ne_bytes(word))
}

/// One report of `tid` (-1: of any task seized by this thread), if there is one now.
pub fn wait(tid: Pid) -> Result<Option<(Pid, Status)>> {
    let mut status = 0;
    // SAFETY: the status is valid for the call to fill. __WNOTHREAD: children of other threads are
    // theirs.
    let found = unsafe {
        libc::waitpid(tid, &mut status, libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD)
    };
    match found {
        -1 => Err(Error::last_os_error()),
        0 => Ok(None),
        found => Ok(Some((found, status))),
    }
}

/// As [`next`], of one task.
pub fn next_of(tid: Pid) -> Wake {
    match wait(tid) {
        Ok(Some((tid, status))) => wake_of(tid, status),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Wake::Alone,
        Ok(None) | Err(_) => Wake::Idle,
    }
}

/// What has happened to any task seized by this thread, or child of it; does not block.
pub fn next() -> Wake {
    match wait(-1) {
        Ok(Some((tid, status))) => wake_of(tid, status),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Wake::Alone,
        Ok(None) | Err(_) => Wake::Idle,
    }
}

fn wake_of(tid: Pid, status: Status) -> Wake {
    if !libc::WIFSTOPPED(status) {
        return Wake::Gone(tid, status);
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
    Wake::Stopped(tid, stop)
}

#[cfg(target_arch = "x86_64")]
pub mod registers {
    //! What carrying out a system call in another process takes (x86-64).

    use super::{ptr, request, Pid, Result};

    /// The registers of a stopped task.
    ///
    /// # Errors
    /// ESRCH: it is gone, or not stopped.
    pub fn get(tid: Pid) -> Result<libc::user_regs_struct> {
        // SAFETY: all-zero numbers are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        request(libc::PTRACE_GETREGS, tid, ptr::from_mut(&mut registers).expose_provenance())?;
        Ok(registers)
    }

    /// Sets them.
    ///
    /// # Errors
    /// ESRCH: it is gone, or not stopped. EIO: a register cannot have this value.
    pub fn set(tid: Pid, registers: &libc::user_regs_struct) -> Result<()> {
        request(libc::PTRACE_SETREGS, tid, ptr::from_ref(registers).expose_provenance())
    }

    /// Lets it carry out one instruction.
    ///
    /// # Errors
    /// ESRCH: it is gone, or not stopped.
    pub fn step(tid: Pid) -> Result<()> {
        request(libc::PTRACE_SINGLESTEP, tid, 0)
    }

    /// Registers of floating point and vectors, as the kernel has them.
    ///
    /// # Errors
    /// As for [`get`].
    pub fn get_vectors(tid: Pid) -> Result<Vec<u8>> {
        // More than any processor has by now (AMX: 11 KB).
        let mut state = vec![0u8; 64 << 10];
        let len = vectors(libc::PTRACE_GETREGSET, tid, &mut state)?;
        state.truncate(len);
        Ok(state)
    }

    /// Sets them.
    ///
    /// # Errors
    /// As for [`set`].
    pub fn set_vectors(tid: Pid, state: &mut [u8]) -> Result<()> {
        vectors(libc::PTRACE_SETREGSET, tid, state).map(drop)
    }

    fn vectors(what: libc::c_uint, tid: Pid, state: &mut [u8]) -> Result<usize> {
        /// Of the kernel's kinds of registers.
        const XSTATE: usize = 0x202;
        let mut place = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        let kind = ptr::without_provenance_mut::<libc::c_void>(XSTATE);
        // SAFETY: as much room as said, which lives during the call.
        match unsafe { libc::ptrace(what, tid, kind, &raw mut place) } {
            -1 => Err(super::Error::last_os_error()),
            _ => Ok(place.iov_len),
        }
    }
}

/// Lets a stopped task go on to the beginning or the end of its next system call. With the option
/// TRACESYSGOOD that is reported as [`CALL_STOP`].
///
/// # Errors
/// ESRCH: it is gone, or not stopped.
pub fn resume_to_call(tid: Pid) -> Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0)
}

/// The beginning or the end of a system call.
pub const CALL_STOP: Stop = Stop::Signal(libc::SIGTRAP | 0x80);

/// Signals that a stopped task blocks.
///
/// # Errors
/// ESRCH: it is gone, or not stopped.
pub fn blocked_signals(tid: Pid) -> Result<u64> {
    let mut mask = 0u64;
    signal_mask(libc::PTRACE_GETSIGMASK, tid, &mut mask).map(|()| mask)
}

/// Makes it block these.
///
/// # Errors
/// As for [`blocked_signals`].
pub fn block_signals(tid: Pid, mut mask: u64) -> Result<()> {
    signal_mask(libc::PTRACE_SETSIGMASK, tid, &mut mask)
}

fn signal_mask(what: libc::c_uint, tid: Pid, mask: &mut u64) -> Result<()> {
    let size = ptr::without_provenance_mut::<libc::c_void>(size_of::<u64>());
    // SAFETY: a mask of the size said, which lives during the call.
    match unsafe { libc::ptrace(what, tid, size, ptr::from_mut(mask)) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The restartable sequence (rseq) that a stopped task has named last: it may be in it, or have
/// left it.
#[must_use]
pub fn sequence(tid: Pid) -> Option<u64> {
    const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    /// Where the sequence is named, in the area that the task has registered.
    const NAMED: u64 = 8;
    // Its address, and numbers.
    let mut area = [0u64; 3];
    let size = ptr::without_provenance_mut::<libc::c_void>(size_of_val(&area));
    // SAFETY: room for what is asked, which lives during the call.
    let asked = unsafe { libc::ptrace(GET_RSEQ_CONFIGURATION, tid, size, area.as_mut_ptr()) };
    match asked > 0 && area[0] != 0 {
        true => peek(tid, area[0] + NAMED).filter(|&at| at != 0),
        false => None,
    }
}

/// While this lives, SIGCHLD is blocked and can be waited for, so that no report is slept through.
pub struct BlockedSigchld {
    before: libc::sigset_t,
}

impl BlockedSigchld {
    /// To be made after a command was started: a mask is inherited.
    #[allow(clippy::new_without_default)]
    pub fn new() -> BlockedSigchld {
        let only = sigchld();
        // SAFETY: plain calls on live signal sets; failing is impossible with valid arguments.
        unsafe {
            let mut before = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &only, &mut before);
            BlockedSigchld { before }
        }
    }

    /// Sleeps until a task reports, a signal for us arrives, or the time is over.
    pub fn wait(&self, longest: Duration) {
        let time = libc::timespec {
            tv_sec: longest.as_secs() as libc::time_t,
            tv_nsec: longest.subsec_nanos().into(),
        };
        // SAFETY: live arguments; the information about the signal is not wanted.
        unsafe { libc::sigtimedwait(&sigchld(), ptr::null_mut(), &time) };
    }
}

fn sigchld() -> libc::sigset_t {
    // SAFETY: plain calls on a live signal set.
    unsafe {
        let mut only = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, libc::SIGCHLD);
        only
    }
}

impl Drop for BlockedSigchld {
    fn drop(&mut self) {
        // SAFETY: the mask was filled by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
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
        let stop = |event, signal| match wake_of(7, stopped(event, signal)) {
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
        assert_eq!(wake_of(7, 3 << 8), Wake::Gone(7, 3 << 8));
        assert_eq!(wake_of(7, libc::SIGKILL), Wake::Gone(7, 9));
    }
}
