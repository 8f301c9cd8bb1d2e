//! Programs of others that experiments drive: where they are, and how they are started.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Result};

/// A program by its name or path.
pub fn found(program: &Path, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|folder| folder.join(program));
    let own = program.components().count() > 1;
    let mut places: Vec<PathBuf> = if own { vec![program.into()] } else { folders.collect() };
    places.retain(|place| place.is_file());
    match places.into_iter().next() {
        Some(place) => Ok(std::path::absolute(place)?),
        None => bail!("{} is missing; install {package}", program.display()),
    }
}

/// Without the variables whose names begin so, and without what is preloaded into this process.
pub fn clear(command: &mut Command, prefixes: &[&str]) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_PRELOAD");
}

/// In a process group of its own (Ctrl-C is for this process), and killed when this thread ends.
pub fn bind(command: &mut Command) {
    let parent = std::process::id() as i32;
    command.process_group(0);
    // SAFETY: CHILD: system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            match libc::getppid() == parent {
                true => Ok(()),
                false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_or_path_and_a_missing_one_names_its_package() {
        assert!(found(Path::new("sh"), "dash").unwrap().is_absolute());
        assert_eq!(found(Path::new("/bin/sh"), "dash").unwrap(), Path::new("/bin/sh"));
        let why = found(Path::new("no-such-program"), "its-package").unwrap_err().to_string();
        assert!(why.contains("its-package"), "{why}");
    }
}
