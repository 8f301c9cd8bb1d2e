//! The patches over the source: which, whether they fit, and trees that have them.
//!
//! A tree `source-VARIANT` is made of hard links to `source/`. Patches are applied to a small stage
//! that holds only the files they name; a file of the tree is replaced (never written in place: it
//! is a link) only when its content is another one now. So files a changed series leaves alone keep
//! their times, and make rebuilds little.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

use crate::places::{Places, Variant};
use crate::source;
use crate::tool;

/// In a tree: the hash of the series it has, and the files that series names.
const STAMP: &str = ".odfork-series";

/// One patch file.
#[derive(Debug)]
pub struct Patch {
    pub path: PathBuf,
    pub text: Vec<u8>,
}

impl Patch {
    fn read(path: PathBuf) -> Result<Patch> {
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Patch { path, text })
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The patches of the folder in order of their names; none when the folder is empty or missing.
pub fn patches(places: &Places) -> Result<Vec<Patch>> {
    let mut paths: Vec<PathBuf> = match fs::read_dir(places.tree.join("patches")) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => Vec::new(),
    };
    paths.retain(|path| path.extension().is_some_and(|end| end == "patch"));
    paths.sort();
    paths.into_iter().map(Patch::read).collect()
}

/// The patches of one variant: none, the first few, all, or all and the broken rule.
pub fn of(variant: &Variant, places: &Places) -> Result<Vec<Patch>> {
    if !variant.is_patched() {
        return Ok(Vec::new());
    }
    let mut series = patches(places)?;
    if let Some(first) = variant.first {
        if !(1..=series.len()).contains(&first) {
            bail!("there are {} patches; --patches takes 1 to {0}, not {first}", series.len());
        }
        series.truncate(first);
    }
    if let Some(name) = &variant.mutation {
        let path = places.tree.join(format!("mutations/{name}.patch"));
        if !path.exists() {
            bail!("no mutation {name}; there are: {}", mutations(places).join(", "));
        }
        series.push(Patch::read(path)?);
    }
    Ok(series)
}

/// The names --mutation takes.
pub fn mutations(places: &Places) -> Vec<String> {
    let entries = fs::read_dir(places.tree.join("mutations"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.to_str()?.strip_suffix(".patch")?.to_owned())).collect();
    names.sort();
    names
}

/// Has the variant's tree just these patches?
pub fn has_series(variant: &Variant, places: &Places) -> Result<bool> {
    let stamp = fs::read_to_string(places.variant_source(variant).join(STAMP)).unwrap_or_default();
    Ok(stamp.lines().next() == Some(hash_of(&of(variant, places)?).as_str()))
}

/// Makes the variant's tree have the series; says how many files changed.
pub fn apply(series: &[Patch], variant: &Variant, places: &Places) -> Result<usize> {
    let tree = places.variant_source(variant);
    if !tree.join("Makefile").exists() {
        link_tree(&places.source(), &tree)?;
    }
    let stamp = fs::read_to_string(tree.join(STAMP)).unwrap_or_default();
    let hash = hash_of(series);
    if stamp.lines().next() == Some(hash.as_str()) {
        return Ok(0);
    }
    let stage = tempfile::Builder::new().prefix("stage-").tempdir_in(&places.work);
    let stage = stage.context("cannot make a folder for patching")?;
    let (changed, files) = update(series, &stamp, stage.path(), places, &tree)?;
    let files: String = files.iter().map(|file| format!("{file}\n")).collect();
    replace(&tree.join(STAMP), format!("{hash}\n{files}").as_bytes())?;
    Ok(changed)
}

fn link_tree(from: &Path, to: &Path) -> Result<()> {
    let partly = to.with_extension("partly");
    for left in [to, &partly] {
        let _ = fs::remove_dir_all(left);
    }
    tool::run(Command::new("cp").args(["-al", "--"]).arg(from).arg(&partly))
        .context("cannot make a tree of the source")?;
    fs::rename(&partly, to).context("cannot put the tree in its place")
}

