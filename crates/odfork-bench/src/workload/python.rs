//! The subject that is Python: how it is started, so that `subprocess` can be measured in a parent
//! of its own.
//!
//! Owns the program text (subject.py, which speaks the protocol of the other subjects) and its
//! arguments. Does not own the memory it holds or how it measures: that is Python's, from the same
//! tiny program to the same clock.

use std::process::Command;

use super::program::image;

/// Searched in PATH.
pub const INTERPRETER: &str = "python3";

const TEXT: &str = include_str!("subject.py");

/// Adds to a command of the interpreter what makes it a subject. `-I`: nothing of the user's own is
/// loaded.
pub fn describe(command: &mut Command, (size, touched): (u64, u64), cpu: Option<usize>) {
    let image: String = image().iter().map(|byte| format!("{byte:02x}")).collect();
    command.args(["-I", "-c", TEXT]);
    command.args([size.to_string(), touched.to_string()]);
    command.args([cpu.map_or_else(|| "-".into(), |cpu| cpu.to_string()), image]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::workload::protocol::{Actions, Answer, Command as Line, Method};
    use std::time::Duration;

    #[test]
    fn a_subject_that_is_python_answers_as_the_others_do() {
        let mut command = Command::new(INTERPRETER);
        describe(&mut command, (8 << 20, 5 << 20), None);
        let Ok(mut link) = Link::spawn(&mut command) else {
            eprintln!("skipped: a subject that is Python: {INTERPRETER} is not installed");
            return;
        };
        let mut hear = |line: Option<Line>| -> Answer {
            if let Some(line) = line {
                link.send(&line.to_string()).unwrap();
            }
            link.receive(Duration::from_secs(60)).unwrap().parse().unwrap()
        };
        assert_eq!(hear(None), Answer::Text("ready".into()));
        let exec = |method| Line::Exec { method, actions: Actions::Plain, count: 3 };
        let started = exec(Method::PythonSubprocess);
        match hear(Some(started)) {
            Answer::Values(values) => {
                let labels: Vec<&str> = values.iter().map(|(label, _)| label.as_str()).collect();
                assert_eq!(labels, started.labels());
                assert!(values[0].1 > 10_000.0, "{values:?}");
            }
            other => panic!("{other}"),
        }
        assert!(matches!(hear(Some(Line::Verify)), Answer::Values(_)));
        for other in [exec(Method::Spawn), Line::Fork { calls: 3 }] {
            assert!(matches!(hear(Some(other)), Answer::Unavailable(_)));
        }
    }
}
