//! Where templates listen: a folder of the user's own, one socket for each name.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use rustix::process::getuid;

use crate::error::doing;
use crate::{Error, Result};

/// `$XDG_RUNTIME_DIR/odfork`, or `/tmp/odfork-UID`: made when it is missing, and checked to be
/// nobody else's.
pub fn directory() -> Result<PathBuf> {
    let user = getuid().as_raw();
    let path = match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("odfork"),
        None => PathBuf::from(format!("/tmp/odfork-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(doing(&format!("making {}", path.display()))(error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&path).map_err(doing(&path.display().to_string()))?;
    let wrong = if !found.is_dir() {
        Some("is not a folder")
    } else if found.uid() != user {
        Some("belongs to another user")
    } else if found.mode() & 0o077 != 0 {
        Some("is open to others; run chmod 700 on it")
    } else {
        None
    };
    match wrong {
        Some(why) => Err(Error::Folder(path, why.to_string())),
        None => Ok(path),
    }
}

/// The socket of a name.
pub fn socket(name: &str) -> Result<PathBuf> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 60 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Error::Name(name.to_string()));
    }
    Ok(directory()?.join(format!("{name}.zygote")))
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
