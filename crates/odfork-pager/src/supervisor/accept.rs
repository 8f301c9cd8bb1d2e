//! Connections of programs to the supervisor, and their requests.
//!
//! Owns who is accepted and what a program may ask for. Nothing a message says about its sender is
//! trusted: process and user come from the kernel. A refusal closes the connection, except that of
//! a registered program, whose fork fails then. Nothing here waits for a client that does not read.

use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use odfork_pager_protocol::control::{CONTROL_BYTES, MAGIC};
use odfork_pager_protocol::wire::{Kind, Message, OPTION_USER_MODE};
use odfork_pager_protocol::BACKING_BYTES;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use super::{send_program, Connection, Program, Supervisor};
use crate::socket;
use crate::sys;
use crate::table::TABLE_BYTES;
use crate::tunables::Tunables;

/// Descriptors of ours, and of the daemon's, for each program (connection, lease, userfaultfd,
/// backing, table, control; two connections more for those who only ask), and those for everything
/// else.
const FDS_PER_PROGRAM: u64 = 8;
const FDS_RESERVED: u64 = 64;

impl Supervisor {
    /// Most programs at a time.
    fn room(&self) -> usize {
        (self.files.saturating_sub(FDS_RESERVED) / FDS_PER_PROGRAM).max(1) as usize
    }

    /// Checks that one more program fits; the refusal if not.
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

