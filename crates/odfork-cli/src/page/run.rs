//! `odfork page run`: starts the daemon if there is none, and becomes the program with the agent
//! preloaded.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use odfork_pager::endpoint::{self, Lease};
use odfork_pager::sys;
use odfork_pager_protocol::wire::Message;
use odfork_proc::libraries;
use odfork_proc::text::bytes;

use super::any;
use super::daemon;
use super::probe;
use super::status::{is_nobody, no_answer};
use crate::eligibility::{inspect, Answer, Refusal};
use crate::environment::Environment;
use crate::library::{preload_list, PAGER, PRELOAD};

const LIBRARY_VARIABLE: &str = "ODFORK_PAGE_LIB";

const HELP: &str = "\
Examples:
  odfork page run --limit 512M -- python3 big.py
  odfork page run --limit 1G --store memory --compress lz4 -- ./simulation
  odfork page run --limit 1G --group batch -- ./worker    shares one limit
  odfork page run -- ./another          joins the daemon that is running

All private anonymous memory of PROGRAM, and of what it starts, stays below
the limit. Where that cannot be had (--memory large), a daemon pages large
mappings (from 256 KB on) and large blocks of malloc of all programs of a user.

Exit status: that of PROGRAM; 126 when it cannot be executed, 127 when it is
not found, 2 when its memory cannot be paged.";

pub fn command() -> Command {
    Command::new("run")
        .about("Run a program whose memory is paged under a limit")
        .override_usage("odfork page run [--limit SIZE] [OPTIONS] [--] PROGRAM [ARGS]...")
        .after_help(HELP)
        .args(daemon::arguments())
        .arg(
            Arg::new("threshold")
                .long("threshold")
                .value_name("SIZE")
                .default_value("256K")
                .help("Mappings from this size on are paged"),
        )
        .arg(
            Arg::new("malloc")
                .long("malloc")
                .value_name("SIZE")
                .default_value("128K")
                .help("Blocks of malloc from this size on are paged; 0: none"),
        )
        .args(any::arguments())
        .arg(
            Arg::new("allow-pinning")
                .long("allow-pinning")
                .help(
                    "Leave io_uring, asynchronous I/O and O_DIRECT to the program: safe only \
                       when none of it reads into paged memory",
                )
                .action(ArgAction::SetTrue),
        )
        .arg(Arg::new("allow-unpaged").long("allow-unpaged").action(ArgAction::SetTrue).help(
            "Run the program without a limit when it cannot be paged or the daemon \
                       refuses it",
        ))
        .arg(
            Arg::new("words")
                .value_names(["PROGRAM", "ARGS"])
                .help("The program and its arguments, taken as they are")
                .value_parser(clap::value_parser!(OsString))
                .num_args(1..)
                .required(true)
                .action(ArgAction::Append)
                .trailing_var_arg(true),
        )
}

pub fn run(given: &ArgMatches) -> Result<u8> {
    let library = find_library()?;
    let socket = daemon::socket_of(given)?;
    let words: Vec<&OsString> = given.get_many::<OsString>("words").into_iter().flatten().collect();
    if let Some(why) = words.first().and_then(|name| unpageable(name)) {
        if !given.get_flag("allow-unpaged") {
            bail!("{why}, so it would run without a limit; --allow-unpaged lets it");
        }
        return exec(&words);
    }
    any::forget_variables();
    if any::is_meant(given) {
        if let Err(why) = probe::moves() {
            return unpaged(given, &why, &words);
        }
        for (name, value) in any::variables(given)? {
            set(name, &value);
        }
        preload(&library);
        return exec(&words);
    }
    if let Some(name) = any::ALONE.iter().find(|name| given.contains_id(name)) {
        bail!("--{name} goes with --memory any");
    }
    let Some(lease) = lease(given, &socket)? else { return exec(&words) };
    if let Err(why) = probe::check(&lease) {
        return unpaged(given, &format!("{why:#}"), &words);
    }
    hold(&lease.socket)?;
    let number = |name| -> Result<String> {
        let text = given.get_one::<String>(name).map_or("0", String::as_str);
        Ok(bytes(text).map_err(anyhow::Error::msg)?.to_string())
    };
    preload(&library);
    set(endpoint::SOCKET, socket.as_os_str());
    set("ODFORK_PAGE_THRESHOLD", number("threshold")?.as_ref());
    set("ODFORK_PAGE_MALLOC", number("malloc")?.as_ref());
    if given.contains_id("limit") {
        set("ODFORK_PAGE_LIMIT", daemon::limit_of(given)?.to_string().as_ref());
    }
    set(
        "ODFORK_PAGE_PINS",
        if given.get_flag("allow-pinning") { "allow" } else { "refuse" }.as_ref(),
    );
    exec(&words)
}

fn preload(library: &Path) {
    set(PRELOAD, &preload_list(library, std::env::var_os(PRELOAD).as_deref()));
}

/// For the program; only this thread runs.
fn set(name: &str, value: &OsStr) {
    std::env::set_var(name, value);
}

