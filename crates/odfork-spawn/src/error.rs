//! Why a program could not be started: the step that failed, and its errno.
//!
//! Owns the names of the steps (the same as in `child` and in docs/spawn.md) and the text of an
//! error.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;

/// The steps of starting a program, in the order they are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Step {
    /// Reading what was asked for: strings with zero bytes, a descriptor named twice.
    Request = 1,
    /// Opening `/dev/null` or making a pipe.
    Pipe = 2,
    /// Memory for the child's stack.
    Stack = 3,
    /// Making the process (`clone3`, `clone`).
    Clone = 4,
    /// Signal handlers and default signals.
    Signals = 5,
    /// Joining the cgroup.
    Cgroup = 6,
    /// A session of its own (`setsid`).
    Session = 7,
    /// The process group (`setpgid`).
    ProcessGroup = 8,
    /// Putting descriptors in their places.
    Descriptors = 9,
    /// The controlling terminal, or its foreground group.
    Terminal = 10,
    /// Closing all other descriptors.
    CloseOthers = 11,
    /// Resource limits.
    Limits = 12,
    /// Supplementary groups.
    Groups = 13,
    /// The group.
    Gid = 14,
    /// The user.
    Uid = 15,
    /// `no_new_privs`.
    NoNewPrivileges = 16,
    /// The working directory.
    Directory = 17,
    /// The signal at the parent's death.
    ParentDeath = 18,
    /// The signal mask.
    SignalMask = 19,
    /// Executing the program.
    Exec = 20,
    /// The program is there, but not the interpreter it names (`#!` line or ELF).
    Interpreter = 21,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Step; 21] = [
        Step::Request,
        Step::Pipe,
        Step::Stack,
        Step::Clone,
        Step::Signals,
        Step::Cgroup,
        Step::Session,
        Step::ProcessGroup,
        Step::Descriptors,
        Step::Terminal,
        Step::CloseOthers,
        Step::Limits,
        Step::Groups,
        Step::Gid,
        Step::Uid,
        Step::NoNewPrivileges,
        Step::Directory,
        Step::ParentDeath,
        Step::SignalMask,
        Step::Exec,
        Step::Interpreter,
    ];

    /// The step's name, as in the documents.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Request => "request",
            Step::Pipe => "pipe",
            Step::Stack => "stack",
            Step::Clone => "clone",
            Step::Signals => "signals",
            Step::Cgroup => "cgroup",
            Step::Session => "session",
            Step::ProcessGroup => "process-group",
            Step::Descriptors => "descriptors",
            Step::Terminal => "terminal",
            Step::CloseOthers => "close-others",
            Step::Limits => "limits",
            Step::Groups => "groups",
            Step::Gid => "gid",
            Step::Uid => "uid",
            Step::NoNewPrivileges => "no-new-privileges",
            Step::Directory => "directory",
            Step::ParentDeath => "parent-death",
            Step::SignalMask => "signal-mask",
            Step::Exec => "exec",
            Step::Interpreter => "interpreter",
        }
    }

    pub(crate) fn from_number(number: u32) -> Step {
        Step::ALL.into_iter().find(|step| *step as u32 == number).unwrap_or(Step::Clone)
    }
}

/// What went wrong in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A call failed with this errno.
    Errno(i32),
    /// The child was killed by this signal before it became the program (31, `SIGSYS`: a
    /// system-call filter). One that is killed by the call of `execve` itself has started for all
    /// one can see from outside: its status says so.
    Killed(i32),
}

/// A program that could not be started. No process is left of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    step: Step,
    cause: Cause,
    program: OsString,
    detail: String,
}

impl Error {
    pub(crate) fn new(step: Step, cause: Cause, program: &OsStr, detail: String) -> Error {
        Error { step, cause, program: program.to_owned(), detail }
    }

    /// The step that failed.
    pub fn step(&self) -> Step {
        self.step
    }

    /// What went wrong in it.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The errno, unless the child was killed.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self.cause {
            Cause::Errno(errno) => Some(errno),
            Cause::Killed(_) => None,
        }
    }

    /// As [`io::Error::kind`].
    pub fn kind(&self) -> io::ErrorKind {
        match self.cause {
            Cause::Errno(errno) => io::Error::from_raw_os_error(errno).kind(),
            Cause::Killed(_) => io::ErrorKind::Other,
        }
    }

    /// What the step was working on: a path, a descriptor, a limit; may be empty.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What to do about it, where that can be said.
    pub fn advice(&self) -> &'static str {
        advice(self.step, self.cause)
    }
}

