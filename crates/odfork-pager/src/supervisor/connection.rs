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
        match socket::receive(self.socket.as_fd())? {
            Some((message, _)) => self.pending.borrow_mut().push_back(message),
            None => return Err(io::ErrorKind::BrokenPipe.into()),
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
        while let Some(message) = connection.next_pending() {
            assert_eq!(message.id, next);
            next += 1;
        }
        // Some came after the last was sent.
        while next < MANY {
            assert_eq!(socket::receive(connection.socket().as_fd()).unwrap().unwrap().0.id, next);
            next += 1;
        }
    }
}
