//! The pager end to end: programs under a limit, and everything that may happen to the daemon meanwhile.
//!
//! Owns: a world for each case (a folder, a supervisor of its own, its log), and what is asked of it. The programs of
//! `pager/` check every byte they read against what they wrote; here it is seen to that daemons die, stop, run out of
//! room and read damaged stores while they do. Needs userfaultfd as root has it; without, every case skips and says so.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use odfork_pager::crash_points;
use odfork_tests::machine;
use serde_json::Value;

#[path = "pager/others.rs"]
mod others;

type Outcome = Result<(), String>;

/// What is awaited comes long before this; only a hang takes so long, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Compiled programs and the launcher.
struct Stage {
    programs: PathBuf,
    launcher: PathBuf,
    next: AtomicU32,
}

impl Stage {
    fn new() -> Result<Stage, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("pager");
        let programs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pager");
        fs::create_dir_all(&programs).map_err(|e| e.to_string())?;
        for name in [
            "content", "mappings", "forks", "damage", "strays", "holder", "heap", "pins", "stacks",
            "identity", "orphan", "closed", "raw", "family", "title", "rooted",
        ] {
            let file = source.join(format!("{name}.c"));
            if !file.exists() {
                continue;
            }
            let done = Command::new("cc")
                .args(["-O2", "-pthread", "-Wall", "-o"])
                .arg(programs.join(name))
                .arg(&file)
                .args(["-ldl", "-lm", "-lutil"])
                .status();
            if !done.is_ok_and(|status| status.success()) {
                return Err(format!("cannot compile {}", file.display()));
            }
        }
        let own = std::env::current_exe().unwrap_or_default();
        let targets = own.ancestors().nth(3).map(Path::to_path_buf);
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        let mut files =
            targets.into_iter().chain([workspace]).map(|target| target.join("release/odfork"));
        let launcher = files.find(|path| path.is_file()).ok_or("odfork was not built")?;
        Ok(Stage { programs, launcher, next: AtomicU32::new(0) })
    }
}

/// One supervisor in a folder of its own.
struct World<'a> {
    stage: &'a Stage,
    folder: PathBuf,
    supervisor: Child,
}