/// Why the pager's library would not be loaded into a program, or would not see its memory; what
/// cannot be known is tried.
fn unpageable(name: &OsStr) -> Option<String> {
    let Answer::No(refusal) = inspect(name, &Environment::inherited()).answer else { return None };
    let why = match refusal {
        Refusal::Static => "is statically linked".to_owned(),
        Refusal::Privileged(privilege) => privilege.words(),
        Refusal::Go => {
            "is a Go program, whose runtime asks the kernel itself for memory".to_owned()
        }
        Refusal::Foreign(_) => "is a program for another machine".to_owned(),
        Refusal::Loader { .. } => "does not use glibc".to_owned(),
        Refusal::Sanitizer(name) => format!("is built with {name}, which owns its memory"),
    };
    Some(format!("{} {why}", name.to_string_lossy()))
}

/// A daemon that stays until the program ends, started if there is none. None: the program is to
/// run without.
fn lease(given: &ArgMatches, socket: &Path) -> Result<Option<Lease>> {
    let mut started = false;
    // One that is just ending, or being started by somebody else, is there or gone soon.
    for _ in 0..100 {
        match endpoint::lease(socket) {
            Ok(Ok(lease)) if started => return Ok(Some(lease)),
            Ok(Ok(lease)) => {
                let status = endpoint::status(socket);
                say_joined(given, &status.map_err(|error| no_answer(&error, socket))?)?;
                return Ok(Some(lease));
            }
            Ok(Err(refused)) => return refusal(given, &refused),
            Err(error) if !is_nobody(&error) => return Err(no_answer(&error, socket)),
            Err(_) => {}
        }
        match daemon::start(given, socket) {
            Ok(()) => started = true,
            Err(_) if endpoint::is_taken(socket) => {
                std::thread::sleep(Duration::from_millis(30));
            }
            Err(error) => return Err(error),
        }
    }
    bail!("the daemon at {} comes and goes; its log is beside the socket", socket.display())
}

/// What cannot be paged runs only if that was allowed, and is told.
fn unpaged(given: &ArgMatches, why: &str, words: &[&OsString]) -> Result<u8> {
    if !given.get_flag("allow-unpaged") {
        bail!("{why}");
    }
    say_unpaged(why);
    exec(words)
}

fn say_unpaged(why: &str) {
    eprintln!("odfork page run: the program runs unpaged, without a limit: {why}");
}

fn refusal(given: &ArgMatches, refused: &Message) -> Result<Option<Lease>> {
    let why = match refused.pid {
        libc::EMFILE => format!(
            "the daemon has no room for one more program ({}): raise its hard limit of open files \
             (ulimit -Hn, or LimitNOFILE=) and start it again, or wait until a program ends",
            refused.text()
        ),
        libc::EACCES => "the daemon does not serve this user: 'odfork page daemon \
                         --allow-uid'"
            .into(),
        number => format!("the daemon refused: {}", io::Error::from_raw_os_error(number)),
    };
    if !given.get_flag("allow-unpaged") {
        bail!("{why}; with --allow-unpaged it runs without a limit");
    }
    say_unpaged(&why);
    Ok(None)
}

/// The lease lives as long as the program and what it starts: its descriptor survives exec, far
/// from theirs.
fn hold(socket: &OwnedFd) -> io::Result<()> {
    const FAR: i32 = 690;
    // SAFETY: plain calls on a descriptor of ours.
    unsafe {
        if libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, FAR) < 0 {
            sys::check(libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, 3))?;
        }
    }
    Ok(())
}

/// The running daemon's limit holds; another one asked for is said to be ignored.
fn say_joined(given: &ArgMatches, status: &str) -> Result<()> {
    let Some(text) = given.get_one::<String>("limit") else { return Ok(()) };
    let asked = bytes(text).map_err(anyhow::Error::msg)?;
    let value: serde_json::Value = serde_json::from_str(status).unwrap_or_default();
    let limit = value["limit_bytes"].as_u64().unwrap_or(0);
    if limit != asked {
        eprintln!(
            "odfork page run: joining the daemon that is running; its limit of {} MB holds for \
             all, not {text}",
            limit >> 20
        );
    }
    Ok(())
}

pub fn find_library() -> Result<PathBuf> {
    if let Some(set) = std::env::var_os(LIBRARY_VARIABLE).filter(|set| !set.is_empty()) {
        return Ok(std::path::absolute(set)?);
    }
    let launcher = std::env::current_exe()?;
    let found = libraries::places(&launcher, PAGER).into_iter().find(|path| path.exists());
    found.with_context(|| {
        format!(
            "{PAGER} was not found beside {}; build it with 'cargo build --release' or set \
             {LIBRARY_VARIABLE} to its path",
            launcher.display()
        )
    })
}

fn exec(words: &[&OsString]) -> Result<u8> {
    let words: Vec<CString> =
        words.iter().filter_map(|word| CString::new(word.as_bytes()).ok()).collect();
    let mut list: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    list.push(std::ptr::null());
    // SAFETY: a list of valid strings that ends with null; on success this does not return.
    unsafe { libc::execvp(list[0], list.as_ptr()) };
    let error = io::Error::last_os_error();
    eprintln!("odfork page run: cannot run '{}': {error}", words[0].to_string_lossy());
    Ok(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}
