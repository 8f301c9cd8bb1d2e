//! Starting a command so that nothing of its life is missed: it waits before exec until somebody watches it.
//!
//! Owns the fork, the exec in the child and how its failure is told. Standard input and output are the command's own;
//! for a JSON report its output goes to standard error, because both would mix.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context, Result};

use super::ptrace::Pid;

/// A started command that has not executed its program yet.
pub struct Launch {
    pub pid: Pid,
    gate: File,
    failure: File,
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Launch {
    pub fn prepare(words: &[OsString], output_to_error: bool) -> Result<Launch> {
        let words: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<_, _>>()
            .context("a word of COMMAND holds a zero byte")?;
        let mut pointers: Vec<*const libc::c_char> =
            words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let (gate, failure) = (pipe()?, pipe()?);
        let (enter, tell) = (gate.read.as_raw_fd(), failure.write.as_raw_fd());
        let shut = gate.write.as_raw_fd();
        // SAFETY: the child only makes system calls on memory and descriptors prepared above, then executes or ends.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last_os_error()).context("cannot start COMMAND: fork failed"),
            // SAFETY: as above; the pointers end with a null and their strings live on.
            0 => unsafe { become_command(&pointers, (enter, shut, tell), output_to_error) },
            pid => Ok(Launch { pid, gate: gate.write.into(), failure: failure.read.into() }),
        }
    }

    /// Lets the command execute its program.
    pub fn open(&mut self) {
        // A child that is gone already is reported by waiting.
        let _ = self.gate.write_all(b"g");
    }

    /// The error of exec, once the command has ended without having executed.
    pub fn failure(mut self) -> Option<Error> {
        let mut number = [0u8; 4];
        self.failure.read_exact(&mut number).ok()?;
        Some(Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }
}

fn pipe() -> Result<Pipe> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are ours alone afterwards.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(Error::last_os_error()).context("cannot start COMMAND: no pipe");
        }
        Ok(Pipe { read: OwnedFd::from_raw_fd(ends[0]), write: OwnedFd::from_raw_fd(ends[1]) })
    }
}

/// CHILD: waits at the gate, then executes; tells the error number when that fails. No heap, no locks.
///
/// # Safety
/// `words` ends with a null pointer; the descriptors (gate to read, gate to write, failure to write) are open.
unsafe fn become_command(
    words: &[*const libc::c_char],
    (enter, shut, tell): (RawFd, RawFd, RawFd),
    output_to_error: bool,
) -> ! {
    // SAFETY: the caller's promise; every call takes numbers or memory that outlives it.
    unsafe {
        // Our own copy of the other end would keep the gate from being seen as broken.
        libc::close(shut);
        let mut byte = 0u8;
        while libc::read(enter, (&raw mut byte).cast(), 1) == -1
            && *libc::__errno_location() == libc::EINTR
        {}
        if byte != b'g' {
            libc::_exit(127);
        }
        if output_to_error {
            libc::dup2(2, 1);
        }
        libc::execvp(words[0], words.as_ptr());
        let error = *libc::__errno_location();
        libc::write(tell, (&raw const error).cast(), 4);
        libc::_exit(127)
    }
}

/// The exit status of a shell for a program that cannot be executed.
pub fn status_of(error: &Error) -> u8 {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => 127,
        _ => 126,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> (i32, Option<Error>) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut launch = Launch::prepare(&words, true).unwrap();
        launch.open();
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(launch.pid, &mut status, 0) }, launch.pid);
        (status, launch.failure())
    }

    #[test]
    fn a_command_runs_after_the_gate_and_keeps_its_status() {
        let (status, failure) = run(&["sh", "-c", "exit 3"]);
        assert_eq!((libc::WEXITSTATUS(status), failure.is_none()), (3, true));
    }

    #[test]
    fn a_failing_exec_is_told_by_its_number() {
        let (_, missing) = run(&["/nonexistent/program"]);
        assert_eq!(status_of(&missing.unwrap()), 127);
        let (_, barred) = run(&["/etc/passwd"]);
        assert_eq!(status_of(&barred.unwrap()), 126);
    }

    #[test]
    fn a_launch_that_is_dropped_runs_nothing() {
        let launch = Launch::prepare(&["touch".into(), "/nonexistent/x".into()], true).unwrap();
        let pid = launch.pid;
        drop(launch);
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(libc::WEXITSTATUS(status), 127);
    }
}
