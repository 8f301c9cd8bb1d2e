//! `page run --memory any`: all memory of a program, without a daemon. The programs check every
//! byte; here it is seen that pages did leave and come back, and what is refused.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{spawn, JoinHandle};
use std::time::Instant;

use odfork_tests::run::slow;
use serde_json::Value;

use super::alone::said;
use super::others::text;
use super::world::*;

/// The program under this limit, its store and its report in this folder.
pub fn command(stage: &Stage, folder: &Path, limit: &str, words: &[&str]) -> Command {
    stored(stage, (folder, &[folder.to_str().unwrap_or_default()]), limit, words)
}

/// The same with a store elsewhere: what is said behind `--store`.
fn stored(
    stage: &Stage,
    (folder, store): (&Path, &[&str]),
    limit: &str,
    words: &[&str],
) -> Command {
    let mut command = Command::new(&stage.launcher);
    command.args(run_any()).args(["--limit", limit, "--store"]).args(store);
    let mut words: Vec<_> = words.iter().map(|word| word.to_string()).collect();
    if words[0] == "content" {
        // It goes by the clock.
        words[3] = format!("{}{}", words[3], if slow() > 1 { "0" } else { "" });
    }
    command.arg("--").arg(stage.programs.join(&words[0])).args(&words[1..]);
    command.env("ODFORK_PAGE_REPORT", folder.join("report"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What the pager counted for the first process, which ends last.
fn run(stage: &Stage, limit: &str, words: &[&str]) -> Result<Value, String> {
    let folder = tempfile::tempdir().map_err(text)?;
    counted(folder.path(), command(stage, folder.path(), limit, words))
}

/// The same of a command that reports into this folder.
pub fn counted(folder: &Path, mut command: Command) -> Result<Value, String> {
    let child = command.spawn().map_err(text)?;
    let pid = child.id();
    finish(child)?;
    let mut found = None;
    wait_for("the report", || {
        let said = fs::read_to_string(folder.join("report")).unwrap_or_default();
        let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        found = lines.find(|line| line["pid"].as_u64() == Some(u64::from(pid)));
        found.is_some()
    })?;
    found.ok_or_else(|| "no report".into())
}

/// It says ok, and pages of it were in the store.
fn paged(stage: &Stage, limit: &str, words: &[&str]) -> Outcome {
    until(&BACK, || run(stage, limit, words))
}

const BACK: [&str; 4] = ["faults", "taken", "page_outs", "page_ins"];

/// None of these counts is 0. On a busy machine a short program may end before it is looked at:
/// then it runs again.
fn until(names: &[&str], run: impl Fn() -> Result<Value, String>) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = run()?;
        match names.iter().find(|&name| counts[*name].as_u64().unwrap_or(0) == 0) {
            None => return Ok(()),
            Some(name) if Instant::now() > deadline => {
                return Err(format!("no {name}: nothing was tested: {counts}"));
            }
            Some(_) => {}
        }
    }
}

/// A store in memory, compressed and not, and in memory before a folder: the programs compare every
/// byte, children theirs.
fn in_memory(stage: &Stage) -> Outcome {
    let both = &["/var/tmp", "--pool", "1M"];
    for store in [&["memory"][..], &["memory", "--compress", "lz4"], both] {
        for (limit, words) in [
            ("8M", &["content", "16", "3", "2", "11", "40"][..]),
            ("2M", &["mappings", "600", "9"]),
            ("8M", &["any", "written"]),
            ("8M", &["any", "forked"]),
            ("2M", &["forks", "6", "2", "5", "2"]),
        ] {
            until(&BACK, || {
                let folder = tempfile::tempdir().map_err(text)?;
                counted(folder.path(), stored(stage, (folder.path(), store), limit, words))
            })
            .map_err(|why| format!("{words:?}: {why}"))?;
        }
    }
    Ok(())
}

fn forked(stage: &Stage, which: &str) -> Outcome {
    let counts = run(stage, "8M", &["any", which])?;
    match counts["forks"].as_u64() {
        Some(3) => Ok(()),
        _ => Err(format!("not three forks: {counts}")),
    }
}

/// What forks left shared was made the program's own, and left.
fn unshared(stage: &Stage) -> Outcome {
    let counts = run(stage, "8M", &["any", "unshared"])?;
    match counts["unshared"].as_u64() {
        Some(1..) => Ok(()),
        _ => Err(format!("nothing was unshared: {counts}")),
    }
}

/// Pages that several threads wait for are read at once.
fn threads(stage: &Stage) -> Outcome {
    until(&["together"], || run(stage, "8M", &["content", "24", "8", "1", "17", "20"]))
}

/// Most pages of walks in turn come before they are touched: hardly one in 70 is waited for.
fn walks(stage: &Stage) -> Outcome {
    let counts = run(stage, "8M", &["any", "walks"])?;
    let [faults, page_ins, ahead] =
        ["faults", "page_ins", "ahead"].map(|name| counts[name].as_u64().unwrap_or(0));
    match page_ins + ahead > 10_000 && faults * 16 < page_ins + ahead {
        true => Ok(()),
        false => Err(format!("too many touches were waited for: {counts}")),
    }
}

/// The most that was in memory at a time. Memory that is not watched yet grows while the pager
/// waits for a processor, so on a busy machine a run may exceed a tenth, and another one follows;
/// but no run reaches thrice the limit. What the program uses is nine times the limit and more.
fn bounded(stage: &Stage, limit: u64, words: &[&str]) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = run(stage, &format!("{limit}M"), words)?;
        match counts["peak"].as_u64() {
            Some(peak) if peak <= (limit * 256) * 11 / 10 => return Ok(()),
            Some(peak) if peak > limit * 256 * 3 => {
                return Err(format!("far above the limit: {counts}"));
            }
            _ if Instant::now() > deadline => return Err(format!("above the limit: {counts}")),
            _ => {}
        }
    }
}

