//! What can go wrong with an image, one line each: what happened, what was needed, how to fix it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use odfork_proc::process::printable;

use crate::format::Id;

/// What a call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an image was not written, opened or mapped. Its text is one line: what happened, what was
/// needed, how to fix it.
#[derive(Debug)]
pub enum Error {
    /// A system call failed.
    Io {
        /// Doing what to what.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file is no image, or not a whole one.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The base of a delta is not where it was looked for.
    NoBase {
        /// The file of the delta.
        delta: PathBuf,
        /// Name of the file its base had.
        name: String,
        /// The id that is needed.
        id: Id,
    },
    /// The file that should be the base is another image.
    WrongBase {
        /// The file of the delta.
        delta: PathBuf,
        /// The id that is needed.
        needed: Id,
        /// The file that was tried.
        base: PathBuf,
        /// Its id.
        found: Id,
    },
    /// The wish makes no sense, or cannot be fulfilled here.
    Refused(String),
    /// Content that does not come: unreadable, or not what was saved.
    Lost {
        /// The file.
        path: PathBuf,
        /// Where the page was saved.
        address: u64,
        /// Why it does not come.
        why: String,
    },
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
        // Names in it may be those of a file, which anybody may have made.
        out.write_str(&printable(&self.text()))
    }
}

impl Error {
    fn text(&self) -> String {
        match self {
            Error::Io { what, source } => format!("{what}: {source}"),
            Error::Malformed { path, why } => format!("{}: {why}", path.display()),
            Error::NoBase { delta, name, id } => format!(
                "{} is a delta and its base '{name}' (id {id}) is not beside it: put it there or \
                 name it with --base-file",
                delta.display()
            ),
            Error::WrongBase { delta, needed, base, found } => format!(
                "{} is a delta against image {needed}, but {} is image {found}: give the base it \
                 was made from",
                delta.display(),
                base.display()
            ),
            Error::Refused(why) => why.clone(),
            Error::Lost { path, address, why } => {
                format!("{}: the page of address {address:#x} is lost: {why}", path.display())
            }
            Error::Interrupted => "interrupted; nothing was written".to_owned(),
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