impl World<'_> {
    fn new<'a>(
        stage: &'a Stage,
        options: &[&str],
        env: &[(&str, &str)],
    ) -> Result<World<'a>, String> {
        World::with(stage, options, env, |_| {})
    }

    /// The supervisor's command is changed first.
    fn with<'a>(
        stage: &'a Stage,
        options: &[&str],
        env: &[(&str, &str)],
        change: impl FnOnce(&mut Command),
    ) -> Result<World<'a>, String> {
        let number = stage.next.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("odpager-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o755));
        let log = fs::File::create(folder.join("log")).map_err(|e| e.to_string())?;
        let mut supervisor = Command::new(&stage.launcher);
        supervisor.args(["page", "daemon", "--socket"]).arg(folder.join("sock")).args(options);
        supervisor.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(log);
        change(&mut supervisor);
        let mut supervisor = supervisor.spawn().map_err(|e| e.to_string())?;
        let mut ready = [0; 6];
        if let Some(out) = &mut supervisor.stdout {
            let _ = out.read_exact(&mut ready);
        }
        let world = World { stage, folder, supervisor };
        if &ready == b"ready\n" {
            Ok(world)
        } else {
            Err(format!("the daemon did not start: {}", world.log()))
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn restarts(&self) -> usize {
        self.log().lines().filter(|line| line.contains("starting another one")).count()
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.launcher);
        command.args(["page", "run", "--socket"]).arg(self.folder.join("sock"));
        command.args(["--malloc", "4K", "--"]);
        command.arg(self.stage.programs.join(program)).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, program: &str, args: &[&str]) -> Result<Child, String> {
        self.command(program, args).spawn().map_err(|e| e.to_string())
    }

    /// Runs to the end; it must say "ok".
    fn run(&self, program: &str, args: &[&str]) -> Outcome {
        finish(self.start(program, args)?)
    }

    fn status(&self) -> Result<Value, String> {
        let answer = Command::new(&self.stage.launcher)
            .args(["page", "status", "--json", "--socket"])
            .arg(self.folder.join("sock"))
            .output()
            .map_err(|e| e.to_string())?;
        serde_json::from_slice(&answer.stdout)
            .map_err(|_| String::from_utf8_lossy(&answer.stderr).into_owned())
    }

    /// The daemon's process.
    fn daemon(&self) -> Option<i32> {
        let own = self.supervisor.id();
        let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
        list.split_whitespace().next()?.parse().ok()
    }

    fn signal_daemon(&self, signal: i32) {
        if let Some(pid) = self.daemon() {
            // SAFETY: a child of our own child.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Once all programs have ended, nothing of them is left.
    fn is_clean(&self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status()?;
            let programs = status["programs"].as_array().map_or(0, Vec::len);
            let used = status["store"]["used_bytes"].as_u64();
            if programs == 0 && used == Some(0) && status["loop"] == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("something is left behind: {status}"));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        let daemon = self.daemon();
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        if let Some(pid) = daemon {
            // SAFETY: it was a child of our own child, a moment ago.
            unsafe {
                libc::kill(pid, libc::SIGCONT);
                libc::kill(pid, libc::SIGKILL);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a program that must end well and say "ok".
fn finish(mut child: Child) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it did not end in time".into());
        }
        sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && text.contains("ok") {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} {text} {said}", output.status))
}

const SMALL: [&str; 2] = ["--limit", "8M"];

fn with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(options).copied().collect()
}

/// Every page as it was written, with each kind of store.
fn content(stage: &Stage, options: &[&str]) -> Outcome {
    let world = World::new(stage, &with(options), &[])?;
    world.run("content", &["32", "4", "2", "11", "40"])?;
    let status = world.status()?;
    for counter in ["page_ins", "page_outs", "zapped"] {
        if status["totals"][counter].as_u64() == Some(0) {
            return Err(format!("no {counter}: nothing was tested: {status}"));
        }
    }
    if status["totals"]["poisoned"] != 0 {
        return Err(format!("pages were lost: {status}"));
    }
    world.is_clean()
}

/// Shared memory comes in huge pages, which bring zeros for all they cover: for as long as this lives.
struct HugePages {
    before: String,
}

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

impl HugePages {
    fn enable() -> Option<HugePages> {
        let text = fs::read_to_string(HUGE_PAGES).ok()?;
        let before = text.split_once('[')?.1.split_once(']')?.0.to_owned();
        fs::write(HUGE_PAGES, "always").ok().map(|()| HugePages { before })
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(HUGE_PAGES, &self.before);
    }
}

fn huge_pages(stage: &Stage) -> Outcome {
    let Some(_enabled) = HugePages::enable() else {
        println!("SKIPPED: {HUGE_PAGES} cannot be set");
        return Ok(());
    };
    content(stage, &["--compress", "none"])
}

/// The daemon dies at a named step, several times, and the next one takes over.
fn killed_at(stage: &Stage, point: &str) -> Outcome {
    let rare = ["call.", "zap.", "snapshot."].iter().any(|start| point.starts_with(start));
    let (program, args): (&str, &[&str]) = match point {
        _ if point.starts_with("snapshot.") => ("forks", &["12", "2", "5", "2"]),
        _ if point.starts_with("call.") => ("mappings", &["200", "3"]),
        _ => ("content", &["20", "3", "2", "5", "40"]),
    };
    let count = match rare {
        _ if point.starts_with("snapshot.") => 2,
        true => 9,
        false => 120,
    };
    let kill = format!("{point}:{count}");
    let env = [(crash_points::VARIABLE, kill.as_str()), (crash_points::TIMES, "4")];
    let world = World::new(stage, &with(&["--store", "memory", "--store-size", "400M"]), &env)?;
    world.run(program, args)?;
    if world.restarts() == 0 {
        return Err(format!("no daemon died at {point}: nothing was tested"));
    }
    world.is_clean()
}

/// The daemon is killed from outside, at any instruction.
fn killed_at_random(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&["--compress", "lz4"]), &[])?;
    let first = world.start("content", &["24", "3", "6", "21", "40"])?;
    let second = world.start("content", &["24", "2", "6", "22", "40"])?;
    let mut wait = 40;
    for restarts in 1..=12 {
        sleep(Duration::from_millis(wait));
        wait = wait * 7 % 391 + 30;
        others::wait_for("a daemon", || world.daemon().is_some())?;
        world.signal_daemon(libc::SIGKILL);
        others::wait_for("another daemon", || world.restarts() == restarts)?;
    }
    finish(first)?;
    finish(second)?;
    if world.restarts() < 5 {
        return Err(format!("only {} restarts: nothing was tested", world.restarts()));
    }
    world.is_clean()
}

