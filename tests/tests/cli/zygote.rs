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
fn a_signal_ends_a_run_whose_template_does_not_answer() {
    use rustix::process::{kill_process, Pid, Signal};
    let place = Place(scratch());
    let started = place.run(&["start", "test"]).silent().out;
    let number = started.split([' ', ',']).nth(2).and_then(|word| word.parse().ok());
    let template = Pid::from_raw(number.unwrap()).unwrap();
    kill_process(template, Signal::STOP).unwrap();
    let mut running = start(&mut place.odfork(&["run", "test", "--", "-c", ""])).unwrap();
    // Until it blocks the signal, it is ended by that anyway.
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
    let status = running.wait().unwrap();
    kill_process(template, Signal::CONT).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
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
fn an_empty_environment_is_not_the_template_s() {
    let place = warm();
    let source = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))";
    let mut command = place.odfork(&["run", "test", "--", "-c", source]);
    command.env_clear().env("XDG_RUNTIME_DIR", place.0.path());
    assert_eq!(finish(&mut command).silent().out, "['XDG_RUNTIME_DIR']\n");
}

/// A template that imports for ever hides nobody, and nobody waits for it.
#[test]
fn one_that_is_not_ready_is_listed_and_not_waited_for() {
    let place = warm();
    let modules = scratch();
    std::fs::write(modules.path().join("slow.py"), "open('end')").unwrap();
    let fifo = modules.path().join("end");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let folder = modules.path().to_str().unwrap();
    let mut command = place.odfork(&["start", "slow", "--path", folder, "--import", "slow"]);
    let mut starting = start(command.current_dir(modules.path())).unwrap();
    let socket = place.0.path().join("odfork/slow.zygote");
    while !socket.exists() {
        std::thread::yield_now();
    }
    let listed = place.run(&["list"]).silent().out;
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("slow").contains("does not answer yet"), "{listed}");
    assert!(!row("test").contains("does not answer"), "{listed}");
    assert_eq!(place.run(&["start", "slow"]).code, Some(2));
    std::fs::write(&fifo, "").unwrap();
    assert!(starting.wait().unwrap().success());
    place.run(&["stop", "slow"]).silent();
}

#[test]
fn of_two_that_start_at_once_one_starts() {
    let place = Place(scratch());
    for _ in 0..5 {
        let both: Vec<_> =
            (0..2).map(|_| start(place.odfork(&["start", "test"]).stderr(Stdio::null()))).collect();
        let codes = both.into_iter().map(|child| child.unwrap().wait().unwrap().code());
        let mut codes: Vec<_> = codes.collect();
        codes.sort();
        assert_eq!(codes, [Some(0), Some(2)]);
        place.run(&["stop", "test"]).silent();
    }
}

#[test]
fn a_full_disk_is_said_and_no_panic() {
    let place = Place(scratch());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.odfork(&["list"]);
    command.stdout(full).stderr(Stdio::piped());
    let ended = start(&mut command).unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.starts_with("odfork: cannot write to standard output: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
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
