//! `page adopt`: programs that get the pager while they run. They check every byte, and that calls
//! and signals are as if nobody had come; here it is seen that they are paged, and what is refused.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::alone::said;
use super::others::text;
use super::world::*;

/// The user "nobody".
const NOBODY: u32 = 65534;

/// One that has said "ready".
fn start(mut command: Command) -> Result<Child, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(text)?;
    match read_line(&mut child)?.as_str() {
        "ready" => Ok(child),
        other => finish(child).and(Err(format!("it said: {other}"))),
    }
}

fn program(stage: &Stage, words: &[&str]) -> Command {
    let mut command = Command::new(stage.programs.join(words[0]));
    command.args(&words[1..]);
    command
}

fn adopt(stage: &Stage, pid: u32, limit: &str, folder: &Path) -> Result<Output, String> {
    let mut command = Command::new(&stage.launcher);
    command.args(["page", "adopt", &pid.to_string(), "--limit", limit, "--store"]).arg(folder);
    command.env("ODFORK_PAGE_REPORT", folder.join("report"));
    command.output().map_err(text)
}

/// It is adopted, goes on, and ends well.
fn adopted(stage: &Stage, limit: &str, command: Command) -> Result<Value, String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let child = start(command)?;
    let pid = child.id();
    end(child, adopt(stage, pid, limit, folder.path())?, pid)?;
    let mut found = None;
    wait_for("the report", || {
        let said = fs::read_to_string(folder.path().join("report")).unwrap_or_default();
        let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found = lines.find(|line| line["pid"].as_u64() == Some(u64::from(pid)));
        found.is_some()
    })?;
    found.ok_or_else(|| "no report".into())
}

fn end(mut child: Child, output: Output, pid: u32) -> Outcome {
    go(&mut child)?;
    let ended = finish(child);
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_well = output.status.success() && output.stderr.is_empty();
    match is_well
        && line.starts_with(&format!("{pid}: paged, limit "))
        && line.ends_with("mapped\n")
    {
        true => ended,
        false => Err(format!("{}: {line}{} {ended:?}", output.status, said(&output))),
    }
}

/// Pages of it were in the store, and came back.
fn paged(stage: &Stage, limit: &str, words: &[&str]) -> Outcome {
    let mut command = program(stage, words);
    if words[0] != "adopt" {
        command.env("ODFORK_TEST_LATER", "1").env("ODFORK_PAGE_MEMORY", "any");
    }
    let counts = adopted(stage, limit, command)?;
    let names = ["taken", "page_outs", "page_ins"];
    match names.into_iter().find(|&name| counts[name].as_u64().unwrap_or(0) == 0) {
        None => Ok(()),
        Some(name) => Err(format!("{words:?}: no {name}: nothing was tested: {counts}")),
    }
}

/// Programs of other cases, which begin when they are adopted.
fn programs(stage: &Stage) -> Outcome {
    for (limit, words) in [
        ("8M", &["content", "16", "3", "2", "11", "40"][..]),
        ("2M", &["mappings", "600", "9"]),
        ("8M", &["heap", "3", "3", "9"]),
        ("2M", &["forks", "6", "2", "5", "2"]),
        ("8M", &["any", "given"]),
        ("8M", &["any", "robust"]),
        ("8M", &["any", "written"]),
        ("8M", &["any", "forked"]),
        ("8M", &["any", "unhandled"]),
        ("8M", &["any", "changed"]),
        ("8M", &["any", "divided"]),
        ("8M", &["any", "filtered"]),
    ] {
        paged(stage, limit, words).map_err(|why| format!("{words:?}: {why}"))?;
    }
    Ok(())
}

/// Calls that one is adopted in: each answers as ever, none too early.
fn blocked(stage: &Stage, calls: &[&str]) -> Outcome {
    let begin = |call: &&str| start(program(stage, &["adopt", "blocked", call]));
    let children: Result<Vec<Child>, String> = calls.iter().map(begin).collect();
    for (child, call) in children?.into_iter().zip(calls) {
        let folder = tempfile::tempdir().map_err(text)?;
        let pid = child.id();
        let output = adopt(stage, pid, "16M", folder.path())?;
        end(child, output, pid).map_err(|why| format!("{call}: {why}"))?;
    }
    Ok(())
}

