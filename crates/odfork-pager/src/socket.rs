//! Messages with descriptors and senders over a Unix socket (SOCK_SEQPACKET).
//!
//! Control messages are read and written by hand: rustix' credentials cannot say "process 0", which
//! is what the kernel says of a sender in another pid namespace.

use std::ffi::c_int;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use odfork_pager_protocol::wire::{Message, MAX_FDS, MESSAGE_BYTES};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::sys::{check, check_size};

/// A pair of connected message sockets.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Room for `MAX_FDS` descriptors and credentials, aligned for their headers.
#[repr(C, align(8))]
struct Ancillary([u8; 128]);

/// Sends one message with descriptors, without SIGPIPE.
pub fn send(socket: BorrowedFd, message: &Message, fds: &[BorrowedFd]) -> Result<()> {
    send_as(socket, message, fds, 0)
}

/// The same without waiting for room: who does not read gets nothing.
///
/// # Errors
/// `WouldBlock`: there is no room.
pub fn offer(socket: BorrowedFd, message: &Message, fds: &[BorrowedFd]) -> Result<()> {
    send_as(socket, message, fds, libc::MSG_DONTWAIT)
}

fn send_as(socket: BorrowedFd, message: &Message, fds: &[BorrowedFd], how: c_int) -> Result<()> {
    let bytes = message.to_bytes();
    let part = IoSlice::new(&bytes);
    let mut room = Ancillary([0; 128]);
    let size = size_of_val(fds) as u32;
    // SAFETY: header and lists are valid for the call; the ancillary room is large enough for
    // MAX_FDS descriptors.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = std::ptr::from_ref(&part).cast_mut().cast();
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            assert!(fds.len() <= MAX_FDS);
            header.msg_control = room.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size) as usize;
            let data = libc::CMSG_DATA(first).cast::<RawFd>();
            for (at, fd) in fds.iter().enumerate() {
                data.add(at).write_unaligned(fd.as_raw_fd());
            }
        }
        check_size(libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL | how)).map(drop)
    }
}

/// One message and its descriptors; `None` when the other side is gone. Something else than a
/// message is an error. Of descriptors beyond our limit only the first ones come.
pub fn receive(socket: BorrowedFd) -> Result<Option<(Message, Vec<OwnedFd>)>> {
    Ok(receive_from(socket)?.map(|(message, fds, _)| (message, fds)))
}

/// As [`receive`], without waiting for a message.
///
/// # Errors
/// `WouldBlock`: there is none.
pub fn try_receive(socket: BorrowedFd) -> Result<Option<(Message, Vec<OwnedFd>)>> {
    Ok(receive_as(socket, libc::MSG_DONTWAIT)?.map(|(message, fds, _)| (message, fds)))
}

/// As [`receive`], with who sent it, when the socket is one that [`pass_credentials`] was called
/// on.
pub fn receive_from(socket: BorrowedFd) -> Result<Option<Received>> {
    receive_as(socket, 0)
}

fn receive_as(socket: BorrowedFd, how: c_int) -> Result<Option<Received>> {
    let how = how | libc::MSG_CMSG_CLOEXEC;
    let mut bytes = [0u8; MESSAGE_BYTES + 1];
    let mut room = Ancillary([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let (mut fds, mut sender) = (Vec::new(), None);
    // SAFETY: header and buffers are valid for the call; descriptors that arrive are owned by
    // nobody else.
    let len = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = room.0.len();
        let len = loop {
            match check_size(libc::recvmsg(socket.as_raw_fd(), &mut header, how)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(at).cast::<RawFd>();
                let count = ((*at).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                fds.extend((0..count).map(|n| OwnedFd::from_raw_fd(data.add(n).read_unaligned())));
            }
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_CREDENTIALS {
                sender = Some(libc::CMSG_DATA(at).cast::<libc::ucred>().read_unaligned());
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
        len
    };
    if len == 0 {
        return Ok(None);
    }
    match Message::from_bytes(&bytes[..len]) {
        Some(message) => Ok(Some((message, fds, sender))),
        None => Err(Error::new(ErrorKind::InvalidData, "a message of another version")),
    }
}

/// A message, its descriptors, and the process that sent it as the kernel knows it.
pub type Received = (Message, Vec<OwnedFd>, Option<libc::ucred>);

/// Every message on this socket comes with its sender. On a listener, for messages sent before they
/// are accepted.
pub fn pass_credentials(socket: BorrowedFd) -> Result<()> {
    let on: c_int = 1;
    // SAFETY: a valid number of the size given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            std::ptr::from_ref(&on).cast(),
            size_of::<c_int>() as u32,
        )
    })
    .map(drop)
}

/// Process and user at the other end of a Unix socket.
pub fn peer(socket: BorrowedFd) -> Result<libc::ucred> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as u32;
    // SAFETY: the buffer has the size given.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut who).cast(),
            &mut len,
        )
    })?;
    Ok(who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{memory_file, read_all, write_all};
    use odfork_pager_protocol::wire::Kind;
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_travel_with_a_message() {
        let (here, there) = socket_pair().unwrap();
        let file = memory_file(c"test", 8192).unwrap();
        write_all(file.as_fd(), b"hello", 100).unwrap();
        let sent = Message { id: 3, ..Message::new(Kind::Client) };
        send(here.as_fd(), &sent, &[file.as_fd(), file.as_fd()]).unwrap();
        let (message, fds) = receive(there.as_fd()).unwrap().unwrap();
        assert_eq!((message, fds.len()), (sent, 2));
        let mut back = [0; 5];
        read_all(fds[1].as_fd(), &mut back, 100).unwrap();
        assert_eq!(&back, b"hello");
        pass_credentials(there.as_fd()).unwrap();
        send(here.as_fd(), &sent, &[file.as_fd(); MAX_FDS]).unwrap();
        let (_, fds, sender) = receive_from(there.as_fd()).unwrap().unwrap();
        assert_eq!((fds.len(), sender.unwrap().pid), (MAX_FDS, std::process::id() as i32));
        drop(here);
        assert!(receive(there.as_fd()).unwrap().is_none());
        assert_eq!(peer(socket_pair().unwrap().0.as_fd()).unwrap().pid, std::process::id() as i32);
    }
}
