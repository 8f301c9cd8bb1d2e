//! A program linked with libodfimage, in C and in C++, shared and static: does the header compile
//! without a warning, does every function do what it says?
//!
//! Owns: compiler calls. What is checked inside is in `programs/life.c`.

#[path = "../../../tests/shared/linking.rs"]
mod shared;

use std::process::Command;

use shared::{run, Kind, Library};

const LIBRARY: Library = Library {
    name: "odfimage",
    here: env!("CARGO_MANIFEST_DIR"),
    sources: &["src", "../odfork-image/src"],
};

fn lives(compiler: &str, language: &[&str], kind: Kind) {
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("life");
    LIBRARY.build("life.c", &program, compiler, &[language, &["-pthread"]].concat(), kind);
    let said = run(Command::new(&program)
        .arg(out.path())
        .env("LD_LIBRARY_PATH", LIBRARY.folder())
        .env_remove("LD_PRELOAD"));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "ok\n");
}

#[test]
fn a_program_in_c() {
    lives("cc", &["-std=gnu11"], Kind::Shared);
}

#[test]
fn a_program_in_cpp() {
    lives("c++", &["-x", "c++", "-std=gnu++17"], Kind::Shared);
}

#[test]
fn a_program_with_the_static_library() {
    lives("cc", &["-std=gnu11"], Kind::Static);
}

#[test]
fn the_shared_library_exports_nothing_else() {
    let exports = LIBRARY.exports();
    let strange: Vec<&String> =
        exports.iter().filter(|name| !name.starts_with("odfork_image_")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn the_shared_library_names_itself() {
    LIBRARY.check_soname();
}