const BY_TIME: [&str; 8] = [
    "nanosleep",
    "clock_nanosleep",
    "poll",
    "ppoll",
    "select",
    "epoll_limited",
    "sigtimedwait",
    "condition",
];
const BY_OTHERS: [&str; 9] = [
    "read",
    "epoll",
    "epoll_signalled",
    "poll_endless",
    "wait",
    "pause",
    "sigsuspend",
    "sigwait",
    "sigwaitinfo",
];

/// One after another, all alive: each has the pager, and ends well.
fn fifty(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let mut children = Vec::new();
    for _ in 0..50 {
        let child = start(program(stage, &["adopt", "idle"]))?;
        let output = adopt(stage, child.id(), "8M", folder.path())?;
        children.push((child, output));
    }
    children.into_iter().try_for_each(|(child, output)| {
        let pid = child.id();
        end(child, output, pid)
    })
}

/// Several commands at once: it is adopted once.
fn raced(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    for _ in 0..5 {
        let child = start(program(stage, &["adopt", "busy"]))?;
        let pid = child.id();
        let outputs: Vec<_> = std::thread::scope(|scope| {
            let one = || adopt(stage, pid, "16M", folder.path());
            let all: Vec<_> = (0..3).map(|_| scope.spawn(one)).collect();
            all.into_iter().filter_map(|one| one.join().ok()?.ok()).collect()
        });
        let (mut paged, others): (Vec<_>, Vec<_>) =
            outputs.into_iter().partition(|output| output.status.success());
        if paged.len() != 1 || others.iter().any(|output| output.status.code() != Some(2)) {
            return Err(format!("{} times adopted", paged.len()));
        }
        end(child, paged.remove(0), pid)?;
    }
    Ok(())
}

/// Objects of an interpreter that computes.
fn python(stage: &Stage) -> Outcome {
    const SCRIPT: &str = "
import select, sys
numbers = [n * n for n in range(1000000)]
texts = [str(n) * 3 for n in range(200000)]
print('ready', flush=True)
rounds = 0
while rounds < 3 or not select.select([sys.stdin], [], [], 0)[0]:
    assert sum(numbers) == 333332833333500000, 'a number'
    assert all(text == str(n) * 3 for n, text in enumerate(texts)), 'a text'
    rounds += 1
print('ok')
";
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]);
    let counts = adopted(stage, "24M", command)?;
    match counts["page_ins"].as_u64() {
        Some(1..) => Ok(()),
        _ => Err(format!("nothing came back: {counts}")),
    }
}

/// What is above the limit leaves, and status lists the program.
fn listed(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let child = start(program(stage, &["adopt", "forked"]))?;
    let pid = child.id();
    let output = adopt(stage, pid, "16M", folder.path())?;
    let anonymous = || {
        let sums = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = sums.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
    };
    let is_below = wait_for("memory below the limit", || anonymous() < Some(17 << 10));
    let is_listed = wait_for("its line in status", || {
        let status = Command::new(&stage.launcher).args(["page", "status", "--json"]).output();
        let status = status.map(|it| it.stdout).unwrap_or_default();
        let status: Value = serde_json::from_slice(&status).unwrap_or_default();
        let programs = status["any"].as_array().cloned().unwrap_or_default();
        let ours = programs.iter().find(|one| one["pid"].as_u64() == Some(u64::from(pid)));
        ours.is_some_and(|one| one["limit"] == 16 << 8)
    });
    let again = adopt(stage, pid, "16M", folder.path())?;
    end(child, output, pid)?;
    is_below.and(is_listed)?;
    told(&again, "has the pager already")
}

fn told(output: &Output, why: &str) -> Outcome {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_line = said.lines().count() == 1 && said.contains(why);
    match output.status.code() == Some(2) && output.stdout.is_empty() && is_line {
        true => Ok(()),
        false => Err(format!("instead of \"{why}\": {}: {said}", output.status)),
    }
}

