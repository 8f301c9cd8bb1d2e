//! Unmodified Debian programs under `odfork run`: every script of `real/` in every mode its header
//! names; stdout must be byte for byte that of the run under stock fork.
//! Owns: the scripts' headers (`# odfork: key=value ...`), their environment, deadline and
//! judgement. Does not own the workloads (the scripts) nor the programs' installation
//! (`real/install.sh`). A script that finds its program missing exits 77 and is shown as ignored,
//! with the package to install; `ODFORK_REAL_REQUIRE=1` makes that a failure.
//!
//! | key | meaning | default |
//! | --- | --- | --- |
//! | `expect` | frozen: eager modes froze and forked; stats: statistics show forks; any: nothing | any |
//! | `program` | whose statistics count (any program when absent) | any |
//! | `mb` | with frozen: at least this many MB of one process must have been frozen | 1 |
//! | `modes` | comma list of huge, small, auto | huge,small |
//! | `timeout` | seconds until the script and what it started are ended | 120 |

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use odfork_tests::mode::Mode;
use odfork_tests::run::{patience, slow};
use odfork_tests::stage::find_library;
use odfork_tests::trial;
use serde_json::Value;

const SKIP_STATUS: i32 = 77;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Frozen,
    Stats,
    Any,
}

struct Script {
    name: String,
    path: PathBuf,
    expect: Expect,
    program: Option<String>,
    mb: u64,
    modes: Vec<Mode>,
    timeout: Duration,
    stock: OnceLock<Result<Outcome, String>>,
}

/// What one run of a script left behind.
struct Outcome {
    status: Option<ExitStatus>,
    stdout: String,
    stderr: String,
    stats: Vec<Value>,
    left: Vec<String>,
}

/// The folder everything runs in, readable for the unprivileged users some scripts become.
struct Stage {
    root: PathBuf,
    next: AtomicU32,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn main() -> ExitCode {
    match try_main() {
        Ok(code) => code,
        Err(why) => {
            eprintln!("real programs: {why}");
            ExitCode::from(101)
        }
    }
}

fn try_main() -> Result<ExitCode, String> {
    let mut args = Arguments::from_args();
    // A third of the time they wait.
    args.test_threads = args.test_threads.or(Some(4));
    let stage = Arc::new(Stage::new()?);
    let mut trials = Vec::new();
    for script in all_scripts()? {
        let script = Arc::new(script);
        let modes = [Mode::Stock].into_iter().chain(script.modes.clone());
        for mode in modes {
            let (script, stage) = (script.clone(), stage.clone());
            let name = format!("{}::{}", script.name, mode.name());
            trials.push(trial(name, move || try_mode(&script, &stage, mode).map_err(Failed::from)));
        }
    }
    let wants_launcher = |t: &Trial| !args.is_filtered_out(t) && !t.name().ends_with("::stock");
    if !args.list && trials.iter().any(wants_launcher) {
        stage.bring_launcher()?;
    }
    let conclusion = libtest_mimic::run(&args, trials);
    drop(stage);
    Ok(conclusion.exit_code())
}

fn try_mode(script: &Script, stage: &Stage, mode: Mode) -> Result<Completion, String> {
    let stock = script
        .stock
        .get_or_init(|| run(script, stage, Mode::Stock))
        .as_ref()
        .map_err(Clone::clone)?;
    if stock.status.and_then(|s| s.code()) == Some(SKIP_STATUS) {
        return skip(stock.stdout.trim());
    }
    let wrong = judge_alone(stock);
    if mode == Mode::Stock || !wrong.is_empty() {
        return finish("stock", wrong, stock);
    }
    let outcome = run(script, stage, mode)?;
    let mut wrong = judge_alone(&outcome);
    wrong.extend(differing(&outcome.stdout, &stock.stdout));
    wrong.extend(check_stats(script, &outcome.stats, mode).err());
    finish(mode.name(), wrong, &outcome)
}

fn skip(why: &str) -> Result<Completion, String> {
    if std::env::var_os("ODFORK_REAL_REQUIRE").is_some_and(|v| v == "1") {
        return Err(format!("{why}; run tests/real/install.sh"));
    }
    Ok(Completion::ignored_with(why))
}

fn finish(mode: &str, wrong: Vec<String>, outcome: &Outcome) -> Result<Completion, String> {
    if wrong.is_empty() {
        return Ok(Completion::Completed);
    }
    let mut text = format!("{mode}: {}", wrong.join("\n"));
    text.push_str(&format!("\n-- end of stdout:\n{}", tail(&outcome.stdout)));
    text.push_str(&format!("\n-- end of stderr:\n{}", tail(&outcome.stderr)));
    for stats in &outcome.stats {
        text.push_str(&format!("\n-- statistics: {stats}"));
    }
    Err(text)
}

/// What is wrong with a run whatever stock does.
fn judge_alone(outcome: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    match outcome.status {
        None => wrong.push("the script ran past its deadline and was ended".to_string()),
        Some(status) if !status.success() => wrong.push(format!("the script ended with {status}")),
        Some(_) => {}
    }
    for process in &outcome.left {
        wrong.push(format!("left running: {process}"));
    }
    wrong
}

fn differing(ours: &str, stock: &str) -> Option<String> {
    if ours == stock {
        return None;
    }
    let mut pairs = ours.lines().zip(stock.lines()).enumerate();
    let (line, here, there) = match pairs.find(|(_, (a, b))| a != b) {
        Some((number, (a, b))) => (number + 1, a, b),
        None => (ours.lines().count().min(stock.lines().count()) + 1, "(more or less)", "(end)"),
    };
    Some(format!("stdout differs from stock at line {line}:\n  stock: {there}\n  here:  {here}"))
}

/// Do the statistics show what the header promises? A run that froze nothing proves nothing.
fn check_stats(script: &Script, all: &[Value], mode: Mode) -> Result<(), String> {
    let wanted = |s: &&Value| match &script.program {
        // the kernel keeps 15 characters of a program's name
        Some(name) => text(s, "/program") == &name[..name.len().min(15)],
        None => true,
    };
    if script.expect == Expect::Any {
        return Ok(());
    }
    let of_program: Vec<&Value> = all.iter().filter(wanted).collect();
    if !of_program.iter().any(|s| number(s, "/fork/count") > 0) {
        let who = script.program.as_deref().unwrap_or("any program");
        return Err(format!("no statistics with a fork of {who} were written"));
    }
    if script.expect != Expect::Frozen || mode == Mode::Auto {
        return Ok(());
    }
    let engine = mode.name();
    let froze =
        |s: &&&Value| text(s, "/engine") == engine && number(s, "/freeze/bytes") >= script.mb << 20;
    match of_program.iter().find(froze) {
        Some(_) => Ok(()),
        None => Err(format!("no {} MB were frozen by engine {engine}", script.mb)),
    }
}

fn number(stats: &Value, pointer: &str) -> u64 {
    stats.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'a>(stats: &'a Value, pointer: &str) -> &'a str {
    stats.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

impl Stage {
    fn new() -> Result<Stage, String> {
        let root = std::env::temp_dir().join(format!("odfork-real-{}", std::process::id()));
        let stage = Stage { root, next: AtomicU32::new(0) };
        make_dir(&stage.root, 0o755)?;
        make_dir(&stage.keep(), 0o755)?;
        Ok(stage)
    }

