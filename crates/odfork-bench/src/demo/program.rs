//! One running program of the demo: starting it, asking it, ending it.
//!
//! Both sides have the same environment, free of ODFORK_* and LD_PRELOAD. The only difference is
//! `odfork run --freeze eager` before the command line. Times are nanoseconds here, microseconds in
//! the program's answers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::accounting::scheduled;
use crate::link::{Link, Loss};
use crate::runner::Outcome;

const LOAD_TIMEOUT: Duration = Duration::from_secs(900);
const TIMEOUT: Duration = Duration::from_secs(120);
const NS: f64 = 1e3;

pub struct Process {
    link: Link,
}

/// What it said when its content was loaded.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub bytes: f64,
    pub entries: f64,
    pub initialise: f64,
}

/// One test in a child of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// The call, in the parent.
    pub fork: f64,
    /// In the child.
    pub child: f64,
    /// From the call to the child's end.
    pub total: f64,
    /// How long the parent's main thread ran meanwhile, and waited for a processor.
    pub ran: f64,
    pub waited: f64,
}

impl Process {
    /// With a program and a file of statistics: under odfork.
    pub fn start(command: &[PathBuf], odfork: Option<(&Path, &Path)>) -> Result<Process, String> {
        let mut words = command.iter();
        let mut started = match odfork {
            Some((program, statistics)) => {
                let mut run = Command::new(program);
                run.args(["run", "--freeze", "eager", "--stats", "json", "--stats-file"]);
                run.arg(statistics).arg("--");
                run
            }
            None => Command::new(words.next().ok_or("no program is named")?),
        };
        started.args(words).env_remove("LD_PRELOAD");
        let ours =
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ODFORK"));
        for (name, _) in ours {
            started.env_remove(name);
        }
        let link = Link::spawn(&mut started).map_err(|error| format!("{error:#}"))?;
        Ok(Process { link })
    }

    /// Waits until it holds its content.
    pub fn loaded(&mut self) -> Result<Facts, String> {
        loop {
            let line = self.link.receive(LOAD_TIMEOUT).map_err(|loss| loss.to_string())?;
            if let Some([bytes, entries, initialise]) = numbers(&line, "ready") {
                return Ok(Facts { bytes, entries, initialise: initialise * NS });
            }
            if !line.starts_with("progress ") {
                return Err(format!("it said {line:?} while loading"));
            }
        }
    }

    fn ask(&mut self, question: &str) -> Result<String, Outcome> {
        let answer = self.link.send(question).and_then(|()| self.link.receive(TIMEOUT));
        answer.map_err(|loss| match loss {
            Loss::Interrupted => Outcome::Interrupted,
            loss => Outcome::Wrong(format!("{question}: {loss}")),
        })
    }

    /// Its whole content is as computed.
    pub fn verify(&mut self) -> Result<(), Outcome> {
        let line = self.ask("verify")?;
        let right = line.starts_with("verify ok");
        right.then_some(()).ok_or_else(|| Outcome::Wrong(format!("whole content: {line}")))
    }

    pub fn test(&mut self, kind: &str, seed: u32) -> Result<Test, Outcome> {
        let folder = PathBuf::from(format!("/proc/{}", self.link.pid()));
        let before = scheduled(&folder).unwrap_or_default();
        let line = self.ask(&format!("{kind} {seed}"))?;
        let after = scheduled(&folder).unwrap_or_default();
        let passed = line.split(' ').nth(6) == Some("ok");
        let numbers = numbers(&line, &format!("test {kind} {seed}")).filter(|_| passed);
        let [fork, child, total] = numbers.ok_or(Outcome::Wrong(line))?.map(|us| us * NS);
        let (ran, waited) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
        Ok(Test { fork, child, total, ran, waited })
    }

    /// Wall time of so many cycles.
    pub fn burst(&mut self, seed: u32, count: u32) -> Result<f64, Outcome> {
        let line = self.ask(&format!("burst {seed} {count}"))?;
        match numbers(&line, "burst") {
            Some([_, wall, 0.0]) => Ok(wall * NS),
            _ => Err(Outcome::Wrong(line)),
        }
    }

    /// Ends it by its protocol.
    pub fn end(&mut self) -> Result<(), Outcome> {
        let line = self.ask("quit")?;
        let status = self.link.finish(TIMEOUT);
        let status = status.map_err(|loss| Outcome::Wrong(loss.to_string()))?;
        match numbers(&line, "bye") {
            Some([_, 0.0]) if status.success() => Ok(()),
            _ => Err(Outcome::Wrong(format!("{line}, {status}"))),
        }
    }
}

/// The numbers behind a word.
fn numbers<const N: usize>(line: &str, word: &str) -> Option<[f64; N]> {
    let words = line.strip_prefix(word)?.split_whitespace();
    let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).take(N).collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as the programs do.
    const FAKE: &str = "echo progress 50; echo ready 1000 20 3000; while read word rest; do case \
        $word in verify) echo verify ok 7;; quit) echo bye 3 0; exit;; burst) echo burst 2 900 0;; \
        select) echo test select $rest 100.5 20.0 130.0 ok;; *) echo test $word $rest 1 2 3 failed \
                        why;; esac; done";

    #[test]
    fn a_program_is_loaded_asked_and_ended() {
        let command = ["/bin/sh", "-c", FAKE].map(PathBuf::from);
        let mut process = Process::start(&command, None).unwrap();
        let facts = process.loaded().unwrap();
        assert_eq!((facts.bytes, facts.entries, facts.initialise), (1000.0, 20.0, 3e6));
        process.verify().unwrap();
        let test = process.test("select", 4).unwrap();
        assert_eq!((test.fork, test.child, test.total), (100_500.0, 20_000.0, 130_000.0));
        assert_eq!(process.burst(1, 2).unwrap(), 9e5);
        let failed = process.test("delete", 4).unwrap_err();
        assert!(matches!(failed, Outcome::Wrong(line) if line.contains("failed why")));
        process.end().unwrap();
    }
}
