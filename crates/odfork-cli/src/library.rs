//! Where libodfork.so is, and how it is named in LD_PRELOAD.
//!
//! Looked for in $ODFORK_LIB alone when that is set, else beside the launcher, in ../lib/odfork/,
//! in ../lib/, in Debian's folder below that and in ../lib64/. A file that the loader could not use
//! is not taken, because the loader would complain inside the user's program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use odfork_proc::libraries;

use crate::elf;
use crate::environment::Environment;
use crate::options::LIB;

const FILE_NAME: &str = "libodfork.so";
pub const PRELOAD: &str = "LD_PRELOAD";
/// The pager's library: not both in one process.
pub const PAGER: &str = "libodfork_pager.so";

/// The search and its result.
#[derive(Debug)]
pub struct Search {
    pub looked: Vec<PathBuf>,
    pub outcome: Result<PathBuf, Problem>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Problem {
    NotFound,
    /// There, but not a library for this machine.
    Unusable(PathBuf, String),
    /// LD_PRELOAD separates names by blanks and colons and expands dollars; there is no quoting.
    Unnamable(PathBuf),
}

/// Looks in the places above and stops at the first file there.
pub fn search(environment: &Environment) -> Search {
    let looked = places(environment);
    let outcome = match looked.iter().find(|place| place.exists()) {
        None => Err(Problem::NotFound),
        Some(place) => check(place),
    };
    Search { looked, outcome }
}

fn places(environment: &Environment) -> Vec<PathBuf> {
    if let Some(set) = environment.get(LIB).filter(|set| !set.is_empty()) {
        return vec![std::path::absolute(set).unwrap_or_else(|_| PathBuf::from(set))];
    }
    std::env::current_exe().map_or(Vec::new(), |launcher| libraries::places(&launcher, FILE_NAME))
}

fn check(place: &Path) -> Result<PathBuf, Problem> {
    let mut head = Vec::new();
    let read = File::open(place).and_then(|file| file.take(64).read_to_end(&mut head));
    if let Err(error) = read {
        return Err(Problem::Unusable(place.to_owned(), format!("it cannot be read: {error}")));
    }
    match elf::header(&head) {
        Some(header)
            if header.shared && header.bits == 64 && header.machine == elf::own_machine() => {}
        _ => {
            return Err(Problem::Unusable(
                place.to_owned(),
                "it is not a shared library for this machine".to_owned(),
            ))
        }
    }
    if place
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || b":$".contains(byte))
    {
        return Err(Problem::Unnamable(place.to_owned()));
    }
    Ok(place.to_owned())
}

impl Search {
    /// Why there is no library, and how to get one.
    pub fn complaint(&self, problem: &Problem) -> String {
        match problem {
            Problem::NotFound => {
                let looked: Vec<String> =
                    self.looked.iter().map(|place| place.display().to_string()).collect();
                let looked = match looked.as_slice() {
                    [] => "the command's own place is not known: is /proc mounted?".into(),
                    looked => format!("looked for {}", looked.join(", ")),
                };
                format!(
                    "libodfork.so was not found ({looked}); a command of 'cargo install' \
                     puts it in ../lib/odfork/, if it may write there; else get it by 'make \
                     install' or a package of odfork, or set {LIB} to its path"
                )
            }
            Problem::Unusable(place, why) => {
                format!(
                    "{} cannot be preloaded: {why}; build it again or set {LIB} to \
                     another",
                    place.display()
                )
            }
            Problem::Unnamable(place) => format!(
                "'{}' cannot be named in LD_PRELOAD because of a blank, colon or dollar sign in \
                 it; move it and set {LIB}",
                place.display()
            ),
        }
    }
}

/// LD_PRELOAD with the library in front of what was there; unchanged when it is there already.
pub fn preload_list(library: &Path, before: Option<&OsStr>) -> OsString {
    let before = before.unwrap_or_default();
    let mut names = before.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    if names.any(|name| name == library.as_os_str().as_bytes()) {
        return before.to_owned();
    }
    let mut list = library.as_os_str().to_owned();
    if !before.is_empty() {
        list.push(":");
        list.push(before);
    }
    list
}

/// LD_PRELOAD names the pager's library.
pub fn names_pager(list: Option<&OsStr>) -> bool {
    let list = list.unwrap_or_default().as_bytes();
    let mut names = list.split(|byte| matches!(byte, b':' | b' '));
    names.any(|name| Path::new(OsStr::from_bytes(name)).file_name() == Some(OsStr::new(PAGER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/x/libodfork.so");
        let list = |before: Option<&str>| {
            preload_list(library, before.map(OsStr::new)).into_string().unwrap()
        };
        assert_eq!(list(None), "/x/libodfork.so");
        assert_eq!(list(Some("")), "/x/libodfork.so");
        assert_eq!(list(Some("/a.so b.so")), "/x/libodfork.so:/a.so b.so");
        assert_eq!(list(Some("/a.so:/x/libodfork.so")), "/a.so:/x/libodfork.so");
    }

    #[test]
    fn the_pager_is_found_in_a_list() {
        let names = |list: &str| names_pager(Some(OsStr::new(list)));
        assert!(names("/x/libodfork_pager.so") && names("a.so libodfork_pager.so:b.so"));
        assert!(!names("/x/libodfork.so") && !names("/libodfork_pager.so/x.so") && !names(""));
    }

    #[test]
    fn a_set_path_is_the_only_place() {
        let mut environment = Environment::inherited();
        environment.set(LIB, OsStr::new("/nowhere/libodfork.so"));
        let search = search(&environment);
        assert_eq!(search.looked, [PathBuf::from("/nowhere/libodfork.so")]);
        assert_eq!(search.outcome, Err(Problem::NotFound));
        assert!(search.complaint(&Problem::NotFound).contains("/nowhere/libodfork.so"));
    }

    #[test]
    fn text_is_not_a_library() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILE_NAME);
        std::fs::write(&path, "hello").unwrap();
        assert!(matches!(check(&path), Err(Problem::Unusable(_, _))));
    }
}
