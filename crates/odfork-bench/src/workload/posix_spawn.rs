//! libc's posix_spawn of the tiny program, with the actions that the project's own Command is
//! compared in.
//!
//! Owns the file actions, the two of them that not every libc has, the pipes of one start, and the
//! descriptors a start is asked to close. Does not own the other methods (`spawn`), nor waiting.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use super::children::{is_harness_alone, Failure};
use super::extensions::{Extensions, FileActions};
use super::program::{refused, Program};
use super::protocol::Actions;
use super::spawn::{environ, ELSEWHERE};

/// One list of file actions, as C's programs write it; given back when dropped.
struct List(FileActions);

impl List {
    fn new() -> List {
        // SAFETY: initialised before it is used.
        unsafe {
            let mut actions: FileActions = std::mem::zeroed();
            libc::posix_spawn_file_actions_init(&mut actions);
            List(actions)
        }
    }

    fn duplicate(&mut self, from: RawFd, to: RawFd) -> Result<(), Failure> {
        // SAFETY: an initialised list and two numbers.
        good(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from, to) })
    }

    fn change_directory(&mut self, extensions: Extensions) -> Result<(), Failure> {
        let Some(add) = extensions.add_chdir else { return Err(lacking("addchdir_np", "2.29")) };
        // SAFETY: an initialised list and a constant string.
        good(unsafe { add(&mut self.0, ELSEWHERE.as_ptr()) })
    }

    fn close_from(&mut self, extensions: Extensions, first: RawFd) -> Result<(), Failure> {
        let Some(add) = extensions.add_closefrom else {
            return Err(lacking("addclosefrom_np", "2.34"));
        };
        // SAFETY: an initialised list and a number.
        good(unsafe { add(&mut self.0, first) })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

fn good(error: c_int) -> Result<(), Failure> {
    match error {
        0 => Ok(()),
        _ => Err(refused("posix_spawn", &std::io::Error::from_raw_os_error(error))),
    }
}

fn lacking(what: &str, version: &str) -> Failure {
    let name = format!("posix_spawn_file_actions_{what}");
    Failure::Unavailable(format!("this libc has no {name}; glibc has it since {version}"))
}

/// The parent's ends of the pipes of one start.
pub(super) struct Ends {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Program {
    pub(super) fn posix_spawn(&self, actions: Actions) -> Result<libc::pid_t, Failure> {
        let mut list = List::new();
        list.duplicate(self.output.as_raw_fd(), libc::STDOUT_FILENO)?;
        if actions == Actions::Chdir {
            list.change_directory(self.extensions)?;
        }
        if actions.litter().is_some() {
            list.close_from(self.extensions, libc::STDERR_FILENO + 1)?;
        }
        self.spawn_by(&list)
    }

    pub(super) fn posix_spawn_piped(&self) -> Result<(libc::pid_t, Ends), Failure> {
        let mut list = List::new();
        let (stdin, ours) = pipe()?;
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        list.duplicate(stdin.as_raw_fd(), libc::STDIN_FILENO)?;
        list.duplicate(stdout.as_raw_fd(), libc::STDOUT_FILENO)?;
        list.duplicate(stderr.as_raw_fd(), libc::STDERR_FILENO)?;
        let pid = self.spawn_by(&list)?;
        Ok((pid, Ends { stdin: ours, stdout: out, stderr: err }))
    }

    fn spawn_by(&self, list: &List) -> Result<libc::pid_t, Failure> {
        let arguments = self.arguments();
        let mut pid = 0;
        // SAFETY: an initialised list, strings of ours, arrays that end with null.
        good(unsafe {
            libc::posix_spawn(
                &mut pid,
                self.path.as_ptr(),
                &list.0,
                std::ptr::null(),
                arguments.as_ptr(),
                environ,
            )
        })?;
        Ok(pid)
    }
}

/// (to read from, to write to), both close-on-exec.
fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|error| refused("a pipe", &error.into()))
}

/// Open descriptors that a program would inherit, as careless libraries leave them. Closed when
/// dropped.
pub(super) struct Litter {
    _open: Vec<OwnedFd>,
    /// Declared behind the descriptors, so dropped after them.
    _limit: Option<Limit>,
}

impl Litter {
    pub fn spread(count: usize) -> Result<Litter, Failure> {
        if count == 0 || is_harness_alone() {
            return Ok(Litter { _open: Vec::new(), _limit: None });
        }
        let limit = Limit::raise_to(count as u64 + SPARE)?;
        let null = File::open("/dev/null").map_err(|error| refused("/dev/null", &error))?;
        let copy = |_| {
            // SAFETY: a descriptor of ours; the new one is ours when it succeeds. Not
            // close-on-exec.
            let fd = unsafe { libc::dup(null.as_raw_fd()) };
            if fd < 0 {
                return Err(refused("open descriptors", &std::io::Error::last_os_error()));
            }
            // SAFETY: just made, owned by nobody else.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let open = (0..count).map(copy).collect::<Result<_, _>>()?;
        Ok(Litter { _open: open, _limit: limit })
    }
}

/// Left for everything else that a subject opens.
const SPARE: u64 = 128;

/// The soft limit of descriptors as it was before it was raised; restored when dropped.
struct Limit(Rlimit);

impl Limit {
    /// None: it was high enough.
    fn raise_to(wanted: u64) -> Result<Option<Limit>, Failure> {
        let now = getrlimit(Resource::Nofile);
        if now.current.is_none_or(|current| current >= wanted) {
            return Ok(None);
        }
        if let Some(most) = now.maximum.filter(|&most| most < wanted) {
            return Err(Failure::Unavailable(format!(
                "{wanted} descriptors are needed and the hard limit is {most}; raise it with \
                 ulimit -Hn"
            )));
        }
        let higher = Rlimit { current: Some(wanted), maximum: now.maximum };
        setrlimit(Resource::Nofile, higher).map_err(|error| refused("setrlimit", &error.into()))?;
        Ok(Some(Limit(now)))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // What was allowed before is allowed again.
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
