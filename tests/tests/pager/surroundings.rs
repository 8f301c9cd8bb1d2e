//! What is there before a program is paged: another library, limits, file systems, whoever saves
//! its memory.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::alone::{run_alone, said, supervisors};
use super::others::{text, Case};
use super::stores::Tmpfs;
use super::world::*;
use odfork_pager::sys;

pub const CASES: [Case; 6] = [
    ("both", both),
    ("fuse", fuse),
    ("limits", limits),
    ("tmpfs", tmpfs),
    ("saved", saved),
    ("unlimited", unlimited),
];

/// What the limit does not hold, or what is refused, is told in one line.
pub fn unlimited(stage: &Stage) -> Outcome {
    let program = stage.programs.join("unlimited").display().to_string();
    for (which, word) in [
        ("small", Some("are small blocks, which are NOT paged, above the limit of 8 MB")),
        ("many", Some("more than 4,000 large mappings")),
        ("robust", Some("a robust mutex in paged memory is refused")),
        ("bounded", None),
    ] {
        let folder = tempfile::tempdir().map_err(text)?;
        let line = one_line(run_alone(stage, folder.path(), &[&program, which]), "ok")
            .map_err(|why| format!("{which}: {why}"))?;
        let is_told = match word {
            Some(word) => line.lines().count() == 1 && line.contains(word),
            None => line.is_empty(),
        };
        if !is_told {
            return Err(format!("{which}: {line}"));
        }
    }
    Ok(())
}

/// `odfork run --freeze eager` in the world's launcher, before or behind `page run`; in each order,
/// and with both libraries preloaded by hand, no byte is lost and what does not act says so.
pub fn both(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let eager = ["run", "--freeze", "eager", "--"];
    let program = stage.programs.join("both");
    let inside = |command: &mut Command| {
        command.arg(&stage.launcher).args(eager).arg(&program).args(["paged", "16"]);
    };
    let line = one_line(paging(&world, inside), "ok")?;
    if !line.contains("is paged by 'odfork page run'; running with plain fork") {
        return Err(format!("libodfork.so left out, but: {line}"));
    }
    let mut outside = Command::new(&stage.launcher);
    outside.args(eager).arg(&stage.launcher).args(["page", "run", "--socket"]);
    outside.arg(world.folder.join("sock")).arg("--").arg(&program).args(["paged", "16"]);
    one_line(outside, "ok")?;
    for (first, second, expected) in [
        ("libodfork.so", "libodfork_pager.so", "left"),
        ("libodfork_pager.so", "libodfork.so", "paged"),
    ] {
        let path = |name| stage.launcher.with_file_name(name).display().to_string();
        let list = format!("LD_PRELOAD={}:{}", path(first), path(second));
        let by_hand = |command: &mut Command| {
            command
                .args(["env", &list, "ODFORK_FREEZE=eager", "ODFORK_STATS=text"])
                .arg(&program)
                .args([expected, "16"]);
        };
        let line = one_line(paging(&world, by_hand), "ok")?;
        let is_plain = line.contains("engine plain: the program handles page faults itself");
        if line.contains("NOT paged") != (expected == "left") || !is_plain {
            return Err(format!("{list}: {line}"));
        }
    }
    world.is_clean()
}

/// `page run` in this world, and what it is to run.
fn paging(world: &World, add: impl FnOnce(&mut Command)) -> Command {
    let mut command = Command::new(&world.stage.launcher);
    command.args(["page", "run", "--socket"]).arg(world.folder.join("sock")).arg("--");
    add(&mut command);
    command
}

/// What it says on standard error, when it says this on standard output.
fn one_line(mut command: Command, word: &str) -> Result<String, String> {
    command.stdin(Stdio::null());
    let output = command.output().map_err(text)?;
    match output.status.success() && String::from_utf8_lossy(&output.stdout).contains(word) {
        true => Ok(said(&output)),
        false => Err(format!("{} {}", output.status, said(&output))),
    }
}