/// A stopped daemon: programs wait and nothing else.
fn stopped(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let program = world.start("content", &["24", "3", "4", "31", "40"])?;
    for _ in 0..4 {
        sleep(Duration::from_millis(300));
        world.signal_daemon(libc::SIGSTOP);
        sleep(Duration::from_millis(300));
        if program.stdout.is_none() {
            return Err("no output".into());
        }
        world.signal_daemon(libc::SIGCONT);
    }
    finish(program)?;
    world.is_clean()
}

/// One limit for all; nothing stays of those that were killed.
fn several(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&["--store", "memory", "--store-size", "400M"]), &[])?;
    let args = |seed| ["16", "2", "4", seed, "40"];
    let mut killed = world.start("content", &args("41"))?;
    let rest: Result<Vec<Child>, String> =
        ["42", "43", "44"].into_iter().map(|seed| world.start("content", &args(seed))).collect();
    sleep(Duration::from_millis(1500));
    let status = world.status()?;
    let frames = status["frames"].as_u64().unwrap_or(0);
    let held: u64 = status["programs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| p["resident"].as_u64().unwrap_or(0) + p["reclaimable"].as_u64().unwrap_or(0))
        .sum();
    if frames != 2048 || held > frames {
        return Err(format!("{held} pages held of {frames}"));
    }
    killed.kill().map_err(|e| e.to_string())?;
    let _ = killed.wait();
    for child in rest? {
        finish(child)?;
    }
    world.is_clean()
}

/// A store without room: the program waits, says nothing wrong, and others go on once it is gone.
fn full(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&["--store", "memory", "--store-size", "8M"]), &[])?;
    let mut waits = world.start("content", &["64", "2", "30", "51", "90"])?;
    let deadline = Instant::now() + PATIENCE;
    while world.status()?["store_full_now"] != true {
        if let Some(status) = waits.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("it ended ({status}) instead of waiting"));
        }
        if Instant::now() > deadline {
            return Err(format!("the store is never full: {}", world.status()?));
        }
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(500));
    if waits.try_wait().map_err(|e| e.to_string())?.is_some() {
        return Err("it ended instead of waiting".into());
    }
    waits.kill().map_err(|e| e.to_string())?;
    let _ = waits.wait();
    world.is_clean()?;
    world.run("content", &["10", "2", "1", "52", "40"])
}

