//! The pager end to end: programs under a limit, and everything that may happen to the daemon
//! meanwhile.
//!
//! Owns: a world for each case (a folder, a supervisor of its own, its log), and what is asked of
//! it. The programs of
//! `pager/` check every byte they read against what they wrote; here it is seen to that daemons
//! die, stop, run out of room and read damaged stores while they do. Needs userfaultfd as root has
//! it; without, every case skips and says so.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use odfork_pager::crash_points;
use odfork_tests::{machine, trial, watch};

#[path = "pager/adopt.rs"]
mod adopt;
#[path = "pager/alone.rs"]
mod alone;
#[path = "pager/any.rs"]
mod any;
#[path = "pager/group.rs"]
mod group;
#[path = "pager/growth.rs"]
mod growth;
#[path = "pager/killed.rs"]
mod killed;
#[path = "pager/liar.rs"]
mod liar;
#[path = "pager/live.rs"]
mod live;
#[path = "pager/others.rs"]
mod others;
#[path = "pager/stores.rs"]
mod stores;
#[path = "pager/surroundings.rs"]
mod surroundings;
#[path = "pager/untold.rs"]
mod untold;
#[path = "pager/world.rs"]
mod world;

use stores::{damaged, full, huge_pages, no_room_to_fork};
use world::*;

/// Several waits of `PATIENCE`: what takes longer hangs where nothing has a limit of its own.
const LONGEST: Duration = Duration::from_secs(600);

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
        wait_for("a daemon", || world.daemon().is_some())?;
        world.signal_daemon(libc::SIGKILL);
        wait_for("another daemon", || world.restarts() == restarts)?;
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

/// More working sets than memory: whole programs leave and come back, all end well. On a machine
/// that has no time for them they overload nothing, so they come again until one has left and
/// returned.
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
    let said = read_line(&mut child)?;
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

/// Parts of tests that need no daemon.
const ALONE: [&str; 6] = ["any", "group", "growth", "killed", "untold", "adopt"];

/// Why paging cannot be tested here.
fn obstacle(name: &str) -> Option<String> {
    let part = name.split("::").next().unwrap_or_default();
    if has_9p() && !ALONE.contains(&part) {
        return Some(
            "SKIP: a 9p file system is mounted: the daemon leaves programs unpaged".into(),
        );
    }
    if !machine::is_root() {
        return Some("SKIP: needs root (userfaultfd for kernel faults)".into());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if mounts.lines().any(|line| line.contains(" - fuse") && !line.contains(" - fusectl")) {
        return Some("SKIP: a FUSE file system is mounted: programs are left unpaged".into());
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

const PARTS: [(&str, &[others::Case]); 9] = [
    ("adopt", &adopt::CASES),
    ("any", &any::CASES),
    ("group", &group::CASES),
    ("growth", &growth::CASES),
    ("killed", &killed::CASES),
    ("live", &live::CASES),
    ("others", &others::CASES),
    ("surroundings", &surroundings::CASES),
    ("untold", &untold::CASES),
];

fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, case: Box<dyn Fn(&Stage) -> Outcome + Send>| {
        let stage = stage.clone();
        trials.push(trial(name.clone(), move || match obstacle(&name) {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => watch::limited(&name, LONGEST, || case(&stage))
                .map(|()| Completion::Completed)
                .map_err(Failed::from),
        }));
    };
    const MEMORY: [&str; 5] = ["--store", "memory", "--store-size", "400M", "--compress"];
    for codec in ["none", "lz4", "zstd"] {
        let disk = move |s: &Stage| content(s, &["--compress", codec]);
        let memory = move |s: &Stage| content(s, &[&MEMORY[..], &[codec]].concat());
        add(format!("content::disk::{codec}"), Box::new(disk));
        add(format!("content::memory::{codec}"), Box::new(memory));
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
    for (part, cases) in PARTS {
        for &(name, case) in cases {
            add(format!("{part}::{name}"), Box::new(case));
        }
    }
    trials
}
