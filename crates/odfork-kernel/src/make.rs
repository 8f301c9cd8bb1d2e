//! Runs make on a kernel: a line of progress, the whole output in a file, the first errors when it
//! fails.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use rustix::pipe::{pipe_with, PipeFlags};

use crate::needs;

/// Where no build was counted yet: steps of the guest configuration of Linux 6.12.
const STEPS: usize = 2330;
const ERRORS_SHOWN: usize = 5;

/// One run of make.
#[derive(Debug)]
pub struct Job<'a> {
    pub source: &'a Path,
    pub build: &'a Path,
    pub target: &'a str,
    pub jobs: u32,
    pub variables: Vec<String>,
}

impl Job<'_> {
    pub fn log(&self) -> PathBuf {
        self.build.join("odfork-build.log")
    }

    fn count_file(&self) -> PathBuf {
        self.build.join(format!(".odfork-steps-{}", self.target))
    }

    fn command(&self) -> Command {
        let mut make = Command::new("make");
        make.arg("-C").arg(self.source).arg(format!("O={}", self.build.display()));
        make.arg(format!("-j{}", self.jobs)).arg(self.target).args(&self.variables);
        if needs::program("ccache").is_some() {
            make.args(["CC=ccache gcc", "HOSTCC=ccache gcc"]);
        }
        // The same source gives the same kernel, so that ccache finds everything again.
        make.env("KBUILD_BUILD_USER", "odfork").env("KBUILD_BUILD_HOST", "lab");
        make.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01").env("LC_ALL", "C");
        make
    }

    /// Builds; the time it took. Whole output goes to `log`.
    pub fn run(&self) -> Result<Duration> {
        let begun = Instant::now();
        let mut log = File::create(self.log())
            .with_context(|| format!("cannot write {}", self.log().display()))?;
        // A fresh build is measured against the last one, a later one rebuilds nobody knows how
        // much.
        let fresh = !self.build.join("vmlinux").exists();
        let last = fs::read_to_string(self.count_file()).ok().and_then(|n| n.trim().parse().ok());
        let mut meter = Meter::new(fresh.then(|| last.unwrap_or(STEPS)));
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().context("cannot start make")?;
        // The command holds the writing ends; the reader's end comes when make's have closed too.
        drop(command);
        for line in BufReader::new(File::from(reader)).split(b'\n') {
            let Ok(line) = line else { break };
            log.write_all(&line)
                .and_then(|()| log.write_all(b"\n"))
                .context("cannot write the log")?;
            meter.receive(&String::from_utf8_lossy(&line));
        }
        meter.clear();
        let status = child.wait().context("cannot wait for make")?;
        if !status.success() {
            bail!("{}", self.failure());
        }
        if fresh {
            let _ = fs::write(self.count_file(), format!("{}\n", meter.steps));
        }
        Ok(begun.elapsed())
    }

    fn failure(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut errors = first_errors(&text);
        errors.push(format!("the build failed; all of it is in {}", self.log().display()));
        errors.join("\n  ")
    }
}

/// The lines that say why: those of the compiler and the linker, else make's own.
fn first_errors(log: &str) -> Vec<String> {
    let of = |marks: &[&str]| -> Vec<String> {
        let lines = log.lines().filter(|line| marks.iter().any(|mark| line.contains(mark)));
        lines.take(ERRORS_SHOWN).map(|line| line.trim().chars().take(300).collect()).collect()
    };
    let found = of(&["error:", "undefined reference", "Error: ", "No space left"]);
    if found.is_empty() {
        of(&["***"])
    } else {
        found
    }
}

/// Counts make's lines "  CC      mm/memory.o" and shows where it is.
struct Meter {
    total: Option<usize>,
    steps: usize,
    begun: Instant,
    drawn: Instant,
    terminal: bool,
}

impl Meter {
    fn new(total: Option<usize>) -> Meter {
        let now = Instant::now();
        Meter { total, steps: 0, begun: now, drawn: now, terminal: std::io::stderr().is_terminal() }
    }

    fn receive(&mut self, line: &str) {
        let Some(step) = step_of(line) else { return };
        self.steps += 1;
        let pause =
            if self.terminal { Duration::from_millis(100) } else { Duration::from_secs(20) };
        if self.drawn.elapsed() < pause {
            return;
        }
        self.drawn = Instant::now();
        let text = self.text();
        if self.terminal {
            let step: String = step.chars().take(40).collect();
            eprint!("\r\x1b[K{text}  {step}");
        } else {
            eprintln!("kernel: {text}");
        }
    }

    fn text(&self) -> String {
        let spent = self.begun.elapsed().as_secs_f64();
        match self.total {
            Some(total) => {
                let share = (self.steps as f64 / total.max(1) as f64).min(0.99);
                let left = (spent / share.max(0.005) - spent).round();
                let left =
                    if share > 0.03 { format!(", about {left:.0} s left") } else { String::new() };
                format!("[{:3.0} %] {} of about {total} steps{left}", share * 100.0, self.steps)
            }
            None => format!("{} steps, {spent:.0} s", self.steps),
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// "CC mm/memory.o" of "  CC      mm/memory.o".
fn step_of(line: &str) -> Option<String> {
    let rest = line.strip_prefix("  ")?;
    let (verb, what) = rest.split_once(' ')?;
    let is_verb = !verb.is_empty()
        && verb.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
    is_verb.then(|| format!("{verb} {}", what.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_from_other_lines() {
        assert_eq!(step_of("  CC      mm/memory.o").as_deref(), Some("CC mm/memory.o"));
        assert_eq!(step_of("  LD [M]  fs/x.ko").as_deref(), Some("LD [M]  fs/x.ko"));
        for line in ["make[1]: Entering directory", "mm/memory.c:3: error: no", "", "  int a;"] {
            assert_eq!(step_of(line), None, "{line}");
        }
    }

    #[test]
    fn the_compilers_words_come_before_makes() {
        let log =
            "  CC a.o\na.c:3:1: error: expected x\nmake[3]: *** [a.o] Error 1\na.c:9:1: error: y\n";
        assert_eq!(first_errors(log), ["a.c:3:1: error: expected x", "a.c:9:1: error: y"]);
        assert_eq!(first_errors("make: *** No rule\n"), ["make: *** No rule"]);
    }
}