/// What cannot be paged counts, and is told with its reason: on standard error and by status.
fn told(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let mut child =
        command(stage, folder.path(), "8M", &["any", "shared"]).spawn().map_err(text)?;
    let pid = u64::from(child.id());
    read_line(&mut child)?;
    let mut status = String::new();
    wait_for("status", || {
        let output = Command::new(&stage.launcher).args(["page", "status", "--json"]).output();
        status = output.map(|it| String::from_utf8_lossy(&it.stdout).into()).unwrap_or_default();
        let all: Value = serde_json::from_str(&status).unwrap_or_default();
        let mut programs = all["any"].as_array().cloned().unwrap_or_default().into_iter();
        let ours = programs.find(|one| one["pid"].as_u64() == Some(pid)).unwrap_or_default();
        ours["shared_memory"].as_u64() >= Some(24 << 8)
            && ours["resident"].as_u64() >= Some(24 << 8)
    })
    .map_err(|why| format!("{why}: {status}"))?;
    let mut lines = BufReader::new(child.stderr.take().ok_or("no standard error")?).lines();
    let mut tell = |megabytes| {
        let why = format!("pinned, {megabytes} MB of shared memory");
        match lines.next() {
            Some(Ok(line)) if line.contains("above the limit of 8 MB: ") && line.contains(&why) => {
                Ok(())
            }
            other => Err(format!("it said: {other:?}")),
        }
    };
    // More than twice as much is told again.
    let said = tell(24).and_then(|()| go(&mut child)).and_then(|()| tell(24 + 72));
    let ended = child.kill().and_then(|()| child.wait());
    ended.map_err(text)?;
    said
}

/// The limits of whoever starts the program are not the pager's: its store grows beyond the largest
/// file allowed.
fn limits(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let mut command = command(stage, folder.path(), "2M", &["mappings", "600", "9"]);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 4096, rlim_max: libc::RLIM_INFINITY };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    command.env_remove("ODFORK_PAGE_REPORT");
    let output = command.output().map_err(text)?;
    match output.status.success() && output.stderr.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// What the kernel writes by a pin is there: reads of FUSE that go past the page cache.
fn fuse(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let output = command(stage, folder.path(), "8M", &["direct"]).output().map_err(text)?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if out.contains("none") {
        println!("SKIPPED: FUSE cannot be mounted");
        return Ok(());
    }
    let counts = fs::read_to_string(folder.path().join("report")).unwrap_or_default();
    match output.status.success() && out.contains("ok") && output.stderr.is_empty() {
        true => Ok(()),
        false => Err(format!("{} {out}{}{counts}", output.status, said(&output))),
    }
}

/// The store in a tmpfs.
fn tmpfs(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir_in("/dev/shm").map_err(text)?;
    let waiting = waiting(stage, folder.path())?;
    let [serving, _] = tasks_of(waiting.child.id()).ok_or("no tasks")?;
    let open = fs::read_dir(format!("/proc/{serving}/fd")).map_err(text)?.flatten();
    let files: Vec<_> = open.filter_map(|it| fs::read_link(it.path()).ok()).collect();
    let is_in = |file: &PathBuf| file.starts_with(folder.path()) && !file.ends_with("report");
    match files.iter().any(is_in) {
        true => waiting.resume(),
        false => Err(format!("its store is elsewhere: {files:?}")),
    }
}

