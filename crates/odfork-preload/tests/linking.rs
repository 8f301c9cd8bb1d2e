//! Programs linked with the library, in C and in C++, shared and static: does the header compile
//! without a warning, do all wrappers bind, does every function of the interface do what it says?
//!
//! Owns: compiler calls and the settings programs are run under. What is checked inside is in
//! `programs/api.c`. The static library is for dynamically linked programs: what it needs must be
//! what `odfork.pc.in` says.

#[path = "../../../tests/shared/linking.rs"]
mod shared;

use std::path::{Path, PathBuf};
use std::process::Command;

use shared::{run, Kind, Library, STRICT};

const LIBRARY: Library = Library {
    name: "odfork",
    here: env!("CARGO_MANIFEST_DIR"),
    sources: &["src", "../odfork/src", "../odfork-model/src"],
};
/// Functions of libc that must be the library's in a program linked with it.
const WRAPPED: [&str; 7] =
    ["fork", "madvise", "mremap", "realloc", "syscall", "prctl", "pthread_create"];

fn build(name: &str, compiler: &str, language: &[&str], kind: Kind) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("link-{name}"));
    LIBRARY.build("api.c", &out, compiler, language, kind);
    out
}

fn start(program: &Path, settings: &[(&str, &str)], words: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(words).env("LD_LIBRARY_PATH", LIBRARY.folder());
    command.env_remove("LD_PRELOAD").envs(settings.iter().copied());
    String::from_utf8_lossy(&run(&mut command).stdout).into_owned()
}

/// With any image, and where every call of freezing fails.
fn exercise(program: &Path) {
    for image in ["auto", "small"] {
        assert_eq!(start(program, &[("ODFORK_IMAGE", image)], &[]), "ok\n", "image {image}");
    }
    assert_eq!(start(program, &[("ODFORK_FAULT", "1+:1")], &["plain"]), "plain\n");
}

#[test]
fn c_program_with_the_shared_library() {
    exercise(&build("c-shared", "cc", &["-std=c11"], Kind::Shared));
}

#[test]
fn cpp_program_with_the_shared_library() {
    exercise(&build("cpp-shared", "c++", &["-x", "c++", "-std=c++17"], Kind::Shared));
}

#[test]
fn c_program_with_the_static_library() {
    let program = build("c-static", "cc", &["-std=c11"], Kind::Static);
    let symbols = run(Command::new("nm").arg("-D").arg("--defined-only").arg(&program)).stdout;
    let symbols = String::from_utf8_lossy(&symbols).into_owned();
    for name in WRAPPED {
        // Shared libraries of the program must find the wrapper too, so it has to be exported.
        let exported = symbols.lines().any(|l| l.split_whitespace().last() == Some(name));
        assert!(exported, "{name} of the program is not the library's:\n{symbols}");
    }
    exercise(&program);
}

/// A preloaded library's constructor runs after those of the program's other libraries.
#[test]
fn a_fork_in_an_earlier_constructor_freezes_nothing() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (library, program) = (folder.join("libearly.so"), folder.join("early"));
    let source = Path::new(LIBRARY.here).join("tests/programs/early.c");
    run(Command::new("cc")
        .args(STRICT)
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source));
    let mut compile = Command::new("cc");
    compile.args(STRICT).arg("-DEARLY_PROGRAM").arg("-o").arg(&program).arg(&source);
    run(compile.arg("-L").arg(folder).args(["-learly", "-Wl,-rpath"]).arg(folder));
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", LIBRARY.folder().join("libodfork.so")).env("ODFORK_FREEZE", "never");
    assert_eq!(String::from_utf8_lossy(&run(&mut command).stdout), "0\n");
}

