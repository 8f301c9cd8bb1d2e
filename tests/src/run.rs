//! Running one program once, with a deadline, and collecting what it left.
//!
//! Owns: the environment, the user, the process group and the deadline of a run, and cleaning up
//! after it. Does not judge. Output goes to files, not pipes: a process left behind cannot hold up
//! the harness by keeping a pipe open.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::confine::Confinement;
use crate::mode::{Mode, UNPRIVILEGED};
use crate::observe::{self, Litter};
use crate::stage::Stage;

/// How much slower a busy machine may be: a deadline is for what hangs.
const BUSY: u32 = 5;

/// What to run.
pub struct Order<'a> {
    pub binary: &'a Path,
    pub args: &'a [String],
    pub mode: Mode,
    /// Run as the unprivileged user even in mode stock (the baseline of mode user).
    pub unprivileged: bool,
    pub timeout: Duration,
    /// Where it runs, if not here.
    pub place: Option<&'a Confinement>,
    /// Further environment, such as `ODFORK_FAULT`.
    pub env: &'a [(String, String)],
}

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome {
    pub status: Option<ExitStatus>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stats: Option<Value>,
    pub litter: Vec<String>,
    pub elapsed: Duration,
}

impl Outcome {
    /// How the process ended, in words.
    pub fn ending(&self) -> String {
        match self.status {
            None => format!("was killed after {:.0} s", self.elapsed.as_secs_f64()),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exited with status {code}"),
                (_, Some(signal)) => format!("died of signal {signal}"),
                _ => format!("ended oddly: {status}"),
            },
        }
    }

    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|s| s.code())
    }
}

/// Runs a program to its end.
pub fn run(stage: &Stage, order: &Order) -> Result<Outcome, String> {
    let scratch = stage.scratch(order.unprivileged)?;
    let out = stage.root().join(format!("{}.out", file_name(&scratch)));
    let err = stage.root().join(format!("{}.err", file_name(&scratch)));
    let litter = Litter::before();
    let started = Instant::now();
    let tag = format!("{}-{}", std::process::id(), file_name(&scratch));
    let mut child = start(stage, order, &scratch, (&out, &err), &tag)
        .map_err(|e| format!("cannot start {}: {e}", order.binary.display()))?;
    let pid = child.id() as i32;
    let status = wait_until(&mut child, started + order.timeout * patience());
    let elapsed = started.elapsed();
    let mut left = observe::await_quiet(pid, &tag, status.is_none());
    left.extend(litter.after());
    let stats = read_stats(&scratch, pid)?;
    left.extend(observe::scratch_files(&scratch));
    let outcome = Outcome {
        status,
        stdout: fs::read(&out).unwrap_or_default(),
        stderr: fs::read(&err).unwrap_or_default(),
        stats,
        litter: left,
        elapsed,
    };
    let _ = fs::remove_dir_all(&scratch);
    let _ = fs::remove_file(&out);
    let _ = fs::remove_file(&err);
    Ok(outcome)
}

/// How many times its own time a program gets.
pub fn patience() -> u32 {
    BUSY * slow()
}

/// `ODTEST_SLOW` says how many times slower the whole machine is, an emulated one for instance.
pub fn slow() -> u32 {
    let slow = std::env::var("ODTEST_SLOW").ok().and_then(|number| number.parse().ok());
    slow.unwrap_or(1)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn start(
    stage: &Stage,
    order: &Order,
    scratch: &Path,
    (out, err): (&PathBuf, &PathBuf),
    tag: &str,
) -> io::Result<Child> {
    let mut command = Command::new(order.binary);
    command
        .args(order.args)
        .current_dir(scratch)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TMPDIR", scratch)
        .env("ODTEST_RUN", tag)
        .env("ODTEST_MODE", order.mode.name())
        .envs(order.place.and_then(|there| there.place.environment()))
        .stdin(Stdio::null())
        .stdout(File::create(out)?)
        .stderr(File::create(err)?)
        .process_group(0);
    if order.mode.preloads() {
        let library = stage.library().ok_or(io::ErrorKind::NotFound)?;
        command
            .env("LD_PRELOAD", library)
            .envs(order.mode.switches().iter().copied())
            .env("ODFORK_STATS", "json")
            .env("ODFORK_STATS_FILE", scratch.join("odstats.%p"));
    }
    command.envs(order.env.iter().map(|(k, v)| (k, v)));
    let place = order.place.cloned();
    let drop_to = (order.unprivileged && place.is_none()).then_some(UNPRIVILEGED);
    let go = move || {
        prepare(drop_to)?;
        place.as_ref().map_or(Ok(()), Confinement::enter)
    };
    // SAFETY: between fork and exec this makes plain system calls only, on its own copy.
    unsafe { command.pre_exec(go) };
    command.spawn()
}

/// CHILD: straight-line system calls, no heap, no locks.
fn prepare(drop_to: Option<u32>) -> io::Result<()> {
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the calls read only the limit structure on this stack, and no pointers else.
    unsafe {
        let mut core: libc::rlimit = std::mem::zeroed();
        check(libc::getrlimit(libc::RLIMIT_CORE, &mut core))?;
        core.rlim_cur = 0;
        check(libc::setrlimit(libc::RLIMIT_CORE, &core))?;
        if let Some(id) = drop_to {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(id, id, id))?;
            check(libc::setresuid(id, id, id))?;
        }
    }
    Ok(())
}

/// The exit status, or none when the deadline passed (the group is then killed).
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            observe::kill_group(child.id() as i32);
            let _ = child.wait();
            return None;
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The statistics of the program itself; those of other programs it started are removed unread.
fn read_stats(scratch: &Path, pid: i32) -> Result<Option<Value>, String> {
    let own = scratch.join(format!("odstats.{pid}"));
    let text = fs::read_to_string(&own).ok();
    for entry in fs::read_dir(scratch).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("odstats.") {
            let _ = fs::remove_file(entry.path());
        }
    }
    match text {
        None => Ok(None),
        Some(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|e| format!("statistics are not JSON ({e}): {text}")),
    }
}
