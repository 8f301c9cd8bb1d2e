//! Whether odfork could do anything for a program: what keeps the library out, and what would keep
//! memory plain.
//!
//! The program's file is judged by `odfork check --json` (one judge for all), which is run when it
//! can be found; the state of a process is judged here, by the runtime's rules (docs/limits.md).
//! Nothing of the program is run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use odfork_proc::process::ptrace_scope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::subject::Subject;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Eligibility {
    /// yes, no, perhaps; "unknown" when nobody could be asked.
    pub program: String,
    /// What is in the way, reads after the program's name; None when nothing is known to be.
    pub obstacle: Option<String>,
    /// What to do about it.
    pub change: String,
    /// The words of `odfork check` for the image that can be had: huge, huge-userns, small, none.
    pub image: String,
}

/// `odfork` itself, where this code runs in it, else the one beside.
fn judge() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folders = own.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("odfork")).find(|path| path.is_file())
}

/// Asks about a program by name or path.
pub fn of_program(name: &OsStr) -> Eligibility {
    let asked = judge().and_then(|judge| {
        let mut command = Command::new(judge);
        command.args(["check", "--json"]).arg(name).stdin(Stdio::null()).stderr(Stdio::null());
        serde_json::from_slice(&command.output().ok()?.stdout).ok()
    });
    asked.map_or_else(
        || Eligibility { program: "unknown".into(), ..Eligibility::default() },
        |answer: Value| read(&answer),
    )
}

fn read(answer: &Value) -> Eligibility {
    let word = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let program = &answer["program"];
    let (image, answered) = (word(&answer["image"]), word(&program["accelerated"]));
    let library = word(&answer["library"]["problem"]);
    let mut eligibility =
        Eligibility { program: answered, change: word(&program["change"]), image, obstacle: None };
    if eligibility.program == "no" || eligibility.program == "cannot-run" {
        eligibility.obstacle = Some(word(&program["why"]));
    } else if eligibility.image == "none" {
        eligibility.obstacle = Some("can have no image here".into());
        eligibility.change = "`odfork check` says what is missing".into();
    } else if !library.is_empty() {
        eligibility.obstacle = Some("runs without libodfork.so, which was not found".into());
        eligibility.change = library;
    }
    eligibility
}

/// What in the state of a process would keep its memory plain, and what to do about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings {
    /// vm.overcommit_memory is 2.
    pub no_overcommit: bool,
    /// Anybody may use userfaultfd for faults of the kernel, or trace its parent.
    pub holds: bool,
}

impl Surroundings {
    pub fn observe() -> Surroundings {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let device = fs::metadata("/dev/userfaultfd").map_or(0, |about| about.mode());
        Surroundings {
            no_overcommit: read("/proc/sys/vm/overcommit_memory").trim() == "2",
            holds: read("/proc/sys/vm/unprivileged_userfaultfd").trim() == "1"
                || device & 0o006 == 0o006
                || !matches!(ptrace_scope().as_deref(), Some("2" | "3")),
        }
    }

    /// Adds the state of a process to the eligibility about its program.
    pub fn judge(&self, eligibility: Eligibility, subject: &Subject) -> Eligibility {
        if eligibility.obstacle.is_some() {
            return eligibility;
        }
        let status = &subject.status;
        let (obstacle, change) = if status.threads > 1 && !status.may_userfaultfd && !self.holds {
            let threads = status.threads;
            (
                format!("has {threads} threads, and may use neither userfaultfd nor ptrace"),
                "run it as root, or set kernel.yama.ptrace_scope=1",
            )
        } else if subject.map.as_ref().is_some_and(|map| map.pinned) {
            ("maps a ring or device that writes to memory (pinned)".to_owned(), "")
        } else if self.no_overcommit {
            ("runs where vm.overcommit_memory is 2".to_owned(), "use another mode")
        } else {
            return eligibility;
        };
        Eligibility { obstacle: Some(obstacle), change: change.to_owned(), ..eligibility }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::subject;
    use odfork_proc::process::Pid;
    use serde_json::json;

    #[test]
    fn answers_of_check_are_understood() {
        let answer = |accelerated: &str, image: &str, problem: Value| {
            read(&json!({"image": image, "library": {"problem": problem},
                "program": {"accelerated": accelerated, "why": "is static", "change": "link it"}}))
        };
        assert_eq!(answer("yes", "huge", Value::Null).obstacle, None);
        assert_eq!(answer("no", "huge", Value::Null).obstacle.unwrap(), "is static");
        assert!(answer("yes", "none", Value::Null).obstacle.unwrap().contains("no image"));
        assert!(answer("yes", "small", "x".into()).obstacle.unwrap().contains("libodfork.so"));
        assert_eq!(read(&json!([])).obstacle, None);
    }

    #[test]
    fn threads_must_be_held_and_the_file_is_judged_first() {
        let mut process = subject::inspect(std::process::id() as Pid).unwrap();
        process.status.threads = 4;
        process.status.may_userfaultfd = false;
        let judge = |here: Surroundings, process: &Subject| {
            here.judge(Eligibility::default(), process).obstacle.unwrap_or_default()
        };
        assert!(judge(Surroundings::default(), &process).contains("4 threads"));
        let allowed = Surroundings { holds: true, ..Surroundings::default() };
        assert_eq!(judge(allowed, &process), "");
        process.status.threads = 1;
        assert_eq!(judge(Surroundings::default(), &process), "");
        let strict = Surroundings { no_overcommit: true, holds: true };
        assert!(judge(strict, &process).contains("overcommit"));
        let first = Eligibility { obstacle: Some("is static".into()), ..Eligibility::default() };
        assert_eq!(strict.judge(first.clone(), &process), first);
    }
}
