//! One server of the experiment: how it is started, asked and ended.
//!
//! It listens on a socket in its own folder and on a port of the loopback, and dies with this
//! process. What its answers mean is not known here.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use odfork_proc::interrupt;

use super::resp::{self, Answer};
use crate::baselines::cgroup::Group;
use crate::foreign::user::User;
use crate::foreign::{bind, clear, free_port, last_words, make_folder};

/// A server that says nothing for so long is lost; loading 4 GB takes a minute.
const PATIENCE: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(20);

/// How a server is started.
pub struct Launch<'a> {
    /// Words before the server's own.
    pub before: &'a [OsString],
    pub program: &'a Path,
    pub options: Vec<OsString>,
    pub user: Option<&'a User>,
    /// Of its socket and what it prints; it is made.
    pub folder: PathBuf,
    pub group: Option<Group>,
}

pub struct Server {
    child: Child,
    folder: PathBuf,
    pub port: u16,
    pub stream: UnixStream,
    pub pending: Vec<u8>,
    pub group: Option<Group>,
}

impl Server {
    /// Starts it and waits until it has loaded what it has to.
    pub fn start(launch: Launch) -> Result<Server, String> {
        let folder = &launch.folder;
        make_folder(folder, launch.user)?;
        let port = free_port()?;
        let mut command = command(&launch, port)?;
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(folder.join("socket")) {
                Ok(stream) => break stream,
                Err(_) if still_waits(&mut child, begin) => std::thread::sleep(STEP),
                Err(_) => return Err(why_not(child, folder)),
            }
        };
        let (pending, group) = (Vec::new(), launch.group);
        let mut server = Server { child, folder: launch.folder, port, stream, pending, group };
        server.stream.set_read_timeout(Some(STEP)).map_err(|error| error.to_string())?;
        while server.ask(&[b"PING"]) != Ok(Answer::Word("PONG".into())) {
            if !still_waits(&mut server.child, begin) {
                return Err(last_words(&server.folder.join("log")));
            }
            std::thread::sleep(STEP);
        }
        Ok(server)
    }

    /// One command, one answer; an error of the server is an answer.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Answer, String> {
        let mut out = Vec::new();
        resp::put(&mut out, words);
        self.send(&out)?;
        self.receive()
    }

    /// A command that must succeed.
    pub fn tell(&mut self, words: &[&[u8]]) -> Result<Answer, String> {
        match self.ask(words)? {
            Answer::Error(why) => Err(format!("the server refused: {why}")),
            answer => Ok(answer),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| self.lost(&error.to_string()))
    }

    pub fn receive(&mut self) -> Result<Answer, String> {
        let begin = Instant::now();
        loop {
            if let Some((answer, length)) = resp::take(&self.pending)? {
                self.pending.drain(..length);
                return Ok(answer);
            }
            if interrupt::asked() {
                return Err("interrupted".into());
            }
            if !self.pull()? && begin.elapsed() > PATIENCE {
                return Err(self.lost("no answer"));
            }
        }
    }

    /// Reads what is there; whether anything was.
    pub fn pull(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(self.lost("it closed the connection")),
            Ok(count) => {
                self.pending.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            Err(error) if is_later(error.kind()) => Ok(false),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// A field of INFO.
    pub fn info(&mut self, section: &str, name: &str) -> Result<String, String> {
        let Answer::Bytes(text) = self.tell(&[b"INFO", section.as_bytes()])? else {
            return Err("INFO is no text".into());
        };
        let text = String::from_utf8_lossy(&text);
        let value = resp::field(&text, name).ok_or(format!("INFO {section} has no {name}"))?;
        Ok(value.to_owned())
    }

    pub fn number(&mut self, section: &str, name: &str) -> Result<f64, String> {
        let text = self.info(section, name)?;
        text.parse().map_err(|_| format!("{name} is {text:?}"))
    }

    /// Asks again and again until `is_so`.
    pub fn wait_until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Server) -> Result<bool, String>,
    ) -> Result<(), String> {
        let begin = Instant::now();
        while !is_so(self)? {
            if begin.elapsed() > PATIENCE {
                return Err(format!("waited too long for {what}"));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    pub fn lost(&mut self, how: &str) -> String {
        format!("the server is lost ({how}); it said: {}", last_words(&self.folder.join("log")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// With its children, which are in its process group.
fn end(child: &mut Child) {
    // SAFETY: a process group of ours, whose leader is not reaped yet.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    let _ = child.wait();
}

pub fn is_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn still_waits(child: &mut Child, begin: Instant) -> bool {
    matches!(child.try_wait(), Ok(None)) && begin.elapsed() < PATIENCE && !interrupt::asked()
}

fn why_not(mut child: Child, folder: &Path) -> String {
    end(&mut child);
    format!("the server did not start; it said: {}", last_words(&folder.join("log")))
}

fn command(launch: &Launch, port: u16) -> Result<Command, String> {
    let mut words = launch.before.iter().map(OsString::as_os_str);
    let mut command = Command::new(words.next().unwrap_or(launch.program.as_os_str()));
    if !launch.before.is_empty() {
        command.args(words).arg(launch.program);
    }
    clear(&mut command, &["ODFORK_"]);
    let log = File::create(launch.folder.join("log")).map_err(|error| error.to_string())?;
    let copy = log.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(log).stderr(copy);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
    command.arg("--unixsocket").arg(launch.folder.join("socket")).args(&launch.options);
    if let Some(group) = &launch.group {
        group.enter(&mut command)?;
    }
    bind(&mut command, launch.user, libc::SIGKILL);
    Ok(command)
}
