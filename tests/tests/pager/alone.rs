//! `odfork page run` that starts its own daemon: how it comes, stays bare, and goes.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use odfork_pager::{endpoint, socket, sys};
use odfork_pager_protocol::wire::{Kind, Message};

use super::others::text;
use super::world::*;

/// `page run` with a daemon of its own in `folder`.
pub fn run_alone(stage: &Stage, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(&stage.launcher);
    command.args(["page", "run", "--limit", "8M", "--store", "memory", "--socket"]);
    command.arg(folder.join("sock")).arg("--").args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Supervisors at this socket.
pub fn supervisors(socket: &Path) -> Vec<i32> {
    let is = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&&b"daemon"[..]) && words.contains(&socket.as_os_str().as_encoded_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is).collect()
}

pub fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program whose first large mapping comes long after the daemon has nobody else: the daemon is
/// still there, and it ends when the program has.
pub fn late(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let content = stage.programs.join("content");
    let line = format!("sleep 4; exec {} 12 2 1 85 40", content.display());
    let child = run_alone(stage, folder.path(), &["sh", "-c", &line]).spawn().map_err(text)?;
    finish(child)?;
    let socket = folder.path().join("sock");
    wait_for("the daemon's end", || supervisors(&socket).is_empty() && !socket.exists())
}

/// A daemon that was killed meanwhile: the program is told.
pub fn gone(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let content = stage.programs.join("content");
    let line = format!("echo runs; read line; exec {} 12 2 1 86 40", content.display());
    let mut child = run_alone(stage, folder.path(), &["sh", "-c", &line]).spawn().map_err(text)?;
    let socket = folder.path().join("sock");
    // Whoever has no lease yet starts another daemon.
    if read_line(&mut child)? != "runs" {
        return Err(format!("it did not start: {}", finish(child).err().unwrap_or_default()));
    }
    wait_for("a supervisor and its daemon", || {
        supervisors(&socket).first().is_some_and(|&pid| !children(pid).is_empty())
    })?;
    for pid in supervisors(&socket) {
        // SAFETY: a supervisor that this case has started.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    wait_for("its end", || supervisors(&socket).is_empty())?;
    child.stdin.take().ok_or("no input")?.write_all(b"go\n").map_err(text)?;
    let output = child.wait_with_output().map_err(text)?;
    match said(&output).lines().filter(|line| line.contains("NOT paged and has no limit")).count() {
        1 => Ok(()),
        _ => Err(format!("it was not told: {}", said(&output))),
    }
}

/// More programs than there are descriptors for: `page run` says so and fails, or runs without when
/// told to; a program in the middle of others is told; none hangs.
pub fn crowd(stage: &Stage) -> Outcome {
    let few = |command: &mut Command| {
        // SAFETY: setrlimit is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let files = libc::rlimit { rlim_cur: 40, rlim_max: 96 };
                sys::check(libc::setrlimit(libc::RLIMIT_NOFILE, &files)).map(drop)
            })
        };
    };
    let world = World::with(stage, &with(&["--store", "memory"]), &[], few)?;
    let content = stage.programs.join("content");
    // 96 descriptors: 4 programs.
    let line = format!("for n in 1 2 3 4 5; do {} 2 1 1 $n 40 & done; wait", content.display());
    let socket = world.folder.join("sock");
    let all = run_alone(stage, &world.folder, &["sh", "-c", &line]).output().map_err(text)?;
    let told =
        said(&all).lines().filter(|line| line.contains("NOT paged and has no limit")).count();
    let fine =
        String::from_utf8_lossy(&all.stdout).lines().filter(|line| line.contains("ok")).count();
    if (told, fine) != (1, 4) {
        return Err(format!("{told} told, {fine} fine: {}", said(&all)));
    }
    world.is_clean()?;
    let mut held = Vec::new();
    for n in 0..4 {
        let lease = endpoint::lease(&socket).map_err(text)?;
        held.push(lease.map_err(|refused| format!("lease {n} is refused: {}", refused.text()))?);
    }
    let fifth = run_alone(stage, &world.folder, &["true"]).output().map_err(text)?;
    let line = said(&fifth);
    if fifth.status.code() != Some(2) || line.lines().count() != 1 || !line.contains("ulimit -Hn") {
        return Err(format!("{} {line}", fifth.status));
    }
    let mut unpaged = Command::new(&stage.launcher);
    unpaged.args(["page", "run", "--allow-unpaged", "--socket"]).arg(&socket).args(["--", "true"]);
    let unpaged = unpaged.output().map_err(text)?;
    if !unpaged.status.success() || !said(&unpaged).contains("unpaged") {
        return Err(format!("{} {}", unpaged.status, said(&unpaged)));
    }
    // More than it can accept: who comes is answered, and it lives.
    let more: Vec<_> = (0..60).map_while(|_| endpoint::connect(&socket).ok()).collect();
    for connection in &more {
        let _ = socket::send(connection.as_fd(), &Message::new(Kind::Lease), &[]);
        let answer = socket::receive(connection.as_fd());
        if !matches!(&answer, Ok(Some((refused, _))) if refused.kind() == Some(Kind::Refused)) {
            return Err(format!("not refused: {answer:?}"));
        }
    }
    drop((held, more));
    wait_for("room again", || matches!(endpoint::lease(&socket), Ok(Ok(_))))?;
    world.run("content", &["4", "1", "1", "88", "40"])
}

/// What the one who starts it has preloaded, opened, and where it stands, does not reach the
/// daemon.
pub fn bare(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let stray = fs::File::create(folder.path().join("stray")).map_err(text)?;
    let mut command = run_alone(stage, folder.path(), &["sh", "-c", "read line"]);
    let number = stray.as_raw_fd();
    let library = stage.launcher.with_file_name("libodfork_pager.so");
    command.env("LD_PRELOAD", &library).env("SECRET", "x").current_dir(folder.path());
    // SAFETY: dup2 is allowed between fork and exec.
    unsafe { command.pre_exec(move || sys::check(libc::dup2(number, 9)).map(drop)) };
    let mut child = command.spawn().map_err(text)?;
    let socket = folder.path().join("sock");
    wait_for("a supervisor and its daemon", || {
        supervisors(&socket).first().is_some_and(|&pid| !children(pid).is_empty())
    })?;
    wait_for("the program", || endpoint::status(&socket).is_ok())?;
    let outcome = supervisors(&socket)
        .into_iter()
        .flat_map(|pid| children(pid).into_iter().chain([pid]))
        .try_for_each(|pid| is_bare(pid, folder.path()));
    drop(child.stdin.take());
    child.wait().map_err(text)?;
    outcome
}

pub fn is_bare(pid: i32, folder: &Path) -> Outcome {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let environment = fs::read(process.join("environ")).map_err(text)?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    if environment.contains("LD_PRELOAD") || environment.contains("SECRET") {
        return Err(format!("inherited variables: {environment}"));
    }
    if fs::read_to_string(process.join("maps")).map_err(text)?.contains("odfork_pager.so") {
        return Err("the agent is in the daemon".into());
    }
    if fs::read_link(process.join("cwd")).map_err(text)? != Path::new("/") {
        return Err("it holds the folder it was started in".into());
    }
    for entry in fs::read_dir(process.join("fd")).map_err(text)?.flatten() {
        if fs::read_link(entry.path()).is_ok_and(|to| to == folder.join("stray")) {
            return Err(format!("a stray descriptor: {}", entry.path().display()));
        }
    }
    Ok(())
}
