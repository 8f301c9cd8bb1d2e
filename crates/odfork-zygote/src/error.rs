//! What can go wrong, with what to do about it.

use std::fmt;
use std::io;

/// Why a zygote could not do what it was asked.
#[derive(Debug)]
pub enum Error {
    /// No template listens under this name.
    NotRunning(String),
    /// A template listens under this name already.
    Running(String),
    /// A name that cannot be a file's.
    Name(String),
    /// The folder of sockets cannot be had, or it is open to others.
    Folder(io::Error),
    /// The template refused, or its recipe failed; in its own words.
    Refused(String),
    /// The template ended before it answered.
    Ended,
    /// The other side does not speak version 1 of the protocol.
    Protocol(&'static str),
    /// A system call failed while doing this.
    System(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotRunning(name) => {
                write!(f, "no zygote '{name}' is running; start it: odfork zygote start {name}")
            }
            Error::Running(name) => {
                write!(f, "a zygote '{name}' is running; end it first: odfork zygote stop {name}")
            }
            Error::Name(name) => {
                write!(f, "'{name}' cannot be a zygote's name: letters, digits, '-', '_' and '.'")
            }
            Error::Folder(error) => write!(f, "{error}"),
            Error::Refused(words) => write!(f, "the template says: {}", words.trim_end()),
            Error::Ended => write!(f, "the template ended before it answered"),
            Error::Protocol(what) => write!(f, "the zygote's protocol: {what}"),
            Error::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Names what was being done when a system call failed.
pub(crate) fn doing<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> Error + '_ {
    move |error| Error::System(what.to_string(), error.into())
}
