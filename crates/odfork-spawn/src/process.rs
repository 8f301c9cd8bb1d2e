//! A started program: waiting for it, ending it, its pipes.
//!
//! Owns the pid until it has been waited for: signals are sent only before, so
//! that they never reach a stranger with a reused number; where other parts of the
//! process wait for any child, only the pidfd is sure. It does not own how the
//! program was started.

use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use std::time::{Duration, Instant};

use odfork_sys::{args, call, wait4, Errno, SysResult};

use crate::communicate;
use crate::launch::{open_pidfd, CloneMethod, Launched};

/// Longest sleep between two looks where no pidfd is to be had.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// A program that runs or has run. Dropped without a wait it goes on, and is a zombie once it has
/// ended, as with [`std::process::Child`]; unless [`kill_on_drop`](crate::Command::kill_on_drop)
/// was asked for.
#[derive(Debug)]
pub struct Child {
    /// To write to the program's standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// To read the program's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// To read the program's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
    pid: i32,
    pidfd: Option<OwnedFd>,
    method: CloneMethod,
    status: Option<ExitStatus>,
    kill_on_drop: bool,
}

impl Child {
    pub(crate) fn new(launched: Launched, ends: [Option<OwnedFd>; 3], kill_on_drop: bool) -> Child {
        let [stdin, stdout, stderr] = ends;
        Child {
            stdin: stdin.map(ChildStdin::from),
            stdout: stdout.map(ChildStdout::from),
            stderr: stderr.map(ChildStderr::from),
            pid: launched.pid,
            // SAFETY: made for this child, given to nobody else.
            pidfd: launched.pidfd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            method: launched.method,
            status: None,
            kill_on_drop,
        }
    }

    /// The pid.
    pub fn id(&self) -> u32 {
        self.pid as u32
    }

    /// How it was made: [`CloneMethod::Clone3`] unless a filter or an old kernel refused that.
    pub fn method(&self) -> CloneMethod {
        self.method
    }

    /// The descriptor of the process, if [`Command::pidfd`](crate::Command::pidfd) asked for one
    /// and the kernel had one (Linux 5.2): readable once the program has ended.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// The descriptor as [`pidfd`](Child::pidfd) has it, for a caller who keeps it longer than the
    /// child.
    pub fn take_pidfd(&mut self) -> Option<OwnedFd> {
        self.pidfd.take()
    }

    /// Sends a signal. Nothing happens once the program has been waited for.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        if self.status.is_some() {
            return Ok(());
        }
        // The pidfd never means another process, even when somebody else has waited for the child.
        // SAFETY: numbers only; the pid is our child's, not yet waited for by us.
        let sent = match self.pidfd() {
            Some(fd) => unsafe {
                call(libc::SYS_pidfd_send_signal, args![fd.as_raw_fd(), signal, 0, 0])
            },
            None => unsafe { call(libc::SYS_kill, args![self.pid, signal]) },
        };
        sent.map(drop).map_err(from_errno)
    }

    /// Ends the program by SIGKILL. Nothing happens once it has been waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Closes the program's standard input, if it is a pipe, and waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.reap(0)?.ok_or_else(|| from_errno(Errno(libc::ECHILD)))
    }

    /// The status if the program has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.reap(libc::WNOHANG)
    }

    /// Waits for the program's end, but not longer than `timeout`: `None` when it goes on. Standard
    /// input stays open.
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now().checked_add(timeout);
        if let Some(status) = self.try_wait()? {
            return Ok(Some(status));
        }
        match self.open_pidfd() {
            Ok(()) => self.await_readable(deadline)?,
            Err(_) => self.poll_until(deadline)?,
        }
        self.try_wait()
    }

    /// Reads standard output and error to their ends, both at once, and waits. Standard input is
    /// closed first.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        self.communicate(&[])
    }

    /// Writes `input` to standard input and closes it, while reading standard output and error to
    /// their ends, all at once, so that no full pipe can block either side; then waits. Of a
    /// program that stops reading, the rest of the input is dropped.
    pub fn communicate(mut self, input: &[u8]) -> io::Result<Output> {
        let pipes = (self.stdin.take(), self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = communicate::exchange(pipes, input)?;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }

    fn reap(&mut self, options: i32) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = wait4(self.pid, options).map_err(from_errno)?.map(ExitStatus::from_raw);
        }
        Ok(self.status)
    }

    fn open_pidfd(&mut self) -> SysResult<()> {
        if self.pidfd.is_none() {
            let fd = open_pidfd(self.pid)?;
            // SAFETY: just made, given to nobody else.
            self.pidfd = Some(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    fn await_readable(&self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(pidfd) = self.pidfd() else { return Ok(()) };
        communicate::await_one(pidfd, deadline)
    }

    fn poll_until(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let mut pause = Duration::from_micros(100);
        while self.try_wait()?.is_none() {
            let left = communicate::left(deadline);
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.kill_on_drop && self.status.is_none() {
            // Ended already, or taken by another wait: then there is nothing to end.
            let _ = self.kill().and_then(|()| self.reap(0));
        }
    }
}

fn from_errno(Errno(errno): Errno) -> Error {
    Error::from_raw_os_error(errno)
}
