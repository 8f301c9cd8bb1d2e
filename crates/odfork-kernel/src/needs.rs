//! Checks what a machine must have before a long step begins: programs, headers, disk space. One
//! line names all that is missing and how to get it.

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use rustix::fs::Access;

/// (program, Debian package)
const BUILD: [(&str, &str); 11] = [
    ("gcc", "gcc"),
    ("make", "make"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("patch", "patch"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("perl", "perl"),
    ("cmp", "diffutils"),
];

/// (header, Debian package)
const HEADERS: [(&str, &str); 3] = [
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/opensslv.h", "libssl-dev"),
    ("/usr/include/stdio.h", "libc6-dev"),
];

const PACKAGING: [(&str, &str); 5] = [
    ("dpkg-buildpackage", "dpkg-dev"),
    ("dh_listpackages", "debhelper"),
    ("rsync", "rsync"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
];

/// The file of a program on PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // depmod and its like are not on the PATH of everybody.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

pub fn for_build() -> Result<()> {
    require("building a kernel", &BUILD, &HEADERS)
}

pub fn for_package() -> Result<()> {
    require("making a Debian package", &PACKAGING, &[])
}

fn require(what: &str, programs: &[(&str, &str)], headers: &[(&str, &str)]) -> Result<()> {
    let programs = programs.iter().filter(|(name, _)| program(name).is_none());
    let headers = headers.iter().filter(|(file, _)| !Path::new(file).exists());
    let (names, packages): (Vec<&str>, Vec<&str>) = programs.chain(headers).copied().unzip();
    if names.is_empty() {
        return Ok(());
    }
    bail!(
        "{what} needs {}; install {}: apt-get install {}",
        names.join(", "),
        if names.len() == 1 { "it" } else { "them" },
        packages.join(" ")
    )
}

/// At least `needed` bytes must be free for files in `folder`.
pub fn disk(folder: &Path, needed: u64, what: &str) -> Result<()> {
    let Some(free) = free_bytes(folder) else { return Ok(()) };
    if free >= needed {
        return Ok(());
    }
    bail!(
        "{what} needs {:.1} GB of disk space, {} has {:.1} GB; free some or name another folder \
         with --dir",
        gigabytes(needed),
        folder.display(),
        gigabytes(free)
    )
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail * found.f_frsize)
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_missing_is_said_at_once() {
        let programs = [("sh", "dash"), ("no-such-program", "some"), ("nor-this", "other")];
        let error = require("a test", &programs, &[]).unwrap_err().to_string();
        assert_eq!(
            error,
            "a test needs no-such-program, nor-this; install them: apt-get install some other"
        );
        assert!(require("a test", &[("sh", "dash")], &[("/etc", "base-files")]).is_ok());
    }

    #[test]
    fn disk_space_is_asked_from_the_file_system() {
        assert!(disk(Path::new("/"), 1, "a test").is_ok());
        let error = disk(Path::new("/"), u64::MAX, "a test").unwrap_err().to_string();
        assert!(error.starts_with("a test needs") && error.contains("--dir"), "{error}");
    }
}