/// A library behind this one may look the C library's functions up; or be bound to them without a
/// look; or stand before one, and must not be given itself to go on to.
#[test]
fn lookups_of_other_libraries_find_the_wrappers() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lookups");
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = Path::new(LIBRARY.here).join("tests/programs/lookups.c");
    let compile = |words: &[&str], out: &Path| {
        let mut command = Command::new("cc");
        command.args(STRICT).arg("-Wno-pedantic").args(words).arg("-o").arg(out).arg(&source);
        command.arg("-L").arg(&folder).arg("-Wl,--disable-new-dtags,-rpath").arg(&folder);
        command
    };
    let library = folder.join("liblookups.so");
    let before = folder.join("libbefore.so");
    let deep = folder.join("libdeep.so");
    run(&mut compile(&["-shared", "-fPIC"], &library));
    run(&mut compile(&["-shared", "-fPIC", "-DLOOKUPS_BEFORE"], &before));
    let hook = folder.join("libhook.so");
    run(&mut compile(&["-shared", "-fPIC", "-DLOOKUPS_HOOK"], &hook));
    let (raw, again) = (folder.join("libraw.so"), folder.join("libagain.so"));
    run(&mut compile(&["-shared", "-fPIC", "-DLOOKUPS_RAW"], &raw));
    std::fs::copy(&library, &again).expect("a copy");
    let raw = raw.display().to_string();
    let again = again.display().to_string();
    std::fs::copy(&library, &deep).expect("a copy");
    let (plain, wrapped) = (folder.join("plain"), folder.join("wrapped"));
    run(compile(&["-DLOOKUPS_PROGRAM"], &plain).args(["-llookups", "-ldl"]));
    run(compile(&["-DLOOKUPS_PROGRAM"], &wrapped).args(["-lbefore", "-ldl"]));
    let deep = deep.display().to_string();
    let library = LIBRARY.folder().join("libodfork.so");
    let both = format!("{}:{}", library.display(), hook.display());
    let library = library.display().to_string();
    for (program, way, preloaded) in [
        (&plain, vec!["next"], &library),
        (&plain, vec![deep.as_str()], &library),
        (&plain, vec![again.as_str(), raw.as_str()], &library),
        (&wrapped, vec!["before"], &library),
        (&plain, vec!["none"], &both),
    ] {
        let mut command = Command::new(program);
        command.args(&way).env("LD_PRELOAD", preloaded);
        let said = run(&mut command).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "ok\n", "{way:?}");
    }
}

#[test]
fn the_shared_library_names_itself() {
    LIBRARY.check_soname();
}

/// Every program executed with the library preloaded maps all this, however short its life.
#[test]
fn the_shared_library_is_quickly_loaded() {
    let library = LIBRARY.folder().join("libodfork.so");
    let said = run(Command::new("readelf").arg("-dlW").arg(library)).stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let needed: Vec<&str> = said.lines().filter(|l| l.contains("(NEEDED)")).collect();
    assert!(needed.len() == 1 && needed[0].contains("[libc.so.6]"), "{needed:?}");
    let segments: Vec<Vec<&str>> = said
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.first() == Some(&"LOAD"))
        .collect();
    assert!((2..=4).contains(&segments.len()), "{said}");
    // Memory beyond the file is a page that the loader fills with zeros, or a mapping more.
    let writable = segments.last().expect("a segment");
    assert!(writable.contains(&"RW") && writable[4] == writable[5], "{writable:?}");
}

/// As packages have it: without the tables of debuggers.
#[test]
fn the_shared_library_is_small() {
    const MOST: u64 = 1_000_000;
    let stripped = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stripped.so");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(LIBRARY.folder().join("libodfork.so")));
    let bytes = stripped.metadata().expect("what strip wrote").len();
    assert!((100_000..=MOST).contains(&bytes), "{bytes} bytes; at most {MOST}");
}

/// A covered program may execute one for musl, which inherits the library.
#[test]
fn a_musl_program_is_left_alone() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: musl-gcc is missing: apt-get install musl-tools");
        return;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("for-musl");
    let source = Path::new(LIBRARY.here).join("tests/programs/musl.c");
    run(Command::new("musl-gcc")
        .args(["-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&program)
        .arg(source));
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", LIBRARY.folder().join("libodfork.so"));
    let done = run(command.envs([("ODFORK_FREEZE", "eager"), ("ODFORK_STATS", "json")]));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "7\n", "{said}");
    assert!(said.contains("\"libc\""), "{said}");
}

/// Nothing that glibc has since 2.28, or has in a library of its own before 2.34. From a newer
/// version it could be asked for without notice: where the library is linked decides.
#[test]
fn the_shared_library_runs_on_older_systems() {
    let library = LIBRARY.folder().join("libodfork.so");
    let said = run(Command::new("readelf").arg("--version-info").arg(library)).stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let names = said.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_2."));
    let minors: Vec<u32> = names.map(leading_number).collect();
    assert!(!minors.is_empty() && minors.iter().all(|&minor| minor < 28), "{said}");
}

fn leading_number(text: &str) -> u32 {
    text.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).expect("a number")
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
