//! The connection with the daemon.
//!
//! Both sides may be saying something while neither has room for more: hundreds of programs end, we
//! say so for each, and so does the daemon. So whoever waits for room here listens meanwhile, and
//! what was heard is heeded later.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use odfork_pager_protocol::wire::Message;

use crate::sys::{self, check};

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

    /// What was heard while there was something to say.
    pub fn next_pending(&self) -> Option<Message> {
        self.pending.borrow_mut().pop_front()
    }

    /// # Errors
    /// `BrokenPipe`, `ConnectionReset`: the daemon is dead.
    pub fn send(&self, message: &Message, fds: &[BorrowedFd]) -> io::Result<()> {
        loop {
            match sys::offer(self.socket.as_fd(), message, fds) {
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
        match sys::receive(self.socket.as_fd())? {
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

    /// As many messages each way as fit in no buffer, and the other side says all of its before it
    /// listens.
    #[test]
    fn two_that_speak_at_once_are_both_heard() {
        const MANY: u32 = 2000;
        let (ours, theirs) = sys::socket_pair().unwrap();
        let connection = DaemonConnection::new(ours);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..MANY {
                    sys::send(theirs.as_fd(), &Message { id, ..Message::new(Kind::Gone) }, &[])
                        .unwrap();
                }
                for id in 0..MANY {
                    assert_eq!(sys::receive(theirs.as_fd()).unwrap().unwrap().0.id, id);
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
        // Some came when there was nothing more to say.
        while next < MANY {
            assert_eq!(sys::receive(connection.socket().as_fd()).unwrap().unwrap().0.id, next);
            next += 1;
        }
    }
}
