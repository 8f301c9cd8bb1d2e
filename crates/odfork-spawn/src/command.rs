//! The builder: what to start and how it shall differ from the parent.
//!
//! Owns the methods; what they gather is a [`Request`]. Nothing is read or opened before
//! [`Command::spawn`].

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::process::{ExitStatus, Output};

use crate::child_arguments::Limit;
use crate::error::Error;
use crate::prepare;
use crate::process::Child;
use crate::request::{Environment, Request};
use crate::signals::SignalSet;
use crate::stdio::{Source, Stdio};

/// Starts programs, as [`std::process::Command`] does, at a price that does not depend on the
/// memory of the process that starts them. What std needs a closure in the child for (and then
/// forks) is a method here.
///
/// ```
/// use odfork_spawn::{Command, Stdio};
/// let output = Command::new("tr").args(["a-z", "A-Z"]).output_for(b"hello")?;
/// assert_eq!(output.stdout, b"HELLO");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Command {
    request: Request,
}

impl Command {
    /// To start `program`; a name without a slash is searched in PATH (the program's, if it is
    /// given one of its own).
    ///
    /// As in std: arguments none, everything else inherited but the signal mask, which is empty,
    /// and SIGPIPE, which has its default (a Rust program ignores it, other programs do not expect
    /// that).
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command { request: Request::new(program.as_ref()) }
    }

    /// One more argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Command {
        self.request.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<S: AsRef<OsStr>>(
        &mut self,
        arguments: impl IntoIterator<Item = S>,
    ) -> &mut Command {
        self.request.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// The program's own name (`argv[0]`), which is else as given to [`new`](Command::new).
    pub fn arg0(&mut self, name: impl AsRef<OsStr>) -> &mut Command {
        self.request.name = Some(name.as_ref().to_owned());
        self
    }

    /// Sets a variable of the environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        let value = Some(value.as_ref().to_owned());
        self.request.environment.changes.insert(key.as_ref().to_owned(), value);
        self
    }

    /// Sets variables of the environment.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Command {
        for (key, value) in variables {
            self.env(key, value);
        }
        self
    }

    /// Removes a variable of the environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.request.environment.changes.insert(key.as_ref().to_owned(), None);
        self
    }

    /// Inherits nothing of the environment, and forgets what was set before.
    pub fn env_clear(&mut self) -> &mut Command {
        self.request.environment = Environment { cleared: true, ..Environment::default() };
        self
    }

    /// The whole environment, entry by entry as given, whether or not they look like `KEY=value`:
    /// nothing is inherited, and the other methods for variables say nothing. PATH is then searched
    /// as the parent has it, as `posix_spawnp` does.
    pub fn environment(&mut self, entries: Vec<CString>) -> &mut Command {
        self.request.environment = Environment { whole: Some(entries), ..Environment::default() };
        self
    }

    /// Whether a program's name without a slash is searched in PATH, as unless said, or is a file
    /// of the working directory, as `posix_spawn` has it.
    pub fn search_path(&mut self, search: bool) -> &mut Command {
        self.request.search_path = search;
        self
    }

    /// The working directory, entered with the program's user and group. A relative path of the
    /// program counts from there.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Command {
        self.request.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Standard input; inherited unless said, but by [`output`](Command::output).
    pub fn stdin(&mut self, source: impl Into<Stdio>) -> &mut Command {
        self.request.standard[0] = Some(source.into().0);
        self
    }

    /// Standard output; inherited unless said, but by [`output`](Command::output).
    pub fn stdout(&mut self, source: impl Into<Stdio>) -> &mut Command {
        self.request.standard[1] = Some(source.into().0);
        self
    }

    /// Standard error; inherited unless said, but by [`output`](Command::output).
    pub fn stderr(&mut self, source: impl Into<Stdio>) -> &mut Command {
        self.request.standard[2] = Some(source.into().0);
        self
    }

    /// Gives the program a descriptor under the number `to`; this command keeps it open until it is
    /// dropped. Any numbers may be exchanged; one named twice is an error of the step `request`.
    pub fn fd(&mut self, to: RawFd, from: impl Into<OwnedFd>) -> &mut Command {
        self.request.descriptors.push((to, Source::Owned(from.into())));
        self
    }

    /// As [`fd`](Command::fd), by the parent's number: open whenever the command is started, closed
    /// by its owner.
    pub fn fd_number(&mut self, to: RawFd, from: RawFd) -> &mut Command {
        self.request.descriptors.push((to, Source::Number(from)));
        self
    }

    /// Closes everything but 0, 1, 2 and what [`fd`](Command::fd) gives, whether or not it is
    /// marked close-on-exec.
    pub fn close_other_fds(&mut self, close: bool) -> &mut Command {
        self.request.close_others = close;
        self
    }

    /// A process group: 0 for one of its own.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.request.attributes.group = Some(group);
        self
    }

    /// A session of its own, without a terminal.
    pub fn session(&mut self, session: bool) -> &mut Command {
        self.request.attributes.session = session;
        self
    }

    /// The program's descriptor that becomes its controlling terminal; goes with
    /// [`session`](Command::session).
    pub fn controlling_terminal(&mut self, fd: RawFd) -> &mut Command {
        self.request.attributes.terminal = Some(fd);
        self
    }

    /// Makes the program's group the foreground group of the terminal that is its descriptor `fd`.
    pub fn foreground(&mut self, fd: RawFd) -> &mut Command {
        self.request.attributes.foreground = Some(fd);
        self
    }

    /// The signals blocked in the program; none unless said.
    pub fn signal_mask(&mut self, mask: SignalSet) -> &mut Command {
        self.request.attributes.mask = Some(mask.bits());
        self
    }

    /// The mask of the thread that starts the program, as C's functions have it.
    pub fn inherit_signal_mask(&mut self) -> &mut Command {
        self.request.attributes.mask = None;
        self
    }

    /// Signals that have their default in the program although they are ignored here. SIGPIPE
    /// unless said; signals with a handler always have their default.
    pub fn default_signals(&mut self, signals: SignalSet) -> &mut Command {
        self.request.attributes.default_signals = signals.bits();
        self
    }

    /// The file mode creation mask.
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.request.attributes.umask = Some(mask);
        self
    }

    /// The user (real, effective and saved). As in std, root that names a user and no groups gives
    /// up all supplementary groups.
    pub fn uid(&mut self, uid: u32) -> &mut Command {
        self.request.attributes.uid = Some(uid);
        self
    }

    /// The group (real, effective and saved).
    pub fn gid(&mut self, gid: u32) -> &mut Command {
        self.request.attributes.gid = Some(gid);
        self
    }

    /// The supplementary groups.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Command {
        self.request.groups = Some(groups.to_vec());
        self
    }

    /// No program executed from now on gains rights by its file (setuid, capabilities).
    pub fn no_new_privileges(&mut self, set: bool) -> &mut Command {
        self.request.attributes.no_new_privileges = set;
        self
    }

    /// A resource limit, soft and hard (`libc::RLIMIT_CORE` and others; `u64::MAX` for none).
    /// Several add up.
    pub fn limit(&mut self, resource: u32, soft: u64, hard: u64) -> &mut Command {
        self.request.limits.push(Limit { resource, soft_and_hard: [soft, hard] });
        self
    }

    /// The cgroup to be born in: its directory. Version 2 joins it at birth, version 1 before the
    /// program is executed.
    pub fn cgroup(&mut self, directory: impl AsRef<Path>) -> &mut Command {
        self.request.cgroup = Some(directory.as_ref().to_owned());
        self
    }

    /// A signal the program gets when the *thread* that started it ends (a property of Linux).
    pub fn parent_death_signal(&mut self, signal: i32) -> &mut Command {
        self.request.attributes.parent_death = Some(signal);
        self
    }

    /// A descriptor of the process with the child: see [`Child::pidfd`].
    pub fn pidfd(&mut self, want: bool) -> &mut Command {
        self.request.want_pidfd = want;
        self
    }

    /// Dropping the [`Child`] kills the program and waits for it, if it was not waited for.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Command {
        self.request.kill_on_drop = kill;
        self
    }

    /// Starts the program. Returns once it is executed; an error says which step failed, and
    /// nothing is left of it.
    pub fn spawn(&mut self) -> Result<Child, Error> {
        prepare::start(&self.request, [&Source::Inherit; 3])
    }

    /// Starts the program and waits for its end.
    pub fn status(&mut self) -> std::io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts the program and gathers what it writes to standard output and error, both at once, so
    /// that neither can block it. Unless said, input is `/dev/null` and the others are pipes.
    pub fn output(&mut self) -> std::io::Result<Output> {
        prepare::start(&self.request, [&Source::Null, &Source::Pipe, &Source::Pipe])?
            .wait_with_output()
    }

    /// As [`output`](Command::output), while writing `input` to standard input.
    pub fn output_for(&mut self, input: &[u8]) -> std::io::Result<Output> {
        prepare::start(&self.request, [&Source::Pipe, &Source::Pipe, &Source::Pipe])?
            .communicate(input)
    }

    /// As given to [`new`](Command::new).
    pub fn get_program(&self) -> &OsStr {
        &self.request.program
    }

    /// The arguments without the name.
    pub fn get_args(&self) -> impl ExactSizeIterator<Item = &OsStr> {
        self.request.arguments.iter().map(OsString::as_os_str)
    }

    /// The changes to the environment; `None` for a variable that is removed.
    pub fn get_envs(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.request
            .environment
            .changes
            .iter()
            .map(|(key, value)| (key.as_os_str(), value.as_deref()))
    }

    /// The working directory, if one was named.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.request.directory.as_deref()
    }
}
