//! A file that gets its name when it is whole.
//!
//! Owns that a save that is killed leaves nothing behind, where the file system has files without a
//! name (O_TMPFILE): memory holds keys and passwords. Elsewhere a hidden name may stay.

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new file that nobody looks for, gone unless it gets its name.
pub struct Temporary {
    pub file: File,
    folder: PathBuf,
    /// Where it has a name.
    path: Option<PathBuf>,
}

impl Temporary {
    pub fn new(folder: &Path) -> Result<Temporary> {
        let folder = folder.to_owned();
        let nameless = opening().custom_flags(libc::O_TMPFILE).open(&folder);
        // It gets its name by way of /proc.
        if let Some(file) = nameless.ok().filter(|file| own_link(file).is_symlink()) {
            return Ok(Temporary { file, folder, path: None });
        }
        let (file, path) = unused(&folder, |path| opening().create_new(true).open(path))?;
        Ok(Temporary { file, folder, path: Some(path) })
    }

    pub fn rename(mut self, to: &Path) -> Result<()> {
        if self.path.is_none() {
            // Naming replaces nothing, renaming does: so the name is taken in two steps.
            let ((), path) = unused(&self.folder, |path| link(&own_link(&self.file), path))?;
            self.path = Some(path);
        }
        let Some(path) = &self.path else { return Ok(()) };
        std::fs::rename(path, to)?;
        self.path = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Readable by its owner alone.
fn opening() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options
}

fn own_link(file: &File) -> PathBuf {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd()).into()
}

/// Makes something under a name that is free.
fn unused<T>(folder: &Path, make: impl Fn(&Path) -> Result<T>) -> Result<(T, PathBuf)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".odfimage-{}-{number}", std::process::id()));
        match make(&path) {
            Ok(made) => return Ok((made, path)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// A name for what `from` leads to.
fn link(from: &Path, to: &Path) -> Result<()> {
    let (from, to) =
        (CString::new(from.as_os_str().as_bytes())?, CString::new(to.as_os_str().as_bytes())?);
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: two strings.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_a_name_before_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let temporary = Temporary::new(folder.path()).unwrap();
        match temporary.path.is_none() {
            true => assert_eq!(names(), 0),
            false => eprintln!("skipped: no files without a name here"),
        }
        let target = folder.path().join("image");
        std::fs::write(&target, "older").unwrap();
        temporary.rename(&target).unwrap();
        assert_eq!((names(), std::fs::read(&target).unwrap().len()), (1, 0));
        drop(Temporary::new(folder.path()).unwrap());
        // The other way, as on file systems without them.
        let made = |path: &Path| opening().create_new(true).open(path);
        let (file, path) = unused(folder.path(), made).unwrap();
        let temporary = Temporary { file, folder: folder.path().to_owned(), path: Some(path) };
        assert_eq!(names(), 2);
        drop(temporary);
        assert_eq!(names(), 1);
    }
}
