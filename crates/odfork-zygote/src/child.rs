//! The handle of a child.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use crate::error::doing;
use crate::frame::{kind, tag, Frame};
use crate::link::{readable, Link};
use crate::{Error, Result};

/// How a child ended and what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its status: a code or a signal. SIGKILL where the template has died.
    pub status: ExitStatus,
    /// Processor time in the program.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Largest resident size, in bytes.
    pub largest_resident: u64,
}

/// A child of a template. The template kills it when the handle is dropped, unless it is detached.
#[derive(Debug)]
pub struct Child {
    link: Link,
    pid: u32,
    pidfd: OwnedFd,
    exit: Option<Exit>,
}

impl Child {
    /// Waits until the template has started what was asked on this connection.
    pub(crate) fn of(link: Link) -> Result<Child> {
        loop {
            let (frame, mut descriptors) = link.receive()?;
            match frame.kind {
                kind::READY => {}
                kind::STARTED => {
                    let pid = frame.number(tag::PROCESS) as u32;
                    let pidfd = match descriptors.pop() {
                        Some(pidfd) => pidfd,
                        None => open(pid)?,
                    };
                    return Ok(Child { link, pid, pidfd, exit: None });
                }
                kind::FAILED => return Err(Error::Refused(frame.text(tag::MESSAGE))),
                _ => return Err(Error::Protocol("an answer nobody asked for")),
            }
        }
    }

    /// Its process id, in the pid namespace of the template.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Waits for the end; the status comes from the template, its parent.
    pub fn wait(&mut self) -> Result<Exit> {
        Ok(self.wait_for(None)?.unwrap_or_else(lost))
    }

    /// The same, for at most so long; `None` while it runs. When the template has died, it waits
    /// until the child has ended: for ever for a detached one that runs on.
    pub fn wait_for(&mut self, timeout: Option<Duration>) -> Result<Option<Exit>> {
        if self.exit.is_none() {
            if !self.link.readable(timeout)? {
                return Ok(None);
            }
            self.exit = Some(match self.link.receive() {
                Ok((frame, _)) if frame.kind == kind::EXITED => exit_of(&frame),
                Ok(_) => return Err(Error::Protocol("an answer nobody asked for")),
                // The kernel kills the children of a template that died.
                Err(Error::Ended) => {
                    readable(self.pidfd.as_fd(), None)?;
                    lost()
                }
                Err(error) => return Err(error),
            });
        }
        Ok(self.exit)
    }

    /// Sends a signal; nothing happens when the child has ended.
    pub fn signal(&self, number: i32) -> Result<()> {
        let signal =
            Signal::from_named_raw(number).ok_or(Error::Protocol("a signal without a name"))?;
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(doing("sending a signal")(error)),
        }
    }

    /// Sends SIGKILL.
    ///
    /// # Errors
    /// As for [`Child::signal`].
    pub fn kill(&self) -> Result<()> {
        self.signal(libc::SIGKILL)
    }
}

impl AsFd for Child {
    /// The pidfd: readable when the child has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// What is known of a child whose template has died.
fn lost() -> Exit {
    Exit {
        status: ExitStatus::from_raw(libc::SIGKILL),
        user: Duration::ZERO,
        system: Duration::ZERO,
        largest_resident: 0,
    }
}

fn exit_of(frame: &Frame) -> Exit {
    let usage = frame.get(tag::USAGE).unwrap_or_default();
    let number = |at: usize| {
        let bytes = usage.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    Exit {
        status: ExitStatus::from_raw(frame.number(tag::STATUS) as i32),
        user: Duration::from_nanos(number(0)),
        system: Duration::from_nanos(number(8)),
        largest_resident: number(16),
    }
}

fn open(pid: u32) -> Result<OwnedFd> {
    let pid = Pid::from_raw(pid as i32).ok_or(Error::Protocol("a child without a number"))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(doing("pidfd_open"))
}
