//! Lines in, lines out; with the harness alone the same labels without children.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const COMMANDS: &str =
    "fork 2, read, sparse, full, fault, crowd 2, copy-touched, verify, grid 5 300, \
    touch 500 1000, service, rounds fork 2, rounds vfork 2, exec fork+exec plain 2, \
    exec vfork+exec plain 2, exec posix_spawn plain 2, exec posix_spawn close-256 2, \
    exec posix_spawn pipes 2, exec spawn plain 2, exec spawn chdir 2, exec spawn close-256 2, \
    exec rust-command plain 2, exec popen plain 2";

/// Ends when its input is closed.
struct Subject {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Subject {
    fn start(arguments: &[&str]) -> Subject {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("subject")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Subject { child, answers }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_string()
    }

    /// The labels of the answer to a command.
    fn ask(&mut self, command: &str) -> Vec<String> {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let line = self.line();
        let values = line.strip_prefix("ok ").unwrap_or_else(|| panic!("{command}: {line}"));
        let label = |word: &str| word.split_once('=').unwrap().0.to_string();
        values.split(' ').map(label).collect()
    }

    /// Page faults so far, its own and those of its children: there were children exactly when the
    /// latter is not 0.
    fn faults(&self) -> (u64, u64) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        (fields[7].parse().unwrap(), fields[8].parse().unwrap())
    }

    /// Page faults that a command brings, its own and those of its children.
    fn faults_of(&mut self, command: &str) -> (u64, u64) {
        let before = self.faults();
        self.ask(command);
        let after = self.faults();
        (after.0 - before.0, after.1 - before.1)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

pub fn the_harness_alone_answers_like_a_subject_and_has_no_children() {
    let mut real = Subject::start(&["--size", "4194304"]);
    let mut null = Subject::start(&["--size", "4194304", "--null"]);
    assert_eq!((real.line(), null.line()), ("text ready".into(), "text ready".into()));
    for command in COMMANDS.split(", ") {
        assert_eq!(real.ask(command), null.ask(command), "{command}");
    }
    assert!(real.faults().1 > 0);
    assert_eq!(null.faults().1, 0);
}

pub fn commands_keep_to_the_touched_part() {
    let mut part = Subject::start(&["--size", "67108864", "--touched", "65536"]);
    assert_eq!(part.line(), "text ready");
    // 16 pages are written by the child; were it all, they were 16384.
    let (_, faults) = part.faults_of("service");
    assert!((16..1000).contains(&faults), "{faults}");
}

pub fn each_command_writes_the_pages_it_names() {
    // 1024 pages: a page that is written after a fork is one fault. Processes need some for
    // themselves.
    let own = 100;
    let mut subject = Subject::start(&["--size", "4194304"]);
    assert_eq!(subject.line(), "text ready");
    subject.ask("fork 1");
    let (_, none) = subject.faults_of("grid 5 0");
    let (_, third) = subject.faults_of("grid 5 300");
    let (_, all) = subject.faults_of("grid 5 1000");
    assert!(none < 5 * own, "{none}");
    assert!((5 * 308..5 * (308 + own)).contains(&third), "{third}");
    assert!((5 * 1024..5 * (1024 + own)).contains(&all), "{all}");
    // The first one makes the buffer, whose faults are not of the acts.
    subject.ask("touch 1000 0");
    let (read, _) = subject.faults_of("touch 1000 1000");
    let (written, _) = subject.faults_of("touch 0 1000");
    let more = written.saturating_sub(read);
    assert!((1024 - own..1024 + own).contains(&more), "{read} {written}");
    subject.ask("fork 1");
    // Before the first round, and after the process was created.
    let (fork, _) = subject.faults_of("rounds fork 2");
    let (vfork, _) = subject.faults_of("rounds vfork 2");
    let (spawn, _) = subject.faults_of("rounds spawn 2");
    assert!(fork >= 2 * 1024, "{fork}");
    assert!(vfork < own && spawn < own, "{vfork} {spawn}");
}

pub fn what_cannot_be_held_is_told_in_the_first_line() {
    for (arguments, reason) in [
        (["--size", "4096", "--touched=8192"], "touch at most what is held"),
        (["--size", "70368744177664", "--layout=hugetlb"], "/proc/sys/vm/nr_hugepages"),
        (["--size", "70368744177664", "--layout=mapped"], "cannot map"),
    ] {
        let mut subject = Subject::start(&arguments);
        let line = subject.line();
        assert!(line.starts_with("na ") && line.contains(reason), "{line}");
        assert_eq!(subject.child.wait().unwrap().code(), Some(2));
    }
}
