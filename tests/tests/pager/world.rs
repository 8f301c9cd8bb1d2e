//! What a case works with: compiled programs, a supervisor in a folder of its own, and waiting for
//! what must come.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use odfork_tests::stage::released;
use odfork_tests::watch;
use serde_json::Value;

pub type Outcome = Result<(), String>;

/// What is awaited comes long before this; only a hang takes so long, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Compiled programs and the launcher.
pub struct Stage {
    pub programs: PathBuf,
    pub launcher: PathBuf,
    pub next: AtomicU32,
}

impl Stage {
    pub fn new() -> Result<Stage, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("pager");
        let programs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pager");
        fs::create_dir_all(&programs).map_err(|e| e.to_string())?;
        for name in [
            "content",
            "mappings",
            "forks",
            "damage",
            "strays",
            "holder",
            "heap",
            "pins",
            "stacks",
            "identity",
            "orphan",
            "closed",
            "raw",
            "family",
            "title",
            "rooted",
            "both",
            "direct",
            "unlimited",
            "any",
            "group",
            "adopt",
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
        let launcher = released("odfork").ok_or("odfork was not built")?;
        Ok(Stage { programs, launcher, next: AtomicU32::new(0) })
    }
}

/// One supervisor in a folder of its own.
pub struct World<'a> {
    pub stage: &'a Stage,
    pub folder: PathBuf,
    pub supervisor: Child,
}

impl World<'_> {
    pub fn new<'a>(
        stage: &'a Stage,
        options: &[&str],
        env: &[(&str, &str)],
    ) -> Result<World<'a>, String> {
        World::with(stage, options, env, |_| {})
    }

    /// The supervisor's command is changed first.
    pub fn with<'a>(
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

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub fn restarts(&self) -> usize {
        self.log().lines().filter(|line| line.contains("starting another one")).count()
    }

    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.launcher);
        command.args(["page", "run", "--socket"]).arg(self.folder.join("sock"));
        command.args(["--malloc", "4K", "--"]);
        command.arg(self.stage.programs.join(program)).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, program: &str, args: &[&str]) -> Result<Child, String> {
        self.command(program, args).spawn().map_err(|e| e.to_string())
    }

    /// Runs to the end; it must say "ok".
    pub fn run(&self, program: &str, args: &[&str]) -> Outcome {
        finish(self.start(program, args)?)
    }

    pub fn status(&self) -> Result<Value, String> {
        let answer = Command::new(&self.stage.launcher)
            .args(["page", "status", "--json", "--socket"])
            .arg(self.folder.join("sock"))
            .output()
            .map_err(|e| e.to_string())?;
        serde_json::from_slice(&answer.stdout)
            .map_err(|_| String::from_utf8_lossy(&answer.stderr).into_owned())
    }

    /// The daemon's process.
    pub fn daemon(&self) -> Option<i32> {
        let own = self.supervisor.id();
        let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
        list.split_whitespace().next()?.parse().ok()
    }

    pub fn signal_daemon(&self, signal: i32) {
        if let Some(pid) = self.daemon() {
            // SAFETY: a child of our own child.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Once all programs have ended, nothing of them is left.
    pub fn is_clean(&self) -> Outcome {
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
pub fn finish(mut child: Child) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if Instant::now() > deadline {
            watch::tell();
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

/// A program that has said "ready" and waits for a line.
pub fn ready(world: &World, program: &str, args: &[&str]) -> Result<Child, String> {
    let mut child = world.start(program, args)?;
    let mut line = [0; 6];
    child.stdout.as_mut().ok_or("no output")?.read_exact(&mut line).map_err(|e| e.to_string())?;
    Ok(child)
}

pub fn go(child: &mut Child) -> Outcome {
    let mut input = child.stdin.take().ok_or("no input")?;
    input.write_all(b"go\n").map_err(|e| e.to_string())
}

pub const SMALL: [&str; 2] = ["--limit", "8M"];

pub fn with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(options).copied().collect()
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return Err(format!("never: {what}"));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub fn read_line(child: &mut Child) -> Result<String, String> {
    let mut line = Vec::new();
    let out = child.stdout.as_mut().ok_or("no output")?;
    let mut byte = [0];
    while out.read(&mut byte).map_err(|e| e.to_string())? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// `page run` of all memory. In a guest whose files are its host's (9p) it has to be told that the
/// programs do not read from there.
pub fn run_any() -> &'static [&'static str] {
    const WORDS: [&str; 5] = ["page", "run", "--memory", "any", "--allow-pinning"];
    if has_9p() {
        &WORDS
    } else {
        &WORDS[..4]
    }
}

/// Whose plain reads hold pages of which the kernel does not tell.
pub fn has_9p() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.contains(" - 9p "))
}
