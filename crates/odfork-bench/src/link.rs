//! A process on the other end of two pipes: lines go in, lines come out, and waiting has an end.
//!
//! Subjects run in their own process group, so a Ctrl-C at the terminal reaches the driver alone. A
//! process that hangs is killed by its own pid after the timeout is used up; so is every process
//! still there when a link is dropped.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use odfork_proc::interrupt;

/// How long a subject may take to end by itself once its pipe is closed (8 GB take about a second).
const ENDING: Duration = Duration::from_secs(30);

/// Why no line came.
#[derive(Debug, PartialEq)]
pub enum Loss {
    Ended(String),
    Hung(Duration),
    Interrupted,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Ended(how) => write!(out, "the process ended early: {how}"),
            Loss::Hung(time) => write!(out, "no answer for {} s; it was killed", time.as_secs()),
            Loss::Interrupted => write!(out, "interrupted"),
        }
    }
}

/// A started process and the pipes to it.
pub struct Link {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    pending: Vec<u8>,
}

enum Chunk {
    Bytes,
    End,
}

impl Link {
    pub fn spawn(command: &mut Command) -> Result<Link> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Link {
            input: child.stdin.take(),
            output: child.stdout.take().context("a pipe from the subject")?,
            child,
            pending: Vec::new(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send(&mut self, line: &str) -> Result<(), Loss> {
        let sent = match &mut self.input {
            Some(input) => writeln!(input, "{line}").and_then(|()| input.flush()),
            None => return Err(Loss::Ended("its pipe is closed".into())),
        };
        sent.map_err(|_| self.ended())
    }

    fn pending_line(&mut self) -> Option<String> {
        let end = self.pending.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// The next line, within `timeout`.
    pub fn receive(&mut self, timeout: Duration) -> Result<String, Loss> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.pending_line() {
                return Ok(line);
            }
            if let Chunk::End = self.pull(start, timeout)? {
                return Err(self.ended());
            }
        }
    }

    /// A line if one comes within `time`; unlike `receive`, nobody is killed for being slow.
    pub fn look(&mut self, time: Duration) -> Result<Option<String>, Loss> {
        if let Some(line) = self.pending_line() {
            return Ok(Some(line));
        }
        if interrupt::asked() {
            return Err(Loss::Interrupted);
        }
        if !poll(self.output.as_raw_fd(), time) {
            return Ok(None);
        }
        match self.pull(Instant::now(), Duration::from_secs(1))? {
            Chunk::End => Err(self.ended()),
            Chunk::Bytes => self.look(Duration::ZERO),
        }
    }

    /// Ends the process's input: whoever works until then says what is left to say.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits until the process has ended, within `timeout`.
    pub fn finish(&mut self, timeout: Duration) -> Result<ExitStatus, Loss> {
        let start = Instant::now();
        self.input = None;
        while let Chunk::Bytes = self.pull(start, timeout)? {}
        self.child.wait().map_err(|error| Loss::Ended(error.to_string()))
    }

    /// Reads what is there; the end of file comes after the process has given its memory back.
    fn pull(&mut self, start: Instant, timeout: Duration) -> Result<Chunk, Loss> {
        loop {
            if interrupt::asked() {
                return Err(Loss::Interrupted);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let _ = self.child.kill();
                return Err(Loss::Hung(timeout));
            }
            if poll(self.output.as_raw_fd(), left) {
                break;
            }
        }
        let mut buffer = [0u8; 4096];
        match std::io::Read::read(&mut self.output, &mut buffer) {
            Ok(0) => Ok(Chunk::End),
            Ok(count) => {
                self.pending.extend_from_slice(&buffer[..count]);
                Ok(Chunk::Bytes)
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(Chunk::Bytes),
            Err(error) => Err(Loss::Ended(error.to_string())),
        }
    }

    fn ended(&mut self) -> Loss {
        match self.child.wait() {
            Ok(status) => Loss::Ended(status.to_string()),
            Err(error) => Loss::Ended(error.to_string()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.input = None;
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if start.elapsed() > ENDING || interrupt::asked() {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Whether the descriptor became readable (or closed) within `time`. A signal ends the wait early.
fn poll(descriptor: i32, time: Duration) -> bool {
    let mut entry = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let milliseconds = time.as_millis().clamp(1, 1000) as libc::c_int;
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut entry, 1, milliseconds) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn lines_come_back_one_by_one() {
        let mut link = Link::spawn(&mut Command::new("cat")).unwrap();
        link.send("one").unwrap();
        link.send("two").unwrap();
        assert_eq!(link.receive(TIMEOUT), Ok("one".to_string()));
        assert_eq!(link.receive(TIMEOUT), Ok("two".to_string()));
        assert!(link.finish(TIMEOUT).unwrap().success());
    }

    #[test]
    fn an_early_end_tells_how() {
        let mut link = Link::spawn(Command::new("sh").args(["-c", "exit 3"])).unwrap();
        let Err(Loss::Ended(how)) = link.receive(TIMEOUT) else {
            panic!("a line from nobody");
        };
        assert!(how.contains('3'), "{how}");
    }

    #[test]
    fn a_process_that_hangs_is_killed() {
        let mut link = Link::spawn(Command::new("sleep").arg("60")).unwrap();
        let timeout = Duration::from_millis(30);
        assert_eq!(link.receive(timeout), Err(Loss::Hung(timeout)));
        assert!(!link.child.wait().unwrap().success());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Link::spawn(&mut Command::new("/no/such/program")).err().unwrap();
        assert!(format!("{error:#}").contains("/no/such/program"));
    }
}