/// One line with the reason, and the program is as it was: no mapping of ours, and it ends well.
fn refuse(stage: &Stage, command: Command, why: &str, more: fn(u32)) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let mut child = start(command)?;
    let pid = child.id();
    let maps = || fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    more(pid);
    let before = maps();
    let output = adopt(stage, pid, "8M", folder.path())?;
    let after = maps();
    if why == STOPPED {
        // SAFETY: a child of ours.
        unsafe { libc::kill(pid as i32, libc::SIGCONT) };
    }
    go(&mut child)?;
    finish(child)?;
    told(&output, why)?;
    let ours = after.lines().find(|line| !before.contains(*line) && line.contains("odfork"));
    ours.map_or(Ok(()), |line| Err(format!("{why}: this is left: {line}")))
}

const STOPPED: &str = "is stopped";

fn stop(pid: u32) {
    // SAFETY: a child of ours.
    unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
    while !fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default().contains(") T ") {}
}

/// The same program, linked so that it has no loader.
fn without_loader(folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("static");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("pager/adopt.c");
    let mut command = Command::new("cc");
    let made = command.args(["-static", "-pthread", "-w", "-o"]).arg(&program).arg(source).status();
    match made.is_ok_and(|status| status.success()) {
        true => Ok(program),
        false => Err("cannot link a program statically (libc.a)".into()),
    }
}

fn refused(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let of = |why: &str| program(stage, &["adopt", "refused", why]);
    let nothing: fn(u32) = |_| {};
    for (why, words) in [
        ("filtered", "filters its system calls"),
        ("watching", "has a userfaultfd of its own"),
        ("locking", "locks all memory that it maps"),
        ("traced", "is traced by process"),
        ("sharing", "has its memory together with process"),
    ] {
        refuse(stage, of(why), words, nothing)?;
    }
    refuse(stage, of("stopped"), STOPPED, stop)?;
    let mut linked = Command::new(without_loader(folder.path())?);
    linked.args(["refused", "nothing"]);
    refuse(stage, linked, "statically linked", nothing)?;
    let mut foreign = of("user");
    foreign.uid(NOBODY).gid(NOBODY).current_dir("/");
    refuse(stage, foreign, "has no CAP_SYS_PTRACE", nothing)?;
    for (words, why) in [
        (&["run", "--freeze", "eager", "--"][..], "runs under 'odfork run'"),
        (&["page", "run", "--memory", "any", "--limit", "64M", "--"], "has the pager already"),
    ] {
        let mut command = Command::new(&stage.launcher);
        command.args(words).arg(stage.programs.join("adopt")).args(["refused", "nothing"]);
        refuse(stage, command, why, nothing)?;
    }
    // A call that cannot be interrupted unnoticed.
    refuse(stage, program(stage, &["adopt", "blocked", "recv_all"]), "try again later", nothing)?;
    let name = fs::read_to_string("/proc/2/comm").unwrap_or_default();
    let kernels = (name == "kthreadd\n").then_some(("2", "one of the kernel's"));
    if kernels.is_none() {
        println!("SKIPPED: threads of the kernel are not seen here");
    }
    for (pid, why) in kernels.into_iter().chain([("2147483647", "no process"), ("0", "0")]) {
        let mut command = Command::new(&stage.launcher);
        command.args(["page", "adopt", pid, "--limit", "8M", "--store"]).arg(folder.path());
        told(&command.output().map_err(text)?, why)?;
    }
    Ok(())
}

pub type Case = fn(&Stage) -> Outcome;

pub const CASES: [(&str, Case); 16] = [
    ("raced", raced),
    ("busy", |s| paged(s, "16M", &["adopt", "busy"])),
    ("deep", |s| paged(s, "16M", &["adopt", "deep"])),
    ("handler", |s| paged(s, "16M", &["adopt", "handler"])),
    ("signals", |s| paged(s, "16M", &["adopt", "signals"])),
    ("freed", |s| paged(s, "16M", &["adopt", "freed"])),
    ("grows", |s| paged(s, "64M", &["adopt", "grows"])),
    ("forked", |s| paged(s, "16M", &["adopt", "forked"])),
    ("headless", |s| paged(s, "16M", &["adopt", "headless"])),
    ("programs", programs),
    ("blocked", |s| blocked(s, &BY_OTHERS)),
    ("blocked_by_time", |s| blocked(s, &BY_TIME)),
    ("fifty", fifty),
    ("python", python),
    ("listed", listed),
    ("refused", refused),
];
