//! The stage the tests play on: a directory with compiled programs and the stub library, and a way
//! to start things in it.
//!
//! Programs are compiled once per test run. Every command starts from an empty environment, so that
//! what a test sees is what it set.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, RwLock};

use odfork_tests::stage::released;

/// The launcher, as it was built last for release.
pub fn odfork_path() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let found = released("odfork").expect("odfork was not built: cargo build --release");
        found.into_os_string().into_string().expect("a path that is UTF-8")
    })
}

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cli");

/// Where compiled programs are: not in the target directory, which other users may not be able to
/// reach.
fn built() -> &'static Path {
    BUILT.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("odfork-cli-").tempdir().unwrap().keep();
        mode(&folder, 0o755);
        // SAFETY: a plain function without arguments. Statics are never dropped, so exit() has to
        // do it.
        unsafe { libc::atexit(remove_built) };
        folder
    })
}

static BUILT: OnceLock<PathBuf> = OnceLock::new();

extern "C" fn remove_built() {
    if let Some(folder) = BUILT.get() {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Compiles a source of tests/cli under another name, once; panics with the compiler's words
/// when that fails.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let target = built().join(name);
    if !target.exists() {
        let source = Path::new(SOURCES).join(source);
        let output =
            output(Command::new("cc").args(flags).arg("-o").arg(&target).arg(source).arg("-ldl"));
        assert!(output.status.success(), "cc {name}: {}", text(&output.stderr));
    }
    target
}

/// The ordinary, dynamically linked program.
pub fn witness() -> PathBuf {
    compiled("witness", "witness.c", &[])
}

pub fn stub() -> PathBuf {
    compiled("libodfork.so", "stub.c", &["-shared", "-fPIC"])
}

/// A directory for one test, removed with it, open to other users.
pub fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    folder
}

/// A copy of the ordinary program, to be changed.
pub fn copy(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    install(&witness(), &path);
    path
}

/// Copies a file that will be executed.
pub fn install(from: &Path, to: &Path) {
    while_nothing_starts(|| fs::copy(from, to).unwrap());
}

/// Changes the bytes of a program.
pub fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    while_nothing_starts(|| fs::write(path, bytes).unwrap());
}

/// A file with this content that may be executed.
pub fn script(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    while_nothing_starts(|| fs::write(&path, content).unwrap());
    mode(&path, 0o755);
    path
}

pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A command with nothing in its environment but PATH, and the engine that these tests are about on
/// every kernel.
pub fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("ODFORK_ENGINE", "image")
        .stdin(Stdio::null());
    command
}

/// `odfork` with the stub for a library.
pub fn odfork(words: &[&str]) -> Command {
    let mut command = bare(odfork_path());
    command.env("ODFORK_LIB", stub()).args(words);
    command
}

/// `odfork run -- PROGRAM`.
pub fn run(program: impl AsRef<OsStr>, words: &[&str]) -> Command {
    let mut command = odfork(&["run", "--"]);
    command.arg(program).args(words);
    command
}

/// A program that is still open for writing cannot be executed (ETXTBSY), and a child between fork
/// and exec holds open whatever another thread was just writing. So nothing is started while
/// something is written.
static WRITING: RwLock<()> = RwLock::new(());

fn while_nothing_starts<T>(write: impl FnOnce() -> T) -> T {
    let _guard = WRITING.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    write()
}

/// Starts a command; returns when the child has become it.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let _guard = WRITING.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    command.spawn()
}

/// `Command::output`, started by `start`.
pub fn output(command: &mut Command) -> Output {
    start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
        .unwrap()
        .wait_with_output()
        .unwrap()
}

/// What a finished command left.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn finish(command: &mut Command) -> Outcome {
    let Output { status, stdout, stderr } = output(command);
    Outcome { code: status.code(), signal: status.signal(), out: text(&stdout), err: text(&stderr) }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Outcome {
    /// Exactly one line on standard error, started with our name; returns it.
    pub fn only_line(&self) -> &str {
        let lines: Vec<&str> = self.err.lines().collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        assert!(lines[0].starts_with("odfork: "), "{self:?}");
        lines[0]
    }

    /// Ran to its end with nothing said.
    pub fn silent(self) -> Outcome {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self
    }
}

pub fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says loudly that a test did not test, and why.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}