    fn keep(&self) -> PathBuf {
        self.root.join("keep")
    }

    /// Copies the launcher and the library to where every user can read them.
    fn bring_launcher(&self) -> Result<(), String> {
        let library = find_library()?;
        let beside = library.with_file_name("odfork");
        if !beside.is_file() {
            return Err(format!(
                "{} not found: build it with `cargo build --release --workspace`",
                beside.display()
            ));
        }
        for from in [&library, &beside] {
            let to = self.root.join(from.file_name().unwrap_or_default());
            let copied = fs::copy(from, &to).map_err(|e| format!("{}: {e}", to.display()));
            copied.and_then(|_| set_mode(&to, 0o755))?;
        }
        Ok(())
    }

    fn launch_words(&self, mode: Mode, stats: &Path) -> String {
        let options = match mode {
            Mode::Stock => return String::new(),
            Mode::Huge => "--freeze eager --image huge ",
            Mode::Small => "--freeze eager --image small ",
            _ => "",
        };
        let file = stats.join("%p.json");
        let launcher = self.root.join("odfork");
        format!(
            "{} run {options}--stats json --stats-file {} --",
            launcher.display(),
            file.display()
        )
    }
}

fn make_dir(path: &Path, mode: u32) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|e| format!("{}: {e}", path.display()))
}