fn advice(step: Step, cause: Cause) -> &'static str {
    let errno = match cause {
        Cause::Killed(libc::SIGSYS) => return "a system-call filter forbids this step",
        Cause::Killed(_) => return "",
        Cause::Errno(errno) => errno,
    };
    match (step, errno) {
        (Step::Request, _) => {
            "remove zero bytes from names and arguments; name each descriptor \
             once"
        }
        (Step::Pipe | Step::Clone, libc::EMFILE) => "raise RLIMIT_NOFILE or close descriptors",
        (Step::Clone, libc::EAGAIN) => "raise RLIMIT_NPROC or the cgroup's pids.max",
        (Step::Stack | Step::Clone, libc::ENOMEM) => "free memory or raise RLIMIT_AS",
        (Step::Session, libc::EPERM) => {
            "a process group leader cannot start a session; ask for a \
             session or a group, not both"
        }
        (Step::Descriptors, libc::EBADF) => {
            "the descriptor must be open while the program is \
             started, and its new number below RLIMIT_NOFILE"
        }
        (Step::Limits, libc::EPERM) => "raising a hard limit needs CAP_SYS_RESOURCE",
        (Step::Groups | Step::Gid | Step::Uid, libc::EPERM) => {
            "changing the user or group needs \
             CAP_SETUID or CAP_SETGID"
        }
        (Step::Cgroup, libc::EACCES) => "the cgroup's cgroup.procs must be writable",
        (Step::Cgroup, libc::EBUSY) => {
            "a cgroup that passes controllers to children takes no \
             processes; name a leaf"
        }
        (Step::Exec, libc::EACCES) => {
            "the file needs execute permission on a file system not \
             mounted noexec"
        }
        (Step::Exec, libc::ENOEXEC) => "not a program the kernel knows; a script needs a #! line",
        (Step::Exec, libc::E2BIG) => {
            "shorten arguments and environment, or raise RLIMIT_STACK \
             (they may take a quarter of it)"
        }
        (Step::Exec, libc::ETXTBSY) => {
            "a descriptor that may write to the file is still open \
             somewhere"
        }
        (Step::Interpreter, _) => "install the interpreter, or correct the #! line",
        _ => "",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot start {:?}: step {}", self.program, self.step.name())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        match self.cause {
            Cause::Errno(errno) => write!(f, ": {}", io::Error::from_raw_os_error(errno))?,
            Cause::Killed(signal) => write!(f, ": the child was killed by signal {signal}")?,
        }
        match self.advice() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl std::error::Error for Error {}

/// Keeps the kind and, as the inner error, the step. [`io::Error::raw_os_error`] of the
/// result is `None`: an error has either a number or words.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(step: Step, cause: Cause, detail: &str) -> Error {
        Error::new(step, cause, OsStr::new("tool"), detail.into())
    }

    #[test]
    fn words_say_step_detail_reason_and_advice() {
        let text = error(Step::Exec, Cause::Errno(libc::ENOEXEC), "/bin/tool").to_string();
        assert_eq!(
            text,
            "cannot start \"tool\": step exec (/bin/tool): Exec format error (os error 8); \
             not a program the kernel knows; a script needs a #! line"
        );
        let text = error(Step::Session, Cause::Killed(31), "").to_string();
        assert_eq!(
            text,
            "cannot start \"tool\": step session: the child was killed by signal 31; \
             a system-call filter forbids this step"
        );
    }

    #[test]
    fn kind_survives_as_an_io_error_and_the_step_inside() {
        let io: io::Error = error(Step::Exec, Cause::Errno(libc::ENOENT), "").into();
        assert_eq!(io.kind(), io::ErrorKind::NotFound);
        let inner = io.get_ref().and_then(|e| e.downcast_ref::<Error>()).unwrap();
        assert_eq!((inner.step(), inner.raw_os_error()), (Step::Exec, Some(libc::ENOENT)));
    }

    #[test]
    fn numbers_name_their_steps() {
        for (i, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, i + 1);
            assert_eq!(Step::from_number(step as u32), step);
        }
    }
}