/// A program that stands still, with pages in the store.
struct Waiting {
    child: Child,
    pid: i32,
    /// So much is there, of sevens.
    memory: usize,
}

const WAITING_BYTES: usize = 24 << 20;

fn waiting(stage: &Stage, folder: &Path) -> Result<Waiting, String> {
    let mut command = command(stage, folder, "8M", &["any", "waits"]);
    let mut child = command.process_group(0).spawn().map_err(text)?;
    let line = read_line(&mut child)?;
    let memory = line.strip_prefix("ready ").and_then(|at| at.trim().parse().ok());
    let memory = memory.ok_or_else(|| format!("it said: {line}"))?;
    let pid = i32::try_from(child.id()).map_err(text)?;
    Ok(Waiting { child, pid, memory })
}

impl Waiting {
    fn resume(mut self) -> Outcome {
        go(&mut self.child)?;
        finish(self.child)
    }

    /// To its group of processes, as a terminal does.
    fn signal(&self, signal: i32) {
        // SAFETY: a signal to children of ours.
        unsafe { libc::kill(-self.pid, signal) };
    }

    /// Reads its memory as a debugger does, most of which is in the store.
    fn read(&self) -> JoinHandle<bool> {
        let (pid, memory) = (self.pid, self.memory);
        spawn(move || {
            let mut found = vec![0u8; WAITING_BYTES];
            let to = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: WAITING_BYTES };
            let from = libc::iovec { iov_base: memory as *mut _, iov_len: WAITING_BYTES };
            // SAFETY: as much room as said; the other memory is only read.
            let got = unsafe { libc::process_vm_readv(pid, &to, 1, &from, 1, 0) };
            got == WAITING_BYTES as isize && found.iter().all(|&byte| byte == 7)
        })
    }
}

/// Stopped programs hold nothing that others wait for: others run, and what was away can be read.
/// They go on with every byte.
fn stopped(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let both = [waiting(stage, folder.path())?, waiting(stage, folder.path())?];
    both.iter().for_each(|one| one.signal(libc::SIGSTOP));
    let other = waiting(stage, folder.path()).and_then(Waiting::resume);
    let readers = both.each_ref().map(Waiting::read);
    let are_read =
        wait_for("memory of a stopped program", || readers.iter().all(JoinHandle::is_finished));
    both.iter().for_each(|one| one.signal(libc::SIGCONT));
    let are_right = readers.map(JoinHandle::join).iter().all(|it| matches!(it, Ok(true)));
    both.into_iter().try_for_each(Waiting::resume).and(other).and(are_read)?;
    are_right.then_some(()).ok_or_else(|| "memory of a stopped program is not its own".into())
}

/// An image of memory that is away is refused, and no file is left.
fn saved(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let waiting = waiting(stage, folder.path())?;
    let image = folder.path().join("image");
    let mut save = Command::new(&stage.launcher);
    save.args(["image", "save", &waiting.pid.to_string(), "--all"]).arg(&image);
    let output = save.output().map_err(text)?;
    waiting.resume()?;
    let is_refused = !output.status.success() && said(&output).contains("paged by a userfaultfd");
    match is_refused && !image.exists() {
        true => Ok(()),
        false => Err(format!("{}: {}", output.status, said(&output))),
    }
}

/// The tasks of a program: the one that serves it, and the one that holds descriptors.
pub fn tasks_of(pid: u32) -> Option<[i32; 2]> {
    let parent = format!("PPid:\t{pid}");
    let folders: Vec<_> = fs::read_dir("/proc").ok()?.flatten().map(|it| it.path()).collect();
    let find = |name: &str| {
        let is_ours = |folder: &&std::path::PathBuf| {
            let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
            status.starts_with(name) && status.lines().any(|line| line == parent)
        };
        folders.iter().find(is_ours)?.file_name()?.to_str()?.parse().ok()
    };
    Some([find("Name:\todfork-page\n")?, find("Name:\todfork-hold\n")?])
}

