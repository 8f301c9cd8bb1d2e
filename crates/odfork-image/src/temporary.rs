//! A file that gets its name when it is whole.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new file under a name nobody looks for, removed unless it gets its own.
pub struct Temporary {
    pub file: File,
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    pub fn new(folder: &Path) -> std::io::Result<Temporary> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!(".odfimage-{}-{number}", std::process::id()));
            // Readable by its owner alone: memory holds keys and passwords.
            match File::options().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok(Temporary { file, path, kept: false }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn rename(mut self, to: &Path) -> std::io::Result<()> {
        std::fs::rename(&self.path, to)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
