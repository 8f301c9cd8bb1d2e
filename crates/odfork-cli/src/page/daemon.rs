//! `odfork page daemon`: the supervisor in the foreground; `odfork page serve`: the daemon it
//! starts.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use anyhow::{bail, Context, Error, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use odfork_pager::daemon::{Settings, LEAST_FRAMES};
use odfork_pager::store::{self, Codec};
use odfork_pager::{crash_points, endpoint, serve as server, supervisor, sys};
use odfork_proc::text::bytes;

/// Of a daemon that `page run` starts: it stays a little for the next program of a script.
const LINGER_S: u64 = 2;

pub fn command() -> Command {
    Command::new("daemon")
        .about("Serve programs in the foreground ('page run' starts one by itself)")
        .args(arguments())
        .arg(
            Arg::new("allow-uid")
                .long("allow-uid")
                .value_name("UID")
                .value_parser(clap::value_parser!(u32))
                .action(ArgAction::Append)
                .help(
                    "Serve this user's programs, too (as root: they get /dev/userfaultfd from \
                     here)",
                ),
        )
        .arg(
            Arg::new("linger")
                .long("linger")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64))
                .help("End so long after the last program [default: never]"),
        )
}

/// What `page daemon` and `page run` both take.
pub fn arguments() -> [Arg; 7] {
    [
        Arg::new("limit")
            .long("limit")
            .value_name("SIZE")
            .help("Memory for all programs together, as 512M or 2G"),
        Arg::new("store")
            .long("store")
            .value_name("PLACE")
            .default_value("/var/tmp")
            .help("Where pages are while they are out: a folder, a new file, or 'memory'"),
        Arg::new("store-size").long("store-size").value_name("SIZE").help(
            "Most bytes of the store [default: what the disk has; in memory 4 times the \
             limit]",
        ),
        Arg::new("compress")
            .long("compress")
            .value_name("HOW")
            .value_parser(["none", "lz4", "zstd"])
            .default_value("none")
            .help("Compress pages in the store: none, lz4, zstd")
            .hide_possible_values(true)
            .hide_default_value(true),
        Arg::new("handlers")
            .long("handlers")
            .value_name("N")
            .value_parser(clap::value_parser!(u32).range(1..=8))
            .default_value("1")
            .help("Threads that wait for faults; 2 pay off with many faulting threads"),
        Arg::new("allow-user-mode").long("allow-user-mode").action(ArgAction::SetTrue).help(
            "Without the right to full userfaultfd, go on: system calls on paged memory then \
             fail with EFAULT",
        ),
        socket_argument(),
    ]
}

/// Where the daemon is found.
pub fn socket_argument() -> Arg {
    Arg::new("socket")
        .long("socket")
        .value_name("PATH")
        .value_parser(clap::value_parser!(PathBuf))
        .help(
            "The daemon's socket [default: $ODFORK_PAGE_SOCKET, else in $XDG_RUNTIME_DIR/odfork \
             or /tmp/odfork-UID]",
        )
}

pub fn socket_of(given: &ArgMatches) -> Result<PathBuf> {
    Ok(endpoint::socket_path(given.get_one::<PathBuf>("socket").map(PathBuf::as_path))?)
}

pub fn limit_of(given: &ArgMatches) -> Result<u64> {
    let Some(text) = given.get_one::<String>("limit") else {
        bail!(
            "no daemon is running, so --limit is needed: how much memory the programs may have \
             together, as --limit 512M"
        );
    };
    let limit = bytes(text).map_err(Error::msg)?;
    let least = u64::from(LEAST_FRAMES) * 4096;
    if limit < least {
        bail!("--limit {text} is below the smallest working set, {}K", least >> 10);
    }
    Ok(limit)
}

fn settings(given: &ArgMatches) -> Result<Settings> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let limit = limit_of(given)?;
    let in_memory = text("store") == Some("memory");
    let store_bytes = match text("store-size") {
        Some(text) => bytes(text).map_err(Error::msg)?,
        None if in_memory => limit.saturating_mul(4),
        None => 0,
    };
    Ok(Settings {
        limit,
        codec: text("compress").and_then(Codec::from_name).unwrap_or_default(),
        store_bytes,
        handlers: given.get_one::<u32>("handlers").copied().unwrap_or(1),
    })
}

