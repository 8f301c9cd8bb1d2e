//! The subject as its driver meets it: lines in, lines out; with the harness alone the same labels without children.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const COMMANDS: [&str; 16] = [
    "fork 2",
    "read",
    "sparse",
    "full",
    "fault",
    "crowd 2",
    "copy-touched",
    "verify",
    "grid 5 300",
    "touch 500 1000",
    "service",
    "rounds fork 2",
    "rounds vfork 2",
    "exec fork+exec 2",
    "exec vfork+exec 2",
    "exec posix_spawn 2",
];

/// Ends when its input is closed.
struct Subject {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Subject {
    fn start(arguments: &[&str]) -> Subject {
        let mut child = Command::new(env!("CARGO_BIN_EXE_odfork-bench"))
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

    /// Page faults of its children so far: there were children exactly when it is not 0.
    fn faults_of_children(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1;
        fields.split(' ').nth(8).unwrap().parse().unwrap()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn the_harness_alone_answers_like_a_subject_and_has_no_children() {
    let mut real = Subject::start(&["--size", "4194304"]);
    let mut null = Subject::start(&["--size", "4194304", "--null"]);
    assert_eq!((real.line(), null.line()), ("text ready".into(), "text ready".into()));
    for command in COMMANDS {
        assert_eq!(real.ask(command), null.ask(command), "{command}");
    }
    assert!(real.faults_of_children() > 0);
    assert_eq!(null.faults_of_children(), 0);
}

#[test]
fn acts_keep_to_the_touched_part() {
    let mut part = Subject::start(&["--size", "67108864", "--touched", "65536"]);
    assert_eq!(part.line(), "text ready");
    part.ask("service");
    // 16 pages are written by the child; were it all, they were 16384.
    assert!(part.faults_of_children() < 1000);
}

#[test]
fn what_cannot_be_held_is_told_in_the_first_line() {
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
