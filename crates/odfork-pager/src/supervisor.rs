//! The supervisor: accepts programs, keeps everything that must outlive the daemon, and restarts
//! the daemon when it dies.
//!
//! It does as little as possible, so that it does not die itself: no paging, no I/O, no policy. For
//! every program it holds the backing memfd, the page table, the control pages and a duplicate of
//! the userfaultfd. The duplicate makes a daemon's death harmless: when the LAST descriptor of a
//! userfaultfd is closed, the kernel serves zero pages; as long as one is open, faults wait. (The
//! program holds one more.) A closed socket is only a hint that a program has ended: the daemon
//! asks the kernel and reports it.

mod accept;
mod connection;

use std::collections::BTreeMap;
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use odfork_pager_protocol::wire::{Kind, Message, PARENT_SHIFT, TAKE_OVER, WAITS, WITH_UFFD};
use odfork_pager_protocol::PAGE;

use crate::crash_points;
use crate::daemon::Settings;
use crate::socket;
use crate::sys;
use connection::DaemonConnection;

/// The daemon finds its socket here.
pub const DAEMON_FD: i32 = 3;
/// A daemon that dies within this time is started again only after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);

/// Configuration of a supervisor.
#[derive(Debug)]
pub struct Plan {
    /// Configuration of its daemons.
    pub settings: Settings,
    /// The file of the store, kept over daemons.
    pub store: OwnedFd,
    /// The listening socket.
    pub socket: OwnedFd,
    /// /dev/userfaultfd, for programs that may not open it.
    pub device: Option<OwnedFd>,
    /// Users beside our own whose programs are served.
    pub allow: Vec<u32>,
    /// Programs may use userfaultfd for user mode only.
    pub user_mode: bool,
    /// How long to stay without programs; None: for ever.
    pub linger: Option<Duration>,
}

struct Program {
    pid: i32,
    /// Who forked it, or 0.
    parent: u32,
    /// It has sent its userfaultfd and was not answered yet.
    waits: bool,
    name: String,
    uffd: Option<OwnedFd>,
    backing: OwnedFd,
    table: OwnedFd,
    control: OwnedFd,
}

struct Connection {
    socket: OwnedFd,
    who: libc::ucred,
    /// The program it belongs to.
    id: Option<u32>,
    /// A lease: the supervisor stays while it is open, for programs that start later.
    is_lease: bool,
}

struct Supervisor {
    plan: Plan,
    doorbell: OwnedFd,
    daemon: DaemonConnection,
    child: Child,
    started: Instant,
    /// How often the crash points' variable is still passed on.
    kills: u32,
    programs: BTreeMap<u32, Program>,
    connections: Vec<Connection>,
    next_id: u32,
    /// The last setting of each tunable.
    set: BTreeMap<String, Message>,
    files: u64,
    /// Closed for a moment when descriptors run out, so that a newcomer can be refused.
    spare: Option<OwnedFd>,
}

/// Serves until no program and no connection is left (see `Plan::linger`).
///
/// # Errors
/// The daemon could not be started, or poll failed.
pub fn run(plan: Plan) -> io::Result<()> {
    let doorbell = sys::memory_file(c"odfork-page-doorbell", PAGE as u64)?;
    let kills = std::env::var(crash_points::TIMES).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let files = sys::raise_open_files();
    socket::pass_credentials(plan.socket.as_fd())?;
    let spare = doorbell.try_clone().ok();
    let (daemon, child) = start_daemon(&plan, kills > 0)?;
    let mut supervisor = Supervisor {
        plan,
        doorbell,
        daemon,
        child,
        started: Instant::now(),
        kills,
        programs: BTreeMap::new(),
        connections: Vec::new(),
        next_id: 1,
        set: BTreeMap::new(),
        files,
        spare,
    };
    supervisor.begin()?;
    supervisor.serve()
}

fn start_daemon(plan: &Plan, may_kill: bool) -> io::Result<(DaemonConnection, Child)> {
    let (ours, theirs) = socket::socket_pair()?;
    let settings = &plan.settings;
    let mut command = Command::new("/proc/self/exe");
    command.args(["page", "serve"]);
    command.args(["--limit", &settings.limit.to_string()]);
    command.args(["--compress", settings.codec.name()]);
    command.args(["--store-size", &settings.store_bytes.to_string()]);
    command.args(["--handlers", &settings.handlers.to_string()]);
    sys::bare(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if may_kill {
        command.envs(
            std::env::var_os(crash_points::VARIABLE).map(|value| (crash_points::VARIABLE, value)),
        );
    }
    let number = theirs.as_raw_fd();
    // SAFETY: dup2 and fcntl are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let answer = if number == DAEMON_FD {
                libc::fcntl(DAEMON_FD, libc::F_SETFD, 0)
            } else {
                libc::dup2(number, DAEMON_FD)
            };
            sys::check(answer)?;
            sys::keep_no_more_than(DAEMON_FD)
        });
    }
    Ok((DaemonConnection::new(ours), command.spawn()?))
}

