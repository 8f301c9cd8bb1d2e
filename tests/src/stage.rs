//! Compiling the test programs and laying out the directory they run from.
//!
//! Owns: the stage, a directory under the system's temporary directory that an unprivileged user
//! can read, with `bin/` (programs), `libodfork.so` and one scratch directory a run; it is removed
//! when dropped. Does not run anything but the compiler. A binary is kept in the cargo target
//! directory and rebuilt when its source or any header beside it is newer.

use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use crate::header::Header;
use crate::mode::UNPRIVILEGED;

/// One C program of `tests/programs`.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub source: PathBuf,
    pub header: Header,
}

/// The folder that holds the programs.
pub fn programs_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// All programs in name order; an unreadable header is an error that names its file.
pub fn all_programs() -> Result<Vec<Program>, String> {
    let dir = programs_dir();
    let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut programs = Vec::new();
    for entry in entries.flatten() {
        let source = entry.path();
        if source.extension().is_some_and(|e| e == "c") {
            programs.push(read_program(&source)?);
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// One program by its source file.
pub fn read_program(source: &Path) -> Result<Program, String> {
    let told = |e: String| format!("{}: {e}", source.display());
    let text = fs::read_to_string(source).map_err(|e| told(e.to_string()))?;
    let header = Header::parse(&text).map_err(told)?;
    let stem = source.file_stem().unwrap_or_default();
    Ok(Program { name: stem.to_string_lossy().into_owned(), source: source.to_path_buf(), header })
}

/// Where libodfork.so is, or the one line that says how to get it.
pub fn find_library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("ODFORK_LIB") {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("ODFORK_LIB={}: no such file", path.display()))
        };
    }
    released("libodfork.so").ok_or_else(|| {
        "libodfork.so not found: build it with `cargo build --release`, or set ODFORK_LIB".into()
    })
}

/// A file of the release build.
pub fn released(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let own_target = own.ancestors().nth(3).map(Path::to_path_buf);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let targets = own_target.into_iter().chain([workspace]);
    targets.map(|target| target.join("release").join(name)).find(|path| path.is_file())
}

/// The directory everything runs from.
pub struct Stage {
    root: PathBuf,
    library: Option<PathBuf>,
    cache: PathBuf,
    next: AtomicU32,
}

impl Stage {
    /// Makes the stage; `cache` keeps compiled programs between runs.
    pub fn new(library: Option<&Path>, cache: &Path) -> Result<Stage, String> {
        let told = |e: std::io::Error| format!("cannot make the stage directory: {e}");
        let root = std::env::temp_dir().join(format!("odtest-stage-{}", std::process::id()));
        fs::create_dir_all(root.join("bin")).map_err(told)?;
        fs::create_dir_all(cache).map_err(told)?;
        make_readable(&root).map_err(told)?;
        make_readable(&root.join("bin")).map_err(told)?;
        let library = library.map(|from| {
            let to = root.join("libodfork.so");
            fs::copy(from, &to).and_then(|_| make_readable(&to)).map(|()| to)
        });
        Ok(Stage {
            library: library.transpose().map_err(told)?,
            root,
            cache: cache.to_path_buf(),
            next: AtomicU32::new(0),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn library(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    /// Compiles `program` if need be and puts it on the stage.
    pub fn compile(&self, program: &Program) -> Result<PathBuf, String> {
        let built = self.cache.join(&program.name);
        if !is_fresh(&built, &program.source) {
            run_compiler(program, &built)?;
        }
        let staged = self.root.join("bin").join(&program.name);
        copy(&built, &staged)
            .and_then(|()| make_readable(&staged))
            .map_err(|e| format!("cannot stage {}: {e}", program.name))?;
        Ok(staged)
    }

    /// An empty directory for one run, owned by the user the run will have.
    pub fn scratch(&self, unprivileged: bool) -> Result<PathBuf, String> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dir = self.root.join(format!("run-{number}"));
        fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        if unprivileged {
            chown(&dir, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .map_err(|e| format!("cannot give {} away: {e}", dir.display()))?;
        }
        Ok(dir)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// By another process: what is open for writing here, any child of ours between fork and exec has
/// open as well, and it cannot be executed.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let status = Command::new("cp").arg(from).arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("cp: {status}"))),
    }
}

fn make_readable(path: &Path) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn is_fresh(built: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let files = fs::read_dir(programs_dir()).into_iter().flatten().flatten();
    let headers = files.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "h"));
    let newest = headers.map(|p| time(&p)).max().flatten().max(time(source));
    time(built).is_some_and(|t| t > newest.unwrap_or(SystemTime::UNIX_EPOCH))
}

fn run_compiler(program: &Program, built: &Path) -> Result<(), String> {
    let half = built.with_extension(format!("{}", std::process::id()));
    let output = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread"])
        .args(&program.header.cflags)
        .arg("-o")
        .arg(&half)
        .arg(&program.source)
        .args(&program.header.link)
        // Before glibc 2.34 these are libraries of their own.
        .args(["-ldl", "-lrt"])
        .output()
        .map_err(|e| format!("cannot run cc ({e}): install gcc and libc6-dev"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !said.is_empty() {
        let _ = fs::remove_file(&half);
        return Err(format!("cc on {}:\n{said}", program.name));
    }
    fs::rename(&half, built).map_err(|e| format!("cannot keep {}: {e}", built.display()))
}
