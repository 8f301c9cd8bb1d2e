//! odfork doctor as its user meets it: real programs are watched, and must not notice.
//!
//! The command runs in a process of its own: this test program starts itself again with the words
//! of the command line in its environment, because ptrace belongs to one thread and signals to one
//! process. Counts are exact; no time decides anything. Where ptrace is not permitted the tests say
//! so and end.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use odfork_inspect::doctor;
use serde_json::Value;

const WORDS: &str = "ODFORK_TEST_DOCTOR";
/// Between the words in the environment; no word of these tests holds it.
const BETWEEN: &str = "\u{1f}";
/// Longer than any wait of a test on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Not a test: the command itself, when this program was started as it.
#[test]
fn as_the_command() {
    let Ok(words) = std::env::var(WORDS) else { return };
    std::env::remove_var(WORDS);
    let words = std::iter::once("doctor").chain(words.split(BETWEEN));
    let matches = doctor::command().try_get_matches_from(words).expect("good words");
    std::process::exit(i32::from(doctor::run(&matches)));
}

/// The command with these words; what it writes is caught.
fn doctor(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_the_command", "--nocapture", "--test-threads=1"]);
    command.env(WORDS, words.join(BETWEEN)).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

struct Said {
    status: ExitStatus,
    out: String,
    err: String,
}

fn end_of(child: Child) -> Said {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { status: output.status, out: text(&output.stdout), err: text(&output.stderr) }
}

impl Said {
    /// The JSON after what the test harness says first.
    fn json(&self) -> Value {
        let from = self.out.find('{').unwrap_or_else(|| panic!("{}{}", self.out, self.err));
        serde_json::from_str(&self.out[from..]).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }

    fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

fn ask(words: &[&str]) -> Said {
    end_of(doctor(words).spawn().unwrap())
}

/// Whether a process may be traced here; asked once, by tracing one.
fn traceable() -> bool {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let refused = ANSWER.get_or_init(|| {
        let observation = ask(&["--json", "--", "true"]).json()["observation"].take();
        (observation["method"] != "ptrace").then(|| observation["reason"].to_string())
    });
    if let Some(why) = refused {
        println!("skipped: ptrace is not permitted here: {why}");
    }
    refused.is_none()
}

/// A program to be inspected; killed at the end of the test.
struct Target(Child);

impl Target {
    /// Started and past its first line of output.
    fn start(program: &str, arguments: &[&str]) -> Target {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stdin(Stdio::piped());
        let mut target = Target(command.spawn().unwrap());
        target.line();
        target
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().unwrap();
        let mut byte = [0u8];
        while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0] as char);
        }
        line
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a process of ours that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    fn state(&self) -> String {
        field(self.pid(), "State")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn field(pid: i32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or("").trim().to_owned()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < LONG, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_traced(pid: i32) -> bool {
    !matches!(field(pid, "TracerPid").as_str(), "0" | "")
}

/// A doctor that watches a process, and has attached.
fn watching(pid: i32, seconds: &str) -> Child {
    let child = doctor(&["--json", "--for", seconds, &pid.to_string()]).spawn().unwrap();
    wait_until("the tracer", || is_traced(pid));
    child
}

/// Forks by what became of them.
fn fates(counts: &Value) -> [u64; 4] {
    ["execs", "forks_then_execs", "exits", "lives"].map(|fate| counts[fate].as_u64().unwrap())
}

fn python() -> Option<&'static str> {
    let there = std::path::Path::new("/usr/bin/python3").exists();
    if !there {
        println!("skipped: /usr/bin/python3 is not there");
    }
    there.then_some("/usr/bin/python3")
}

#[test]
fn a_shell_is_counted_exactly() {
    if !traceable() {
        return;
    }
    let script = "for i in 1 2 3; do /bin/true; done; (exit 3)";
    let said = ask(&["--json", "--", "sh", "-c", script]);
    let report = said.json();
    let seen = &report["observation"]["seen"];
    assert_eq!((said.code(), seen["processes"].as_u64()), (Some(0), Some(4)), "{seen}");
    // Some shells fork for a command and some lend; the subshell is a fork in all.
    assert_eq!(fates(&seen["forks"])[0] + fates(&seen["lent"])[0], 3, "{seen}");
    assert_eq!(fates(&seen["forks"])[2], 1, "{seen}");
    assert_eq!((seen["from_shells"].as_u64(), seen["threads"].as_u64()), (Some(4), Some(0)));
    assert_eq!(report["observation"]["status"], "exit status 3");
    assert_eq!((report["schema"].as_u64(), report["kind"].as_str()), (Some(1), Some("command")));
    assert_eq!(report["advice"]["rule"], "cheap");
    let text = ask(&["--", "sh", "-c", script]).out;
    for section in ["Memory", "Page tables", "Fork now and with", "Who forks", "Recommendation"] {
        assert!(text.contains(section), "{section}: {text}");
    }
}

#[test]
fn python_forks_and_spawns() {
    let (true, Some(python)) = (traceable(), python()) else { return };
    let program = "import os, subprocess\n\
        for i in range(3): subprocess.run(['/bin/true'])\n\
        for i in range(2):\n\
        \x20   pid = os.fork()\n\
        \x20   if pid == 0: os._exit(7)\n\
        \x20   os.waitpid(pid, 0)\n\
        pid = os.fork()\n\
        if pid == 0: os.execv('/bin/true', ['true'])\n\
        os.waitpid(pid, 0)\n";
    let report = ask(&["--json", "--", python, "-c", program]).json();
    let seen = &report["observation"]["seen"];
    assert_eq!(fates(&seen["lent"]), [3, 0, 0, 0], "{seen}");
    assert_eq!(fates(&seen["forks"]), [1, 0, 2, 0], "{seen}");
    assert_eq!(seen["from_shells"], 0);
    assert!(seen["faults_until_exec"].as_f64().unwrap() > 0.0, "{seen}");
    assert!(report["subject"]["memory"]["anonymous"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn threads_are_no_processes_and_their_forks_are_the_processes() {
    let (true, Some(python)) = (traceable(), python()) else { return };
    let program = "import os, threading\n\
        def work():\n\
        \x20   pid = os.fork()\n\
        \x20   if pid == 0: os._exit(0)\n\
        \x20   os.waitpid(pid, 0)\n\
        print('ready', flush=True)\n\
        input()\n\
        list = [threading.Thread(target=work) for i in range(5)]\n\
        for thread in list: thread.start()\n\
        for thread in list: thread.join()\n";
    let mut target = Target::start(python, &["-c", program]);
    let doctor = watching(target.pid(), "60");
    drop(target.0.stdin.take().map(|mut pipe| std::io::Write::write_all(&mut pipe, b"\n")));
    let report = end_of(doctor).json();
    assert_eq!(target.0.wait().unwrap().code(), Some(0));
    let seen = &report["observation"]["seen"];
    assert_eq!(
        (seen["threads"].as_u64(), seen["processes"].as_u64()),
        (Some(5), Some(5)),
        "{seen}"
    );
    assert_eq!(fates(&seen["own_forks"]), [0, 0, 5, 0], "{seen}");
    assert_eq!(report["observation"]["alive"], false);
}

#[test]
fn a_program_with_threads_from_before_is_watched_whole() {
    let (true, Some(python)) = (traceable(), python()) else { return };
    let program = "import os, threading\n\
        go = threading.Event()\n\
        def work():\n\
        \x20   go.wait()\n\
        \x20   pid = os.fork()\n\
        \x20   if pid == 0: os._exit(0)\n\
        \x20   os.waitpid(pid, 0)\n\
        list = [threading.Thread(target=work) for i in range(4)]\n\
        for thread in list: thread.start()\n\
        print('ready', flush=True)\n\
        input()\n\
        go.set()\n\
        for thread in list: thread.join()\n";
    let mut target = Target::start(python, &["-c", program]);
    let doctor = watching(target.pid(), "60");
    // The last thread is attached a moment after the first.
    let tasks = format!("/proc/{}/task", target.pid());
    wait_until("all threads traced", || {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        let ids = tasks.map(|task| task.file_name().to_string_lossy().parse().unwrap());
        ids.collect::<Vec<i32>>().into_iter().all(is_traced)
    });
    drop(target.0.stdin.take().map(|mut pipe| std::io::Write::write_all(&mut pipe, b"\n")));
    let report = end_of(doctor).json();
    assert_eq!(target.0.wait().unwrap().code(), Some(0));
    assert_eq!(fates(&report["observation"]["seen"]["own_forks"]), [0, 0, 4, 0]);
}

#[test]
fn signals_reach_the_program_and_end_it_as_ever() {
    if !traceable() {
        return;
    }
    let handled = "trap 'echo caught' USR1; echo ready; while :; do read -r line || exit 5; done";
    let mut target = Target::start("bash", &["-c", handled]);
    let doctor = watching(target.pid(), "60");
    target.signal(libc::SIGUSR1);
    assert_eq!(target.line(), "caught");
    assert!(is_traced(target.pid()));
    target.signal(libc::SIGTERM);
    let said = end_of(doctor);
    let report = said.json();
    assert_eq!(target.0.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert_eq!(
        (said.code(), report["observation"]["status"].as_str()),
        (Some(0), Some("signal 15"))
    );
    assert_eq!(report["subject"]["name"], "bash");
}

#[test]
fn job_control_stops_stay_stops_also_when_let_go() {
    if !traceable() {
        return;
    }
    let mut target = Target::start("sh", &["-c", "echo ready; read line; echo $line; exit 4"]);
    let doctor = watching(target.pid(), "60");
    target.signal(libc::SIGSTOP);
    wait_until("the stop", || target.state().starts_with(['t', 'T']));
    target.signal(libc::SIGCONT);
    wait_until("going on", || target.state().starts_with('S'));
    target.signal(libc::SIGSTOP);
    wait_until("the second stop", || target.state().starts_with(['t', 'T']));
    // As Ctrl-C, which whatever a shell starts in the background ignores.
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(doctor.id() as i32, libc::SIGTERM) };
    let report = end_of(doctor).json();
    assert_eq!(
        (report["observation"]["alive"].as_bool(), is_traced(target.pid())),
        (Some(true), false)
    );
    // It wakes up for a moment to stop again, now for its shell alone.
    wait_until("the stop of its own", || target.state().starts_with('T'));
    // A stopped program does not answer; a continued one does.
    let mut pipe = target.0.stdin.take().unwrap();
    std::io::Write::write_all(&mut pipe, b"hello\n").unwrap();
    target.signal(libc::SIGCONT);
    assert_eq!(target.line(), "hello");
    assert_eq!(target.0.wait().unwrap().code(), Some(4));
}

#[test]
fn ctrl_c_ends_the_observation_and_not_the_program() {
    if !traceable() {
        return;
    }
    let mut target = Target::start("sh", &["-c", "echo ready; read line; (exit 9); exit 6"]);
    let doctor = watching(target.pid(), "600");
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(doctor.id() as i32, libc::SIGTERM) };
    let said = end_of(doctor);
    let observation = said.json()["observation"].take();
    assert_eq!(said.code(), Some(0));
    assert_eq!((&observation["interrupted"], &observation["alive"]), (&true.into(), &true.into()));
    assert!(!is_traced(target.pid()));
    drop(target.0.stdin.take());
    assert_eq!(target.0.wait().unwrap().code(), Some(6));
}

#[test]
fn a_time_limit_leaves_the_program_running() {
    let mut target = Target::start("sh", &["-c", "echo ready; read line; exit 8"]);
    let report = ask(&["--json", "--for", "0.2", &target.pid().to_string()]).json();
    assert_eq!(report["observation"]["alive"], true);
    assert!(target.0.try_wait().unwrap().is_none() && !is_traced(target.pid()));
    drop(target.0.stdin.take());
    assert_eq!(target.0.wait().unwrap().code(), Some(8));
}

#[test]
fn a_program_that_is_traced_already_is_sampled() {
    if !traceable() {
        return;
    }
    let target = Target::start("sh", &["-c", "echo ready; read line"]);
    let first = watching(target.pid(), "600");
    let report = ask(&["--json", "--for", "0.2", &target.pid().to_string()]).json();
    let observation = &report["observation"];
    assert_eq!(observation["method"], "sampling");
    let reason = observation["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("process {} traces it", first.id())), "{reason}");
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(first.id() as i32, libc::SIGTERM) };
    end_of(first);
}

#[test]
fn large_memory_is_priced_and_the_command_is_told_what_to_do() {
    let Some(python) = python() else { return };
    let program = "import os\n\
        block = bytearray(b'x') * (96 << 20)\n\
        pid = os.fork()\n\
        if pid == 0: os._exit(0)\n\
        os.waitpid(pid, 0)\n";
    let report = ask(&["--json", "--", python, "-c", program]).json();
    let memory = &report["subject"]["memory"];
    let entries = memory["entries"]["small"].as_u64().unwrap();
    let huge = memory["entries"]["huge"].as_u64().unwrap();
    assert!(entries + 512 * huge >= 24_576, "{memory}");
    let freezable = &report["subject"]["map"]["freezable"];
    let frozen = freezable["small"].as_u64().unwrap() + 512 * freezable["huge"].as_u64().unwrap();
    assert!((24_576..=entries + 512 * huge).contains(&frozen), "{freezable}");
    let predictions = report["predictions"].as_array().unwrap();
    let by = |engine: &str| {
        let line = predictions.iter().find(|line| line["engine"] == engine).unwrap();
        line["fork_ns"].as_f64().unwrap()
    };
    assert!(by("plain") > 1.3e6 && by("image") < 0.5 * by("plain"), "{predictions:?}");
}

#[test]
fn what_cannot_be_examined_is_told_in_one_line() {
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--", "/nonexistent/program"], 127, "was not found"),
        (&["--", "/etc/passwd"], 126, "cannot be executed"),
        (&["2147483647"], 2, "no process 2147483647"),
    ];
    for (words, status, line) in cases {
        let said = ask(words);
        assert_eq!(said.code(), Some(status), "{words:?}: {}", said.err);
        assert!(said.err.contains(line) && said.err.lines().count() == 1, "{}", said.err);
    }
}

#[test]
fn the_machine_has_a_table() {
    let report = ask(&["--json"]).json();
    assert_eq!(report["kind"], "machine");
    let sizes = report["sizes"].as_array().unwrap();
    assert!(sizes.iter().all(|size| size["predictions"].as_array().unwrap().len() == 4));
}

#[test]
fn output_of_the_command_does_not_mix_with_json() {
    let mut child = doctor(&["--json", "--", "echo", "{hello"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "{hello");
    assert_eq!(end_of(child).json()["observation"]["status"], "exit status 0");
}
