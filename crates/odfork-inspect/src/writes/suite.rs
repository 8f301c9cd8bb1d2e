//! The standard set: the paper's two programs as they are today, and three programs of today.
//!
//! Owns the list, the files it writes (embedded, in a temporary folder that is removed) and the
//! order of a run. The programs mark their phases by SIGURG to themselves; `traffic` does it for
//! redis-server. A program that is not installed is named with its Debian package and left out.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use super::command::{exit_status, launch, wait_for, NotStarted};
use super::options::Request;
use super::record::Record;
use super::session::{measure, Outcome, Plan};
use super::table::{self, SuiteRow};
use super::traffic;
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
    /// Its words after the binary, with bars between; FILE, FOLDER, WORK and MARK are replaced.
    words: &'static str,
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
        file: ("planner.lisp", include_str!("../../workloads/planner.lisp")),
        work: (5, 6),
        words: "--noinform | --no-sysinit | --no-userinit | --disable-debugger | --eval | MARK | \
                --load | FILE | --eval | MARK | --eval | (planner:run WORK) | --eval | MARK | \
                --quit",
        driven: false,
    },
    Workload {
        name: "hanoi (emacs)",
        binary: "emacs",
        package: "emacs-nox",
        phases: &["hanoi"],
        file: ("hanoi.el", include_str!("../../workloads/hanoi.el")),
        work: (10, 13),
        words: "-Q | --batch | --eval | (setenv \"ODFORK_RINGS\" \"WORK\") | -l | FILE",
        driven: false,
    },
    Workload {
        name: "records (python3)",
        binary: "python3",
        package: "python3",
        phases: &["load", "read", "update"],
        file: ("python.py", include_str!("../../workloads/python.py")),
        work: (50_000, 300_000),
        words: "FILE | WORK",
        driven: false,
    },
    Workload {
        name: "keys (redis-server)",
        binary: "redis-server",
        package: "redis-server",
        phases: &["load", "get", "set 10 %"],
        file: ("redis.conf", "save \"\"\nappendonly no\nport 0\nactiverehashing no\n"),
        work: (100_000, 400_000),
        words: "FILE | --unixsocket | FOLDER/redis.socket | --dir | FOLDER",
        driven: true,
    },
    Workload {
        name: "table (sqlite3)",
        binary: "sqlite3",
        package: "sqlite3",
        phases: &["load", "update 10 %", "delete 1 %"],
        file: ("sqlite.sql", include_str!("../../workloads/sqlite.sql")),
        work: (100_000, 500_000),
        words: "-batch | :memory: | .read FILE",
        driven: false,
    },
];

pub fn run(quick: bool, request: &Request, mut record: Record) -> Result<u8> {
    let folder = tempfile::Builder::new().prefix("odfork-writes-").tempdir();
    let folder = folder.context("cannot make a temporary folder; set TMPDIR")?;
    let (mut rows, mut wrongs) = (Vec::new(), Vec::new());
    let method = request.plan.method;
    for workload in WORKLOADS.iter().take_while(|_| !interrupt::asked()) {
        let &Workload { name, binary, package, .. } = workload;
        if !installed(binary) {
            let line =
                format!("{name}: skipped: {binary} is not installed (Debian package {package})");
            eprintln!("odfork writes: {line}");
            record.note(&line);
            continue;
        }
        eprintln!("odfork writes: {name}");
        match run_one(workload, quick, &request.plan, folder.path()) {
            Ok(outcome) => {
                for phase in &outcome.phases {
                    record.phase(name, phase, method);
                    let (phase, counts) = (phase.name.clone(), phase.change.counts);
                    rows.push(SuiteRow { program: name, phase, counts });
                }
                wrongs.extend(fault(workload, &outcome).map(|fault| format!("{name}: {fault}")));
            }
            Err(error) => wrongs.push(format!("{name}: {error:#}")),
        }
    }
    if rows.is_empty() {
        println!("no phase was measured");
    } else {
        print!("{}", table::suite(&rows, method));
        println!("method {}", method.word());
    }
    record.finish(interrupt::asked(), !rows.is_empty(), wrongs)
}

/// What went wrong with a program that was measured.
fn fault(workload: &Workload, outcome: &Outcome) -> Option<String> {
    let (found, wanted) = (outcome.phases.len(), workload.phases.len());
    match (&outcome.failure, outcome.ended.map(exit_status)) {
        _ if outcome.interrupted => None,
        (Some(failure), _) => Some(format!("{failure:#}")),
        _ if found < wanted => Some(format!("{found} of {wanted} phases came")),
        (None, Some(status)) if status != 0 => {
            Some(format!("{} ended with status {status}", workload.binary))
        }
        _ => None,
    }
}

fn run_one(workload: &Workload, quick: bool, plan: &Plan, folder: &Path) -> Result<Outcome> {
    let work = if quick { workload.work.0 } else { workload.work.1 };
    let file = folder.join(workload.file.0);
    fs::write(&file, workload.file.1.replace("ROWS", &work.to_string()))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let plan = Plan {
        marker: Some(libc::SIGURG),
        names: workload.phases.iter().map(ToString::to_string).collect(),
        after: Duration::ZERO,
        interval: None,
        length: None,
        ..plan.clone()
    };
    let nowhere = fs::OpenOptions::new().write(true).open("/dev/null")?;
    let words = words(workload, work, folder, &file);
    let mut tracee = match launch(&words, plan.marker, Some(nowhere.as_fd()))? {
        Ok(tracee) => tracee,
        Err(NotStarted { line, .. }) => bail!(line),
    };
    let traffic = workload.driven.then(|| {
        let (pid, socket) = (tracee.pid, folder.join("redis.socket"));
        std::thread::spawn(move || traffic::drive(pid, &socket, work))
    });
    let mut outcome = measure(&mut tracee, &plan);
    if outcome.ended.is_none() {
        outcome.ended = wait_for(tracee.pid, outcome.interrupted || outcome.failure.is_some());
    }
    if let Some(Ok(Err(error))) = traffic.map(std::thread::JoinHandle::join) {
        if !outcome.interrupted {
            outcome.failure.get_or_insert(error);
        }
    }
    Ok(outcome)
}

fn words(workload: &Workload, work: u32, folder: &Path, file: &Path) -> Vec<OsString> {
    let fill = |word: &str| {
        let word = word.replace("MARK", SBCL_MARK).replace("WORK", &work.to_string());
        word.replace("FILE", &file.to_string_lossy()).replace("FOLDER", &folder.to_string_lossy())
    };
    let rest = workload.words.split(" | ").map(fill);
    std::iter::once(workload.binary.to_owned()).chain(rest).map(OsString::from).collect()
}

fn installed(binary: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(binary).is_file())
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
        assert!(installed("sh") && !installed("no-such-program-here"));
    }
}
