//! The supervisor: accepts programs, keeps everything that must outlive the daemon, and starts it again when it dies.
//!
//! It does as little as possible, so that it does not die: no paging, no I/O, no policy. For every program it holds the memory
//! file, the page table, the control pages and a duplicate of the userfaultfd. The last is what makes a daemon's death
//! harmless: when the LAST descriptor of a userfaultfd is closed, the kernel gives zero pages in place of content; as
//! long as one is open, faults wait. (The program holds one more.) It believes a program gone only when the daemon says so, which asks
//! the kernel; a closed socket is a hint.

use std::collections::BTreeMap;
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use odfork_pager_protocol::control::{CONTROL_BYTES, MAGIC};
use odfork_pager_protocol::wire::{Kind, Message, OPTION_USER_MODE, TAKE_OVER, WITH_UFFD};
use odfork_pager_protocol::{PAGE, SPACE};

use crate::daemon::Settings;
use crate::points;
use crate::sys;
use crate::table::TABLE_BYTES;

/// The daemon finds its socket here.
pub const DAEMON_FD: i32 = 3;
/// A daemon that dies within this time is started again only after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);

/// How a supervisor is set up.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    pub store: OwnedFd,
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
    name: String,
    uffd: Option<OwnedFd>,
    space: OwnedFd,
    table: OwnedFd,
    control: OwnedFd,
}

struct Connection {
    socket: OwnedFd,
    who: libc::ucred,
    /// The program it speaks for.
    id: Option<u32>,
}

struct Supervisor {
    plan: Plan,
    bell: OwnedFd,
    daemon: OwnedFd,
    child: Child,
    started: Instant,
    /// How often the kill points' variable is still passed on.
    kills: u32,
    programs: BTreeMap<u32, Program>,
    connections: Vec<Connection>,
    next_id: u32,
}

/// Serves until nobody is left (see `Plan::linger`).
///
/// # Errors
/// The daemon could not be started, or poll failed.
pub fn run(plan: Plan) -> io::Result<()> {
    let bell = sys::memory_file(c"odfork-page-bell", PAGE as u64)?;
    let kills = std::env::var(points::TIMES).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (daemon, child) = start_daemon(&plan, kills > 0)?;
    let mut supervisor = Supervisor {
        plan,
        bell,
        daemon,
        child,
        started: Instant::now(),
        kills,
        programs: BTreeMap::new(),
        connections: Vec::new(),
        next_id: 1,
    };
    supervisor.begin()?;
    supervisor.serve()
}

fn start_daemon(plan: &Plan, may_kill: bool) -> io::Result<(OwnedFd, Child)> {
    let (ours, theirs) = sys::socket_pair()?;
    let settings = &plan.settings;
    let mut command = Command::new("/proc/self/exe");
    command.args(["page", "serve"]);
    command.args(["--limit", &settings.limit.to_string()]);
    command.args(["--compress", settings.codec.name()]);
    command.args(["--store-size", &settings.store_bytes.to_string()]);
    command.args(["--handlers", &settings.handlers.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if !may_kill {
        command.env_remove(points::VARIABLE);
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
            sys::check(answer).map(drop)
        });
    }
    Ok((ours, command.spawn()?))
}

impl Supervisor {
    /// Tells a new daemon everything.
    fn begin(&mut self) -> io::Result<()> {
        let to = self.daemon.as_fd();
        let fds = [self.plan.store.as_fd(), self.bell.as_fd()];
        sys::send(to, &Message::new(Kind::Begin), &fds)?;
        for (&id, program) in &self.programs {
            send_program(to, id, program, TAKE_OVER)?;
        }
        sys::send(to, &Message::new(Kind::Ready), &[])
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut lonely = Instant::now();
        loop {
            let polled = self.poll()?;
            if polled[1] {
                self.hear_daemon();
            }
            // Connections first: indices are those of the poll.
            for at in (0..self.connections.len()).rev() {
                if polled[at + 2] {
                    self.hear(at);
                }
            }
            if polled[0] {
                self.accept();
            }
            if !self.programs.is_empty() || !self.connections.is_empty() {
                lonely = Instant::now();
            } else if self.plan.linger.is_some_and(|linger| lonely.elapsed() >= linger) {
                return Ok(());
            }
        }
    }

