//! The map in ARCHITECTURE.md is true, and no two files of a crate need each other.
//!
//! Nothing is longer than CONTRIBUTING.md allows.
//!
//! Owns the rules. A crate may depend on what its row of the map lists, and every crate has a
//! row. Files of a crate do not import each other in a circle, unless one of them says in its
//! header why two files are one thing: "One thing with `other.rs`: ...".

#[path = "architecture/files.rs"]
mod files;
#[path = "architecture/sizes.rs"]
mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Folder and crates depended on (other than by tests), by crate.
fn crates() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = cargo.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |package: &Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok());
        let listed = package["dependencies"].as_array().into_iter().flatten();
        let ours = listed.filter(|one| one["path"].is_string() && one["kind"] != "dev");
        let folder = folder.expect("in the workspace").display().to_string();
        (text(&package["name"]), (folder, ours.map(|one| text(&one["name"])).collect()))
    };
    packages.iter().map(one).collect()
}

/// The rows of the map: folder, and the crates in its last column.
fn rows(document: &str) -> BTreeMap<String, BTreeSet<String>> {
    let map = document.split("\n## ").find(|part| part.starts_with("The map of the code"));
    let lines = map.expect("a chapter \"The map of the code\"").lines();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [folder, _, may] = cells[..] else { return None };
        let folder = folder.strip_prefix('`')?.strip_suffix('`')?;
        let names = may.split(',').map(|name| name.trim().trim_matches('`'));
        let names = names.filter(|name| !matches!(*name, "" | "-")).map(full_name);
        Some((folder.to_owned(), names.collect()))
    };
    lines.filter(|line| line.starts_with('|')).filter_map(row).collect()
}

/// The map leaves out the prefix that all crates but the runtime have.
fn full_name(short: &str) -> String {
    match short == "odfork" || short.starts_with("odfork-") {
        true => short.to_owned(),
        false => format!("odfork-{short}"),
    }
}

#[test]
fn the_map_of_the_code_is_true() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let rows = rows(&document);
    let mut wrong = Vec::new();
    for (name, (folder, depends)) in crates() {
        let Some(may) = rows.get(&folder) else {
            wrong.push(format!("{name}: no row for `{folder}`"));
            continue;
        };
        for other in depends.difference(may) {
            wrong.push(format!("{name} depends on {other}, which its row does not list"));
        }
        for other in may.difference(&depends) {
            wrong.push(format!("{name} does not depend on {other}, which its row lists"));
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md, the map of the code:\n{}", wrong.join("\n"));
}

#[test]
fn the_product_does_not_depend_on_benchmarks() {
    let crates = crates();
    let users = crates.iter().filter(|(_, (_, depends))| depends.contains("odfork-bench"));
    let users: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
    assert_eq!(users, ["odfork-cli", "odfork-kernel"]);
}

#[test]
fn no_files_need_each_other() {
    let mut wrong = Vec::new();
    for (name, (folder, _)) in crates() {
        let source = root().join(&folder).join("src");
        let circles = files::circles(&source);
        wrong.extend(circles.iter().map(|circle| format!("{name}: {}", circle.join(", "))));
    }
    let advice =
        "give what they share its own file, or say in a header \"One thing with `x.rs`: ...\"";
    assert!(wrong.is_empty(), "files that import each other; {advice}:\n{}", wrong.join("\n"));
}

#[test]
fn nothing_is_too_long() {
    let found = sizes::excesses(&root());
    assert!(found.is_empty(), "wrap or split ({}):\n{}", found.len(), found.join("\n"));
}
