//! Templates under a name: started, asked, listed, stopped.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Duration;

use rustix::io::{fcntl_setfd, FdFlags};
use rustix::net::{
    bind, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::error::doing;
use crate::frame::{kind, tag, Frame};
use crate::link::Link;
use crate::place::{self, Place};
use crate::{Error, Result};

const PROGRAM: &str =
    "import sys; from odfork.zygote.template import main; sys.exit(main(int(sys.argv[1])))";

/// What a template is made of.
#[derive(Debug)]
pub struct Recipe {
    python: PathBuf,
    environment: Vec<(OsString, OsString)>,
    frame: Frame,
}

impl Recipe {
    /// An interpreter that finds the package `odfork`.
    pub fn new(python: impl AsRef<Path>) -> Recipe {
        let python = python.as_ref().to_path_buf();
        Recipe { python, environment: Vec::new(), frame: Frame::default() }
    }

    /// A module that the template imports.
    pub fn import(&mut self, module: &str) -> &mut Recipe {
        self.frame.add(tag::IMPORT, module);
        self
    }

    /// "module:function", called in the template after the imports.
    pub fn setup(&mut self, function: &str) -> &mut Recipe {
        self.frame.add(tag::SETUP, function);
        self
    }

    /// A directory to look for modules in.
    pub fn path(&mut self, directory: impl AsRef<Path>) -> &mut Recipe {
        self.frame.add(tag::PATH, directory.as_ref().as_os_str().as_bytes());
        self
    }

    /// A variable of the template's environment, LD_PRELOAD for example.
    pub fn env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Recipe {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// What a template says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Process id of the template.
    pub pid: u32,
    /// More than one: a fork would lose the others.
    pub threads: u32,
    /// Children that have not ended.
    pub children: u32,
    /// Bytes of its memory that are frozen, so that forks need not copy their page tables.
    pub frozen_bytes: u64,
    /// Why forks of the template are not cheap; empty when they are.
    pub reason: String,
}

/// Makes a template that listens under this name until it is stopped. It is a child of the caller,
/// who does not wait for it: one that has ended, also in a start that failed, stays a zombie while
/// the caller lives, unless that ignores SIGCHLD.
pub fn start(name: &str, recipe: &Recipe) -> Result<State> {
    let place = place::of(name)?;
    let lock = place::lock()?;
    if !is_left(&place.socket) {
        return Err(Error::Running(name.to_string()));
    }
    let listener = listener(&place)?;
    let ours = inode(&place.socket);
    drop(lock);
    first_answer(recipe, &place, listener).inspect_err(|_| {
        // Stopped and started again meanwhile, it is another's.
        if let Ok(_lock) = place::lock() {
            if inode(&place.socket) == ours {
                let _ = fs::remove_file(&place.socket);
            }
        }
    })
}

/// Nobody listens there. Whoever does, and has no time to let us in, is there.
fn is_left(path: &Path) -> bool {
    let connected = Link::connect_at_once(path);
    connected.is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

fn first_answer(recipe: &Recipe, place: &Place, listener: OwnedFd) -> Result<State> {
    let (ours, theirs) = Link::pair()?;
    execute(recipe, place, &theirs)?;
    drop(theirs);
    ours.send(&recipe.frame, &[listener.as_fd()])?;
    answer(&ours)
}

/// Its socket has the name only when it listens: a name that refuses is nobody's.
fn listener(place: &Place) -> Result<OwnedFd> {
    let (path, what) = (&place.unnamed, format!("listening at {}", place.shown.display()));
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(doing(&what)(error)),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(doing(&what))?;
    bind(&socket, &SocketAddrUnix::new(path).map_err(doing(&what))?).map_err(doing(&what))?;
    listen(&socket, 128).map_err(doing(&what))?;
    fs::rename(path, &place.socket).map_err(doing(&what))?;
    Ok(socket)
}

/// The template is a session of its own; what it says on standard error goes to a file.
fn execute(recipe: &Recipe, place: &Place, theirs: &OwnedFd) -> Result<()> {
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW);
    let shown = place.shown.with_extension("log").display().to_string();
    let file = options.open(&place.log).map_err(doing(&shown))?;
    let number = theirs.as_raw_fd();
    let mut command = process::Command::new(&recipe.python);
    command.args(["-c", PROGRAM, &number.to_string()]);
    command.envs(recipe.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    // SAFETY: both calls may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let theirs = rustix::fd::BorrowedFd::borrow_raw(number);
            fcntl_setfd(theirs, FdFlags::empty())?;
            rustix::process::setsid()?;
            Ok(())
        });
    }
    let what = format!("starting {}", recipe.python.display());
    command.spawn().map(drop).map_err(doing(&what))
}

fn answer(link: &Link) -> Result<State> {
    let (frame, _) = link.receive()?;
    match frame.kind {
        kind::READY | kind::STATE => Ok(State {
            pid: frame.number(tag::PROCESS) as u32,
            threads: frame.number(tag::THREADS) as u32,
            children: frame.number(tag::CHILDREN) as u32,
            frozen_bytes: frame.number(tag::FROZEN),
            reason: frame.text(tag::REASON),
        }),
        kind::FAILED => Err(Error::Refused(frame.text(tag::MESSAGE))),
        _ => Err(Error::Protocol("an answer nobody asked for")),
    }
}

pub(crate) fn connected(name: &str) -> Result<Link> {
    Link::connect(&place::of(name)?.socket).map_err(|error| unreachable(name, error))
}

fn unreachable(name: &str, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::NotRunning(name.to_string()),
        _ => doing(&format!("connecting to the zygote '{name}'"))(error),
    }
}

/// What the template of this name does now.
pub fn info(name: &str) -> Result<State> {
    let link = connected(name)?;
    answer(&link) // its first frame says the same as an answer to INFO
}

/// The same of one that may still import, or may have been stopped: it is not waited for.
fn info_soon(name: &str) -> Result<State> {
    let silent = || State { reason: "does not answer yet".to_string(), ..State::default() };
    match Link::connect_at_once(&place::of(name)?.socket) {
        Ok(link) if link.readable(Some(SOON))? => answer(&link),
        Ok(_) => Ok(silent()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(silent()),
        Err(error) => Err(unreachable(name, error)),
    }
}

/// How long a template that is ready may take for an answer.
const SOON: Duration = Duration::from_secs(1);

/// Every name somebody listens under, and its state: process 0 of those that do not answer yet.
/// Sockets nobody listens on are removed.
pub fn list() -> Result<Vec<(String, State)>> {
    let mut found = Vec::new();
    for name in place::names()? {
        match info_soon(&name) {
            Ok(state) => found.push((name, state)),
            Err(Error::NotRunning(_)) => remove_if_left(&place::of(&name)?)?,
            Err(Error::Ended) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn remove_if_left(place: &Place) -> Result<()> {
    let _lock = place::lock()?;
    if is_left(&place.socket) {
        let _ = fs::remove_file(&place.log);
        let _ = fs::remove_file(&place.socket);
    }
    Ok(())
}

/// No new children; the template ends when those it has have ended.
pub fn stop(name: &str) -> Result<()> {
    let _lock = place::lock()?;
    let place = place::of(name)?;
    let link = Link::connect_at_once(&place.socket);
    let link = link.map_err(|error| unreachable(name, error))?;
    link.send(&Frame::new(kind::STOP, 1), &[])?;
    let _ = fs::remove_file(&place.log);
    fs::remove_file(&place.socket).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(doing("removing the socket")(error)),
    })
}
