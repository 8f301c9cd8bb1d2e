//! Where templates listen: a folder of the user's own, one socket for each name.

use std::fs;
use std::path::PathBuf;

use odfork_proc::folder;

use crate::error::doing;
use crate::{Error, Result};

/// The folder of this user's sockets, made if it is not there.
///
/// # Errors
/// It cannot be made, or it belongs to somebody else or is open to others.
pub fn directory() -> Result<PathBuf> {
    folder::own().map_err(Error::Folder)
}

/// The socket of a name.
pub fn socket(name: &str) -> Result<PathBuf> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 60 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Error::Name(name.to_string()));
    }
    Ok(directory()?.join(format!("{name}.zygote")))
}

/// Held while a name is taken or given back, so that nobody removes another's socket.
pub fn lock() -> Result<fs::File> {
    let path = directory()?.join("lock");
    let what = format!("locking {}", path.display());
    let file = fs::File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(doing(&what))?;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(|()| file).map_err(doing(&what)),
        }
    }
}

/// The names that have a socket, sorted; whether somebody listens is another question.
pub fn names() -> Result<Vec<String>> {
    let folder = directory()?;
    let entries = fs::read_dir(&folder).map_err(doing("listing zygotes"))?;
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
            assert!(matches!(socket(name), Err(Error::Name(_))), "{name}");
        }
    }
}
