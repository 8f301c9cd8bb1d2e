//! A command that is measured from its exec on: started, seized, waited for to its end.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::launch::{status_of, Launch};
use odfork_proc::interrupt;
use odfork_proc::ptrace;
use odfork_proc::tracee::Tracee;

/// After Ctrl-C, before a command that goes on gets the next stronger signal.
const SIGNAL_INTERVAL: Duration = Duration::from_secs(3);

/// The command could not be executed.
#[derive(Debug)]
pub struct NotStarted {
    pub status: u8,
    pub line: String,
}

/// Starts the command; the outer error is ours, the inner one the command's.
pub fn launch(
    words: &[OsString],
    marker: Option<i32>,
    output: Option<BorrowedFd<'_>>,
) -> Result<Result<Tracee, NotStarted>> {
    let mut launch = Launch::prepare(words, output)?;
    let seized = Tracee::seize(launch.pid, marker);
    launch.release();
    let failure = launch.failure();
    let mut tracee = seized?;
    let Some(error) = failure else {
        // The exec's own report: what follows is the command. Anything else is seen again.
        let event = tracee.next(None)?;
        tracee.go_on(event);
        return Ok(Ok(tracee));
    };
    tracee.release();
    // SAFETY: our own child, which has left by _exit; no status is wanted.
    unsafe { libc::waitpid(tracee.pid, std::ptr::null_mut(), 0) };
    let name = words[0].to_string_lossy();
    Ok(Err(match status_of(&error) {
        status @ 127 => NotStarted { status, line: format!("{name}: command not found") },
        status => NotStarted { status, line: format!("{name} cannot be executed: {error}") },
    }))
}

/// Waits for a command of ours that runs on unmeasured; after Ctrl-C it is made to end.
pub fn wait_for(pid: i32, interrupted: bool) -> Option<i32> {
    let mut ending = interrupted;
    let mut requests = [libc::SIGINT, libc::SIGTERM, libc::SIGKILL].into_iter();
    let mut next = Instant::now();
    loop {
        match ptrace::wait(-1) {
            Ok(Some((found, status))) if !libc::WIFSTOPPED(status) && found == pid => {
                return Some(status);
            }
            // A thread that could not be let go of before, because it was just being killed.
            Ok(Some((tid, status))) if libc::WIFSTOPPED(status) => {
                let _ = ptrace::detach(tid, 0);
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return None,
            _ => {}
        }
        ending |= interrupt::asked();
        if ending && Instant::now() >= next {
            if let Some(signal) = requests.next() {
                // SAFETY: a child of ours that has not been waited for: the number is still its
                // own.
                unsafe { libc::kill(pid, signal) };
            }
            next = Instant::now() + SIGNAL_INTERVAL;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As a shell has it.
pub fn exit_status(status: i32) -> u8 {
    if libc::WIFSIGNALED(status) {
        128u8.saturating_add(libc::WTERMSIG(status) as u8)
    } else {
        libc::WEXITSTATUS(status) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_the_shells() {
        assert_eq!(exit_status(3 << 8), 3);
        assert_eq!(exit_status(9), 137);
    }
}
