//! `odfork zygote` as a user runs it: a warm interpreter, its ready children, and one line for
//! everything that cannot be done.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::{finish, odfork, scratch, start, Outcome};

/// The package as it is in the sources.
fn package() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../python/src"))
}

struct Place(tempfile::TempDir);

impl Place {
    fn odfork(&self, words: &[&str]) -> Command {
        let mut command = odfork(&[&["zygote"], words].concat());
        command.env("XDG_RUNTIME_DIR", self.0.path()).env("PYTHONPATH", package());
        command
    }

    fn run(&self, words: &[&str]) -> Outcome {
        finish(&mut self.odfork(words))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.odfork(&["stop", "test"]).stderr(Stdio::null()).status();
    }
}

fn warm() -> Place {
    let place = Place(scratch());
    let words = ["start", "test", "--import", "json", "--setup", "decimal:getcontext"];
    assert!(place.run(&words).silent().out.starts_with("test: process "));
    place
}

#[test]
fn a_child_has_what_its_caller_has() {
    let place = warm();
    let source = "import os, sys; sys.stdin.read()
print(sys.argv, 'json' in sys.modules, os.getcwd(), os.environ['WORD'])";
    let mut command = place.odfork(&["run", "test", "--", "-c", source, "a", "--b"]);
    let ran = finish(command.env("WORD", "w").current_dir("/usr"));
    assert_eq!(ran.silent().out, "['-c', 'a', '--b'] True /usr w\n");
    let folder = scratch();
    std::fs::write(
        folder.path().join("job.py"),
        "import sys; print('to err', file=sys.stderr); sys.exit(7)",
    )
    .unwrap();
    let script = folder.path().join("job.py");
    let ran = place.run(&["run", "test", script.to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(7), "to err\n"));
}

#[test]
fn signals_and_deadlines_end_the_child() {
    let place = warm();
    let ran = place.run(&[
        "run",
        "test",
        "--deadline",
        "0.1",
        "--",
        "-c",
        "import time; time.sleep(600)",
    ]);
    assert_eq!(ran.code, Some(128 + 9));
    let source = "import os, time; print(os.getpid(), flush=True); time.sleep(600)";
    let mut command = place.odfork(&["run", "test", "--", "-c", source]);
    let mut running = start(command.stdout(Stdio::piped())).unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(running.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(128 + 15));
    let child = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    assert!(rustix::process::test_kill_process(child).is_err(), "the child still runs");
}

#[test]
fn templates_are_listed_and_stopped() {
    let place = warm();
    let twice = place.run(&["start", "test"]);
    assert_eq!(twice.code, Some(2));
    assert!(twice.err.contains("odfork zygote stop test"), "{twice:?}");
    assert!(place.run(&["list"]).silent().out.contains("test"));
    place.run(&["stop", "test"]).silent();
    assert!(!place.run(&["list"]).silent().out.contains("test"));
    let none = place.run(&["run", "test", "job.py"]);
    assert_eq!((none.code, none.err.lines().count()), (Some(2), 1));
    assert!(none.err.contains("odfork zygote start test"), "{none:?}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = Place(scratch());
    let ran = place.run(&["start", "a/b"]);
    assert!(ran.code == Some(2) && ran.err.contains("cannot be a zygote's name"), "{ran:?}");
    let ran = place.run(&["start", "test", "--import", "no_such_module"]);
    assert!(ran.code == Some(2) && ran.err.contains("no_such_module"), "{ran:?}");
    let ran = place.run(&["start", "test", "--python", "/no/such/python"]);
    assert!(ran.code == Some(2) && ran.err.contains("/no/such/python"), "{ran:?}");
    let folder = place.0.path().join("odfork");
    crate::stage::mode(&folder, 0o777);
    let ran = place.run(&["list"]);
    assert!(ran.code == Some(2) && ran.err.contains("open to others"), "{ran:?}");
}
