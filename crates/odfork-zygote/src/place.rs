//! Where templates listen: a folder of the user's own, one socket for each name.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use odfork_proc::folder::{self, Folder};

use crate::error::doing;
use crate::{Error, Result};

/// The folder of this user's sockets, made if it is not there.
///
/// # Errors
/// It cannot be made, or it belongs to somebody else or is open to others.
pub fn directory() -> Result<PathBuf> {
    folder::own().map_err(Error::Folder)
}

fn open() -> Result<Folder> {
    Folder::own().map_err(Error::Folder)
}

/// The socket of a name, and the file beside it.
#[derive(Debug)]
pub struct Place {
    pub socket: PathBuf,
    pub log: PathBuf,
    /// The socket's path until it listens; used by whoever holds the lock.
    pub unnamed: PathBuf,
    /// The socket's path that means something to others.
    pub shown: PathBuf,
    /// The paths lead there as long as this is open.
    _folder: Folder,
}

/// Where the template of a name listens.
pub fn of(name: &str) -> Result<Place> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 60 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Error::Name(name.to_string()));
    }
    let (folder, file) = (open()?, format!("{name}.zygote"));
    Ok(Place {
        socket: folder.inside(&file),
        log: folder.inside(&format!("{name}.log")),
        unnamed: folder.inside("new"),
        shown: folder.path().join(&file),
        _folder: folder,
    })
}

/// Held while a name is taken or given back, so that nobody removes another's socket.
pub fn lock() -> Result<fs::File> {
    let folder = open()?;
    let what = format!("locking {}", folder.path().join("lock").display());
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(folder.inside("lock")).map_err(doing(&what))?;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(|()| file).map_err(doing(&what)),
        }
    }
}

/// The names that have a socket, sorted; whether somebody listens is another question.
pub fn names() -> Result<Vec<String>> {
    let folder = open()?;
    let entries = fs::read_dir(folder.inside("")).map_err(doing("listing zygotes"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".zygote").map(String::from))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_the_folder() {
        for name in ["", ".", "..", "a/b", "../a", ".hidden", "a b", "ä", &"x".repeat(61)] {
            assert!(matches!(of(name), Err(Error::Name(_))), "{name}");
        }
    }
}