fn update(
    series: &[Patch],
    stamp: &str,
    stage: &Path,
    places: &Places,
    tree: &Path,
) -> Result<(usize, BTreeSet<String>)> {
    let files: BTreeSet<String> = series.iter().flat_map(|patch| touched(&patch.text)).collect();
    let before = stamp.lines().skip(1).map(str::to_owned);
    let all: BTreeSet<String> = files.iter().cloned().chain(before).collect();
    let pristine = places.source();
    for file in &all {
        if let Ok(content) = fs::read(pristine.join(file)) {
            replace(&stage.join(file), &content)?;
        }
    }
    for patch in series {
        apply_patch(patch, stage, &source::version(&pristine))?;
    }
    // From here on the tree is neither the old nor the new series until the stamp is written.
    let _ = fs::remove_file(tree.join(STAMP));
    let mut changed = 0;
    for file in &all {
        changed += usize::from(carry_over(file, stage, tree)?);
    }
    Ok((changed, files))
}

/// Brings one file of the tree up to the stage; true when that changed it.
fn carry_over(file: &str, stage: &Path, tree: &Path) -> Result<bool> {
    let (new, old) = (fs::read(stage.join(file)).ok(), fs::read(tree.join(file)).ok());
    if new == old {
        return Ok(false);
    }
    match new {
        Some(content) => {
            replace(&tree.join(file), &content)?;
            if let Ok(facts) = fs::metadata(stage.join(file)) {
                let _ = fs::set_permissions(tree.join(file), facts.permissions());
            }
        }
        None => {
            fs::remove_file(tree.join(file)).with_context(|| format!("cannot remove {file}"))?
        }
    }
    Ok(true)
}

/// Writes a new file and puts it in the place of the old one, which may be a hard link.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let why = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(why)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".odfork-new");
    fs::write(&name, content).with_context(why)?;
    fs::rename(&name, path).with_context(why)
}

/// No fuzz: a hunk whose surroundings changed may be wrong where it still fits. Offsets are fine.
fn apply_patch(patch: &Patch, stage: &Path, version: &str) -> Result<()> {
    let words = ["-p1", "-F0", "--force", "--no-backup-if-mismatch", "--reject-file=-", "-i"];
    let output = Command::new("patch")
        .args(words)
        .arg(&patch.path)
        .current_dir(stage)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .context("cannot start patch")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    bail!(
        "the patch {} does not apply to Linux {version} ({}); the series is made for Debian's \
         linux-source-6.12, another point release needs it rebased",
        patch.name(),
        first_failure(&said)
    )
}

/// "mm/memory.c: Hunk #2 FAILED at 1227."
fn first_failure(said: &str) -> String {
    let mut file = "";
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("patching file ") {
            file = name.trim_matches('\'');
        }
        if line.contains("FAILED at")
            || line.contains("can't find file")
            || line.contains("malformed")
        {
            return format!("{file}: {}", line.trim_end_matches('.'))
                .trim_start_matches(": ")
                .into();
        }
    }
    said.lines().last().unwrap_or("patch gave no reason").into()
}

/// The files a patch names: in its `---` and `+++` lines and in renames.
fn touched(text: &[u8]) -> Vec<String> {
    let mut files = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        let name = ["--- a/", "+++ b/", "rename from ", "rename to "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        let name = name.and_then(|name| name.split('\t').next()).unwrap_or("");
        // A patch must not reach out of the tree.
        let inside =
            !name.is_empty() && !name.starts_with('/') && !name.split('/').any(|p| p == "..");
        if inside {
            files.push(name.to_owned());
        }
    }
    files
}

