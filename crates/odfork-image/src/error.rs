//! What can go wrong with an image, one line each: what happened, what was needed, how to fix it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::format::Id;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    /// A system call failed; `what` says doing what to what.
    Io { what: String, source: io::Error },
    /// The file is no image, or not a whole one.
    Malformed { path: PathBuf, why: String },
    /// The base of a delta is not where it was looked for.
    NoBase { delta: PathBuf, name: String, id: Id },
    /// The file that should be the base is another image.
    WrongBase { delta: PathBuf, needed: Id, base: PathBuf, found: Id },
    /// The wish makes no sense, or cannot be fulfilled here.
    Refused(String),
    /// Content that does not come: unreadable, or not what was saved.
    Lost { path: PathBuf, address: u64, why: String },
    /// The caller's progress function said stop.
    Interrupted,
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Io { what: what.into(), source }
    }

    /// The errno of a failed system call, for the C interface; EINVAL, EIO or EINTR for the rest.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::Lost { .. } => libc::EIO,
            Error::NoBase { .. } => libc::ENOENT,
            Error::Interrupted => libc::EINTR,
            Error::Malformed { .. } | Error::WrongBase { .. } | Error::Refused(_) => libc::EINVAL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Io { what, source } => write!(out, "{what}: {source}"),
            Error::Malformed { path, why } => write!(out, "{}: {why}", path.display()),
            Error::NoBase { delta, name, id } => write!(
                out,
                "{} is a delta and its base '{name}' (id {id}) is not beside it: put it there or \
                 name it with --base",
                delta.display()
            ),
            Error::WrongBase { delta, needed, base, found } => write!(
                out,
                "{} is a delta against image {needed}, but {} is image {found}: give the base it \
                 was made from",
                delta.display(),
                base.display()
            ),
            Error::Refused(why) => out.write_str(why),
            Error::Lost { path, address, why } => {
                write!(out, "{}: the page of address {address:#x} is lost: {why}", path.display())
            }
            Error::Interrupted => out.write_str("interrupted; nothing was written"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
