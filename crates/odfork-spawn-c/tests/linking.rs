//! Programs linked with libodfspawn, in C and in C++, shared and static: does the header compile
//! without a warning, does every function do what it says, alone and beside libodfork?
//!
//! Owns: compiler calls and the settings programs are run under. What is checked inside is in
//! `programs/`: spawn.c, refusals.c and shell.c. The static library is for dynamically linked
//! programs: what it needs must be what `odfspawn.pc.in` says.

#[path = "../../../tests/shared/linking.rs"]
mod shared;

use std::path::{Path, PathBuf};
use std::process::Command;

use shared::{run, Kind, Library, STRICT};

const LIBRARY: Library = Library {
    name: "odfspawn",
    here: env!("CARGO_MANIFEST_DIR"),
    sources: &["src", "../odfork-spawn/src", "../odfork-sys/src"],
};

/// `source`: a file of `programs/`, and the name of what is made.
fn build(source: &str, name: &str, compiler: &str, language: &[&str], kind: Kind) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("link-{source}-{name}"));
    LIBRARY.build(source, &out, compiler, &[language, &["-pthread"]].concat(), kind);
    out
}

fn start(program: &Path, settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", LIBRARY.folder());
    command.env_remove("LD_PRELOAD").envs(settings.iter().copied());
    String::from_utf8_lossy(&run(&mut command).stdout).into_owned()
}

/// Alone, and in a process that freezes: a program is started from what the parent is.
fn starts_programs(source: &str) {
    let built = [
        build(source, "c-shared", "cc", &["-std=c11"], Kind::Shared),
        build(source, "cpp-shared", "c++", &["-x", "c++", "-std=c++17"], Kind::Shared),
        build(source, "c-static", "cc", &["-std=c11"], Kind::Static),
    ];
    let runtime = LIBRARY.folder().join("libodfork.so").display().to_string();
    assert!(
        Path::new(&runtime).exists(),
        "{runtime} is missing: run cargo build --release --workspace"
    );
    let frozen = [("LD_PRELOAD", runtime.as_str()), ("ODFORK_FREEZE", "eager")];
    for program in built {
        for settings in [&[][..], &frozen[..]] {
            let said = start(&program, settings);
            said.lines()
                .filter(|line| line.starts_with("skip: "))
                .for_each(|line| println!("{}: {line}", program.display()));
            let last = said.lines().last();
            assert_eq!(last, Some("ok"), "{}, {settings:?}: {said}", program.display());
        }
    }
}

#[test]
fn programs_are_started_as_asked() {
    starts_programs("spawn.c");
}

#[test]
fn refusals_and_failures_say_why() {
    starts_programs("refusals.c");
}

#[test]
fn shells_are_run_as_by_system_and_popen() {
    starts_programs("shell.c");
}

/// A program that asks for nothing but C11.
#[test]
fn the_header_stands_alone() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone.c");
    std::fs::write(&source, "#include \"odfspawn.h\"\n").expect("a file in the target directory");
    for (compiler, standard) in [("cc", "-std=c11"), ("cc", "-std=c99"), ("c++", "-std=c++11")] {
        let mut command = Command::new(compiler);
        command.args(STRICT).args([standard, "-fsyntax-only", "-I"]);
        command.arg(Path::new(LIBRARY.here).join("include"));
        command.args(["-x", if compiler == "cc" { "c" } else { "c++" }]).arg(&source);
        run(&mut command);
    }
}

#[test]
fn the_shared_library_names_itself() {
    LIBRARY.check_soname();
}

#[test]
fn the_shared_library_exports_nothing_else() {
    let strange: Vec<String> = LIBRARY
        .exports()
        .into_iter()
        .filter(|n| n.contains("rust") || n.starts_with("_ZN") || n.starts_with("_R"))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
}
