//! `odfork zygote`: warm Python processes under a name, and ready children of them.
//!
//! Owns the command and its output. The protocol and its client are in the crate `odfork-zygote`.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, FromArgMatches as _, Parser, Subcommand as Inner};
use odfork_proc::command::{cannot, Subcommand};
use odfork_proc::{table, text};
use odfork_zygote::{Child, Command, Recipe};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::environment::Environment;
use crate::library::{preload_list, search, PRELOAD};
use crate::message::say;

/// As `odfork` takes it.
pub const SUBCOMMAND: Subcommand = Subcommand {
    name: "zygote",
    command: <Zygote as clap::CommandFactory>::command,
    run: |matches| match carry_out(matches) {
        Ok(status) => status,
        Err(error) => cannot("zygote", &error),
    },
};

const HELP: &str = "\
Examples:
  odfork zygote start reports --import pandas --setup models:load
  odfork zygote run reports -- daily.py --fast    a ready child runs daily.py
  odfork zygote run reports -- -c 'print(1)'
  odfork zygote list
  odfork zygote stop reports

The interpreter needs the Python package odfork. A child has the standard
streams, folder, environment and umask of 'odfork zygote run', which passes
INT, TERM, HUP, QUIT and USR1 on to it and ends with its status.

Exit status: that of the child, 128 and the signal that ended it, or 2 after
one line that says what went wrong.";

/// Start warm Python processes, and ready children of them
#[derive(Parser)]
#[command(name = "zygote", after_help = HELP)]
struct Zygote {
    #[command(subcommand)]
    what: What,
}

#[derive(Inner)]
enum What {
    Start(Start),
    Run(Run),
    /// Show the zygotes of this user
    List,
    /// Take no new children; end when those there are have ended
    Stop {
        name: String,
    },
}

