//! Where a program may be: the paths to try, and how a missing interpreter is recognised.
//!
//! Owns the search of PATH (as `execvp`) and, after a failure, reading the file for the interpreter
//! it names. Both run in the parent. It does not execute anything.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where `confstr(_CS_PATH)` points without a PATH.
const STANDARD_PATH: &[u8] = b"/bin:/usr/bin";

/// The names to try, in order: the name itself if it has a slash, else one for each folder of
/// `path`, which is read only then. `None` for a name with a zero byte.
pub fn candidates(
    program: &OsStr,
    path: impl FnOnce() -> Option<OsString>,
) -> Option<Vec<CString>> {
    let name = program.as_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return Some(vec![CString::new(name).ok()?]);
    }
    let path = path();
    let path = path.as_deref().map_or(STANDARD_PATH, OsStrExt::as_bytes);
    path.split(|&b| b == b':').map(|folder| joined(folder, name)).collect()
}

/// An empty folder is the working directory.
fn joined(folder: &[u8], name: &[u8]) -> Option<CString> {
    let mut whole = Vec::with_capacity(folder.len() + name.len() + 2);
    if !folder.is_empty() {
        whole.extend_from_slice(folder);
        whole.push(b'/');
    }
    whole.extend_from_slice(name);
    CString::new(whole).ok()
}

/// How many interpreters of interpreters the kernel follows (fs/exec.c).
const DEEPEST: usize = 5;

/// The interpreter that `program` names and that cannot be run, if that is why exec failed with
/// ENOENT or EACCES: the program is there and may be executed, its interpreter (or that one's) is
/// not or may not. Relative names count from `directory`, or from here.
pub fn missing_interpreter(program: &CStr, directory: Option<&CStr>) -> Option<CString> {
    let seen = |name: &CStr| -> PathBuf {
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        directory.map_or_else(
            || name.to_owned(),
            |folder| Path::new(OsStr::from_bytes(folder.to_bytes())).join(name),
        )
    };
    let mut name = program.to_owned();
    if !may_execute(&seen(&name)) {
        return None;
    }
    for _ in 0..DEEPEST {
        name = interpreter(&seen(&name))?;
        if !may_execute(&seen(&name)) {
            return Some(name);
        }
    }
    None
}

/// A regular file with permission.
fn may_execute(path: &Path) -> bool {
    let Ok(text) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a string that ends with a zero byte.
    path.is_file() && unsafe { libc::access(text.as_ptr(), libc::X_OK) == 0 }
}

fn interpreter(program: &Path) -> Option<CString> {
    let mut head = Vec::new();
    let file = File::open(program).ok()?;
    file.take(4096).read_to_end(&mut head).ok()?;
    match head.starts_with(b"#!") {
        true => of_script(&head),
        false => of_elf(&head),
    }
}

fn of_script(head: &[u8]) -> Option<CString> {
    let line = head[2..].split(|&b| b == b'\n').next()?;
    let word = line.split(|&b| matches!(b, b' ' | b'\t' | 0)).find(|word| !word.is_empty())?;
    CString::new(word).ok()
}

/// The PT_INTERP string of a 64-bit little-endian ELF file, if headers and string are in its first
/// 4 KB (they are in what linkers make).
fn of_elf(head: &[u8]) -> Option<CString> {
    const PT_INTERP: u64 = 3;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(head.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(word))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let header = (0..count)
        .map_while(|i| usize::try_from(table.checked_add(i * size)?).ok())
        .find(|&at| number(at, 4) == Some(PT_INTERP))?;
    let start = usize::try_from(number(header.checked_add(8)?, 8)?).ok()?;
    let length = usize::try_from(number(header.checked_add(32)?, 8)?).ok()?;
    let text = head.get(start..start.checked_add(length)?)?;
    CString::new(text.split(|&b| b == 0).next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(program: &str, path: Option<&str>) -> Vec<String> {
        let found = candidates(OsStr::new(program), || path.map(OsString::from)).unwrap();
        found.into_iter().map(|c| c.into_string().unwrap()).collect()
    }

    #[test]
    fn names_with_a_slash_are_not_searched() {
        assert_eq!(texts("./a", Some("/x")), ["./a"]);
        assert_eq!(texts("", Some("/x")), [""]);
        assert_eq!(texts("a", Some("/x:/y")), ["/x/a", "/y/a"]);
        assert_eq!(texts("a", Some(":/y:")), ["a", "/y/a", "a"]);
        assert_eq!(texts("a", None), ["/bin/a", "/usr/bin/a"]);
        assert_eq!(candidates(OsStr::new("a\0b"), || None), None);
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let of = |text: &[u8]| of_script(text).map(|c| c.into_string().unwrap());
        assert_eq!(of(b"#!/bin/sh\nexit"), Some("/bin/sh".into()));
        assert_eq!(of(b"#! \t/usr/bin/env python3\n"), Some("/usr/bin/env".into()));
        assert_eq!(of(b"#!\n"), None);
    }

    #[test]
    fn an_elf_file_names_its_loader() {
        let name = interpreter(Path::new("/proc/self/exe")).unwrap();
        assert!(name.to_str().unwrap().contains("ld-linux"), "{name:?}");
        assert_eq!(missing_interpreter(c"/proc/self/exe", None), None);
    }

    /// Cut and damaged files: no panic, no answer that is not in the file.
    #[test]
    fn damaged_files_give_nothing() {
        let mut whole = std::fs::read("/proc/self/exe").unwrap();
        whole.truncate(4096);
        for length in 0..whole.len().min(600) {
            let _ = of_elf(&whole[..length]);
        }
        for at in 0..whole.len().min(1024) {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let _ = of_elf(&damaged);
        }
        let mut endless = whole.clone();
        endless[32..64].fill(0xff);
        assert_eq!(of_elf(&endless), None);
        assert_eq!(of_script(b"#!"), None);
    }
}
