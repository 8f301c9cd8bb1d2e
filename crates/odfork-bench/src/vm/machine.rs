//! One machine: QEMU with a guest that has booted, and the lines it answers with.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use odfork_proc::interrupt;

use super::guest::Workshop;
use crate::foreign::arms::Arm;
use crate::foreign::{bind, clear, last_words};
use crate::measure::library;

/// Booting an emulated guest, or a slice, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(100);
/// Memory of the guest beside what it fills: Linux, and its tables of that.
pub const fn overhead(bytes: u64) -> u64 {
    (128 << 20) + bytes / 16
}

/// What the machine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub bytes: u64,
    /// Whether QEMU gets the huge pages it asks for.
    pub huge: bool,
}

/// What it says after a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub executions: u64,
    pub nanoseconds: f64,
    pub in_fork: f64,
    /// Of the results of all inputs.
    pub digest: String,
    /// Results that were not what the same input gave before.
    pub changed: u64,
    /// Executions since it booted.
    pub all: u64,
}

pub struct Machine {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Machine {
    /// Starts it and waits until the guest is ready.
    pub fn start(
        workshop: &Workshop,
        (odfork, arm): (&Path, &Arm),
        case: Case,
        folder: &Path,
    ) -> Result<Machine, String> {
        let said = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(said)?;
        let log = folder.join("log");
        let file = File::create(&log).map_err(said)?;
        let mut command = command(workshop, (odfork, arm), case, folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().map_err(|error| format!("qemu: {error}"))?;
        let (commands, output) = (child.stdin.take(), child.stdout.take());
        let (Some(commands), Some(output)) = (commands, output) else {
            return Err("qemu has no pipes".into());
        };
        let mut machine = Machine { child, commands, lines: lines_of(output), log };
        let line = machine.line()?;
        match line.starts_with("ready ") {
            true => Ok(machine),
            false => Err(format!("the guest said {line:?}")),
        }
    }

    pub fn slice(&mut self, length: Duration) -> Result<Done, String> {
        writeln!(self.commands, "run {}", length.as_millis())
            .map_err(|error| format!("qemu does not listen: {error}"))?;
        let line = self.line()?;
        done(&line).ok_or(format!("qemu said {line:?}"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> Result<String, String> {
        let begin = Instant::now();
        loop {
            if let Ok(line) = self.lines.recv_timeout(STEP) {
                return Ok(line);
            }
            let is_alive = matches!(self.child.try_wait(), Ok(None));
            if interrupt::asked() || !is_alive || begin.elapsed() > PATIENCE {
                let why = if is_alive { "does not answer" } else { "ended" };
                return Err(format!("qemu {why}; it said: {}", last_words(&self.log)));
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the process group of a child that is not reaped yet; an input's child is in it.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// A thread reads them, so that waiting for one can end.
fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut all = BufReader::new(output).lines().map_while(Result::ok);
        all.try_for_each(|line| sender.send(line))
    });
    lines
}

fn command(
    workshop: &Workshop,
    (odfork, arm): (&Path, &Arm),
    case: Case,
    folder: &Path,
) -> Command {
    let mut words = arm.words(odfork);
    words.push(workshop.qemu.clone().into());
    let mut command = Command::new(&words[0]);
    clear(&mut command, &["ODFORK_", "FORKER_"]);
    bind(&mut command, None, libc::SIGKILL);
    // In this order the library's answers come first, and what it passes on is odfork's.
    let mut preloaded = workshop.forker.clone().into_os_string();
    if arm.has_library() {
        preloaded.push(":");
        preloaded.push(library(odfork));
    }
    command.args(&words[1..]).env("LD_PRELOAD", preloaded);
    if !case.huge {
        command.env("FORKER_SMALL", "1");
    }
    let memory = format!("{}M", (case.bytes + overhead(case.bytes)) >> 20);
    // Memory that the kernel may merge with other guests' cannot be frozen.
    command.args([
        "-machine",
        "pc,mem-merge=off",
        "-accel",
        "tcg,thread=single,tb-size=16",
        "-smp",
        "1",
        "-m",
        &memory,
    ]);
    command
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-kernel"])
        .arg(&workshop.kernel);
    let port = format!("file,id=port,path={}", folder.join("port").display());
    command.args(["-chardev", &port, "-device", "isa-debugcon,iobase=0xe9,chardev=port"]);
    // The kernel takes what it does not know for its own process's: "held".
    let line = format!("quiet panic=-1 nokaslr norandmaps held={}", case.bytes);
    command.arg("-initrd").arg(&workshop.archive).args(["-append", &line]);
    command
}

fn done(line: &str) -> Option<Done> {
    let words: Vec<&str> = line.split(' ').collect();
    let [executions, nanoseconds, in_fork, digest, changed, all] = words[..] else { return None };
    Some(Done {
        executions: executions.parse().ok()?,
        nanoseconds: nanoseconds.parse().ok()?,
        in_fork: in_fork.parse().ok()?,
        digest: digest.into(),
        changed: changed.parse().ok()?,
        all: all.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_six_words() {
        let answer = done("120 2000000 30000 00ff 1 300").unwrap();
        assert_eq!((answer.executions, answer.all, answer.changed), (120, 300, 1));
        assert_eq!((answer.nanoseconds, answer.in_fork, &answer.digest[..]), (2e6, 3e4, "00ff"));
        assert_eq!(done("error a child died"), None);
        assert_eq!(done("120 2000000 30000 00ff 1"), None);
    }
}
