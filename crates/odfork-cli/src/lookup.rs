//! Which file execvp(3) would run for a name, and which name was perhaps meant when there is none.
//!
//! The answer is used to look into the file beforehand; the launcher still lets the C library
//! search again, so a wrong guess here can cost a warning but never run the wrong file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{accessat, Access, AtFlags, CWD};

use crate::environment::Environment;
use crate::options::nearest;

/// Where glibc looks when PATH is unset (getconf PATH).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// A regular file that may be executed.
    Found(PathBuf),
    /// Files of that name exist, but none may be executed; the first of them.
    Barred(PathBuf),
    Missing,
}

/// Follows execvp: a name with a slash is a path, any other is tried in each directory of PATH.
pub fn lookup(name: &OsStr, environment: &Environment) -> Lookup {
    if name.as_bytes().contains(&b'/') {
        return judge(PathBuf::from(name));
    }
    if name.is_empty() {
        return Lookup::Missing;
    }
    let mut barred = None;
    for directory in directories(environment) {
        match judge(directory.join(name)) {
            Lookup::Barred(path) => barred = barred.or(Some(path)),
            Lookup::Missing => {}
            found => return found,
        }
    }
    barred.map_or(Lookup::Missing, Lookup::Barred)
}

fn judge(path: PathBuf) -> Lookup {
    match path.metadata() {
        Err(_) => Lookup::Missing,
        Ok(about) if about.is_file() && executable(&path) => Lookup::Found(path),
        Ok(_) => Lookup::Barred(path),
    }
}

/// Whether the effective user may execute the file (which also says no on a noexec mount).
pub fn executable(path: &Path) -> bool {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn directories(environment: &Environment) -> Vec<PathBuf> {
    let list =
        environment.get("PATH").map_or_else(|| OsString::from(DEFAULT_PATH), OsStr::to_owned);
    list.as_bytes().split(|byte| *byte == b':').map(directory_of).collect()
}

/// An empty part of PATH means the current directory.
fn directory_of(part: &[u8]) -> PathBuf {
    PathBuf::from(if part.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(part) })
}

/// A name like the missing one: among the programs in PATH, or in the directory that the missing
/// path names.
pub fn meant(name: &OsStr, environment: &Environment) -> Option<String> {
    let path = Path::new(name);
    let typed = path.file_name()?.to_str()?;
    if !name.as_bytes().contains(&b'/') {
        let names: Vec<String> =
            directories(environment).iter().flat_map(|directory| programs_in(directory)).collect();
        return nearest(typed, names.iter().map(String::as_str)).map(str::to_owned);
    }
    let directory = path.parent()?;
    let names = programs_in(directory);
    let close = nearest(typed, names.iter().map(String::as_str))?;
    Some(directory.join(close).display().to_string())
}

fn programs_in(directory: &Path) -> Vec<String> {
    // "" is the parent of a bare name: cannot happen for a path with a slash, and reads as nothing.
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.path().is_file() && executable(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn with_path(directories: &[&Path]) -> Environment {
        let list: Vec<&str> =
            directories.iter().map(|directory| directory.to_str().unwrap()).collect();
        let mut environment = Environment::inherited();
        environment.set("PATH", OsStr::new(&list.join(":")));
        environment
    }

    fn program(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_barred_file_does_not_hide_a_later_one() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let barred = program(first.path(), "tool", 0o644);
        let environment = with_path(&[first.path(), second.path()]);
        assert_eq!(lookup(OsStr::new("tool"), &environment), Lookup::Barred(barred));
        let found = program(second.path(), "tool", 0o755);
        assert_eq!(lookup(OsStr::new("tool"), &environment), Lookup::Found(found));
    }

    #[test]
    fn a_directory_is_barred_and_nothing_is_missing() {
        let place = tempfile::tempdir().unwrap();
        let environment = with_path(&[place.path()]);
        assert!(matches!(lookup(place.path().as_os_str(), &environment), Lookup::Barred(_)));
        assert_eq!(lookup(OsStr::new("nothing-here"), &environment), Lookup::Missing);
        assert_eq!(lookup(OsStr::new(""), &environment), Lookup::Missing);
    }

    #[test]
    fn suggestions_stay_in_the_directory_that_was_named() {
        let place = tempfile::tempdir().unwrap();
        let server = program(place.path(), "server", 0o755);
        program(place.path(), "serves", 0o644);
        let typed = place.path().join("servr");
        let environment = with_path(&[place.path()]);
        assert_eq!(meant(typed.as_os_str(), &environment), Some(server.display().to_string()));
        assert_eq!(meant(OsStr::new("servr"), &environment), Some("server".to_owned()));
        assert_eq!(meant(OsStr::new("browser"), &environment), None);
    }
}
