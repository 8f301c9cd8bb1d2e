//! The standard set: the paper's two programs as they are today, and three programs of today.
//!
//! Owns the list, the files it writes (embedded, in a temporary folder that is removed) and the order of a run. The
//! programs mark their phases by SIGURG to themselves; `traffic` does it for redis-server. A program that is not installed
//! is named with its Debian package and left out.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use super::launch::{launch, NotStarted};
use super::options::Request;
use super::record::Record;
use super::session::{measure, Outcome, Plan};
use super::table::{self, SuiteRow};
use super::{exit_status, traffic, wait_for, EARLY, INTERRUPTED};
use odfork_proc::interrupt;

/// What a program is started for.
struct Workload {
    name: &'static str,
    binary: &'static str,
    package: &'static str,
    phases: &'static [&'static str],
    /// File name and text.
    file: (&'static str, &'static str),
    /// (quick, default) amount of work.
    work: (u32, u32),
    /// Its words after the binary; FILE, FOLDER and WORK are replaced.
    words: &'static [&'static str],
    /// Driven from outside, over a socket in the folder.
    driven: bool,
}

const SBCL_MARK: &str = "(sb-unix:unix-kill (sb-unix:unix-getpid) 23)";

const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "planner (sbcl)",
        binary: "sbcl",
        package: "sbcl",
        phases: &["load", "run"],
        file: ("planner.lisp", include_str!("../../../../workloads/writes/planner.lisp")),
        work: (5, 6),
        words: &[
            "--noinform",
            "--no-sysinit",
            "--no-userinit",
            "--disable-debugger",
            "--eval",
            SBCL_MARK,
            "--load",
            "FILE",
            "--eval",
            SBCL_MARK,
            "--eval",
            "(planner:run WORK)",
            "--eval",
            SBCL_MARK,
            "--quit",
        ],
        driven: false,
    },
    Workload {
        name: "hanoi (emacs)",
        binary: "emacs",
        package: "emacs-nox",
        phases: &["hanoi"],
        file: ("hanoi.el", include_str!("../../../../workloads/writes/hanoi.el")),
        work: (10, 13),
        words: &["-Q", "--batch", "--eval", "(setenv \"ODFORK_RINGS\" \"WORK\")", "-l", "FILE"],
        driven: false,
    },
    Workload {
        name: "records (python3)",
        binary: "python3",
        package: "python3",
        phases: &["load", "read", "update"],
        file: ("python.py", include_str!("../../../../workloads/writes/python.py")),
        work: (50_000, 300_000),
        words: &["FILE", "WORK"],
        driven: false,
    },
    Workload {
        name: "keys (redis-server)",
        binary: "redis-server",
        package: "redis-server",
        phases: &["load", "get", "set 10 %"],
        file: ("redis.conf", "save \"\"\nappendonly no\nport 0\nactiverehashing no\n"),
        work: (100_000, 400_000),
        words: &["FILE", "--unixsocket", "FOLDER/redis.socket", "--dir", "FOLDER"],
        driven: true,
    },
    Workload {
        name: "table (sqlite3)",
        binary: "sqlite3",
        package: "sqlite3",
        phases: &["load", "update 10 %", "delete 1 %"],
        file: ("sqlite.sql", include_str!("../../../../workloads/writes/sqlite.sql")),
        work: (100_000, 500_000),
        words: &["-batch", ":memory:", ".read FILE"],
        driven: false,
    },
];

/// A folder of our own that goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("odfork-writes-{}", std::process::id()));
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}; set TMPDIR", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn run(quick: bool, request: &Request, mut record: Record) -> Result<u8> {
    let folder = Folder::make()?;
    let (mut rows, mut wrongs) = (Vec::new(), Vec::new());
    for workload in &WORKLOADS {
        if interrupt::asked() {
            break;
        }
        if find(workload.binary).is_none() {
            let (binary, package) = (workload.binary, workload.package);
            let line = format!(
                "{}: skipped: {binary} is not installed (Debian package {package})",
                workload.name
            );
            eprintln!("odfork writes: {line}");
            record.note(&line);
            continue;
        }
        eprintln!("odfork writes: {}", workload.name);
        let outcome = run_one(workload, quick, request, &folder.0);
        wrongs.extend(take(workload, outcome, request, &mut record, &mut rows));
    }
    let method = request.plan.method;
    if rows.is_empty() {
        println!("no phase was measured");
    } else {
        print!("{}", table::suite(&rows, method));
        println!("method {}", method.word());
    }
    for wrong in &wrongs {
        eprintln!("odfork writes: {wrong}");
    }
    let interrupted = interrupt::asked();
    let failed = !wrongs.is_empty() || rows.is_empty();
    record.finish(interrupted, wrongs)?;
    Ok(match (interrupted, failed) {
        (true, _) => INTERRUPTED,
        (false, true) => EARLY,
        _ => 0,
    })
}

