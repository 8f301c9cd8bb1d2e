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
use odfork_pager_protocol::wire::{
    Kind, Message, OPTION_USER_MODE, PARENT_SHIFT, TAKE_OVER, WAITS, WITH_UFFD,
};
use odfork_pager_protocol::{PAGE, SPACE};

use crate::daemon::Settings;
use crate::knobs::Knobs;
use crate::points;
use crate::sys;
use crate::table::TABLE_BYTES;

/// The daemon finds its socket here.
pub const DAEMON_FD: i32 = 3;
/// A daemon that dies within this time is started again only after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// Descriptors of ours, and of the daemon's, for each program (connection, lease, userfaultfd, space, table, control; two
/// connections more for those who only ask), and those for everything else.
const FILES_A_PROGRAM: u64 = 8;
const FILES_BESIDE: u64 = 64;

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
    /// Who forked it, or 0.
    parent: u32,
    /// It has sent its userfaultfd and was not answered yet.
    waits: bool,
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
    /// It is there so that we stay: its programs may come late.
    is_lease: bool,
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
    /// The last setting of each knob.
    set: BTreeMap<String, Message>,
    files: u64,
    /// Given up for a moment when there are no more descriptors, to say so to who comes.
    spare: Option<OwnedFd>,
}

/// Serves until nobody is left (see `Plan::linger`).
///
/// # Errors
/// The daemon could not be started, or poll failed.
pub fn run(plan: Plan) -> io::Result<()> {
    let bell = sys::memory_file(c"odfork-page-bell", PAGE as u64)?;
    let kills = std::env::var(points::TIMES).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let files = sys::raise_open_files();
    sys::ask_for_senders(plan.socket.as_fd())?;
    let spare = bell.try_clone().ok();
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
        set: BTreeMap::new(),
        files,
        spare,
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
    sys::bare(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if may_kill {
        command.envs(std::env::var_os(points::VARIABLE).map(|value| (points::VARIABLE, value)));
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
    Ok((ours, command.spawn()?))
}

impl Supervisor {
    /// Tells a new daemon everything.
    fn begin(&mut self) -> io::Result<()> {
        let to = self.daemon.as_fd();
        let fds = [self.plan.store.as_fd(), self.bell.as_fd()];
        sys::send(to, &Message::new(Kind::Begin), &fds)?;
        for message in self.set.values() {
            sys::send(to, message, &[])?;
        }
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
            Ok(Some((message, _))) => match message.kind() {
                Some(Kind::Gone) => self.forget(message.id),
                Some(Kind::Taken | Kind::Refused) => self.pass_on(&message),
                _ => {}
            },
            _ => self.restart(),
        }
    }

    fn forget(&mut self, id: u32) {
        self.programs.remove(&id);
        self.connections.retain(|connection| connection.id != Some(id));
    }

    /// The daemon's answer to who has sent its userfaultfd.
    fn pass_on(&mut self, answer: &Message) {
        let Some(program) = self.programs.get_mut(&answer.id) else { return };
        if !std::mem::take(&mut program.waits) {
            return;
        }
        let connection = self.connections.iter().find(|one| one.id == Some(answer.id));
        if let Some(connection) = connection {
            let _ = sys::send(connection.socket.as_fd(), answer, &[]);
        }
        if answer.kind() == Some(Kind::Refused) {
            self.forget(answer.id);
        }
    }

    /// Programs that can be had at a time.
    fn room(&self) -> usize {
        (self.files.saturating_sub(FILES_BESIDE) / FILES_A_PROGRAM).max(1) as usize
    }

    /// Room for one program more, or what is in the way.
    fn check_room(&self) -> Result<(), Message> {
        let leases = self.connections.iter().filter(|one| one.is_lease).count();
        let used = self.programs.len().max(leases);
        if used < self.room() {
            return Ok(());
        }
        let text = format!("{used} programs, {} descriptors", self.files);
        let refused = Message { pid: libc::EMFILE, ..Message::new(Kind::Refused) };
        Err(refused.with_text(text.as_bytes()))
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
            let accept = || libc::accept4(listener, null, std::ptr::null_mut(), flags);
            let mut fd = accept();
            let is_full = fd < 0
                && matches!(
                    Error::last_os_error().raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE)
                );
            if is_full && self.spare.take().is_some() {
                // Whoever waits is told, not left to wait.
                fd = accept();
                if fd >= 0 {
                    refuse(OwnedFd::from_raw_fd(fd).as_fd(), libc::EMFILE);
                }
                self.spare = self.bell.try_clone().ok();
                return;
            }
            if fd < 0 {
                return;
            }
            OwnedFd::from_raw_fd(fd)
        };
        let Ok(who) = sys::peer(socket.as_fd()) else { return };
        if self.connections.len() >= 3 * self.room()
            || sys::ask_for_senders(socket.as_fd()).is_err()
        {
            return refuse(socket.as_fd(), libc::EMFILE);
        }
        // SAFETY: no arguments.
        let own = unsafe { libc::geteuid() };
        if who.uid == own || who.uid == 0 || self.plan.allow.contains(&who.uid) {
            self.connections.push(Connection { socket, who, id: None, is_lease: false });
        } else {
            refuse(socket.as_fd(), libc::EACCES);
        }
    }

    fn hear(&mut self, at: usize) {
        let heard = sys::receive_from(self.connections[at].socket.as_fd());
        let Ok(Some((message, fds, sender))) = heard else {
            return self.hang_up(at);
        };
        let who = self.connections[at].who;
        let pid = sender.filter(|sender| sender.pid > 0).unwrap_or(who).pid;
        // Over its own connection, which it needs further.
        let for_child = message.kind() == Some(Kind::Hello)
            && message.id != 0
            && self.connections[at].id == Some(message.id);
        if matches!(message.kind(), Some(Kind::Hello | Kind::Lease)) {
            if let Err(refused) = self.check_room() {
                let _ = sys::send(self.connections[at].socket.as_fd(), &refused, &[]);
                if !for_child {
                    self.hang_up(at);
                }
                return;
            }
        }
        if for_child {
            if let Err(error) = self.welcome_child(at, &message, pid) {
                let number = error.raw_os_error().unwrap_or(libc::EIO);
                refuse(self.connections[at].socket.as_fd(), number);
            }
            return;
        }
        let done = match message.kind() {
            Some(Kind::Hello) => self.welcome(at, &message, pid),
            Some(Kind::Attach) => self.attach(at, &message, fds, pid),
            Some(Kind::Lease) => self.lease(at),
            Some(Kind::Set) if !self.may_set(who.uid) => {
                let connection = self.connections.swap_remove(at);
                return say(
                    connection.socket.as_fd(),
                    "only root and the daemon's own user change its settings\n",
                );
            }
            Some(Kind::Status | Kind::Set) => {
                if message.kind() == Some(Kind::Set) {
                    self.remember(&message);
                }
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

    /// Others are served, but the limits are ours.
    fn may_set(&self, uid: u32) -> bool {
        // SAFETY: no arguments.
        uid == 0 || uid == unsafe { libc::geteuid() }
    }

    /// For the next daemon.
    fn remember(&mut self, message: &Message) {
        let is_sound = Knobs::default().set(message.text()).is_ok();
        if let Some((name, _)) = message.text().split_once('=').filter(|_| is_sound) {
            self.set.insert(name.to_owned(), *message);
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
    fn welcome(&mut self, at: usize, message: &Message, pid: i32) -> io::Result<()> {
        if self.connections[at].id.is_some() {
            return Err(Error::from_raw_os_error(libc::EPROTO));
        }
        let (id, program) = self.new_program(message, pid)?;
        self.send_welcome(at, id, &program, None)?;
        if program.parent != 0 {
            send_program(self.daemon.as_fd(), id, &program, 0)?;
        }
        self.connections[at].id = Some(id);
        self.programs.insert(id, program);
        Ok(())
    }

    /// A program is about to fork and says so over its own connection: the child gets one over it, and needs neither the
    /// socket's path nor the right to connect (the program may have changed its root or its user).
    fn welcome_child(&mut self, at: usize, message: &Message, pid: i32) -> io::Result<()> {
        let (ours, theirs) = sys::socket_pair()?;
        sys::ask_for_senders(ours.as_fd())?;
        let (id, program) = self.new_program(message, pid)?;
        self.send_welcome(at, id, &program, Some(theirs.as_fd()))?;
        send_program(self.daemon.as_fd(), id, &program, 0)?;
        let who = self.connections[at].who;
        self.connections.push(Connection { socket: ours, who, id: Some(id), is_lease: false });
        self.programs.insert(id, program);
        Ok(())
    }

    fn new_program(&mut self, message: &Message, pid: i32) -> io::Result<(u32, Program)> {
        let parent = message.id;
        // A program forks for itself only.
        if parent != 0 && self.programs.get(&parent).is_none_or(|one| one.pid != pid) {
            return Err(Error::from_raw_os_error(libc::EPERM));
        }
        let program = Program {
            pid,
            parent,
            waits: false,
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

    /// Somebody whose programs will come: we stay, and there is room for them.
    fn lease(&mut self, at: usize) -> io::Result<()> {
        let flags = if self.plan.user_mode { OPTION_USER_MODE } else { 0 };
        let welcome = Message { flags, ..Message::new(Kind::Welcome) };
        let device: Vec<BorrowedFd> = self.plan.device.iter().map(AsFd::as_fd).collect();
        self.connections[at].is_lease = true;
        sys::send(self.connections[at].socket.as_fd(), &welcome, &device)
    }

    /// The program's userfaultfd: from now on its faults are served.
    fn attach(
        &mut self,
        at: usize,
        message: &Message,
        fds: Vec<OwnedFd>,
        pid: i32,
    ) -> io::Result<()> {
        let wrong = || Error::from_raw_os_error(libc::EPROTO);
        let id = self.connections[at].id.ok_or_else(wrong)?;
        let missing = || Error::from_raw_os_error(libc::EMFILE);
        let uffd = fds.into_iter().next().ok_or_else(missing)?;
        if !is_userfaultfd(uffd.as_fd()) {
            return Err(wrong());
        }
        let program = self.programs.get_mut(&id).ok_or_else(wrong)?;
        if program.uffd.is_some() {
            return Err(wrong());
        }
        program.pid = pid;
        program.waits = true;
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
    let waits = if program.waits { WAITS } else { 0 };
    let parent = u64::from(program.parent) << PARENT_SHIFT;
    let flags = flags | with | waits | parent;
    let message = Message { id, pid: program.pid, flags, ..Message::new(Kind::Client) };
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

fn say(to: BorrowedFd, text: &str) {
    // SAFETY: valid bytes; who does not read them loses them.
    unsafe {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::send(to.as_raw_fd(), text.as_ptr().cast(), text.len(), flags);
    }
}

fn new_control() -> io::Result<OwnedFd> {
    let file = sys::memory_file(c"odfork-page-control", CONTROL_BYTES as u64)?;
    sys::write_all(file.as_fd(), &MAGIC.to_ne_bytes(), 0)?;
    Ok(file)
}

fn is_userfaultfd(fd: BorrowedFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(link).is_ok_and(|to| to.as_os_str() == "anon_inode:[userfaultfd]")
}