    /// Which of socket, daemon and connections have something to say.
    fn poll(&self) -> io::Result<Vec<bool>> {
        let entry =
            |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = vec![entry(&self.plan.socket), entry(&self.daemon)];
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

    fn hear_daemon(&mut self) {
        match sys::receive(self.daemon.as_fd()) {
            Ok(Some((message, _))) if message.kind() == Some(Kind::Gone) => {
                self.programs.remove(&message.id);
                self.connections.retain(|connection| connection.id != Some(message.id));
            }
            Ok(Some(_)) => {}
            _ => self.restart(),
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
                    // If this fails, the daemon is dead again, which poll will say.
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

    fn accept(&mut self) {
        use std::os::fd::FromRawFd;
        // SAFETY: a new descriptor that nobody else owns.
        let socket = unsafe {
            let listener = self.plan.socket.as_raw_fd();
            let (null, flags) = (std::ptr::null_mut(), libc::SOCK_CLOEXEC);
            let fd = libc::accept4(listener, null, std::ptr::null_mut(), flags);
            if fd < 0 {
                return;
            }
            OwnedFd::from_raw_fd(fd)
        };
        let Ok(who) = sys::peer(socket.as_fd()) else { return };
        // SAFETY: no arguments.
        let own = unsafe { libc::geteuid() };
        if who.uid == own || who.uid == 0 || self.plan.allow.contains(&who.uid) {
            self.connections.push(Connection { socket, who, id: None });
        } else {
            refuse(socket.as_fd(), libc::EACCES);
        }
    }

    fn hear(&mut self, at: usize) {
        let heard = sys::receive(self.connections[at].socket.as_fd());
        let Ok(Some((message, fds))) = heard else {
            return self.hang_up(at);
        };
        let is_parent = message.id != 0 && self.connections[at].id == Some(message.id);
        let done = match message.kind() {
            Some(Kind::Hello) if is_parent => {
                if let Err(error) = self.welcome_child(at, &message) {
                    let number = error.raw_os_error().unwrap_or(libc::EIO);
                    refuse(self.connections[at].socket.as_fd(), number);
                }
                return;
            }
            Some(Kind::Hello) => self.welcome(at, &message),
            Some(Kind::Attach) => self.attach(at, &message, fds),
            Some(Kind::Status | Kind::Set) => {
                let connection = self.connections.swap_remove(at);
                let _ = sys::send(self.daemon.as_fd(), &message, &[connection.socket.as_fd()]);
                return;
            }
            _ => Err(Error::from_raw_os_error(libc::EPROTO)),
        };
        if let Err(error) = done {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            refuse(self.connections[at].socket.as_fd(), number);
            self.hang_up(at);
        }
    }

    fn hang_up(&mut self, at: usize) {
        let connection = self.connections.swap_remove(at);
        let Some(id) = connection.id else { return };
        let message = Message { id, ..Message::new(Kind::Gone) };
        let _ = sys::send(self.daemon.as_fd(), &message, &[]);
        if self.programs.get(&id).is_some_and(|program| program.uffd.is_none()) {
            self.programs.remove(&id);
        }
    }

    /// A program comes, or is about to fork (then its number is in the message).
    fn welcome(&mut self, at: usize, message: &Message) -> io::Result<()> {
        if self.connections[at].id.is_some() {
            return Err(Error::from_raw_os_error(libc::EPROTO));
        }
        let parent = message.id;
        let uid_of = |id: u32| {
            self.connections.iter().find(|other| other.id == Some(id)).map(|other| other.who.uid)
        };
        if parent != 0 && uid_of(parent).is_some_and(|uid| uid != self.connections[at].who.uid) {
            return Err(Error::from_raw_os_error(libc::EACCES));
        }
        let (id, program) = self.new_program(at, message)?;
        self.send_welcome(at, id, &program, None)?;
        if parent != 0 {
            send_program(self.daemon.as_fd(), id, &program, 0)?;
        }
        self.connections[at].id = Some(id);
        self.programs.insert(id, program);
        Ok(())
    }

    /// A program is about to fork and says so over its own connection: the child gets one over it, and needs neither the
    /// socket's path nor the right to connect (the program may have changed its root or its user).
    fn welcome_child(&mut self, at: usize, message: &Message) -> io::Result<()> {
        let (ours, theirs) = sys::socket_pair()?;
        let (id, program) = self.new_program(at, message)?;
        self.send_welcome(at, id, &program, Some(theirs.as_fd()))?;
        send_program(self.daemon.as_fd(), id, &program, 0)?;
        let who = self.connections[at].who;
        self.connections.push(Connection { socket: ours, who, id: Some(id) });
        self.programs.insert(id, program);
        Ok(())
    }

    fn new_program(&mut self, at: usize, message: &Message) -> io::Result<(u32, Program)> {
        let program = Program {
            pid: self.connections[at].who.pid,
            name: message.text().to_owned(),
            uffd: None,
            space: sys::memory_file(c"odfork-page-space", SPACE)?,
            table: sys::memory_file(c"odfork-page-table", TABLE_BYTES)?,
            control: new_control()?,
        };
        let id = self.next_id;
        self.next_id += 1;
        Ok((id, program))
    }

    fn send_welcome(
        &self,
        at: usize,
        id: u32,
        program: &Program,
        socket: Option<BorrowedFd>,
    ) -> io::Result<()> {
        let mut fds = vec![program.control.as_fd(), program.space.as_fd(), self.bell.as_fd()];
        fds.extend(socket);
        fds.extend(self.plan.device.as_ref().map(AsFd::as_fd));
        let flags = if self.plan.user_mode { OPTION_USER_MODE } else { 0 };
        let welcome = Message { id, flags, ..Message::new(Kind::Welcome) };
        sys::send(self.connections[at].socket.as_fd(), &welcome, &fds)
    }

    /// The program's userfaultfd: from now on its faults are served.
    fn attach(&mut self, at: usize, message: &Message, fds: Vec<OwnedFd>) -> io::Result<()> {
        let wrong = || Error::from_raw_os_error(libc::EPROTO);
        let id = self.connections[at].id.ok_or_else(wrong)?;
        let uffd = fds.into_iter().next().ok_or_else(wrong)?;
        if !is_userfaultfd(uffd.as_fd()) {
            return Err(wrong());
        }
        let program = self.programs.get_mut(&id).ok_or_else(wrong)?;
        if program.uffd.is_some() {
            return Err(wrong());
        }
        if message.pid > 0 {
            program.pid = message.pid;
        }
        if !message.text().is_empty() {
            message.text().clone_into(&mut program.name);
        }
        program.uffd = Some(uffd);
        send_program(self.daemon.as_fd(), id, program, 0)
    }
}

fn send_program(to: BorrowedFd, id: u32, program: &Program, flags: u64) -> io::Result<()> {
    let mut fds: Vec<BorrowedFd> = program.uffd.iter().map(AsFd::as_fd).collect();
    fds.extend([program.space.as_fd(), program.table.as_fd(), program.control.as_fd()]);
    let with = if program.uffd.is_some() { WITH_UFFD } else { 0 };
    let message =
        Message { id, pid: program.pid, flags: flags | with, ..Message::new(Kind::Client) };
    match sys::send(to, &message.with_text(program.name.as_bytes()), &fds) {
        // A daemon that has just died: the next one is told everything.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => Ok(()),
        other => other,
    }
}

fn refuse(to: BorrowedFd, error: i32) {
    let _ = sys::send(to, &Message { pid: error, ..Message::new(Kind::Refused) }, &[]);
}

fn new_control() -> io::Result<OwnedFd> {
    let file = sys::memory_file(c"odfork-page-control", CONTROL_BYTES as u64)?;
    sys::write_all(file.as_fd(), &MAGIC.to_ne_bytes(), 0)?;
    Ok(file)
}

fn is_userfaultfd(fd: BorrowedFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(link).is_ok_and(|to| to.to_string_lossy().contains("[userfaultfd]"))
}