/// A store that returns other bytes: SIGBUS, never those bytes.
fn damaged(stage: &Stage, options: &[&str]) -> Outcome {
    let world = World::new(stage, &with(options), &[])?;
    let mut child = world.start("damage", &["32"])?;
    let mut line = [0; 7];
    let out = child.stdout.as_mut().ok_or("no output")?;
    out.read_exact(&mut line).map_err(|e| e.to_string())?;
    let pid = world.daemon().ok_or("no daemon")?;
    let mut hit = false;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).map_err(|e| e.to_string())?.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let name = target.to_string_lossy();
        if name.contains("odfork-page-store") || name.starts_with("/var/tmp/#") {
            let file = fs::OpenOptions::new().write(true).open(entry.path());
            let mut file = file.map_err(|e| e.to_string())?;
            use std::io::Seek;
            file.seek(std::io::SeekFrom::Start(5 << 20)).map_err(|e| e.to_string())?;
            file.write_all(&[0x5A; 1 << 16]).map_err(|e| e.to_string())?;
            file.sync_all().map_err(|e| e.to_string())?;
            hit = true;
            break;
        }
    }
    if !hit {
        let _ = child.kill();
        return Err("the store's file was not found".into());
    }
    child.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(|e| e.to_string())?;
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors: usize = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    // 16 pages, or more of them compressed, less those that were in memory.
    if !output.status.success() || !(1..=80).contains(&errors) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} {text} {said}", output.status));
    }
    Ok(())
}

fn simple(stage: &Stage, program: &str, args: &[&str]) -> Outcome {
    let world = World::new(stage, &with(&["--store", "memory", "--store-size", "400M"]), &[])?;
    world.run(program, args)?;
    world.is_clean()
}

/// A program without a loader is refused in one line, and runs when that is wanted.
fn unpageable(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let program = world.folder.join("static");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("pager/closed.c");
    let made = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(source).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("cannot link a program statically (libc.a)".into());
    }
    let run = |options: &[&str]| {
        let mut command = Command::new(&stage.launcher);
        command.args(["page", "run", "--socket"]).arg(world.folder.join("sock")).args(options);
        command.arg("--").arg(&program).output().map_err(|e| e.to_string())
    };
    let refused = run(&[])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    if refused.status.code() != Some(2)
        || !said.contains("statically linked")
        || said.trim_end().contains('\n')
    {
        return Err(format!("{}: {said}", refused.status));
    }
    let allowed = run(&["--allow-unpaged"])?;
    (allowed.stdout == b"ok\n").then_some(()).ok_or_else(|| format!("{allowed:?}"))
}

/// An ordinary user: refused in one line that names what is missing, and served by root's daemon.
fn unprivileged(stage: &Stage) -> Outcome {
    const NOBODY: u32 = 65534;
    let world = World::new(stage, &with(&["--allow-uid", "65534"]), &[])?;
    // Programs and launcher where that user can read them.
    let copy = world.folder.join("bin");
    fs::create_dir(&copy).map_err(|e| e.to_string())?;
    let library = stage.launcher.with_file_name("libodfork_pager.so");
    for file in [&stage.launcher, &library, &stage.programs.join("content")] {
        let to = copy.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(|e| e.to_string())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    }
    let run = |socket: &Path, more: &[&str]| {
        let mut command = Command::new(copy.join("odfork"));
        command.args(["page", "run", "--socket"]).arg(socket).args(more);
        command.arg("--").arg(copy.join("content")).args(["16", "2", "1", "61", "40"]);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let child = run(&world.folder.join("sock"), &[]).spawn().map_err(|e| e.to_string())?;
    finish(child)?;
    let allowed = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    if allowed.trim() != "0" {
        return Ok(());
    }
    let own = world.folder.join("own");
    fs::create_dir(&own).map_err(|e| e.to_string())?;
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).map_err(|e| e.to_string())?;
    let alone = run(&own.join("sock"), &["--limit", "8M"]).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&alone.stderr);
    for word in ["unprivileged_userfaultfd", "/dev/userfaultfd", "CAP_SYS_PTRACE", "EFAULT"] {
        if !said.contains(word) {
            return Err(format!("the refusal does not name {word}: {said}"));
        }
    }
    let line = said.lines().count() == 1 && alone.status.code() == Some(2);
    line.then_some(()).ok_or(format!("not one line and status 2: {said}"))
}