/// FNV-1a over names and contents: tells series apart, keeps no secret.
fn hash_of(series: &[Patch]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for patch in series {
        eat(patch.name().as_bytes());
        eat(&patch.text);
    }
    format!("{hash:016x} {} patches", series.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const MAKEFILE: &str = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 9\n";
    const FIRST: &str = "\
From 0 Mon Sep 17 00:00:00 2001
Subject: [PATCH 1/2] first

---
 mm/a.c | 2 +-
--- a/mm/a.c
+++ b/mm/a.c
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
--- /dev/null
+++ b/mm/new.c
@@ -0,0 +1 @@
+new
";

    struct Fixture {
        _folder: tempfile::TempDir,
        places: Places,
        variant: Variant,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let places =
                Places { tree: folder.path().join("kernel"), work: folder.path().join("work") };
            for path in ["source/mm", "source/fs"] {
                fs::create_dir_all(places.work.join(path)).unwrap();
            }
            fs::create_dir_all(places.tree.join("patches")).unwrap();
            fs::write(places.source().join("Makefile"), MAKEFILE).unwrap();
            fs::write(places.source().join("mm/a.c"), "one\ntwo\nthree\n").unwrap();
            fs::write(places.source().join("fs/b.c"), "b\n").unwrap();
            let variant = Variant::of(&crate::options::VariantOptions::default());
            Fixture { _folder: folder, places, variant }
        }

        fn patch(&self, name: &str, text: &str) {
            fs::write(self.places.tree.join("patches").join(name), text).unwrap();
        }

        fn apply(&self) -> Result<usize> {
            apply(&of(&self.variant, &self.places)?, &self.variant, &self.places)
        }

        fn read(&self, file: &str) -> Option<String> {
            fs::read_to_string(self.places.variant_source(&self.variant).join(file)).ok()
        }
    }

    #[test]
    fn an_empty_series_is_the_source() {
        let fixture = Fixture::new();
        assert_eq!(fixture.apply().unwrap(), 0);
        assert_eq!(fixture.read("mm/a.c").unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn only_what_a_changed_series_changes_is_written() {
        let fixture = Fixture::new();
        fixture.patch("0001-first.patch", FIRST);
        fixture.patch("README", "no patch");
        assert_eq!(fixture.apply().unwrap(), 2);
        assert_eq!(fixture.read("mm/a.c").unwrap(), "one\nzwei\nthree\n");
        assert_eq!(
            fs::read_to_string(fixture.places.source().join("mm/a.c")).unwrap(),
            "one\ntwo\nthree\n"
        );
        let inode = |file: &str| {
            fs::metadata(fixture.places.variant_source(&fixture.variant).join(file)).unwrap().ino()
        };
        let (a, new) = (inode("mm/a.c"), inode("mm/new.c"));
        assert_eq!(fixture.apply().unwrap(), 0);
        fixture.patch("0001-first.patch", &FIRST.replace("+new", "+newer"));
        assert_eq!(fixture.apply().unwrap(), 1);
        assert_eq!(inode("mm/a.c"), a);
        assert_ne!(inode("mm/new.c"), new);
        fs::remove_file(fixture.places.tree.join("patches/0001-first.patch")).unwrap();
        assert_eq!(fixture.apply().unwrap(), 2);
        assert_eq!(
            (fixture.read("mm/a.c").unwrap().as_str(), fixture.read("mm/new.c")),
            ("one\ntwo\nthree\n", None)
        );
    }

    #[test]
    fn a_patch_that_does_not_fit_is_named_with_the_version() {
        let fixture = Fixture::new();
        fixture.patch("0001-first.patch", FIRST);
        fixture.apply().unwrap();
        fixture.patch(
            "0002-second.patch",
            &FIRST.replace("-two", "-deux").replace("new.c", "other.c"),
        );
        let error = fixture.apply().unwrap_err().to_string();
        assert!(
            error.starts_with(
                "the patch 0002-second.patch does not apply to Linux 6.12.9 (mm/a.c: \
                               Hunk #1 FAILED"
            ),
            "{error}"
        );
        // The tree is as it was.
        assert_eq!(fixture.read("mm/a.c").unwrap(), "one\nzwei\nthree\n");
    }

    #[test]
    fn offsets_are_fine_and_fuzz_is_not() {
        let fixture = Fixture::new();
        fixture.patch("0001-first.patch", FIRST);
        fs::write(fixture.places.source().join("mm/a.c"), "zero\nzero\none\ntwo\nthree\n").unwrap();
        assert_eq!(fixture.apply().unwrap(), 2);
        let fixture = Fixture::new();
        fixture.patch("0001-first.patch", FIRST);
        fs::write(fixture.places.source().join("mm/a.c"), "ONE\ntwo\nthree\n").unwrap();
        assert!(fixture.apply().is_err());
    }

    #[test]
    fn a_mutation_comes_last_and_a_wrong_name_lists_those_there_are() {
        let mut fixture = Fixture::new();
        fs::create_dir_all(fixture.places.tree.join("mutations")).unwrap();
        fs::write(fixture.places.tree.join("mutations/loud.patch"), FIRST).unwrap();
        fixture.variant = Variant {
            series: "mutation-loud".into(),
            mutation: Some("loud".into()),
            first: None,
            debug: false,
        };
        assert_eq!(fixture.apply().unwrap(), 2);
        fixture.variant.mutation = Some("quiet".into());
        assert_eq!(fixture.apply().unwrap_err().to_string(), "no mutation quiet; there are: loud");
    }

    #[test]
    fn a_patch_cannot_reach_out_of_the_tree() {
        assert!(touched(b"--- a/../x\n+++ b//etc/x\n+++ /dev/null\n").is_empty());
    }
}
