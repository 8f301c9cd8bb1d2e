//! The configuration of a kernel: nothing (allnoconfig), and fragments laid over it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::places::{Places, Variant};
use crate::tool;

/// What a patched kernel has besides.
pub const OWN: &str = "CONFIG_COW_PTE_TABLES=y\n";

/// The fragments of a variant, in the order they are laid.
fn fragments(variant: &Variant, places: &Places) -> Vec<PathBuf> {
    let folder = places.tree.join("config");
    let mut files = vec![folder.join("guest.config")];
    if variant.debug {
        files.push(folder.join("debug.config"));
    }
    files
}

/// Makes the configuration anew when its fragments changed; returns the lines of them that were not
/// taken.
pub fn provide(variant: &Variant, with_patches: bool, places: &Places) -> Result<Vec<String>> {
    let (source, build) = (places.variant_source(variant), places.build(variant));
    fs::create_dir_all(&build).with_context(|| format!("cannot make {}", build.display()))?;
    let mut wanted = String::new();
    for file in fragments(variant, places) {
        let text = fs::read_to_string(&file);
        wanted += &text.with_context(|| format!("cannot read {}", file.display()))?;
        wanted.push('\n');
    }
    if with_patches {
        wanted += OWN;
    }
    let (fragment, config) = (build.join(".odfork-fragment"), build.join(".config"));
    let same = fs::read_to_string(&fragment).is_ok_and(|text| text == wanted);
    if !same || !config.exists() {
        fs::write(&fragment, &wanted).context("cannot write the configuration")?;
        let merged =
            make(&source, &build, "allnoconfig").and_then(|()| merge(&source, &build, &fragment));
        if let Err(error) = merged {
            let _ = fs::remove_file(&fragment);
            return Err(error);
        }
    } else {
        // The series may have brought new questions; answered as far as they are new.
        make(&source, &build, "olddefconfig")?;
    }
    let taken = fs::read_to_string(&config).context("cannot read the configuration")?;
    Ok(not_taken(&wanted, &taken))
}

fn merge(source: &Path, build: &Path, fragment: &Path) -> Result<()> {
    let mut script = Command::new(source.join("scripts/kconfig/merge_config.sh"));
    script.args(["-m", "-O"]).arg(build).arg(build.join(".config")).arg(fragment);
    tool::run(script.current_dir(source)).context("cannot merge the configuration")?;
    make(source, build, "olddefconfig")
}

/// Lays lines over the configuration that is there; returns those that were not taken.
pub fn overlay(source: &Path, build: &Path, lines: &str) -> Result<Vec<String>> {
    let fragment = build.join(".odfork-fragment");
    fs::write(&fragment, lines).context("cannot write the configuration")?;
    merge(source, build, &fragment)?;
    let taken =
        fs::read_to_string(build.join(".config")).context("cannot read the configuration")?;
    Ok(not_taken(lines, &taken))
}

pub fn make(source: &Path, build: &Path, target: &str) -> Result<()> {
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(source).arg(format!("O={}", build.display())).arg(target);
    tool::run(&mut make).with_context(|| format!("make {target}"))
}

/// Lines CONFIG_X=... of the fragments that the configuration does not have; a later line of the
/// same name counts.
fn not_taken(wanted: &str, taken: &str) -> Vec<String> {
    let name = |line: &str| line.split('=').next().unwrap_or(line).to_owned();
    let lines: Vec<&str> = wanted.lines().filter(|line| line.starts_with("CONFIG_")).collect();
    let last =
        |index: usize| !lines[index + 1..].iter().any(|later| name(later) == name(lines[index]));
    let has = |wanted: &str| taken.lines().any(|line| line == wanted);
    // "CONFIG_X=n" is taken when X is not set at all.
    let off = |line: &str| line.ends_with("=n") && !has(&format!("{}=y", name(line)));
    let missing = |line: &str| !(has(line) || off(line));
    (0..lines.len())
        .filter(|&i| last(i) && missing(lines[i]))
        .map(|i| lines[i].to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_not_taken_are_found_and_later_lines_win() {
        let wanted =
            "# c\nCONFIG_A=y\nCONFIG_B=y\nCONFIG_A=\"x\"\nCONFIG_C=n\n# CONFIG_D is not set\n";
        assert_eq!(not_taken(wanted, "CONFIG_A=\"x\"\nCONFIG_B=y\n"), Vec::<String>::new());
        assert_eq!(
            not_taken(wanted, "CONFIG_A=y\nCONFIG_BB=y\nCONFIG_C=y\n"),
            ["CONFIG_B=y", "CONFIG_A=\"x\"", "CONFIG_C=n"]
        );
    }
}
