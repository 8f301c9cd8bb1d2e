//! Starting a command so that nothing of its life is missed: it waits before exec until it is
//! released.
//!
//! Owns the fork, the exec in the child and how its failure is reported. The command keeps our
//! terminal, process group and descriptors, as under time(1); only its standard output may go
//! elsewhere. Its signal dispositions are ours, with SIGPIPE back at its default.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context, Result};
use rustix::pipe::{pipe_with, PipeFlags};

/// A started command that has not executed its program yet. Dropped, it never does.
pub struct Launch {
    pub pid: i32,
    release: File,
    failure: File,
}

/// What the child needs, all made before the fork.
struct Child<'a> {
    /// Ends with a null pointer.
    words: &'a [*const libc::c_char],
    wait: RawFd,
    /// The child's copy of our end of that pipe.
    ours: RawFd,
    failure: RawFd,
    output: Option<RawFd>,
}

impl Launch {
    /// `output` becomes the command's standard output.
    pub fn prepare(words: &[OsString], output: Option<BorrowedFd<'_>>) -> Result<Launch> {
        let words: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<_, _>>()
            .context("a word of COMMAND holds a zero byte")?;
        let mut pointers: Vec<*const libc::c_char> =
            words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let pipe = || pipe_with(PipeFlags::CLOEXEC).context("cannot start COMMAND: no pipe");
        let ((wait, release), (failure, report)) = (pipe()?, pipe()?);
        let child = Child {
            words: &pointers,
            wait: wait.as_raw_fd(),
            ours: release.as_raw_fd(),
            failure: report.as_raw_fd(),
            output: output.as_ref().map(AsRawFd::as_raw_fd),
        };
        // SAFETY: the child only makes system calls on memory and descriptors prepared above, then
        // executes or ends.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last_os_error()).context("cannot start COMMAND: fork failed"),
            // SAFETY: as above; the pointers end with a null and their strings live on.
            0 => unsafe { child.run() },
            pid => Ok(Launch { pid, release: release.into(), failure: failure.into() }),
        }
    }

    /// Lets the command execute its program.
    pub fn release(&mut self) {
        // A child that is gone already is reported by waiting.
        let _ = self.release.write_all(b"g");
    }

    /// The error of exec; waits until the command has executed or ended.
    pub fn failure(mut self) -> Option<Error> {
        let mut number = [0u8; 4];
        self.failure.read_exact(&mut number).ok()?;
        Some(Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }
}

impl Child<'_> {
    /// CHILD: waits to be released, then executes; reports the error number when that fails. No
    /// heap, no locks.
    ///
    /// # Safety
    /// In a new child only; `words` ends with a null pointer; the descriptors are open.
    unsafe fn run(&self) -> ! {
        // SAFETY: the caller's promise; every call takes numbers or memory that outlives it.
        unsafe {
            // Our own copy of the other end would hide that the parent has gone.
            libc::close(self.ours);
            let mut byte = 0u8;
            while libc::read(self.wait, (&raw mut byte).cast(), 1) == -1
                && *libc::__errno_location() == libc::EINTR
            {}
            if byte != b'g' {
                libc::_exit(127);
            }
            if let Some(output) = self.output {
                libc::dup2(output, libc::STDOUT_FILENO);
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execvp(self.words[0], self.words.as_ptr());
            let error = *libc::__errno_location();
            libc::write(self.failure, (&raw const error).cast(), 4);
            libc::_exit(127)
        }
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
    use std::os::fd::AsFd;

    fn wait(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        status
    }

    fn run(words: &[&str]) -> (i32, Option<Error>) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut launch = Launch::prepare(&words, Some(std::io::stderr().as_fd())).unwrap();
        launch.release();
        (wait(launch.pid), launch.failure())
    }

    #[test]
    fn a_command_runs_after_its_release_and_keeps_its_status() {
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
        let launch = Launch::prepare(&["touch".into(), "/nonexistent/x".into()], None).unwrap();
        let pid = launch.pid;
        drop(launch);
        assert_eq!(libc::WEXITSTATUS(wait(pid)), 127);
    }
}