/// Keeps what was measured; gives what went wrong.
fn take(
    workload: &Workload,
    outcome: Result<Outcome>,
    request: &Request,
    record: &mut Record,
    rows: &mut Vec<SuiteRow>,
) -> Option<String> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Some(format!("{}: {error:#}", workload.name)),
    };
    for phase in &outcome.phases {
        record.phase(workload.name, phase, request.plan.method);
        rows.push(SuiteRow {
            program: workload.name.into(),
            phase: phase.name.clone(),
            counts: phase.change.counts,
        });
    }
    if outcome.interrupted {
        return None;
    }
    let (found, wanted) = (outcome.phases.len(), workload.phases.len());
    match (&outcome.failure, outcome.ended.map(exit_status)) {
        (Some(failure), _) => Some(format!("{}: {failure:#}", workload.name)),
        _ if found < wanted => Some(format!("{}: {found} of {wanted} phases came", workload.name)),
        (None, Some(status)) if status != 0 => {
            Some(format!("{}: {} ended with status {status}", workload.name, workload.binary))
        }
        _ => None,
    }
}

fn run_one(workload: &Workload, quick: bool, request: &Request, folder: &Path) -> Result<Outcome> {
    let work = if quick { workload.work.0 } else { workload.work.1 };
    let file = folder.join(workload.file.0);
    fs::write(&file, workload.file.1.replace("ROWS", &work.to_string()))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let plan = Plan {
        marker: Some(libc::SIGURG),
        names: workload.phases.iter().map(ToString::to_string).collect(),
        after: std::time::Duration::ZERO,
        interval: None,
        length: None,
        ..request.plan.clone()
    };
    let words = words(workload, work, folder, &file);
    let nowhere = OwnedFd::from(fs::OpenOptions::new().write(true).open("/dev/null")?);
    let mut target = match launch(&words, plan.marker, Some(nowhere))? {
        Ok(launched) => launched.target,
        Err(NotStarted { line, .. }) => anyhow::bail!(line),
    };
    let traffic: Option<JoinHandle<Result<()>>> = workload.driven.then(|| {
        let (pid, socket) = (target.pid, folder.join("redis.socket"));
        std::thread::spawn(move || traffic::drive(pid, &socket, work))
    });
    let mut outcome = measure(&mut target, &plan);
    if outcome.ended.is_none() {
        outcome.ended = wait_for(target.pid, outcome.interrupted || outcome.failure.is_some());
    }
    if let Some(Ok(Err(error))) = traffic.map(JoinHandle::join) {
        if !outcome.interrupted {
            outcome.failure.get_or_insert(error);
        }
    }
    Ok(outcome)
}

fn words(workload: &Workload, work: u32, folder: &Path, file: &Path) -> Vec<OsString> {
    let fill = |word: &&str| {
        word.replace("FILE", &file.to_string_lossy())
            .replace("FOLDER", &folder.to_string_lossy())
            .replace("WORK", &work.to_string())
            .into()
    };
    std::iter::once(OsString::from(workload.binary))
        .chain(workload.words.iter().map(fill))
        .collect()
}

fn find(binary: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(binary)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_has_a_workload_that_stands_for_it() {
        for figure in table::PUBLISHED {
            let workload = WORKLOADS.iter().find(|workload| workload.name == figure.program);
            assert!(workload.unwrap().phases.contains(&figure.phase), "{figure:?}");
        }
    }

    #[test]
    fn words_are_filled_in() {
        let words = words(&WORKLOADS[3], 7, Path::new("/f"), Path::new("/f/redis.conf"));
        assert_eq!(words[1..4], ["/f/redis.conf", "--unixsocket", "/f/redis.socket"]);
        assert!(find("sh").is_some() && find("no-such-program-here").is_none());
    }
}
