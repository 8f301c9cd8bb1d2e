//! odfork writes as its user meets it: a program that changes exactly so many pages, a process that
//! dies, Ctrl-C, errors.
//!
//! The command is this test program itself: started again with the words in a variable, it runs
//! `the_command` only, which hands them to the verb and exits with its status.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use odfork_inspect::writes;
use odfork_samples::samples;
use tempfile::TempDir;

const WORDS: &str = "ODFORK_TEST_WRITES";
const SEPARATOR: char = '\u{1f}';

/// 1,000 pages behind guards, marks between the changes. Words: none, or "wait" to change a page
/// every 10 ms for ever.
const PROGRAM: &str = include_str!("writes/program.c");

/// Not a test: the command under test, in a process of its own.
#[test]
fn the_command() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let words = std::iter::once("writes").chain(words.split(SEPARATOR));
    let status = match writes::command().try_get_matches_from(words) {
        Ok(matches) => writes::run(&matches),
        Err(error) => {
            eprint!("{error}");
            2
        }
    };
    std::process::exit(i32::from(status));
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_command", "--nocapture", "--test-threads=1"]);
    command.env(WORDS, words.join(&SEPARATOR.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program, compiled, in a folder that is removed when it goes out of scope.
struct Program(TempDir);

impl Program {
    fn compile() -> Program {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program.c");
        std::fs::write(&source, PROGRAM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.arg("-O1").arg(&source).arg("-o").arg(folder.path().join("program"));
        assert!(compiler.status().expect("cc is needed (Debian package gcc)").success());
        Program(folder)
    }

    fn path(&self) -> String {
        self.0.path().join("program").to_str().unwrap().to_owned()
    }

    /// Started with "wait"; it tells when it has touched its pages.
    fn waiting(&self) -> Target {
        let mut child =
            Command::new(self.path()).arg("wait").stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Target(child)
    }
}

/// Ends with the test, also with one that fails.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of the mapping of so many pages, as words.
fn hot(output: &str, pages: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let rows = output.lines().map(words);
    rows.filter(|row| row.get(2).is_some_and(|word| word == pages)).collect()
}

#[test]
fn comparing_counts_exactly_the_pages_and_bytes_that_changed() {
    let program = Program::compile();
    let json = program.0.path().join("exact.jsonl");
    let words = ["--bytes", "--phases", "a,b", "--json", json.to_str().unwrap(), "--"];
    let output = run(&[&words[..], &[&program.path()]].concat());
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    let read = samples::read(&json).unwrap();
    assert_eq!(output.status.code(), Some(7), "{shown}{errors}");

    // The mapping behind the guards is nobody else's: its counts have no noise.
    let first = &hot(&shown, "1,000")[0];
    assert_eq!(
        first[1..],
        ["anonymous", "1,000", "100", "0", "0.100", "4,096,000", "100", "0.000"]
    );
    let second = &hot(&shown, "990")[0];
    assert_eq!(second[1..5], ["anonymous", "990", "37", "0"]);
    assert_eq!(second[7], "74", "two bytes a page");
    assert_eq!(hot(&shown, "50")[0][3..5], ["50", "50"], "new memory is changed memory");
    assert!(shown.contains("b: 10 pages were given back"), "{shown}");

    // All of the process: besides them a page or two of stack, and data of libraries at the first
    // call.
    let count = |metric: &str, phase: &str| {
        read.values("plain", metric, |s| s.word("phase") == phase && s.word("method") == "compare")
            [0]
    };
    assert!((100.0..=106.0).contains(&count("pages-changed", "a")), "{shown}");
    assert!((87.0..=95.0).contains(&count("pages-changed", "b")), "{shown}");
    assert!(count("bytes-changed", "a") >= 100.0 && count("bytes-changed", "a") < 20_000.0);
    assert_eq!(read.end.unwrap().samples, 14);
}

#[test]
fn a_scan_counts_the_same_pages() {
    let program = Program::compile();
    let output = run(&["--method", "scan", "--phases", "a,b", "--", &program.path()]);
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    if errors.contains("cannot be had") {
        eprintln!("skipped: {errors}");
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{shown}{errors}");
    assert_eq!(hot(&shown, "1,000")[0][3..], ["100", "0", "0.100"], "{shown}");
    assert_eq!(hot(&shown, "990")[0][3..5], ["37", "0"], "{shown}");
    assert_eq!(hot(&shown, "50")[0][3..5], ["50", "50"], "{shown}");
}

#[test]
fn a_process_that_dies_meanwhile_leaves_what_was_measured() {
    let program = Program::compile();
    let target = program.waiting();
    let pid = target.0.id().to_string();
    let child =
        command(&["--bytes", "--interval", "0.2", "--for", "60", "--pid", &pid]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    drop(target);
    let output = child.wait_with_output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("was killed by signal 9 meanwhile"), "{shown}");
    assert!(shown.contains(" s  "), "at least one interval: {shown}");
}

#[test]
fn ctrl_c_ends_the_phase_and_the_process_lives_on_untraced() {
    let program = Program::compile();
    let target = program.waiting();
    let pid = target.0.id().to_string();
    let child = command(&["--method", "compare", "--pid", &pid]).spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    while status().contains("TracerPid:\t0\n") {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(500));
    // As Ctrl-C, which whatever a shell starts in the background ignores.
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let output = child.wait_with_output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{shown}{}", text(&output.stderr));
    assert_eq!(hot(&shown, "1,000")[0][3], "1", "{shown}");
    assert!(status().contains("TracerPid:\t0\n"));
    assert!(!status().contains("stopped"));
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let program = Program::compile();
    let (path, missing) = (program.path(), program.path() + "-missing/file");
    let (path, missing) = (path.as_str(), missing.as_str());
    for (words, status, line) in [
        (&["--json", missing, "--", path][..], 2, "cannot write"),
        (&["--", "/no/such/command"], 127, "command not found"),
        (&["--", "/etc/passwd"], 126, "cannot be executed"),
        (&["--pid", "2147483646"], 2, "there is no process 2147483646"),
        (&[], 2, "--pid PID"),
        (&["--bytes", "--memory", "1", "--phases", "a", "--", path], 1, "--memory"),
    ] {
        let words: Vec<&str> = words.to_vec();
        let output = if words.is_empty() { run(&["--top", "1"]) } else { run(&words) };
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        let told: Vec<&str> =
            errors.lines().filter(|line| line.starts_with("odfork writes:")).collect();
        assert_eq!(told.len(), 1, "{errors}");
        assert!(told[0].contains(line), "{errors}");
    }
}

#[test]
fn the_planner_finds_a_plan_that_holds() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/planner.lisp");
    let output = Command::new("sbcl")
        .args(["--noinform", "--no-userinit", "--disable-debugger", "--load", file])
        .args(["--eval", "(planner:run 3)", "--quit"])
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: sbcl is not installed (Debian package sbcl)");
        return;
    };
    let plan = text(&output.stdout);
    assert!(plan.contains("the plan holds: 13 steps"), "{plan}{}", text(&output.stderr));
    let words: String = plan.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("level 4: ((goal))"), "{plan}");
    assert!(
        words.contains("level 3: ((pick-up slippers room-2-2) (hand-over slippers me) (goal))"),
        "{plan}"
    );
    assert!(!words.split("level 1").next().unwrap().contains("push-open"), "doors are a detail");
    assert!(words.contains("(push-open door-12) (walk door-12 room-2-2 room-1-2)"), "{plan}");
}
