//! The supervisor's connection to the daemon.
//!
//! Supervisor and daemon may both send while neither socket buffer has room, for example when
//! hundreds of programs end at once. So the sender here receives while it waits for room; the
//! messages it received are pending until they are handled.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use odfork_pager_protocol::wire::Message;

use crate::socket;
use crate::sys::check;

pub(super) struct DaemonConnection {
    socket: OwnedFd,
    pending: RefCell<VecDeque<Message>>,
}

impl DaemonConnection {
    pub fn new(socket: OwnedFd) -> DaemonConnection {
        DaemonConnection { socket, pending: RefCell::default() }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// A message received while sending.
    pub fn next_pending(&self) -> Option<Message> {
        self.pending.borrow_mut().pop_front()
    }

    /// # Errors
    /// `BrokenPipe`, `ConnectionReset`: the daemon is dead.
    pub fn send(&self, message: &Message, fds: &[BorrowedFd]) -> io::Result<()> {
        loop {
            match socket::offer(self.socket.as_fd(), message, fds) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.receive_while_full()?
                }
                other => return other,
            }
        }
    }

    /// Until there may be room.
    fn receive_while_full(&self) -> io::Result<()> {
        let events = libc::POLLIN | libc::POLLOUT;
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 };
        // SAFETY: one valid entry.
        match check(unsafe { libc::poll(&mut poll, 1, -1) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ if poll.revents & libc::POLLIN == 0 => return Ok(()),
            _ => {}
        }
        self.receive()
    }

    /// Makes the next message pending, if there is one. Never waits: what poll reported may have
    /// been received since, by a sender that waited for room.
    ///
    /// # Errors
    /// The daemon is dead, or sends something else than messages.
    pub fn receive(&self) -> io::Result<()> {
        match socket::try_receive(self.socket.as_fd()) {
            Ok(Some((message, _))) => self.pending.borrow_mut().push_back(message),
            Ok(None) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odfork_pager_protocol::wire::Kind;

    /// More messages each way than any buffer holds; the other side sends all of its before it
    /// receives.
    #[test]
    fn two_sides_that_send_at_once_receive_everything() {
        const MANY: u32 = 2000;
        let (ours, theirs) = socket::socket_pair().unwrap();
        let connection = DaemonConnection::new(ours);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..MANY {
                    socket::send(theirs.as_fd(), &Message { id, ..Message::new(Kind::Gone) }, &[])
                        .unwrap();
                }
                for id in 0..MANY {
                    assert_eq!(socket::receive(theirs.as_fd()).unwrap().unwrap().0.id, id);
                }
            });
            for id in 0..MANY {
                connection.send(&Message { id, ..Message::new(Kind::Gone) }, &[]).unwrap();
            }
        });
        let mut next = 0;
        while next < MANY {
            while let Some(message) = connection.next_pending() {
                assert_eq!(message.id, next);
                next += 1;
            }
            // Some came after the last was sent.
            connection.receive().unwrap();
        }
    }

    /// Poll reports a message, a sender that waits for room receives it, and only then is it asked
    /// for: that must not wait for another one.
    #[test]
    fn what_a_sender_has_received_is_not_waited_for() {
        let (ours, theirs) = socket::socket_pair().unwrap();
        let connection = DaemonConnection::new(ours);
        let gone = Message { id: 7, ..Message::new(Kind::Gone) };
        while socket::offer(connection.socket().as_fd(), &gone, &[]).is_ok() {}
        socket::send(theirs.as_fd(), &gone, &[]).unwrap();
        connection.receive_while_full().unwrap();
        connection.receive().unwrap();
        assert_eq!(connection.next_pending(), Some(gone));
        assert_eq!(connection.next_pending(), None);
        drop(theirs);
        assert!(connection.receive().is_err());
    }
}
