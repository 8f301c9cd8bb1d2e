//! Where a user's daemon is found: the folder, the socket, the lock; and asking it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use odfork_pager_protocol::wire::{Kind, Message, OPTION_USER_MODE};

use crate::sys::{self, check};

/// How long an answer is waited for: hundreds of programs may end at the same moment on a busy
/// machine.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The agent finds the socket by this variable.
pub const SOCKET: &str = "ODFORK_PAGE_SOCKET";
const FILE: &str = "page.sock";

fn own_uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// The folder of this user's daemon, made if it is not there.
///
/// # Errors
/// It cannot be made, or it belongs to somebody else or is open to others.
pub fn folder() -> io::Result<PathBuf> {
    let own = own_uid();
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let path = match base.map(PathBuf::from).filter(|base| base.is_dir()) {
        Some(base) => base.join("odfork"),
        None => PathBuf::from(format!("/tmp/odfork-{own}")),
    };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(&path)?;
    if !meta.is_dir() || meta.uid() != own || meta.mode() & 0o077 != 0 {
        return Err(Error::other(format!(
            "{} is not a folder of yours with mode 0700: remove it, or set XDG_RUNTIME_DIR",
            path.display()
        )));
    }
    Ok(path)
}

/// The socket: named by the caller, by the variable, or in the folder.
pub fn socket_path(given: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(given) = given {
        return std::path::absolute(given);
    }
    match std::env::var_os(SOCKET).filter(|value| !value.is_empty()) {
        Some(set) => std::path::absolute(set),
        None => Ok(folder()?.join(FILE)),
    }
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, u32)> {
    // SAFETY: all zeros is a valid value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(Error::other(format!(
            "the socket's path is longer than {} bytes: {}",
            address.sun_path.len() - 1,
            path.display()
        )));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as i8;
    }
    Ok((address, (size_of::<libc::sa_family_t>() + bytes.len() + 1) as u32))
}

fn new_socket() -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))?) })
}

/// Connects to a daemon.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (address, len) = address(path)?;
    let socket = new_socket()?;
    // SAFETY: a valid address of that length.
    check(unsafe { libc::connect(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) })?;
    let (who, own) = (sys::peer(socket.as_fd())?.uid, own_uid());
    if who != 0 && who != own {
        let path = path.display();
        return Err(Error::other(format!(
            "user {who} listens at {path}: only your own daemon or root's may have your programs' memory; name another --socket"
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

/// A daemon's word that it stays while this is held, and that there is room for a program.
#[derive(Debug)]
pub struct Lease {
    pub socket: OwnedFd,
    /// /dev/userfaultfd, if the daemon gives it.
    pub device: Option<OwnedFd>,
    /// userfaultfd for user mode only is acceptable.
    pub user_mode: bool,
}

/// Asks for a lease; the refusal, if it is refused.
///
/// # Errors
/// As for [`ask`]; also ConnectionReset from a daemon that is just ending.
pub fn lease(path: &Path) -> io::Result<Result<Lease, Message>> {
    let socket = connect(path)?;
    set_receive_timeout(&socket, ANSWER_TIMEOUT)?;
    sys::send(socket.as_fd(), &Message::new(Kind::Lease), &[])?;
    match sys::receive(socket.as_fd()) {
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
    // SAFETY: a valid descriptor.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // Whoever had it is gone.
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(Error::other("that file is there already, and is no socket")),
        Err(_) => {}
    }
    let (address, len) = address(path)?;
    let socket = new_socket()?;
    // SAFETY: a valid address of that length.
    unsafe {
        check(libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len))?;
        check(libc::listen(socket.as_raw_fd(), 64))?;
    }
    Ok((socket, lock))
}

/// Whether a supervisor holds the lock at this moment.
pub fn is_taken(path: &Path) -> bool {
    // SAFETY: a valid descriptor; the lock goes with it.
    open_own(&path.with_extension("lock")).is_ok_and(|lock| unsafe {
        libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) != 0
    })
}

/// Sends one question; returns the answer's text.
///
/// # Errors
/// No daemon (NotFound, ConnectionRefused), or none that answers in time (TimedOut: it is stopped
/// or stuck).
pub fn ask(path: &Path, question: &Message, timeout: Duration) -> io::Result<String> {
    let socket = connect(path)?;
    set_receive_timeout(&socket, timeout)?;
    sys::send(socket.as_fd(), question, &[])?;
    let mut answer = Vec::new();
    let mut room = vec![0u8; 64 << 10];
    while !answer.ends_with(b"\n") {
        // SAFETY: room for as many bytes as said.
        let got =
            unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
        match sys::check_size(got) {
            Ok(0) => break,
            Ok(got) => answer.extend_from_slice(&room[..got]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into())
            }
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Receiving from it ends after so long.
fn set_receive_timeout(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: timeout.as_secs() as i64,
        tv_usec: i64::from(timeout.subsec_micros()),
    };
    // SAFETY: a valid timeval of the size given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            std::ptr::from_ref(&time).cast(),
            size_of::<libc::timeval>() as u32,
        )
    })
    .map(drop)
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
