//! One connection to a template: whole frames with their descriptors.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::net::{
    connect, recvmsg, sendmsg, socket_with, socketpair, AddressFamily, RecvAncillaryBuffer,
    RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::error::doing;
use crate::frame::{Frame, HEADER, INLINE, IN_FILE, LARGEST};
use crate::{Error, Result};

/// Descriptors one frame may carry; the kernel takes 253 (SCM_MAX_FD).
const MOST: usize = 251;

/// A socket on which each message is a frame.
#[derive(Debug)]
pub struct Link(pub OwnedFd);

impl Link {
    /// Waits while more clients have connected than the template has let in.
    pub fn connect(path: &Path) -> std::io::Result<Link> {
        Link::connect_with(path, SocketFlags::CLOEXEC)
    }

    /// Without that wait, and without any on this connection: `WouldBlock`.
    pub fn connect_at_once(path: &Path) -> std::io::Result<Link> {
        Link::connect_with(path, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn connect_with(path: &Path, flags: SocketFlags) -> std::io::Result<Link> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        loop {
            match connect(&socket, &address) {
                Err(rustix::io::Errno::INTR) => {}
                done => return done.map(|()| Link(socket)).map_err(Into::into),
            }
        }
    }

    pub fn pair() -> Result<(Link, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(doing("making a pair of sockets"))?;
        Ok((Link(ours), theirs))
    }

    pub fn send(&self, frame: &Frame, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let body = frame.body();
        let file = if body.len() > INLINE { Some(in_file(&body)?) } else { None };
        let mut all: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        all.extend(descriptors);
        if all.len() > MOST {
            return Err(Error::Protocol("more than 250 descriptors for one child"));
        }
        let header = frame.header(if file.is_some() { IN_FILE } else { 0 });
        let parts = [IoSlice::new(&header), IoSlice::new(if file.is_some() { &[] } else { &body })];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !all.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&all));
        }
        loop {
            match sendmsg(&self.0, &parts, &mut rights, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(Error::Ended)
                }
                done => return done.map(drop).map_err(doing("sending to the template")),
            }
        }
    }

    /// The next frame and its descriptors; `Ended` when the other side has closed.
    pub fn receive(&self) -> Result<(Frame, Vec<OwnedFd>)> {
        let mut data = vec![0; HEADER + INLINE + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut parts = [IoSliceMut::new(&mut data)];
            match recvmsg(&self.0, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Err(Error::Ended),
                done => break done.map_err(doing("receiving from the template"))?,
            }
        };
        let mut descriptors = Vec::new();
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        if got.bytes == 0 {
            return Err(Error::Ended);
        }
        let (mut frame, flags) = Frame::head(&data[..got.bytes])?;
        if flags & IN_FILE == 0 {
            frame.parse(&data[HEADER..got.bytes])?;
        } else {
            if descriptors.is_empty() {
                return Err(Error::Protocol("a frame in a file came without its file"));
            }
            frame.parse(&from_file(descriptors.remove(0))?)?;
        }
        Ok((frame, descriptors))
    }

    /// Whether a frame, or the end, is there before the time is over.
    pub fn readable(&self, timeout: Option<std::time::Duration>) -> Result<bool> {
        readable(self.0.as_fd(), timeout)
    }
}

pub fn readable(fd: BorrowedFd<'_>, timeout: Option<std::time::Duration>) -> Result<bool> {
    // Later than the clock can tell: never.
    let until = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
    loop {
        let left = until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(|ready| ready > 0).map_err(doing("waiting")),
        }
    }
}

fn in_file(body: &[u8]) -> Result<OwnedFd> {
    if body.len() as u64 > LARGEST {
        return Err(Error::Protocol("a request larger than 1 GB"));
    }
    let fd = memfd_create("odfork-zygote", MemfdFlags::CLOEXEC).map_err(doing("memfd_create"))?;
    let mut file = File::from(fd);
    file.write_all(body).map_err(doing("writing a large request"))?;
    Ok(file.into())
}

fn from_file(fd: OwnedFd) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let file = File::from(fd);
    let size = file.metadata().map_err(doing("reading a large answer"))?.len();
    if size > LARGEST {
        return Err(Error::Protocol("an answer larger than 1 GB"));
    }
    let mut body = vec![0; size as usize];
    file.read_exact_at(&mut body, 0).map_err(doing("reading a large answer"))?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wait_beyond_all_clocks_is_one_without_end() {
        let (ours, theirs) = Link::pair().unwrap();
        assert!(!ours.readable(Some(Duration::ZERO)).unwrap());
        drop(theirs);
        assert!(ours.readable(Some(Duration::MAX)).unwrap());
        assert!(ours.readable(Some(Duration::from_secs(i64::MAX as u64 / 2))).unwrap());
    }
}