/// `odfork run --freeze eager` before or behind `page run`: no byte is lost, and the runtime leaves
/// forks plain.
fn both(stage: &Stage) -> Outcome {
    let folder = tempfile::tempdir().map_err(text)?;
    let program = stage.programs.join("both");
    for is_inside in [true, false] {
        let mut command = Command::new(&stage.launcher);
        let eager = ["run", "--freeze", "eager", "--stats", "text", "--"];
        if !is_inside {
            command.args(eager).arg(&stage.launcher);
        }
        command.args(run_any()).args(["--limit", "8M", "--store"]);
        command.arg(folder.path()).arg("--");
        if is_inside {
            command.arg(&stage.launcher).args(eager);
        }
        let output = command.arg(&program).args(["paged", "16"]).output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The launcher sees the pager's library, or the runtime does.
        let word = match is_inside {
            true => "is paged by 'odfork page run'",
            false => "engine plain: the program handles page faults itself",
        };
        let is_well = output.status.success() && output.stdout.starts_with(b"ok");
        if !is_well || !said.contains(word) {
            return Err(format!("inside {is_inside}: {}: {said}", output.status));
        }
    }
    Ok(())
}

/// With room to spare nothing is taken, and no fault comes to us but those that ask for a share.
fn room(stage: &Stage) -> Outcome {
    let counts = run(stage, "64M", &["mappings", "200", "3"])?;
    let idle = ["filled", "taken"].iter().all(|name| counts[name].as_u64() == Some(0));
    let few = counts["faults"].as_u64().is_some_and(|faults| faults < 16);
    (idle && few).then_some(()).ok_or_else(|| format!("it was paged: {counts}"))
}

fn refused(stage: &Stage) -> Outcome {
    for (options, why) in [
        (&["--compress", "lz4"][..], "only a store in memory is compressed"),
        (&["--store", "memory", "--compress", "zstd"], "compresses by lz4 alone"),
        (&["--store", "memory", "--store-size", "1G"], "--store-size does not go with it"),
        (&["--store", "/dev/null"], "it is a folder, or memory"),
        (&["--store", "memory", "--pool", "4M"], "--pool is for a store in a folder"),
        (&["--pool", "4K"], "--pool 4K is below 1024K"),
        (&["--socket", "here"], "has no daemon"),
        (&["--threshold", "1M"], "--threshold does not go with it"),
    ] {
        let mut command = Command::new(&stage.launcher);
        command.args(run_any()).args(["--limit", "8M"]).args(options);
        let output = command.args(["--", "true"]).output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(2) || said.lines().count() != 1 || !said.contains(why) {
            return Err(format!("{options:?}: {}: {said}", output.status));
        }
    }
    Ok(())
}

pub type Case = fn(&Stage) -> Outcome;

pub const CASES: [(&str, Case); 40] = [
    ("content", |s| paged(s, "8M", &["content", "16", "3", "2", "11", "40"])),
    ("mappings", |s| paged(s, "2M", &["mappings", "600", "9"])),
    ("heap", |s| paged(s, "8M", &["heap", "3", "3", "9"])),
    ("small", |s| paged(s, "8M", &["any", "small"])),
    ("given", |s| paged(s, "8M", &["any", "given"])),
    ("in_memory", in_memory),
    ("robust", |s| paged(s, "8M", &["any", "robust"])),
    ("written", |s| paged(s, "8M", &["any", "written"])),
    ("forked", |s| forked(s, "forked")),
    ("forked_raw", |s| forked(s, "raw")),
    ("forked_unhandled", |s| forked(s, "unhandled")),
    ("forked_changed", |s| forked(s, "changed")),
    ("cloned", |s| paged(s, "8M", &["any", "cloned"])),
    ("forking", |s| paged(s, "8M", &["any", "forking"])),
    ("sharing", |s| paged(s, "8M", &["any", "sharing"])),
    ("masks", |s| paged(s, "8M", &["any", "masks"])),
    ("forks", |s| paged(s, "2M", &["forks", "6", "2", "5", "2"])),
    ("many", |s| paged(s, "8M", &["any", "many"])),
    ("bounded", |s| bounded(s, 16, &["any", "grows"])),
    ("bounded_many", |s| bounded(s, 8, &["any", "many"])),
    ("hot", |s| paged(s, "8M", &["any", "hot"])),
    ("unshared", unshared),
    ("threads", threads),
    ("walks", walks),
    ("filtered", |s| paged(s, "8M", &["any", "filtered"])),
    ("replaced", |s| paged(s, "16M", &["any", "replaced"])),
    ("divided", |s| paged(s, "8M", &["any", "divided"])),
    ("crowded", |s| paged(s, "8M", &["any", "crowded"])),
    ("unwritten", |s| paged(s, "8M", &["any", "unwritten"])),
    ("together", |s| paged(s, "8M", &["any", "together"])),
    ("pinned", |s| paged(s, "8M", &["pins", "allowed"])),
    ("fuse", fuse),
    ("tmpfs", tmpfs),
    ("stopped", stopped),
    ("saved", saved),
    ("told", told),
    ("limits", limits),
    ("both", both),
    ("room", room),
    ("refused", refused),
];