fn store_of(given: &ArgMatches, settings: &Settings) -> Result<OwnedFd> {
    let place = given.get_one::<String>("store").map_or("/var/tmp", String::as_str);
    if place == "memory" {
        return Ok(store::create_in_memory(settings.store_bytes.max(1 << 20))?);
    }
    store::create_on_disk(Path::new(place)).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            anyhow::anyhow!("the store {place} exists: name a new file or a folder")
        }
        _ => anyhow::anyhow!("the store cannot be made in {place}: {error}"),
    })
}

pub fn run(given: &ArgMatches) -> Result<u8> {
    start_bare()?;
    sys::drop_limits().map_err(Error::msg)?;
    let socket = socket_of(given)?;
    let settings = settings(given)?;
    let (listener, _lock) = endpoint::listen(&socket).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!("a daemon is running already at {}", socket.display())
        }
        _ => anyhow::anyhow!("cannot listen at {}: {error}", socket.display()),
    })?;
    let store = store_of(given, &settings)?;
    let allow: Vec<u32> =
        given.get_many::<u32>("allow-uid").into_iter().flatten().copied().collect();
    if !allow.is_empty() {
        open_to_others(&socket)?;
    }
    let plan = supervisor::Plan {
        settings,
        store,
        socket: listener,
        device: File::options()
            .read(true)
            .write(true)
            .open("/dev/userfaultfd")
            .ok()
            .map(Into::into),
        allow,
        user_mode: given.get_flag("allow-user-mode"),
        linger: given.get_one::<u64>("linger").map(|&seconds| Duration::from_secs(seconds)),
    };
    std::env::set_current_dir("/")?;
    // Whoever started us waits for this line.
    println!("ready");
    let _ = std::io::stdout().flush();
    let done = supervisor::run(plan).context("the supervisor");
    let _ = std::fs::remove_file(&socket);
    done.map(|()| 0)
}

/// Begins again without what the user's environment preloads (that may be our own agent: a
/// supervisor must not be paged), and without descriptors that happen to be open here.
fn start_bare() -> Result<()> {
    const PRELOAD: &str = "LD_PRELOAD";
    let mut again = Process::new("/proc/self/exe");
    again.args(std::env::args_os().skip(1)).env_remove(PRELOAD);
    sys::keep_no_more_than(2)?;
    if std::env::var_os(PRELOAD).is_some() {
        return Err(again.exec()).context("starting again without LD_PRELOAD");
    }
    // SAFETY: nothing of ours is open yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    Ok(())
}

/// Others may connect; whom we serve is decided by their credentials.
fn open_to_others(socket: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(socket, mode).context("opening the socket to other users")
}

pub fn serve_command() -> Command {
    Command::new("serve")
        .about("The daemon itself, started by 'page daemon'")
        .hide(true)
        .args(arguments())
}

pub fn serve(given: &ArgMatches) -> Result<u8> {
    server::serve(settings(given)?).context("the daemon")?;
    Ok(0)
}

/// Starts a daemon in the background, as `page run` was told to, and waits until it listens.
pub fn start(given: &ArgMatches, socket: &Path) -> Result<()> {
    let settings = settings(given)?;
    let log = socket.with_extension("log");
    let errors = endpoint::open_own(&log).context("the daemon's log")?;
    let mut command = Process::new("/proc/self/exe");
    command.args(["page", "daemon", "--socket"]).arg(socket);
    command.args(["--limit", &settings.limit.to_string(), "--linger", &LINGER_S.to_string()]);
    for name in ["store", "store-size", "compress"] {
        if let Some(value) = given.get_one::<String>(name) {
            command.arg(format!("--{name}"));
            match (name, value.as_str()) {
                ("store", place) if place != "memory" => command.arg(std::path::absolute(place)?),
                (_, value) => command.arg(value),
            };
        }
    }
    command.args(["--handlers", &settings.handlers.to_string()]);
    if given.get_flag("allow-user-mode") {
        command.arg("--allow-user-mode");
    }
    sys::bare(&mut command);
    for name in [crash_points::VARIABLE, crash_points::TIMES] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    // SAFETY: setsid and close_range are allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            sys::keep_no_more_than(2)
        });
    }
    let mut child = command.spawn().context("starting the daemon")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        use std::io::BufRead;
        std::io::BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() != "ready" {
        let _ = child.wait();
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("it did not say why");
        bail!(
            "the daemon could not be started: {}",
            last.trim_start_matches("odfork page daemon: ")
        );
    }
    Ok(())
}
