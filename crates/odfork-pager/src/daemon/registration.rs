//! The supervisor's messages: programs that start or may have ended, status requests, settings.

use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use odfork_pager_protocol::wire::{Kind, Message, PARENT_SHIFT, TAKE_OVER, WAITS, WITH_UFFD};
use rustix::net::SendFlags;

use super::client::Client;
use super::Daemon;
use crate::socket;
use crate::stats::count;
use crate::uffd;

impl Daemon {
    /// Until READY: the programs that were here before.
    pub fn register_existing(&self) {
        while let Ok(Some((message, fds))) = socket::receive(self.supervisor.as_fd()) {
            match message.kind() {
                Some(Kind::Ready) => break,
                _ => self.handle_message(&message, fds),
            }
        }
        // Every slot in use is known now; whatever is found may be written.
        let mut state = self.lock();
        for owner in 0..state.clients.len() as u32 {
            self.recover_resident(&mut state, owner);
        }
    }

    /// The registration's thread.
    pub fn run_registration(&self) {
        loop {
            match socket::receive(self.supervisor.as_fd()) {
                Ok(Some((message, fds))) => self.handle_message(&message, fds),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                _ => break,
            }
        }
        self.orphaned.store(true, Ordering::Relaxed);
        self.ring();
    }

    fn handle_message(&self, message: &Message, mut fds: Vec<OwnedFd>) {
        match message.kind() {
            Some(Kind::Client) => {
                let taken = self.register(message, fds);
                if let Err(error) = &taken {
                    eprintln!("odfork page: program {} cannot be served: {error}", message.pid);
                    // One that was served before waits, and keeps what it has.
                    if message.flags & TAKE_OVER == 0 {
                        self.drop_unregistered(message.id);
                    }
                }
                if message.flags & WAITS != 0 {
                    self.send_outcome(message.id, taken);
                }
            }
            Some(Kind::Gone) => {
                let mut state = self.lock();
                if let Some(owner) = state.owner_of(message.id) {
                    // Without a userfaultfd it never was more than a forked child's promise.
                    if let Some(client) = state.client(owner) {
                        client.gone |= client.handles.is_none();
                    }
                }
                drop(state);
                self.gone_reported.store(true, Ordering::Relaxed);
                self.ring();
            }
            Some(Kind::Status) => self.answer(fds.pop(), &self.status().to_string()),
            Some(Kind::Set) => {
                let outcome = self.tunables.set(message.text());
                if outcome.is_ok() {
                    let mut state = self.lock();
                    let rule = self.scan_rule(state.clock.frames());
                    state.clock.set_scan_rule(rule);
                }
                self.answer(fds.pop(), &outcome.err().unwrap_or_default());
            }
            _ => {}
        }
    }

    fn register(&self, message: &Message, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let missing = || io::Error::from_raw_os_error(libc::EMFILE);
        let uffd = if message.flags & WITH_UFFD != 0 { fds.next() } else { None };
        if message.flags & WITH_UFFD != 0 {
            let uffd = uffd.as_ref().ok_or_else(missing)?;
            if !uffd::is_ready(uffd.as_fd()) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
        }
        let mut state = self.lock();
        let owner = match state.owner_of(message.id) {
            Some(owner) => owner,
            None => {
                let three = (fds.next(), fds.next(), fds.next());
                let (Some(backing), Some(table), Some(control)) = three else {
                    return Err(missing());
                };
                let mut client = Client::new(
                    message.id,
                    message.pid,
                    message.text(),
                    (backing, table, control),
                )?;
                client.parent = (message.flags >> PARENT_SHIFT) as u32;
                if message.flags & TAKE_OVER != 0 {
                    self.claim(&client);
                }
                state.add(client)
            }
        };
        let Some(uffd) = uffd else {
            drop(state);
            self.ring();
            return Ok(());
        };
        let data = u64::from(owner) << 32 | u64::from(message.id);
        let Some(client) = state.client(owner) else { return Ok(()) };
        client.pid = message.pid;
        client.attach(uffd)?;
        let watched = client.handles.as_ref().map(|handles| self.watch(handles.uffd.as_fd(), data));
        if let Some(Err(error)) = watched {
            client.handles = None;
            return Err(error);
        }
        drop(state);
        self.ring();
        Ok(())
    }

    /// A program that could not be taken in, of which something may have been.
    fn drop_unregistered(&self, id: u32) {
        let mut state = self.lock();
        if let Some(owner) = state.owner_of(id) {
            if let Some(client) = state.client(owner) {
                client.gone |= client.handles.is_none();
            }
        }
        drop(state);
        self.ring();
    }

    fn send_outcome(&self, id: u32, taken: io::Result<()>) {
        let message = match taken {
            Ok(()) => Message { id, ..Message::new(Kind::Taken) },
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(libc::EIO);
                Message { id, pid: number, ..Message::new(Kind::Refused) }
            }
        };
        let _ = socket::send(self.supervisor.as_fd(), &message, &[]);
    }

    /// Tells the supervisor that a program has ended.
    pub fn send_gone(&self, id: u32) {
        let message = Message { id, ..Message::new(Kind::Gone) };
        let _ = socket::send(self.supervisor.as_fd(), &message, &[]);
    }

    fn answer(&self, to: Option<OwnedFd>, text: &str) {
        let Some(to) = to else { return };
        let mut line = String::new();
        let _ = writeln!(line, "{text}");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            // A reader that is slow or gone loses the answer, nothing else.
            let piece = &rest[..rest.len().min(16 << 10)];
            match rustix::net::send(&to, piece, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(done) if done > 0 => rest = &rest[done..],
                _ => {
                    count(&self.stats.store_errors);
                    return;
                }
            }
        }
    }
}
