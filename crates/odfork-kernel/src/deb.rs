//! `odfork kernel deb`: packages of the patched kernel that apt installs on a machine.
//!
//! The kernel's own bindeb-pkg makes them; this file gives it a configuration and a version, and
//! finds what it left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::config::{self, OWN};
use crate::make::Job;
use crate::options::{DebOptions, VariantOptions};
use crate::places::{Places, Variant};
use crate::{build, needs, tool};

/// Thousands of modules; measured with defconfig. The guest's configuration takes a tenth.
const SPACE: u64 = 6_000_000_000;
const SPACE_GUEST: u64 = 2_000_000_000;

/// For a configuration that is not ours: names the kernel, and leaves out what only Debian's own
/// build has or what makes the build ten times as big.
const FOREIGN: &str = "CONFIG_LOCALVERSION=\"-odfork\"\n# CONFIG_LOCALVERSION_AUTO is not \
                       set\nCONFIG_SYSTEM_TRUSTED_KEYS=\"\"\n\
                       CONFIG_SYSTEM_REVOCATION_KEYS=\"\"\nCONFIG_DEBUG_INFO_NONE=y\n";

pub fn run(options: &DebOptions) -> Result<u8> {
    let places = Places::find(&options.places)?;
    let variant = Variant::of(&VariantOptions::default());
    needs::for_build()?;
    needs::for_package()?;
    let (patches, version) = build::prepare(&variant, options.make.source.as_deref(), &places)?;
    needs::disk(
        &places.work,
        if options.guest { SPACE_GUEST } else { SPACE },
        "building a package",
    )?;
    let (tree, folder) = (places.variant_source(&variant), places.build_package(options.guest));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let refused = configure(options, &tree, &folder, patches > 0, &places)?;
    for line in refused {
        eprintln!("kernel: not taken into the configuration: {line}");
    }
    eprintln!("kernel: building packages of Linux {version} with {patches} patches");
    // A revision that grows, so that apt takes a later build for a newer one.
    let job = Job {
        source: &tree,
        build: &folder,
        target: "bindeb-pkg",
        jobs: options.make.jobs.unwrap_or_else(build::processors),
        variables: vec![
            format!("KDEB_PKGVERSION={version}-odfork{}", revision()),
            "DPKG_FLAGS=-d".into(),
        ],
    };
    let before = packages(&tree);
    let took = job.run()?;
    let made: Vec<PathBuf> =
        packages(&tree).into_iter().filter(|file| !before.contains(file)).collect();
    if made.is_empty() {
        bail!("bindeb-pkg made no package; all it said is in {}", job.log().display());
    }
    for file in made {
        println!("{}", keep(&file, &places)?.display());
    }
    eprintln!("kernel: built in {:.0} s", took.as_secs_f64());
    Ok(0)
}

fn configure(
    options: &DebOptions,
    tree: &Path,
    folder: &Path,
    patched: bool,
    places: &Places,
) -> Result<Vec<String>> {
    let guest = places.tree.join("config/guest.config");
    let guest =
        fs::read_to_string(&guest).with_context(|| format!("cannot read {}", guest.display()))?;
    let own = if patched { OWN } else { "" };
    match &options.config {
        Some(file) => {
            fs::write(folder.join(".config"), configuration(file)?)
                .context("cannot write the configuration")?;
            config::overlay(tree, folder, &format!("{FOREIGN}{own}"))
        }
        None if options.guest => {
            config::make(tree, folder, "allnoconfig")?;
            config::overlay(tree, folder, &format!("{guest}\n{own}"))
        }
        None => {
            config::make(tree, folder, "defconfig")?;
            config::make(tree, folder, "kvm_guest.config")?;
            config::overlay(tree, folder, &format!("{guest}\n{own}"))
        }
    }
}

/// Also a packed one: /proc/config.gz.
fn configuration(file: &Path) -> Result<Vec<u8>> {
    let text = if file.extension().is_some_and(|end| end == "gz") {
        let output =
            Command::new("gzip").arg("-dc").arg(file).output().context("cannot start gzip")?;
        output.stdout
    } else {
        fs::read(file).with_context(|| format!("no configuration at {}", file.display()))?
    };
    if !text.windows(7).any(|part| part == b"CONFIG_") {
        bail!("{} is no configuration of a kernel", file.display());
    }
    Ok(text)
}

/// Minutes since 2025: small, and growing.
fn revision() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs().saturating_sub(1_735_689_600) / 60)
}

/// dpkg-buildpackage puts them beside the build's folder: into the tree.
fn packages(tree: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(tree).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|file| file.extension().is_some_and(|end| end == "deb")).collect();
    files.sort();
    files
}

fn keep(file: &Path, places: &Places) -> Result<PathBuf> {
    let folder = places.work.join("packages");
    fs::create_dir_all(&folder).context("cannot make the folder of packages")?;
    let target = folder.join(file.file_name().unwrap_or_default());
    tool::run(Command::new("mv").arg("-f").arg("--").arg(file).arg(&target))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_configuration_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(&file, "hello\n").unwrap();
        assert!(configuration(&file).unwrap_err().to_string().contains("no configuration"));
        fs::write(&file, "CONFIG_X=y\n").unwrap();
        assert_eq!(configuration(&file).unwrap(), b"CONFIG_X=y\n");
        assert!(configuration(&folder.path().join("none")).is_err());
    }
}
