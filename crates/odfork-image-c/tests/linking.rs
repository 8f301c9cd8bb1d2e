//! A program linked with libodfimage, in C and in C++, shared and static: does the header compile without a warning, does every
//! function do what it says?
//!
//! Owns: compiler calls. What is checked inside is in `programs/life.c`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];

/// The directory with the libraries. Cargo does not build them for a test (no test can link them): `cargo build --release`
/// must have been there before, and since the last change.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let folder = exe.ancestors().nth(2).expect("target directory").to_path_buf();
    let built = modified(&folder.join("libodfimage.so"));
    let sources =
        ["src", "../odfork-image/src"].map(|folder| newest(&Path::new(HERE).join(folder)));
    assert!(
        built.is_some() && built > sources.into_iter().flatten().max(),
        "libodfimage.so in {} is missing or older than its source: run cargo build --release",
        folder.display()
    );
    folder
}

fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|m| m.modified()).ok()
}

fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| modified(&e.path())).max()
}

fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; install gcc, g++ and libc6-dev"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

fn lives(compiler: &str, language: &[&str], shared: bool) {
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("life");
    let mut command = Command::new(compiler);
    command.args(STRICT).args(language).arg("-I").arg(Path::new(HERE).join("include"));
    command
        .arg(Path::new(HERE).join("tests/programs/life.c"))
        .args(["-pthread", "-x", "none", "-o"])
        .arg(&program);
    if shared {
        command.arg("-L").arg(libraries()).arg("-lodfimage");
    } else {
        let line = std::fs::read_to_string(Path::new(HERE).join("odfimage.pc.in")).unwrap();
        let line = line
            .lines()
            .find_map(|l| l.strip_prefix("Libs.private:"))
            .expect("Libs.private")
            .to_owned();
        command.arg(libraries().join("libodfimage.a")).args(line.split_whitespace());
    }
    run(&mut command);
    let said = run(Command::new(&program)
        .arg(out.path())
        .env("LD_LIBRARY_PATH", libraries())
        .env_remove("LD_PRELOAD"));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "ok\n");
}

#[test]
fn a_program_in_c() {
    lives("cc", &["-std=gnu11"], true);
}

#[test]
fn a_program_in_cpp() {
    lives("c++", &["-x", "c++", "-std=gnu++17"], true);
}

#[test]
fn a_program_with_the_static_library() {
    lives("cc", &["-std=gnu11"], false);
}

#[test]
fn the_shared_library_exports_nothing_else() {
    let said = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(libraries().join("libodfimage.so")))
    .stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let names = said.lines().filter_map(|line| line.split_whitespace().last());
    let strange: Vec<&str> = names.filter(|name| !name.starts_with("odfork_image_")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}