/// Plain reads of a FUSE file may be direct ones: such a program is left to the kernel, and told.
pub fn fuse(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let output = world.command("direct", &[]).output().map_err(text)?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if out.contains("none") {
        println!("SKIPPED: FUSE cannot be mounted");
        return Ok(());
    }
    match output.status.success() && out.contains("ok") && said(&output).contains("on FUSE") {
        true => Ok(()),
        false => Err(format!("{} {out} {}", output.status, said(&output))),
    }
}

/// Limits of whoever starts the daemon are not its own; one that cannot be taken off is told before
/// anything runs.
pub fn limits(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let content = stage.programs.join("content");
    let limited = |words: &[&str], hard: bool| {
        let mut command = run_alone(stage, folder.path(), words);
        let limit = move |which, soft| {
            let most = if hard { soft } else { libc::RLIM_INFINITY };
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: most };
            // SAFETY: a valid structure.
            sys::check(unsafe { libc::setrlimit(which, &limit) }).map(drop)
        };
        // SAFETY: setrlimit is allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                limit(libc::RLIMIT_FSIZE, 100 << 10)?;
                limit(libc::RLIMIT_CPU, 30)
            })
        };
        command
    };
    let line = format!("{} 12 2 1 85 40 && read line", content.display());
    let mut child = limited(&["sh", "-c", &line], false).spawn().map_err(text)?;
    if !read_line(&mut child)?.contains("ok") {
        return finish(child);
    }
    let of_supervisors = supervisors(&folder.path().join("sock"))
        .into_iter()
        .map(|pid| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default());
    let soft: Vec<String> = of_supervisors
        .flat_map(|limits| limits.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("Max file size") || line.starts_with("Max cpu time"))
        .collect();
    drop(child.stdin.take());
    child.wait().map_err(text)?;
    if soft.len() != 2 || !soft.iter().all(|line| line.contains("unlimited")) {
        return Err(format!("the supervisor's limits: {soft:?}"));
    }
    wait_for("the daemon's end", || supervisors(&folder.path().join("sock")).is_empty())?;
    if may_raise_limits() {
        return Ok(());
    }
    let output = limited(&["true"], true).output().map_err(text)?;
    let line = said(&output);
    match output.status.code() == Some(2)
        && line.lines().count() == 1
        && line.contains("ulimit -Hf")
    {
        true => Ok(()),
        false => Err(format!("{} {line}", output.status)),
    }
}

/// CAP_SYS_RESOURCE, which takes off hard limits, too.
fn may_raise_limits() -> bool {
    const RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok())
        .is_some_and(|all| all & RESOURCE != 0)
}

/// A store in a tmpfs is one like others; in one without room no daemon starts.
pub fn tmpfs(stage: &Stage) -> Outcome {
    let (Some(large), Some(small)) = (Tmpfs::new("800m"), Tmpfs::new("100m")) else {
        println!("SKIPPED: a tmpfs cannot be mounted");
        return Ok(());
    };
    let place = |tmpfs: &Tmpfs| tmpfs.path().display().to_string();
    for compress in ["none", "lz4"] {
        super::content(stage, &["--store", &place(&large), "--compress", compress])?;
    }
    super::content(stage, &["--store", &format!("{}/file", place(&large))])?;
    match World::new(stage, &with(&["--store", &place(&small)]), &[]) {
        Err(line) if line.contains("less than 16 MB of room") => Ok(()),
        Err(line) => Err(line),
        Ok(_) => Err("a store without room was taken".into()),
    }
}

/// Saved as a whole from outside, a paged program would lack what is paged: refused, as when it is
/// named.
pub fn saved(stage: &Stage) -> Outcome {
    let world = World::new(stage, &with(&[]), &[])?;
    let mut child = ready(&world, "holder", &["12"])?;
    let file = world.folder.join("image");
    let mut save = Command::new(&stage.launcher);
    save.args(["image", "save", &child.id().to_string()]).arg(&file).arg("--all");
    let output = save.output().map_err(text)?;
    go(&mut child)?;
    finish(child)?;
    match output.status.code() == Some(1) && said(&output).contains("paged by a userfaultfd") {
        true if !Path::exists(&file) => world.is_clean(),
        _ => Err(format!("{} {}", output.status, said(&output))),
    }
}