impl Supervisor {
    /// Sends a new daemon all state.
    fn begin(&mut self) -> io::Result<()> {
        let to = &self.daemon;
        let fds = [self.plan.store.as_fd(), self.doorbell.as_fd()];
        to.send(&Message::new(Kind::Begin), &fds)?;
        for message in self.set.values() {
            to.send(message, &[])?;
        }
        for (&id, program) in &self.programs {
            send_program(to, id, program, TAKE_OVER)?;
        }
        to.send(&Message::new(Kind::Ready), &[])
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut idle_since = Instant::now();
        loop {
            self.handle_pending();
            let polled = self.poll()?;
            // Connections first: indices are those of the poll, and the daemon's word removes some.
            for at in (0..self.connections.len()).rev() {
                if polled[at + 2] {
                    self.handle_request(at);
                }
            }
            if polled[1] && self.daemon.receive().is_err() {
                self.handle_pending();
                self.restart();
            }
            if polled[0] {
                self.accept();
            }
            if !self.programs.is_empty() || !self.connections.is_empty() {
                idle_since = Instant::now();
            } else if self.plan.linger.is_some_and(|linger| idle_since.elapsed() >= linger) {
                return Ok(());
            }
        }
    }

    /// Which of socket, daemon and connections can be read.
    fn poll(&self) -> io::Result<Vec<bool>> {
        let entry =
            |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = vec![entry(&self.plan.socket), entry(self.daemon.socket())];
        fds.extend(self.connections.iter().map(|connection| entry(&connection.socket)));
        let wait = self.plan.linger.map_or(-1, |linger| linger.as_millis().clamp(10, 1000) as i32);
        // SAFETY: the list has the length given.
        let answer = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, wait) };
        if answer < 0 {
            let error = Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            return Ok(vec![false; fds.len()]);
        }
        Ok(fds.iter().map(|fd| fd.revents != 0).collect())
    }

    /// What the daemon sent, also while it was sent to.
    fn handle_pending(&mut self) {
        while let Some(message) = self.daemon.next_pending() {
            self.handle_daemon_message(&message);
        }
    }

    fn handle_daemon_message(&mut self, message: &Message) {
        match message.kind() {
            Some(Kind::Gone) => self.forget(message.id),
            Some(Kind::Taken | Kind::Refused) => self.forward_answer(message),
            _ => {}
        }
    }

    fn forget(&mut self, id: u32) {
        self.programs.remove(&id);
        self.connections.retain(|connection| connection.id != Some(id));
    }

    /// Forwards the daemon's answer to the program that sent its userfaultfd.
    fn forward_answer(&mut self, answer: &Message) {
        let Some(program) = self.programs.get_mut(&answer.id) else { return };
        if !std::mem::take(&mut program.waits) {
            return;
        }
        let connection = self.connections.iter().find(|one| one.id == Some(answer.id));
        if let Some(connection) = connection {
            let _ = socket::offer(connection.socket.as_fd(), answer, &[]);
        }
        if answer.kind() == Some(Kind::Refused) {
            self.forget(answer.id);
        }
    }

    /// The daemon died: another one takes over.
    fn restart(&mut self) {
        let _ = self.child.kill();
        let status = self.child.wait();
        eprintln!(
            "odfork page: the daemon ended ({}); starting another one for {} programs",
            status.map_or_else(|error| error.to_string(), |status| status.to_string()),
            self.programs.len()
        );
        self.kills = self.kills.saturating_sub(1);
        loop {
            if self.started.elapsed() < SHORT_LIFE && self.kills == 0 {
                std::thread::sleep(PAUSE);
            }
            self.started = Instant::now();
            match start_daemon(&self.plan, self.kills > 0) {
                Ok((daemon, child)) => {
                    (self.daemon, self.child) = (daemon, child);
                    // If this fails, the daemon is dead again; poll will report it.
                    let _ = self.begin();
                    return;
                }
                Err(error) => {
                    eprintln!("odfork page: cannot start a daemon: {error}; trying again");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

fn send_program(to: &DaemonConnection, id: u32, program: &Program, flags: u64) -> io::Result<()> {
    let mut fds: Vec<BorrowedFd> = program.uffd.iter().map(AsFd::as_fd).collect();
    fds.extend([program.backing.as_fd(), program.table.as_fd(), program.control.as_fd()]);
    let with = if program.uffd.is_some() { WITH_UFFD } else { 0 };
    let waits = if program.waits { WAITS } else { 0 };
    let parent = u64::from(program.parent) << PARENT_SHIFT;
    let flags = flags | with | waits | parent;
    let message = Message { id, pid: program.pid, flags, ..Message::new(Kind::Client) };
    match to.send(&message.with_text(program.name.as_bytes()), &fds) {
        // The daemon has just died: the next one receives all state.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => Ok(()),
        other => other,
    }
}
