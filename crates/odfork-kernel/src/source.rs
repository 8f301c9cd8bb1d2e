//! The source of Linux: where it comes from, and unpacking it once.
//!
//! The unpacked tree (`source/`) is never changed; `series` makes trees of its own from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::needs;
use crate::package::{self, Package};
use crate::places::Places;
use crate::tool::run;

const PACKAGE: &str = "linux-source-6.12";
const INSTALLED: &str = "/usr/src/linux-source-6.12.tar.xz";
/// In the unpacked tree: what it was made from. Last thing written, so that a half-unpacked tree
/// has none.
const ORIGIN: &str = ".odfork-origin";
/// Linux 6.12 takes 1.6 GB unpacked, the package 150 MB.
const UNPACKED: u64 = 1_900_000_000;

/// Makes sure that `source/` holds what was asked for; true when it changed.
pub fn provide(asked: Option<&Path>, places: &Places) -> Result<bool> {
    let target = places.source();
    let present = fs::read_to_string(target.join(ORIGIN)).ok();
    let wanted = match asked {
        Some(path) => given(path, places)?,
        None if Path::new(INSTALLED).exists() => PathBuf::from(INSTALLED),
        // Nothing newer to be had: what is there is taken.
        None if present.is_some() => return Ok(false),
        None => fetch(places)?,
    };
    let origin = fingerprint(&wanted)?;
    if present.as_deref() == Some(origin.as_str()) {
        return Ok(false);
    }
    // A source given once by --source stays until another is asked for.
    if asked.is_none() && present.is_some_and(|it| !it.starts_with(&format!("{INSTALLED}\n"))) {
        return Ok(false);
    }
    needs::disk(&places.work, UNPACKED, "unpacking Linux")?;
    remove_trees(places)?;
    unpack(&wanted, &target)?;
    if !target.join("Kconfig").exists() {
        let _ = fs::remove_dir_all(&target);
        bail!("{} is no source of Linux: it has no Kconfig", wanted.display());
    }
    fs::write(target.join(ORIGIN), origin).context("cannot write into the source folder")?;
    Ok(true)
}

/// Debian's package, from the lists the machine's own apt has.
fn fetch(places: &Places) -> Result<PathBuf> {
    let package = Package::parse(PACKAGE).context("no name of a package")?;
    package::source(&package, places).with_context(|| {
        format!("no source of Linux: {INSTALLED} is missing (apt-get install {PACKAGE})")
    })
}

/// A tar file, a folder, or the tar file of a package.
fn given(word: &Path, places: &Places) -> Result<PathBuf> {
    let package = word.to_str().filter(|_| !word.exists()).and_then(Package::parse);
    match package {
        Some(package) => package::source(&package, places),
        None => word.canonicalize().with_context(|| format!("no source at {}", word.display())),
    }
}

/// Path, size and time of a tar file; of a folder its Makefile's.
fn fingerprint(path: &Path) -> Result<String> {
    let file = if path.is_dir() { path.join("Makefile") } else { path.to_path_buf() };
    let facts = fs::metadata(&file).with_context(|| {
        format!("{} is no source of Linux: no {}", path.display(), file.display())
    })?;
    let time = facts.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(format!("{}\n{} {}\n", path.display(), facts.len(), time.map_or(0, |at| at.as_secs())))
}

fn remove_trees(places: &Places) -> Result<()> {
    for entry in fs::read_dir(&places.work).context("cannot read the work folder")?.flatten() {
        let name = entry.file_name();
        if name == "source" || name.to_string_lossy().starts_with("source-") {
            eprintln!("kernel: removing {}, made from another source", entry.path().display());
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn unpack(from: &Path, target: &Path) -> Result<()> {
    eprintln!("kernel: unpacking {}", from.display());
    let partly = target.with_extension("partly");
    let _ = fs::remove_dir_all(&partly);
    if from.is_dir() {
        // A copy of its own: the folder's owner may edit files in place.
        run(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(from).arg(&partly))?;
        if partly.join(".config").exists() || partly.join("include/config").exists() {
            let _ = fs::remove_dir_all(&partly);
            bail!("{} has been built in; run `make mrproper` there first", from.display());
        }
    } else {
        fs::create_dir_all(&partly).context("cannot make the source folder")?;
        let words = ["--strip-components=1", "--no-same-owner", "-xf"];
        run(Command::new("tar").args(words).arg(from).arg("-C").arg(&partly))?;
    }
    fs::rename(&partly, target).context("cannot put the source in its place")
}

/// "6.12.117", from the Makefile.
pub fn version(source: &Path) -> String {
    let text = fs::read_to_string(source.join("Makefile")).unwrap_or_default();
    version_in(&text).unwrap_or_else(|| "of unknown version".into())
}

fn version_in(makefile: &str) -> Option<String> {
    let value = |name: &str| {
        makefile.lines().take(20).find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let (major, minor) = (value("VERSION")?, value("PATCHLEVEL")?);
    let point = value("SUBLEVEL").filter(|point| !point.is_empty());
    let extra = value("EXTRAVERSION").unwrap_or_default();
    Some(format!("{major}.{minor}{}{extra}", point.map_or(String::new(), |p| format!(".{p}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_makefile() {
        let text =
            "# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\nNAME = x\n";
        assert_eq!(version_in(text).as_deref(), Some("6.12.117"));
        assert_eq!(
            version_in("VERSION = 7\nPATCHLEVEL = 1\nEXTRAVERSION = -rc2\n").as_deref(),
            Some("7.1-rc2")
        );
        assert_eq!(version_in("all:\n"), None);
    }

    fn places(folder: &Path) -> Places {
        Places { tree: folder.join("kernel"), work: folder.to_path_buf() }
    }

    #[test]
    fn a_folder_is_copied_once_and_again_when_its_makefile_changed() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("linux");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("Makefile"), "VERSION = 6\n").unwrap();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        let places = places(&work);
        let error = provide(Some(&source), &places).unwrap_err().to_string();
        assert!(error.contains("has no Kconfig"), "{error}");
        fs::write(source.join("Kconfig"), "").unwrap();
        assert!(provide(Some(&source), &places).unwrap());
        assert!(!provide(Some(&source), &places).unwrap());
        assert!(!provide(None, &places).unwrap());
        fs::write(source.join("Makefile"), "VERSION = 6\nPATCHLEVEL = 12\n").unwrap();
        fs::create_dir(work.join("source-patched")).unwrap();
        assert!(provide(Some(&source), &places).unwrap());
        assert!(!work.join("source-patched").exists());
        fs::write(source.join("Makefile"), "VERSION = 7\n").unwrap();
        fs::write(source.join(".config"), "").unwrap();
        let error = provide(Some(&source), &places).unwrap_err().to_string();
        assert!(error.contains("mrproper"), "{error}");
    }
}
