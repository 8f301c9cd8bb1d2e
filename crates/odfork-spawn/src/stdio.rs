//! Where a program's standard descriptors, and others, come from.
//!
//! Owns the choice and the conversions from std's types. It does not open anything (`prepare`
//! does).

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// What a standard descriptor of the program is. As [`std::process::Stdio`], which cannot be looked
/// into.
#[derive(Debug)]
pub struct Stdio(pub(crate) Source);

#[derive(Debug)]
pub(crate) enum Source {
    Inherit,
    Null,
    Pipe,
    Owned(OwnedFd),
    /// The caller keeps it open while programs are started.
    Number(RawFd),
}

impl Source {
    /// The parent's number of what is open already.
    pub fn number(&self) -> Option<RawFd> {
        match self {
            Source::Owned(fd) => Some(fd.as_raw_fd()),
            Source::Number(fd) => Some(*fd),
            Source::Inherit | Source::Null | Source::Pipe => None,
        }
    }
}

impl Stdio {
    /// The parent's own.
    pub fn inherit() -> Stdio {
        Stdio(Source::Inherit)
    }

    /// `/dev/null`.
    pub fn null() -> Stdio {
        Stdio(Source::Null)
    }

    /// A pipe to or from the parent; see [`Child`](crate::Child).
    pub fn piped() -> Stdio {
        Stdio(Source::Pipe)
    }

    /// A descriptor of the parent, by number: open whenever the command is started, closed by its
    /// owner. A number that is not open then is an error of the step `descriptors`.
    pub fn number(fd: RawFd) -> Stdio {
        Stdio(Source::Number(fd))
    }
}

impl From<OwnedFd> for Stdio {
    fn from(fd: OwnedFd) -> Stdio {
        Stdio(Source::Owned(fd))
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        OwnedFd::from(file).into()
    }
}

impl From<ChildStdin> for Stdio {
    fn from(pipe: ChildStdin) -> Stdio {
        OwnedFd::from(pipe).into()
    }
}

impl From<ChildStdout> for Stdio {
    fn from(pipe: ChildStdout) -> Stdio {
        OwnedFd::from(pipe).into()
    }
}

impl From<ChildStderr> for Stdio {
    fn from(pipe: ChildStderr) -> Stdio {
        OwnedFd::from(pipe).into()
    }
}
