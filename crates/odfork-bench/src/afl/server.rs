//! AFL's fork server from the fuzzer's side: one target that has built its state once and forks for
//! each input. afl-showmap is not used for this: before version 4.05 it waits 10 seconds for a
//! target to build its state, whatever it is told.
//!
//! The protocol: the target has two pipes, at descriptors 198 and 199. It writes one word when it
//! is ready. For each word that it then reads it forks, writes the child's process number, and
//! writes its wait status. The map of edges and the input are in System V shared memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use odfork_proc::interrupt;

use super::fuzzer::Run;
use crate::foreign::last_words;

/// Building a database of 4 GB, or one execution, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1200);
const STEP: Duration = Duration::from_millis(100);
/// The target's end of the pipes: it reads here, and writes to the next.
const ENDS: i32 = 198;
/// More edges than any target has.
const EDGES: usize = 8 << 20;
/// A length of four bytes, and the longest input that AFL knows.
const INPUT: usize = 4 + (1 << 20);
/// Of the first word: it says something; inputs come in shared memory.
const SAYS: u32 = 0x8000_0001;
const SHARED_INPUT: u32 = 0x0100_0000;

/// Shared memory that is gone with the last process that has it.
struct Segment {
    id: i32,
    start: *mut u8,
    bytes: usize,
}

impl Segment {
    fn new(bytes: usize) -> Result<Segment, String> {
        let said = |what| format!("{what}: {}", std::io::Error::last_os_error());
        // SAFETY: makes a segment and maps it where nothing is.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600) };
        if id < 0 {
            return Err(said("shmget"));
        }
        // SAFETY: as above.
        let start = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        let why = said("shmat");
        // SAFETY: Linux lets others attach by the number until the last one has detached.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        match start as isize {
            -1 => Err(why),
            _ => Ok(Segment { id, start: start.cast(), bytes }),
        }
    }

    /// The target writes there only between its two answers to one word.
    fn content(&mut self) -> &mut [u8] {
        // SAFETY: mapped, this long, until it is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: it was attached once.
        unsafe { libc::shmdt(self.start.cast()) };
    }
}

pub struct Server {
    child: Child,
    control: File,
    answers: File,
    edges: Segment,
    input: Segment,
    log: PathBuf,
}

impl Server {
    /// Starts the target, and waits until it has built its state.
    pub fn start(run: &Run, log: &Path) -> Result<Server, String> {
        let said = |error: std::io::Error| format!("{}: {error}", log.display());
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (theirs, control) = pipe().map_err(|error| said(error.into()))?;
        let (answers, answer) = pipe().map_err(|error| said(error.into()))?;
        let (edges, input) = (Segment::new(EDGES)?, Segment::new(INPUT)?);
        let mut command = run.target();
        command
            .env("__AFL_SHM_ID", edges.id.to_string())
            .env("__AFL_SHM_FUZZ_ID", input.id.to_string())
            .env("AFL_MAP_SIZE", EDGES.to_string());
        let file = File::create(log).map_err(said)?;
        command.stdin(Stdio::null()).stderr(file.try_clone().map_err(said)?).stdout(file);
        give(&mut command, [&theirs, &answer]);
        let child = command.spawn().map_err(|error| format!("the target: {error}"))?;
        // Its end of the answers, and nobody else's: when it is gone, reading ends.
        drop((theirs, answer));
        let (control, answers, log) = (control.into(), answers.into(), log.into());
        let mut server = Server { child, control, answers, edges, input, log };
        let first = server.word()?;
        if first & (SAYS | SHARED_INPUT) == SAYS | SHARED_INPUT {
            server.ask(SAYS | SHARED_INPUT)?;
        } else if first != 0 {
            return Err(format!("a fork server that says {first:#x} is not known"));
        }
        Ok(server)
    }

    /// The status of a child that ran the input, and how often it took each edge.
    pub fn execute(&mut self, input: &[u8]) -> Result<(u32, &[u8]), String> {
        let length = input.len().min(INPUT - 4);
        let shared = self.input.content();
        shared[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        shared[4..4 + length].copy_from_slice(&input[..length]);
        self.edges.content().fill(0);
        self.ask(0)?;
        self.word()?;
        let status = self.word()?;
        Ok((status, self.edges.content()))
    }

    fn ask(&mut self, word: u32) -> Result<(), String> {
        self.control.write_all(&word.to_ne_bytes()).map_err(|_| self.lost())
    }

    fn word(&mut self) -> Result<u32, String> {
        let begin = Instant::now();
        let mut poll =
            libc::pollfd { fd: self.answers.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open.
        while unsafe { libc::poll(&mut poll, 1, STEP.as_millis() as i32) } <= 0 {
            if interrupt::asked() || begin.elapsed() > PATIENCE {
                return Err(format!("the target does not answer; it said: {}", self.said()));
            }
        }
        let mut word = [0; 4];
        self.answers.read_exact(&mut word).map_err(|_| self.lost())?;
        Ok(u32::from_ne_bytes(word))
    }

    fn lost(&self) -> String {
        format!("the target is lost; it said: {}", self.said())
    }

    fn said(&self) -> String {
        last_words(&self.log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the process group of a child that is not reaped yet; an input's child is in it.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// The two descriptors become those that the target looks for.
fn give(command: &mut Command, [read, write]: [&OwnedFd; 2]) {
    let ends = [read.as_raw_fd(), write.as_raw_fd()];
    // SAFETY: CHILD: system calls only.
    unsafe {
        command.pre_exec(move || {
            for (end, place) in ends.into_iter().zip(ENDS..) {
                if libc::dup2(end, place) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fork server of a few lines: its children take as many edges as the input has bytes.
    const TARGET: &str = r"
import ctypes, os, struct
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
edges, text = (libc.shmat(int(os.environ[name]), None, 0)
               for name in ('__AFL_SHM_ID', '__AFL_SHM_FUZZ_ID'))
os.write(199, struct.pack('I', 0x81000001))
assert struct.unpack('I', os.read(198, 4))[0] == 0x81000001
while os.read(198, 4):
    child = os.fork()
    if not child:
        length = ctypes.c_uint.from_address(text).value
        for place in range(length):
            ctypes.c_ubyte.from_address(edges + 1 + place).value += 1
        os._exit(length)
    os.write(199, struct.pack('i', child))
    os.write(199, struct.pack('i', os.waitpid(child, 0)[1]))
";

    fn run(folder: &Path, text: &str) -> Run {
        let program = folder.join("target");
        // Another process writes it: a fork of another test then holds no descriptor of it.
        let mut install = Command::new("install");
        install.args(["-m755", "/dev/stdin"]).arg(&program).stdin(Stdio::piped());
        let mut install = install.spawn().unwrap();
        let all = format!("#!/usr/bin/env python3\n{text}");
        install.stdin.take().unwrap().write_all(all.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
        Run { through: None, program, bytes: 0, loops: 1, preload: None, variables: Vec::new() }
    }

    #[test]
    fn each_input_has_a_child_and_a_map_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path(), TARGET);
        let mut server = Server::start(&run, &folder.path().join("log")).unwrap();
        for input in ["abc", "", "de"] {
            let (status, edges) = server.execute(input.as_bytes()).unwrap();
            assert_eq!(status, (input.len() as u32) << 8);
            assert_eq!(edges.iter().filter(|&&count| count == 1).count(), input.len());
        }
    }

    #[test]
    fn a_target_that_ends_is_lost_and_its_last_words_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path(), "print('no memory')");
        let why = Server::start(&run, &folder.path().join("log")).err().unwrap();
        assert!(why.contains("lost") && why.contains("no memory"), "{why}");
    }
}
