//! Debian's packages of Linux by name: prebuilt kernels, and sources of other versions.
//!
//! apt finds, fetches and checks them, from the mirror the machine's own apt uses. For a suite the
//! machine has not subscribed to, apt gets lists and a cache of its own in the work folder; nothing
//! is installed, and no root is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::needs;
use crate::places::Places;
use crate::tool::{output, run};

/// A kernel and its modules take 0.1 GB as packages and 0.5 GB unpacked.
const SPACE: u64 = 800_000_000;
/// Debian's keys, which sign every suite.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// "linux-image-amd64/trixie"; without a suite, what the machine's own lists have.
#[derive(Clone, Debug, PartialEq)]
pub struct Package {
    name: String,
    suite: Option<String>,
}

impl Package {
    /// None when the word cannot be a package of Linux.
    pub fn parse(word: &str) -> Option<Package> {
        let (name, suite) = match word.split_once('/') {
            Some((name, suite)) => (name, Some(suite)),
            None => (word, None),
        };
        let is_plain = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || ".+-~".contains(c);
            !part.is_empty() && !part.starts_with(['.', '-']) && part.chars().all(allowed)
        };
        let fits = name.starts_with("linux-") && is_plain(name) && suite.is_none_or(is_plain);
        fits.then(|| Package { name: name.to_owned(), suite: suite.map(str::to_owned) })
    }

    fn folder(&self, places: &Places) -> PathBuf {
        let suite = self.suite.as_deref().unwrap_or("own");
        places.work.join("packages-of-linux").join(format!("{}_{suite}", self.name))
    }
}

/// The kernel of a package, fetched once; where distributions have it, see `modules::folder`.
pub fn kernel(package: &Package, places: &Places) -> Result<PathBuf> {
    let folder = unpacked(package, places)?;
    let versions = fs::read_dir(folder.join("lib/modules")).into_iter().flatten().flatten();
    let image = versions.map(|entry| entry.path()).find_map(|modules| {
        let name = format!("boot/vmlinuz-{}", modules.file_name()?.to_str()?);
        [folder.join(name), modules.join("vmlinuz")].into_iter().find(|image| image.exists())
    });
    image.with_context(|| format!("no kernel in {} and what it needs", package.name))
}

/// The tar file of a package linux-source-VERSION, fetched once.
pub fn source(package: &Package, places: &Places) -> Result<PathBuf> {
    let file = unpacked(package, places)?.join(format!("usr/src/{}.tar.xz", package.name));
    if !file.exists() {
        bail!("Debian's package {} has no {}", package.name, file.display());
    }
    Ok(file)
}

/// The folder with what the package and the parts of Linux it needs contain.
fn unpacked(package: &Package, places: &Places) -> Result<PathBuf> {
    let folder = package.folder(places);
    if folder.exists() {
        return Ok(folder);
    }
    for tool in ["apt-get", "dpkg-deb"] {
        if needs::program(tool).is_none() {
            bail!("{} cannot be fetched without {tool}", package.name);
        }
    }
    needs::disk(&places.work, SPACE, "fetching and unpacking a package")?;
    let partly = folder.with_extension("partly");
    let _ = fs::remove_dir_all(&partly);
    fs::create_dir_all(&partly).context("cannot make the folder of the package")?;
    let apt = Apt::new(package.suite.as_deref(), places)?;
    let names = apt.parts(&package.name)?;
    eprintln!(
        "kernel: fetching {} (once; remove {} for newer)",
        names.join(", "),
        folder.display()
    );
    run(apt.command("apt-get").args(["-q", "download"]).args(&names).current_dir(&partly))
        .with_context(|| format!("cannot fetch {}", package.name))?;
    for entry in fs::read_dir(&partly).context("cannot read the package's folder")?.flatten() {
        if entry.path().extension().is_some_and(|end| end == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(&partly))?;
            let _ = fs::remove_file(entry.path());
        }
    }
    // Where /lib is a link, packages name the folder behind it.
    if !partly.join("lib").exists() {
        let _ = std::os::unix::fs::symlink("usr/lib", partly.join("lib"));
    }
    fs::rename(&partly, &folder).context("cannot put the package in its place")?;
    Ok(folder)
}

/// apt, with the machine's lists or with those of one suite.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn new(suite: Option<&str>, places: &Places) -> Result<Apt> {
        let Some(suite) = suite else { return Ok(Apt { options: Vec::new() }) };
        let folder = places.work.join("apt").join(suite);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).context("cannot make apt's folder")?;
        }
        let sources = folder.join("sources.list");
        let keys =
            if Path::new(KEYS).exists() { format!("[signed-by={KEYS}] ") } else { "".into() };
        fs::write(&sources, format!("deb {keys}{} {suite} main\n", mirror()?))
            .and_then(|()| fs::write(folder.join("status"), ""))
            .context("cannot write apt's sources")?;
        let option = |name: &str, path: &Path| format!("{name}={}", path.display());
        let options = vec![
            option("Dir::Etc::SourceList", &sources),
            option("Dir::Etc::SourceParts", Path::new("/dev/null")),
            option("Dir::State", &folder),
            option("Dir::State::status", &folder.join("status")),
            option("Dir::Cache", &folder.join("cache")),
        ];
        let apt = Apt { options };
        run(apt.command("apt-get").args(["-q", "update"]))
            .with_context(|| format!("cannot read the lists of {suite}"))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// The package and the parts of Linux it depends on: images, modules.
    fn parts(&self, name: &str) -> Result<Vec<String>> {
        let mut names = vec![name.to_owned()];
        let mut next = 0;
        while next < names.len() {
            let told = output(self.command("apt-cache").args(["depends", &names[next]]))?;
            for part in parts_of(&String::from_utf8_lossy(&told)) {
                if !names.contains(&part) {
                    names.push(part);
                }
            }
            next += 1;
        }
        Ok(names)
    }
}

/// Of the answer of `apt-cache depends`.
fn parts_of(told: &str) -> Vec<String> {
    let needed = told.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let kinds = ["linux-image-", "linux-binary-", "linux-modules-"];
    let is_part = |name: &&str| kinds.iter().any(|kind| name.starts_with(kind));
    needed.filter(is_part).map(str::to_owned).collect()
}

/// Where the machine gets Debian's packages from.
fn mirror() -> Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]);
    let told = String::from_utf8_lossy(&output(&mut apt)?).into_owned();
    let first = told.lines().next().map(str::to_owned);
    first.context("apt has no lists of Debian here (apt-get update)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_from_files() {
        let package = |name: &str, suite: Option<&str>| {
            Some(Package { name: name.into(), suite: suite.map(str::to_owned) })
        };
        assert_eq!(Package::parse("linux-image-amd64"), package("linux-image-amd64", None));
        let word = "linux-image-amd64/bookworm-backports";
        assert_eq!(Package::parse(word), package("linux-image-amd64", Some("bookworm-backports")));
        for file in
            ["./bzImage", "/boot/vmlinuz-6.1", "linux-6.1/arch/x86/boot/bzImage", "linux-/.."]
        {
            assert_eq!(Package::parse(file), None, "{file}");
        }
    }

    #[test]
    fn only_parts_of_linux_are_followed() {
        let told = "linux-image-7.1-amd64\n |Depends: dracut\n  Depends: linux-base-7.1-amd64\n  \
                    Depends: linux-binary-7.1-amd64\n  Depends: linux-modules-7.1-amd64\n  \
                    Suggests: linux-doc-7.1\n";
        assert_eq!(parts_of(told), ["linux-binary-7.1-amd64", "linux-modules-7.1-amd64"]);
    }
}
