//! The folder of a user's sockets: `$XDG_RUNTIME_DIR/odfork`, else `/tmp/odfork-UID`.
//!
//! Owns that nobody else puts another one in its place: between the look at a folder and its use by
//! name, whoever may write to what it lies in can exchange it.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::environment;

/// The folder, open.
#[derive(Debug)]
pub struct Folder {
    file: File,
    path: PathBuf,
}

/// The folder's name, for other processes.
///
/// # Errors
/// As for [`Folder::own`].
pub fn own() -> io::Result<PathBuf> {
    Ok(Folder::own()?.path)
}

impl Folder {
    /// The folder, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or it, or what it lies in, belongs to somebody else or is open to others.
    pub fn own() -> io::Result<Folder> {
        let base = environment::trusted("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
        match base.map(PathBuf::from).filter(|base| base.is_dir()) {
            Some(base) => Folder::below(&base),
            None => Folder::at(
                &open(Path::new("/tmp"), libc::O_DIRECTORY)?,
                "/tmp",
                &format!("odfork-{}", user()),
            ),
        }
    }

    fn below(base: &Path) -> io::Result<Folder> {
        let file = open(base, libc::O_DIRECTORY)?;
        let found = file.metadata()?;
        let why = if found.uid() != user() && found.uid() != 0 {
            "it belongs to another user"
        } else if found.mode() & 0o022 != 0 && found.mode() & libc::S_ISVTX == 0 {
            "others may write to it"
        } else {
            return Folder::at(&file, base, "odfork");
        };
        let base = base.display();
        Err(refused(format!("XDG_RUNTIME_DIR is {base} ({why}): unset it, or name another")))
    }

    fn at(base: &File, shown: impl AsRef<Path>, name: &str) -> io::Result<Folder> {
        let (place, path) = (inside(base, name), shown.as_ref().join(name));
        match DirBuilder::new().mode(0o700).create(&place) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let file = open(&place, libc::O_NOFOLLOW)?;
        match wrong(&file.metadata()?) {
            None => Ok(Folder { file, path }),
            Some(why) => Err(refused(format!(
                "{} is not a folder of yours with mode 0700 ({why}): remove it, or set \
                 XDG_RUNTIME_DIR",
                path.display()
            ))),
        }
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to a file in it, which leads there as long as this lives, whatever becomes of names.
    /// For the calling thread.
    pub fn inside(&self, name: &str) -> PathBuf {
        inside(&self.file, name)
    }
}

fn wrong(found: &Metadata) -> Option<&'static str> {
    if !found.is_dir() {
        Some("it is something else")
    } else if found.uid() != user() {
        Some("it belongs to another user")
    } else if found.mode() & 0o077 != 0 {
        Some("it is open to others")
    } else {
        None
    }
}

fn refused(words: String) -> Error {
    Error::new(ErrorKind::PermissionDenied, words)
}

fn user() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}

/// To look at it and to go on from there.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | flags).open(path)
}

fn inside(folder: &File, name: &str) -> PathBuf {
    format!("/proc/thread-self/fd/{}/{name}", folder.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, symlink, PermissionsExt};

    fn made(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("odfork-folder-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn what_others_could_exchange_is_refused() {
        let base = made("base");
        let mode = |mode| fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        let words = Folder::below(&base).unwrap_err().to_string();
        assert!(words.contains("others may write"), "{words}");
        assert!(!base.join("odfork").exists());
        mode(0o1777);
        Folder::below(&base).unwrap();
        mode(0o700);
        Folder::below(&base).unwrap();
        if user() == 0 {
            chown(&base, Some(65534), None).unwrap();
            let words = Folder::below(&base).unwrap_err().to_string();
            assert!(words.contains("belongs to another user"), "{words}");
            chown(&base, Some(0), None).unwrap();
        }
        fs::remove_dir(base.join("odfork")).unwrap();
        symlink("/tmp", base.join("odfork")).unwrap();
        let words = Folder::below(&base).unwrap_err().to_string();
        assert!(words.contains("something else"), "{words}");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_name_that_leads_elsewhere_later_does_not_matter() {
        let base = made("later");
        let folder = Folder::below(&base).unwrap();
        assert_eq!(folder.path(), base.join("odfork"));
        fs::rename(base.join("odfork"), base.join("away")).unwrap();
        fs::create_dir(base.join("odfork")).unwrap();
        fs::write(folder.inside("file"), "x").unwrap();
        assert!(base.join("away/file").exists() && !base.join("odfork/file").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
