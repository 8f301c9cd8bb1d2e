//! Programs linked with one of the C libraries: what the crates' `tests/linking.rs` share, each as
//! a module of its own.
//!
//! Owns: compiler calls, and that the library is as new as its source. The static libraries are for
//! dynamically linked programs: what one needs must be what its `.pc.in` says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// What `cc` and `c++` must accept silently.
pub const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];

#[derive(Clone, Copy)]
pub enum Kind {
    Shared,
    Static,
}

pub struct Library {
    /// As the linker is told it.
    pub name: &'static str,
    /// Folder of its crate.
    pub here: &'static str,
    /// Folders of its source, from there.
    pub sources: &'static [&'static str],
}

impl Library {
    /// The directory with the libraries. Cargo does not build them for a test (no test can link
    /// them): `cargo build
    /// --release` must have been there before, and since the last change.
    pub fn folder(&self) -> PathBuf {
        let exe = std::env::current_exe().expect("own path");
        let folder = exe.ancestors().nth(2).expect("target directory").to_path_buf();
        let built = modified(&folder.join(format!("lib{}.so", self.name)));
        let sources = self.sources.iter().map(|folder| newest(&Path::new(self.here).join(folder)));
        assert!(
            built.is_some() && built > sources.flatten().max(),
            "lib{}.so in {} is missing or older than its source: run cargo build --release",
            self.name,
            folder.display()
        );
        folder
    }

    /// The shared library carries its name, and is never unloaded.
    pub fn check_soname(&self) {
        let file = format!("lib{}.so", self.name);
        let said = run(Command::new("readelf").arg("-d").arg(self.folder().join(&file))).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(&format!("soname: [{file}]")), "{said}");
        assert!(said.contains("NODELETE"), "{said}");
    }

    /// Names the shared library defines.
    pub fn exports(&self) -> Vec<String> {
        let file = self.folder().join(format!("lib{}.so", self.name));
        let said = run(Command::new("nm").args(["-D", "--defined-only"]).arg(file)).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        said.lines().filter_map(|l| l.split_whitespace().last()).map(str::to_string).collect()
    }

    /// Compiles a file of `tests/programs` and links it; `words` are for the compiler.
    pub fn build(&self, source: &str, out: &Path, compiler: &str, words: &[&str], kind: Kind) {
        let here = Path::new(self.here);
        let mut command = Command::new(compiler);
        command.args(STRICT).args(words).arg("-I").arg(here.join("include"));
        command.arg(here.join("tests/programs").join(source)).args(["-x", "none", "-o"]).arg(out);
        match kind {
            Kind::Shared => {
                command.arg("-L").arg(self.folder()).arg(format!("-l{}", self.name));
            }
            Kind::Static => {
                command.arg(self.folder().join(format!("lib{}.a", self.name)));
                command.args(self.private_libraries());
            }
        }
        run(&mut command);
    }

    /// The words after `Libs.private:`.
    fn private_libraries(&self) -> Vec<String> {
        let file = Path::new(self.here).join(format!("{}.pc.in", self.name));
        let text = std::fs::read_to_string(file).expect("the library's .pc.in");
        let line =
            text.lines().find_map(|l| l.strip_prefix("Libs.private:")).expect("Libs.private");
        line.split_whitespace().map(str::to_string).collect()
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|m| m.modified()).ok()
}

fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| modified(&e.path())).max()
}

/// Runs it; it must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; install gcc, g++ and libc6-dev"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}