fn run(script: &Script, stage: &Stage, mode: Mode) -> Result<Outcome, String> {
    let number = stage.next.fetch_add(1, Ordering::Relaxed);
    let dir = stage.root.join(format!("{}-{}-{number}", script.name, mode.name()));
    let (scratch, stats) = (dir.join("scratch"), dir.join("stats"));
    make_dir(&dir, 0o755)?;
    make_dir(&scratch, 0o755)?;
    make_dir(&stats, 0o1777)?; // servers write theirs as another user
    let (out, err) = (dir.join("out"), dir.join("err"));
    let create = |path: &Path| File::create(path).map_err(|e| format!("{}: {e}", path.display()));
    let mut child = Command::new("/bin/bash")
        .arg(&script.path)
        .current_dir(&scratch)
        .env_remove("ODFORK_REAL_REQUIRE")
        .env("ODFORK_RUN", stage.launch_words(mode, &stats))
        .env("SCRATCH", &scratch)
        .env("KEEP", stage.keep())
        .stdin(Stdio::null())
        .stdout(create(&out)?)
        .stderr(create(&err)?)
        .process_group(0)
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", script.path.display()))?;
    let status = wait_until(&mut child, Instant::now() + script.timeout * patience());
    let left = end_leftovers(&scratch);
    let read = |path: &Path| fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned());
    let outcome = Outcome {
        status,
        stdout: read(&out).unwrap_or_default(),
        stderr: read(&err).unwrap_or_default(),
        stats: read_stats(&stats)?,
        left,
    };
    let _ = fs::remove_dir_all(&dir);
    Ok(outcome)
}

/// The exit status; none when the deadline passed. The script is asked first, so that its trap can
/// end its servers, then its whole group is killed.
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    let group = child.id() as i32;
    let status = poll_until(child, deadline);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        if matches!(child.try_wait(), Ok(None)) {
            // SAFETY: plain system call; the script leads its group and is not waited for yet.
            unsafe { libc::kill(-group, signal) };
            poll_until(child, Instant::now() + Duration::from_secs(6) * slow());
        }
    }
    status
}

fn poll_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        sleep(Duration::from_millis(20));
    }
    None
}

/// Ends and names every process that carries this run's scratch folder in its environment; those
/// that are just leaving get twenty seconds.
fn end_leftovers(scratch: &Path) -> Vec<String> {
    let mark = format!("SCRATCH={}", scratch.display());
    let mut found = Vec::new();
    for _ in 0..400 {
        found = carrying(mark.as_bytes());
        if found.is_empty() {
            return Vec::new();
        }
        sleep(Duration::from_millis(50));
    }
    for (pid, _) in &found {
        // SAFETY: plain system call; the mark shows that the process belongs to this run.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
    found.into_iter().map(|(pid, what)| format!("{pid} {what}")).collect()
}

fn carrying(mark: &[u8]) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|b| *b == 0).any(|word| word == mark) {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&words).replace('\0', " ")));
        }
    }
    found
}

fn read_stats(dir: &Path) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let value = serde_json::from_str(&text)
            .map_err(|e| format!("statistics are not JSON ({e}): {text}"))?;
        all.push(value);
    }
    Ok(all)
}

/// Every script of `real/` with a header, in name order.
fn all_scripts() -> Result<Vec<Script>, String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("real");
    let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut scripts = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default();
        if path.extension().is_some_and(|e| e == "sh") && name != "stage.sh" && name != "install.sh"
        {
            let source =
                fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            scripts.push(read_script(&path, &source)?);
        }
    }
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts)
}

/// A script without a header would never run, and nobody would hear of it.
fn read_script(path: &Path, source: &str) -> Result<Script, String> {
    let mut head = source.lines().take(12);
    let header = head
        .find_map(|l| l.strip_prefix("# odfork:"))
        .ok_or_else(|| format!("{}: no line begins with '# odfork:'", path.display()))?;
    let name = path.file_stem().unwrap_or_default();
    let mut script = Script {
        name: name.to_string_lossy().into_owned(),
        path: path.to_path_buf(),
        expect: Expect::Any,
        program: None,
        mb: 1,
        modes: vec![Mode::Huge, Mode::Small],
        timeout: Duration::from_secs(120),
        stock: OnceLock::new(),
    };
    for word in header.split_whitespace() {
        take_word(&mut script, word)
            .ok_or_else(|| format!("{}: '{word}' is not understood", path.display()))?;
    }
    Ok(script)
}

fn take_word(script: &mut Script, word: &str) -> Option<()> {
    match word.split_once('=')? {
        ("expect", "frozen") => script.expect = Expect::Frozen,
        ("expect", "stats") => script.expect = Expect::Stats,
        ("expect", "any") => script.expect = Expect::Any,
        ("program", name) => script.program = Some(name.to_string()),
        ("mb", number) => script.mb = number.parse().ok()?,
        ("modes", list) => {
            script.modes = list.split(',').map(Mode::parse).collect::<Option<_>>()?
        }
        ("timeout", seconds) => script.timeout = Duration::from_secs(seconds.parse().ok()?),
        _ => return None,
    }
    Some(())
}
