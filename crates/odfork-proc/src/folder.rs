//! The folder of a user's sockets: `$XDG_RUNTIME_DIR/odfork`, else `/tmp/odfork-UID`.

use std::fs::{self, DirBuilder};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

/// The folder, made if it is not there.
///
/// # Errors
/// It cannot be made, or it belongs to somebody else or is open to others.
pub fn own() -> io::Result<PathBuf> {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let path = match base.map(PathBuf::from).filter(|base| base.is_dir()) {
        Some(base) => base.join("odfork"),
        None => PathBuf::from(format!("/tmp/odfork-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&path)?;
    let why = if !found.is_dir() {
        "it is something else"
    } else if found.uid() != user {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "it is open to others"
    } else {
        return Ok(path);
    };
    Err(Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "{} is not a folder of yours with mode 0700 ({why}): remove it, or set XDG_RUNTIME_DIR",
            path.display()
        ),
    ))
}
