//! Libraries inside the command: `cargo install` brings the command alone, so it carries them
//! (build.rs) and puts them where it looks, in ../lib/odfork/.
//!
//! In the repository and in packages it carries none, and nothing here does anything.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Writes what is not there yet. Whoever may not write there is told later that there is no
/// library.
pub fn unpack() {
    if LIBRARIES.is_empty() {
        return;
    }
    let Ok(command) = std::env::current_exe() else { return };
    let Some(above) = command.parent().and_then(Path::parent) else { return };
    let folder = above.join("lib/odfork");
    for (name, content) in LIBRARIES {
        let _ = settle(&folder, name, content, &command);
    }
}

/// A library of that length that is no older than the command is its own.
fn settle(folder: &Path, name: &str, content: &[u8], command: &Path) -> io::Result<()> {
    let place = folder.join(name);
    let made = fs::metadata(command)?.modified()?;
    if let Ok(known) = fs::metadata(&place) {
        if known.len() == content.len() as u64 && known.modified()? >= made {
            return Ok(());
        }
    }
    fs::create_dir_all(folder)?;
    // Programs that have the old one mapped keep it.
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    let written = fs::File::create_new(&new).and_then(|mut file| file.write_all(content));
    let renamed = written.and_then(|()| fs::rename(&new, &place));
    if renamed.is_err() {
        let _ = fs::remove_file(&new);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_library_is_written_once_and_again_by_a_newer_command() {
        let folder = tempfile::tempdir().unwrap();
        let command = folder.path().join("odfork");
        let lib = folder.path().join("lib/odfork");
        fs::write(&command, "").unwrap();
        let put = |content: &[u8]| {
            settle(&lib, "l.so", content, &command).unwrap();
            fs::read(lib.join("l.so")).unwrap()
        };
        assert_eq!(put(b"one"), b"one");
        assert_eq!(put(b"two"), b"one");
        assert_eq!(put(b"three"), b"three");
        let later = SystemTime::now() + Duration::from_secs(60);
        fs::File::open(&command).unwrap().set_modified(later).unwrap();
        assert_eq!(put(b"newer"), b"newer");
        assert_eq!(fs::read_dir(&lib).unwrap().count(), 1);
    }
}