/// More working sets than memory: whole programs leave and come back, all end well. On a machine that has no time for
/// them they overload nothing, so they come again until one has left and returned.
fn overload(stage: &Stage) -> Outcome {
    let world =
        World::new(stage, &["--limit", "4M", "--store", "memory", "--store-size", "400M"], &[])?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let start = |n: u32| world.start("content", &["3", "1", "12", &n.to_string(), "20"]);
        let children: Result<Vec<Child>, String> = (0..5).map(start).collect();
        for child in children? {
            finish(child)?;
        }
        let totals = world.status()?["totals"].clone();
        let (out, back) = (totals["swap_outs"].as_u64(), totals["swap_ins"].as_u64());
        if out.unwrap_or(0) > 0 && back.unwrap_or(0) > 0 {
            return world.is_clean();
        }
        if Instant::now() > deadline {
            return Err(format!("nobody was swapped out or in: {totals}"));
        }
    }
}

/// Python's collector says when it runs; the daemon hears it, and nothing is lost.
fn collector(stage: &Stage) -> Outcome {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("pager/collector.py");
    let world =
        World::new(stage, &["--limit", "16M", "--store", "memory", "--store-size", "400M"], &[])?;
    let mut command = Command::new(&stage.launcher);
    command.args(["page", "run", "--socket"]).arg(world.folder.join("sock"));
    command.args(["--threshold", "64K", "--", "python3"]).arg(script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    // It waits in its first phase until the daemon has been asked.
    let said = others::read_line(&mut child)?;
    let status = world.status()?;
    let programs = status["programs"].as_array().cloned().unwrap_or_default();
    let seen = programs.iter().any(|program| program["anomalous"] == true);
    go(&mut child)?;
    finish(child)?;
    if said != "phase" || !seen {
        return Err(format!("the daemon was not told of a phase: {said} {status}"));
    }
    world.is_clean()
}

/// Threads on paged stacks, with hardly a frame to be had.
fn pressed_stacks(stage: &Stage) -> Outcome {
    let world =
        World::new(stage, &["--limit", "1M", "--store", "memory", "--store-size", "400M"], &[])?;
    world.run("stacks", &["pressure"])?;
    world.is_clean()
}

/// Forks are refused when the supervisor is gone; the program goes on.
fn orphan(stage: &Stage) -> Outcome {
    let mut world = World::new(stage, &with(&["--store", "memory", "--store-size", "400M"]), &[])?;
    let mut child = ready(&world, "orphan", &["gone"])?;
    world.supervisor.kill().map_err(|e| e.to_string())?;
    world.supervisor.wait().map_err(|e| e.to_string())?;
    go(&mut child)?;
    finish(child)
}

/// Forks are refused when the store has no room for them.
fn no_room_to_fork(stage: &Stage) -> Outcome {
    let options = ["--limit", "24M", "--store", "memory", "--store-size", "6M"];
    let world = World::new(stage, &options, &[])?;
    let mut child = ready(&world, "orphan", &["full"])?;
    go(&mut child)?;
    finish(child)?;
    world.is_clean()
}

/// A program that has said "ready" and waits for a line.
fn ready(world: &World, program: &str, args: &[&str]) -> Result<Child, String> {
    let mut child = world.start(program, args)?;
    let mut line = [0; 6];
    child.stdout.as_mut().ok_or("no output")?.read_exact(&mut line).map_err(|e| e.to_string())?;
    Ok(child)
}

fn go(child: &mut Child) -> Outcome {
    let mut input = child.stdin.take().ok_or("no input")?;
    input.write_all(b"go\n").map_err(|e| e.to_string())
}

fn killed_client(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    for n in 0..5 {
        let mut child = world.start("content", &["32", "4", "1000", "71", "50"])?;
        sleep(Duration::from_millis(200 + 130 * n));
        child.kill().map_err(|e| e.to_string())?;
        let status = child.wait().map_err(|e| e.to_string())?;
        if status.signal() != Some(libc::SIGKILL) {
            return Err(format!("it ended before it was killed: {status}"));
        }
        world.is_clean()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(2));
    let stage = match Stage::new() {
        Ok(stage) => Arc::new(stage),
        Err(why) => {
            eprintln!("odfork-tests: {why}");
            return ExitCode::from(101);
        }
    };
    libtest_mimic::run(&args, trials(&stage)).exit_code()
}

/// Why paging cannot be tested here.
fn obstacle() -> Option<String> {
    if !machine::is_root() {
        return Some("SKIP: needs root (userfaultfd for kernel faults)".into());
    }
    // SAFETY: plain arguments; the descriptor is closed.
    let made = unsafe {
        let made = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        if made >= 0 {
            libc::close(made as i32);
        }
        made
    };
    (made < 0).then(|| format!("SKIP: no userfaultfd: {}", std::io::Error::last_os_error()))
}

fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, case: Box<dyn Fn(&Stage) -> Outcome + Send>| {
        let stage = stage.clone();
        trials.push(Trial::ignorable_test(name, move || match obstacle() {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => case(&stage).map(|()| Completion::Completed).map_err(Failed::from),
        }));
    };
    let memory = ["--store", "memory", "--store-size", "400M", "--compress"];
    for codec in ["none", "lz4", "zstd"] {
        add(
            format!("content::disk::{codec}"),
            Box::new(move |s| content(s, &["--compress", codec])),
        );
        add(
            format!("content::memory::{codec}"),
            Box::new(move |s| content(s, &[&memory[..], &[codec]].concat())),
        );
        add(format!("damaged::{codec}"), Box::new(move |s| damaged(s, &["--compress", codec])));
    }
    add("content::two_handlers".into(), Box::new(|s| content(s, &["--handlers", "2"])));
    add("content::huge_pages".into(), Box::new(huge_pages));
    for point in crash_points::NAMES {
        add(format!("killed_at::{point}"), Box::new(move |s| killed_at(s, point)));
    }
    add("killed_at_random".into(), Box::new(killed_at_random));
    add("stopped".into(), Box::new(stopped));
    add("several".into(), Box::new(several));
    add("killed_client".into(), Box::new(killed_client));
    add("full".into(), Box::new(full));
    add("mappings".into(), Box::new(|s| simple(s, "mappings", &["600", "9"])));
    add("forks".into(), Box::new(|s| simple(s, "forks", &["16", "2", "9", "0"])));
    add("forks::threads".into(), Box::new(|s| simple(s, "forks", &["16", "2", "10", "3"])));
    add("closed".into(), Box::new(|s| simple(s, "closed", &[])));
    add("unpageable".into(), Box::new(unpageable));
    add("heap".into(), Box::new(|s| simple(s, "heap", &["3", "3", "9"])));
    add("pins".into(), Box::new(|s| simple(s, "pins", &["refused"])));
    for which in ["early", "direct"] {
        add(format!("pins::{which}"), Box::new(move |s| simple(s, "pins", &["refused", which])));
    }
    add("stacks::pressure".into(), Box::new(pressed_stacks));
    for which in ["coroutines", "thread", "handlers"] {
        add(format!("stacks::{which}"), Box::new(move |s| simple(s, "stacks", &[which])));
    }
    add("identity".into(), Box::new(|s| simple(s, "identity", &[])));
    add("orphan".into(), Box::new(orphan));
    add("rooted".into(), Box::new(|s| simple(s, "rooted", &[])));
    add("title".into(), Box::new(|s| simple(s, "title", &["one", "two"])));
    add("no_room_to_fork".into(), Box::new(no_room_to_fork));
    add("raw".into(), Box::new(|s| simple(s, "raw", &[])));
    add("strays".into(), Box::new(|s| simple(s, "strays", &[])));
    add("unprivileged".into(), Box::new(unprivileged));
    add("collector".into(), Box::new(collector));
    add("overload".into(), Box::new(overload));
    for (name, case) in others::CASES {
        add(format!("others::{name}"), Box::new(case));
    }
    trials
}