/// Start a process that imports and sets up once, and listens
#[derive(Args)]
struct Start {
    name: String,
    /// A module to import; may be repeated
    #[arg(long, value_name = "MODULE")]
    import: Vec<String>,
    /// A function to call after the imports
    #[arg(long, value_name = "MODULE:FUNCTION")]
    setup: Option<String>,
    /// A folder to look for modules in; may be repeated
    #[arg(long, value_name = "FOLDER")]
    path: Vec<PathBuf>,
    /// The interpreter
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

/// Run a script, -m MODULE or -c SOURCE in a ready child
#[derive(Args)]
struct Run {
    name: String,
    /// Kill the child after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    #[arg(value_names = ["SCRIPT", "ARGS"], required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

fn seconds(typed: &str) -> std::result::Result<Duration, String> {
    let number: f64 = typed.parse().map_err(|_| format!("'{typed}' is no number of seconds"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

fn carry_out(matches: &clap::ArgMatches) -> Result<u8> {
    match Zygote::from_arg_matches(matches)?.what {
        What::Start(asked) => start(&asked),
        What::Run(asked) => run(&asked),
        What::List => list(),
        What::Stop { name } => {
            odfork_zygote::stop(&name)?;
            Ok(0)
        }
    }
}

fn start(asked: &Start) -> Result<u8> {
    let mut recipe = Recipe::new(&asked.python);
    for module in &asked.import {
        recipe.import(module);
    }
    for folder in &asked.path {
        recipe.path(folder);
    }
    if let Some(function) = &asked.setup {
        recipe.setup(function);
    }
    let environment = Environment::inherited();
    let found = search(&environment);
    match &found.outcome {
        Ok(library) => {
            recipe.env(PRELOAD, preload_list(library, environment.get(PRELOAD)));
        }
        Err(problem) => say(&format!("{}; forks will be plain", found.complaint(problem))),
    }
    let state = odfork_zygote::start(&asked.name, &recipe)?;
    if state.threads > 1 {
        let why = format!("the template has {} threads; its children have one", state.threads);
        say(&format!("{why}: what the others do is missing there"));
    }
    println!("{}: process {}, {} frozen", asked.name, state.pid, text::size(state.frozen_bytes));
    Ok(0)
}

fn run(asked: &Run) -> Result<u8> {
    let (first, rest) = asked.words.split_first().context("a script is needed")?;
    let (mut command, arguments) = match (first.to_str(), rest.split_first()) {
        (Some("-m"), Some((module, rest))) => (Command::module(&module.to_string_lossy()), rest),
        (Some("-c"), Some((source, rest))) => (Command::source(&source.to_string_lossy()), rest),
        (Some("-m" | "-c"), None) => anyhow::bail!("{} needs a value", first.to_string_lossy()),
        _ => (Command::script(first), rest),
    };
    for argument in arguments {
        command.arg(argument);
    }
    command.envs(std::env::vars_os()).inherit_streams()?.umask(umask());
    command.current_dir(std::env::current_dir().context("the current folder")?);
    if let Some(after) = asked.deadline {
        command.deadline(after);
    }
    let signals = passed_on().context("signalfd")?;
    let mut child = spawn(command, &asked.name, signals.as_fd())?;
    let status = wait(&mut child, signals.as_fd())?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8)
}

/// Starts the child; a signal that comes meanwhile is passed on then. While the template does not
/// answer it ends this process, as it would without us: the template sees that, and kills what it
/// has started.
fn spawn(command: Command, name: &str, signals: BorrowedFd<'_>) -> Result<Child> {
    let (over, ends) = rustix::pipe::pipe().context("pipe")?;
    let name = name.to_owned();
    let starting = std::thread::spawn(move || {
        let child = command.spawn(&name);
        drop(ends);
        child
    });
    let mut early = None;
    loop {
        let of_signals = if early.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut both = [
            PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals, of_signals),
        ];
        let found = match poll(&mut both, early.is_some().then_some(&ANSWER)) {
            Err(rustix::io::Errno::INTR) => continue,
            found => found.context("poll")?,
        };
        if !both[0].revents().is_empty() {
            break;
        }
        if let (0, Some(signal)) = (found, early.take()) {
            end_by(signal);
        } else {
            early = next_of(signals)?;
        }
    }
    let child = starting.join().map_err(|_| anyhow::anyhow!("the start panicked"))??;
    early.map_or(Ok(()), |signal| child.signal(signal))?;
    Ok(child)
}

/// So long a template has for its answer after a signal.
const ANSWER: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The signal does what it would have done, unless it is ignored.
fn end_by(signal: i32) {
    let set = set_of(&[signal]);
    // SAFETY: changes this thread alone.
    unsafe {
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

fn next_of(signals: BorrowedFd<'_>) -> Result<Option<i32>> {
    let mut one = [0; size_of::<libc::signalfd_siginfo>()];
    let read = rustix::io::read(signals, &mut one).context("signalfd")?;
    Ok((read == one.len()).then(|| i32::from_ne_bytes([one[0], one[1], one[2], one[3]])))
}

/// Waits for the child, and passes the signals on that come meanwhile.
fn wait(child: &mut Child, signals: BorrowedFd<'_>) -> Result<std::process::ExitStatus> {
    loop {
        let mut both = [
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(child.as_fd(), PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Err(rustix::io::Errno::INTR) => continue,
            done => done.context("poll")?,
        };
        if both[1].revents().contains(PollFlags::IN) {
            return Ok(child.wait()?.status);
        }
        if let Some(signal) = next_of(signals)? {
            child.signal(signal)?;
        }
    }
}

/// From here on these signals come by a descriptor.
fn passed_on() -> std::io::Result<OwnedFd> {
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1];
    let set = set_of(&signals);
    // SAFETY: the descriptor is new and owned here.
    unsafe {
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC);
        if fd < 0 || libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a zeroed set is valid memory for sigemptyset.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// This process's umask, which can only be read by setting it.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

fn list() -> Result<u8> {
    let mut rows = vec![["name", "process", "children", "frozen", "why not"].map(String::from)];
    for (name, state) in odfork_zygote::list()? {
        let pid = if state.pid == 0 { "-".to_owned() } else { state.pid.to_string() };
        let children = state.children.to_string();
        rows.push([name, pid, children, text::size(state.frozen_bytes), state.reason]);
    }
    print!("{}", table::columns(&rows));
    Ok(0)
}
