//! The daemon's endpoint of a user: folder, socket and lock; and requests to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Error};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use odfork_pager_protocol::wire::{Kind, Message, OPTION_USER_MODE};
use odfork_proc::{environment, folder};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{sockopt, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::socket;

/// How long a client waits for an answer: hundreds of programs may end at the same moment on a busy
/// machine.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The agent finds the socket by this variable.
pub const SOCKET: &str = "ODFORK_PAGE_SOCKET";
const FILE: &str = "page.sock";
/// Bytes of a socket's path, without the zero byte.
const LONGEST: usize = 107;

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The socket: named by the caller, by the variable, or in the folder.
pub fn socket_path(given: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(given) = given {
        return std::path::absolute(given);
    }
    match environment::trusted(SOCKET).filter(|value| !value.is_empty()) {
        Some(set) => std::path::absolute(set),
        None => Ok(folder::own()?.join(FILE)),
    }
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => Error::other(format!(
            "the socket's path is longer than {LONGEST} bytes: {}",
            path.display()
        )),
        error => error.into(),
    })
}

fn new_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Connects to a daemon.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let address = address(path)?;
    let socket = new_socket()?;
    rustix::net::connect(&socket, &address)?;
    let (who, own) = (socket::peer(socket.as_fd())?.uid, own_uid());
    if who != 0 && who != own {
        let path = path.display();
        return Err(Error::other(format!(
            "user {who} listens at {path}: only your own daemon or root's may have your programs' \
             memory; name another --socket"
        )));
    }
    Ok(socket)
}

/// Opens or makes a file beside the socket, to append to.
///
/// # Errors
/// It is a link, not a file, or somebody else's.
pub fn open_own(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => Error::other(format!("{} is a link", path.display())),
            _ => error,
        })?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != own_uid() || meta.nlink() > 1 {
        return Err(Error::other(format!("{} is not a file of yours alone", path.display())));
    }
    Ok(file)
}

/// A daemon's promise to stay while this is held, with room for a program.
#[derive(Debug)]
pub struct Lease {
    /// The connection: the promise ends with it.
    pub socket: OwnedFd,
    /// /dev/userfaultfd, if the daemon gives it.
    pub device: Option<OwnedFd>,
    /// userfaultfd for user mode only is acceptable.
    pub user_mode: bool,
}

/// Requests a lease; the inner error is the daemon's refusal.
///
/// # Errors
/// As for [`ask`]; also ConnectionReset from a daemon that is just ending.
pub fn lease(path: &Path) -> io::Result<Result<Lease, Message>> {
    let socket = connect(path)?;
    set_receive_timeout(&socket, ANSWER_TIMEOUT)?;
    socket::send(socket.as_fd(), &Message::new(Kind::Lease), &[])?;
    match socket::receive(socket.as_fd()) {
        Ok(Some((message, fds))) if message.kind() == Some(Kind::Welcome) => Ok(Ok(Lease {
            socket,
            device: fds.into_iter().next(),
            user_mode: message.flags & OPTION_USER_MODE != 0,
        })),
        Ok(Some((message, _))) => Ok(Err(message)),
        Ok(None) => Err(io::ErrorKind::ConnectionReset.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::TimedOut.into())
        }
        Err(error) => Err(error),
    }
}

/// The listening socket, and the lock that says there is one supervisor; hold both.
///
/// # Errors
/// `AddrInUse`: another supervisor is there.
pub fn listen(path: &Path) -> io::Result<(OwnedFd, File)> {
    let lock = open_own(&path.with_extension("lock"))?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // Its owner is gone, or the lock would be held.
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(Error::other("that file is there already, and is no socket")),
        Err(_) => {}
    }
    let address = address(path)?;
    let socket = new_socket()?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 64)?;
    Ok((socket, lock))
}

/// Whether a supervisor holds the lock at this moment.
pub fn is_taken(path: &Path) -> bool {
    // The lock goes with the file.
    open_own(&path.with_extension("lock")).is_ok_and(|lock| {
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
    })
}

/// Sends one request; returns the answer's text.
///
/// # Errors
/// No daemon (NotFound, ConnectionRefused), or none that answers in time (TimedOut: it is stopped
/// or stuck).
pub fn ask(path: &Path, question: &Message, timeout: Duration) -> io::Result<String> {
    let socket = connect(path)?;
    set_receive_timeout(&socket, timeout)?;
    socket::send(socket.as_fd(), question, &[])?;
    let mut answer = Vec::new();
    let mut buffer = vec![0u8; 64 << 10];
    while !answer.ends_with(b"\n") {
        match rustix::io::read(&socket, &mut buffer[..]) {
            Ok(0) => break,
            Ok(got) => answer.extend_from_slice(&buffer[..got]),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets how long receiving from it may take.
fn set_receive_timeout(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(timeout))?)
}

/// The daemon's status as JSON text.
pub fn status(path: &Path) -> io::Result<String> {
    ask(path, &Message::new(Kind::Status), ANSWER_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ours_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(open_own(&at("new")).is_ok() && open_own(&at("new")).is_ok());
        fs::write(at("precious"), "content").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("link.lock")).unwrap();
        assert!(listen(&at("link.sock")).is_err(), "the lock is a link");
        fs::hard_link(at("precious"), at("hard.lock")).unwrap();
        assert!(listen(&at("hard.sock")).is_err(), "the lock has another name");
        assert!(open_own(folder.path()).is_err());
        assert!(listen(&at("precious")).is_err(), "a file is where the socket is to be");
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "content");
    }

    #[test]
    fn a_lock_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        assert!(!is_taken(&path));
        let held = listen(&path).unwrap();
        assert!(is_taken(&path) && listen(&path).is_err());
        drop(held);
        assert!(!is_taken(&path) && listen(&path).is_ok());
    }
}