    pub(super) fn accept(&mut self) {
        let socket = match self.accept_socket() {
            Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                // The newcomer is refused instead of left waiting.
                if let Ok(socket) = self.accept_socket() {
                    refuse(socket.as_fd(), libc::EMFILE);
                }
                self.spare = self.doorbell.try_clone().ok();
                return;
            }
            Err(_) => return,
            Ok(socket) => socket,
        };
        let Ok(who) = socket::peer(socket.as_fd()) else { return };
        if self.connections.len() >= 3 * self.room()
            || socket::pass_credentials(socket.as_fd()).is_err()
        {
            return refuse(socket.as_fd(), libc::EMFILE);
        }
        let own = rustix::process::geteuid().as_raw();
        if who.uid == own || who.uid == 0 || self.plan.allow.contains(&who.uid) {
            self.connections.push(Connection { socket, who, id: None, is_lease: false });
        } else {
            refuse(socket.as_fd(), libc::EACCES);
        }
    }

    fn accept_socket(&self) -> rustix::io::Result<OwnedFd> {
        rustix::net::accept_with(&self.plan.socket, SocketFlags::CLOEXEC)
    }

    pub(super) fn handle_request(&mut self, at: usize) {
        let received = socket::receive_from(self.connections[at].socket.as_fd());
        let Ok(Some((message, fds, sender))) = received else {
            return self.close_connection(at);
        };
        let who = self.connections[at].who;
        let pid = sender.filter(|sender| sender.pid > 0).unwrap_or(who).pid;
        if message.kind() == Some(Kind::Hello)
            && message.id != 0
            && self.connections[at].id == Some(message.id)
        {
            return self.welcome_child(at, &message, pid);
        }
        if matches!(message.kind(), Some(Kind::Hello | Kind::Lease)) {
            if let Err(refused) = self.check_room() {
                let _ = socket::offer(self.connections[at].socket.as_fd(), &refused, &[]);
                return self.close_connection(at);
            }
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
                let _ = self.daemon.send(&message, &[connection.socket.as_fd()]);
                return;
            }
            _ => Err(Error::from_raw_os_error(libc::EPROTO)),
        };
        if let Err(error) = done {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            refuse(self.connections[at].socket.as_fd(), number);
            self.close_connection(at);
        }
    }

    /// Other users are served but may not change settings.
    fn may_set(&self, uid: u32) -> bool {
        // SAFETY: no arguments.
        uid == 0 || uid == unsafe { libc::geteuid() }
    }

    /// For the next daemon.
    fn remember(&mut self, message: &Message) {
        let is_sound = Tunables::default().set(message.text()).is_ok();
        if let Some((name, _)) = message.text().split_once('=').filter(|_| is_sound) {
            self.set.insert(name.to_owned(), *message);
        }
    }

    fn close_connection(&mut self, at: usize) {
        let connection = self.connections.swap_remove(at);
        let Some(id) = connection.id else { return };
        let message = Message { id, ..Message::new(Kind::Gone) };
        let _ = self.daemon.send(&message, &[]);
        if self.programs.get(&id).is_some_and(|program| program.uffd.is_none()) {
            self.programs.remove(&id);
        }
    }

    /// A program registers, or is about to fork (then its number is in the message).
    fn welcome(&mut self, at: usize, message: &Message, pid: i32) -> io::Result<()> {
        if self.connections[at].id.is_some() {
            return Err(Error::from_raw_os_error(libc::EPROTO));
        }
        let parent = message.id;
        if parent != 0 && !self.is_sender(parent, pid) {
            return Err(Error::from_raw_os_error(libc::EPERM));
        }
        let (id, program) = self.new_program(message, pid)?;
        self.send_welcome(at, id, &program, None)?;
        if parent != 0 {
            send_program(&self.daemon, id, &program, 0)?;
        }
        self.connections[at].id = Some(id);
        self.programs.insert(id, program);
        Ok(())
    }

    /// A program is about to fork and says so over its own connection: the child gets one over it,
    /// and needs neither the socket's path nor the right to connect (the program may have changed
    /// its root or its user).
    fn welcome_child(&mut self, at: usize, message: &Message, pid: i32) {
        let to = self.connections[at].socket.as_fd();
        let done = match (self.check_room(), self.is_sender(message.id, pid)) {
            (Err(refused), _) => return drop(socket::offer(to, &refused, &[])),
            (_, false) => Err(Error::from_raw_os_error(libc::EPERM)),
            _ => self.new_child(at, message, pid),
        };
        if let Err(error) = done {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            refuse(self.connections[at].socket.as_fd(), number);
        }
    }

    fn new_child(&mut self, at: usize, message: &Message, pid: i32) -> io::Result<()> {
        let (ours, theirs) = socket::socket_pair()?;
        socket::pass_credentials(ours.as_fd())?;
        let (id, program) = self.new_program(message, pid)?;
        self.send_welcome(at, id, &program, Some(theirs.as_fd()))?;
        send_program(&self.daemon, id, &program, 0)?;
        let who = self.connections[at].who;
        self.connections.push(Connection { socket: ours, who, id: Some(id), is_lease: false });
        self.programs.insert(id, program);
        Ok(())
    }

    /// A program makes requests, and forks, for itself only.
    fn is_sender(&self, id: u32, pid: i32) -> bool {
        self.programs.get(&id).is_some_and(|program| program.pid == pid)
    }

    fn new_program(&mut self, message: &Message, pid: i32) -> io::Result<(u32, Program)> {
        let program = Program {
            pid,
            parent: message.id,
            waits: false,
            name: message.text().to_owned(),
            uffd: None,
            backing: sys::memory_file(c"odfork-page-backing", BACKING_BYTES)?,
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
        let mut fds = vec![program.control.as_fd(), program.backing.as_fd(), self.doorbell.as_fd()];
        fds.extend(socket);
        fds.extend(self.plan.device.as_ref().map(AsFd::as_fd));
        let flags = if self.plan.user_mode { OPTION_USER_MODE } else { 0 };
        let welcome = Message { id, flags, ..Message::new(Kind::Welcome) };
        socket::offer(self.connections[at].socket.as_fd(), &welcome, &fds)
    }

    /// A lease: the supervisor stays while it is open, and there is room for a program.
    fn lease(&mut self, at: usize) -> io::Result<()> {
        let flags = if self.plan.user_mode { OPTION_USER_MODE } else { 0 };
        let welcome = Message { flags, ..Message::new(Kind::Welcome) };
        let device: Vec<BorrowedFd> = self.plan.device.iter().map(AsFd::as_fd).collect();
        self.connections[at].is_lease = true;
        socket::offer(self.connections[at].socket.as_fd(), &welcome, &device)
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
        send_program(&self.daemon, id, program, 0)
    }
}

fn refuse(to: BorrowedFd, error: i32) {
    let _ = socket::offer(to, &Message { pid: error, ..Message::new(Kind::Refused) }, &[]);
}

fn say(to: BorrowedFd, text: &str) {
    // A client that does not read loses it.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::send(to, text.as_bytes(), flags);
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
