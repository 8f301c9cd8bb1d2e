//! Looking at a finished run from outside: what is still there that should not be.
//!
//! Owns: finding processes, shared-memory files, temporary files and mounts a run left behind.
//! Does not own the descriptors and children a process sees itself; `od_done()` of `odtest.h`
//! prints those and the harness compares the bytes with stock's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long orphans may take to end after their parent, as they may under stock fork, on a busy
/// machine.
const GRACE: Duration = Duration::from_secs(20);

/// Names present before a run, to compare with after it.
pub struct Litter {
    names: BTreeSet<String>,
}

impl Litter {
    pub fn before() -> Litter {
        Litter { names: snapshot() }
    }

    /// One line for each thing that was not there before and does not go away by itself: a
    /// program running beside this one may have names for a moment.
    pub fn after(&self) -> Vec<String> {
        let deadline = Instant::now() + GRACE;
        loop {
            let now = snapshot();
            let new: Vec<_> = now.difference(&self.names).collect();
            if new.is_empty() || Instant::now() >= deadline {
                let lines = new.into_iter().map(|name| format!("left behind: {name}"));
                return lines.collect();
            }
            sleep(Duration::from_millis(50));
        }
    }
}

/// Names in shared memory that belong to programs which may run beside the tests.
const FOREIGN: [&str; 3] = ["PostgreSQL.", "sem.mp-", "psm_"];

/// Files of shared memory, temporary files with the runtime's name, and mounts. What the programs
/// themselves leave is found in their scratch directory, which is their TMPDIR, too. Below
/// /sys/kernel the kernel mounts tracefs by itself when any process looks there (perf does).
fn snapshot() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for dir in ["/dev/shm", "/tmp", "/var/tmp"] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let foreign = FOREIGN.iter().any(|prefix| name.starts_with(prefix));
            let of_runtime = name.contains("odfork-image");
            if of_runtime || (dir == "/dev/shm" && !foreign) {
                names.insert(format!("{dir}/{name}"));
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in mounts.lines().filter(|line| !line.contains(" /sys/kernel/")) {
        names.insert(format!("mount {line}"));
    }
    names
}

/// What a program left in its own scratch directory.
pub fn scratch_files(scratch: &Path) -> Vec<String> {
    let entries = fs::read_dir(scratch).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.map(|name| format!("left behind in the working directory: {name}")).collect()
}

/// Waits until no process of the run is left; whatever stays is killed and named.
pub fn await_quiet(group: i32, tag: &str, timed_out: bool) -> Vec<String> {
    let deadline = Instant::now() + GRACE;
    loop {
        let left = processes(group, tag);
        if left.is_empty() {
            return Vec::new();
        }
        if timed_out || Instant::now() >= deadline {
            kill_group(group);
            for (pid, _) in &left {
                // SAFETY: kill takes no pointers; the process carries this run's own tag or group.
                unsafe { libc::kill(*pid, libc::SIGKILL) };
            }
            return left.into_iter().map(|(_, line)| line).collect();
        }
        sleep(Duration::from_millis(10));
    }
}

pub fn kill_group(group: i32) {
    // SAFETY: kill takes no pointers; the group was made for this run.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Processes of the run: in its group, or with its tag in their environment.
fn processes(group: i32, tag: &str) -> Vec<(i32, String)> {
    let mark = format!("ODTEST_RUN={tag}\0");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (head, tail) = stat.rsplit_once(')')?;
            let mut fields = tail.split_whitespace();
            let state = fields.next()?;
            let parent: i32 = fields.next()?.parse().ok()?;
            let in_group = fields.next()?.parse::<i32>().ok()? == group;
            let orphan = state == "Z" && parent == 1; // init's to reap, not ours
            let tagged = || {
                let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                env.windows(mark.len()).any(|w| w == mark.as_bytes())
            };
            let line = format!("left behind: process {head}) in state {state}, parent {parent}");
            (!orphan && (in_group || tagged())).then_some((pid, line))
        })
        .collect()
}
