//! What stands in two places is the same in both: units of the operators' guide, the version.

use std::fs;

use crate::root;

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `make install` puts them where service managers' files go.
#[test]
fn units_of_the_guide_are_files() {
    let guide = read("docs/servers.md");
    let blocks = guide.split("```ini\n").skip(1);
    let shown: Vec<&str> = blocks.map(|rest| rest.split_once("```").expect("an end").0).collect();
    assert!(!shown.is_empty());
    let folder = fs::read_dir(root().join("examples/systemd")).unwrap().flatten();
    let files: Vec<String> = folder.map(|file| fs::read_to_string(file.path()).unwrap()).collect();
    for text in &shown {
        assert!(files.iter().any(|file| file == text), "no file of examples/systemd is\n{text}");
    }
    assert_eq!(files.len(), shown.len(), "files that the guide does not show");
}

#[test]
fn the_version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    for (name, line) in [
        ("python/src/odfork/__init__.py", format!("__version__ = \"{version}\"\n")),
        ("debian/changelog", format!("odfork ({version}) ")),
        ("Cargo.toml", format!("[workspace.package]\nversion = \"{version}\"\n")),
    ] {
        assert!(read(name).contains(&line), "{name} has not {line}");
    }
}
