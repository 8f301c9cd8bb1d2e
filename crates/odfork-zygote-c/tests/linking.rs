//! A program linked with libodfzygote.so, in C and in C++, shared and static: does the header
//! compile without a warning, does every function do what it says?
//!
//! Owns: compiler calls and the template. What is checked inside is in `programs/life.c`.

#[path = "../../../tests/shared/linking.rs"]
mod shared;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use odfork_zygote::Recipe;
use shared::{run, Kind, Library};

const LIBRARY: Library = Library {
    name: "odfzygote",
    here: env!("CARGO_MANIFEST_DIR"),
    sources: &["src", "../odfork-zygote/src"],
};

/// A template called "test", in a folder of its own; it ends with the last program that uses it.
fn template() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        std::env::set_var("XDG_RUNTIME_DIR", folder.path());
        let mut recipe = Recipe::new("python3");
        recipe.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/src"));
        odfork_zygote::start("test", &recipe).unwrap();
        folder
    });
    folder.path()
}

fn lives(compiler: &str, language: &[&str], kind: Kind) {
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("life");
    LIBRARY.build("life.c", &program, compiler, language, kind);
    let said = run(Command::new(&program)
        .env("XDG_RUNTIME_DIR", template())
        .env("LD_LIBRARY_PATH", LIBRARY.folder())
        .env_remove("LD_PRELOAD"));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "ok\n");
}

#[test]
fn programs_in_c_and_cpp_shared_and_static() {
    lives("cc", &["-std=gnu11", "-pthread"], Kind::Shared);
    lives("c++", &["-x", "c++", "-std=gnu++17"], Kind::Shared);
    lives("cc", &["-std=gnu11", "-pthread"], Kind::Static);
    odfork_zygote::stop("test").unwrap();
}

#[test]
fn the_shared_library_exports_nothing_else() {
    let exports = LIBRARY.exports();
    let strange: Vec<&String> =
        exports.iter().filter(|name| !name.starts_with("odfork_zygote_")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn the_shared_library_names_itself() {
    LIBRARY.check_soname();
}
