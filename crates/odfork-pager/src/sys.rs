//! System calls of supervisor and daemon as values: mappings, memory files, messages with
//! descriptors, futexes.
//!
//! Owns no policy. Errors are `std::io::Error`.

use std::ffi::{c_int, CStr};
use std::io::{Error, IoSlice, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use odfork_pager_protocol::wire::{Message, MAX_FDS, MESSAGE_BYTES};

/// The answer of a call that says -1 and errno.
pub fn check(answer: c_int) -> Result<c_int> {
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// As [`check`], for calls that answer with a size.
pub fn check_size(answer: isize) -> Result<usize> {
    usize::try_from(answer).map_err(|_| Error::last_os_error())
}

/// A sparse memory file that can no longer change its size.
pub fn memory_file(name: &CStr, bytes: u64) -> Result<OwnedFd> {
    // SAFETY: a valid name; the descriptor is owned by nobody else.
    let file = unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        OwnedFd::from_raw_fd(check(libc::memfd_create(name.as_ptr(), flags))?)
    };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain calls on our own descriptor.
    unsafe {
        check(libc::ftruncate(file.as_raw_fd(), bytes as i64))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
    }
    Ok(file)
}

/// A shared mapping of a whole memory file, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process; what lies in it is only reached through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a memory file to read and write.
    pub fn of(file: BorrowedFd, bytes: usize) -> Result<Mapping> {
        // SAFETY: a new mapping at an address the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { at, bytes }),
            _ => Err(Error::last_os_error()),
        }
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and references into it do not outlive it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Gives the pages of `[offset, offset + bytes)` back; the file reads as zeros there.
pub fn punch(file: BorrowedFd, offset: u64, bytes: u64) -> Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: a plain call on a descriptor.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, bytes as i64) })
        {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Reads all of `buffer`.
///
/// # Errors
/// Those of pread(2), and `UnexpectedEof` where the file ends.
pub fn read_all(file: BorrowedFd, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
    while !buffer.is_empty() {
        // SAFETY: the buffer is valid for its length.
        let done = unsafe {
            let at = buffer.as_mut_ptr().cast();
            libc::pread(file.as_raw_fd(), at, buffer.len(), offset as i64)
        };
        match check_size(done) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(done) => {
                buffer = &mut buffer[done..];
                offset += done as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `buffer`.
pub fn write_all(file: BorrowedFd, mut buffer: &[u8], mut offset: u64) -> Result<()> {
    while !buffer.is_empty() {
        // SAFETY: the buffer is valid for its length.
        let done = unsafe {
            libc::pwrite(file.as_raw_fd(), buffer.as_ptr().cast(), buffer.len(), offset as i64)
        };
        match check_size(done) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                buffer = &buffer[done..];
                offset += done as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where the next data of a memory file begins and ends, from `offset` on; `None` when only holes
/// follow.
pub fn next_data(file: BorrowedFd, offset: u64) -> Option<(u64, u64)> {
    // SAFETY: plain calls; nobody uses the file's position.
    unsafe {
        let start = libc::lseek(file.as_raw_fd(), offset as i64, libc::SEEK_DATA);
        let end = libc::lseek(file.as_raw_fd(), start.max(0), libc::SEEK_HOLE);
        (start >= 0 && end > start).then_some((start as u64, end as u64))
    }
}

/// A pair of connected message sockets.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [0; 2];
    // SAFETY: the array has room for the two descriptors, which nobody else owns.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        check(libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
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

/// As [`receive`], with who sent it, when the socket is one that [`ask_for_senders`] was called on.
pub fn receive_from(socket: BorrowedFd) -> Result<Option<Received>> {
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
            match check_size(libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC))
            {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
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
        None => Err(Error::new(std::io::ErrorKind::InvalidData, "a message of another version")),
    }
}

/// A message, its descriptors, and the process that sent it as the kernel knows it.
pub type Received = (Message, Vec<OwnedFd>, Option<libc::ucred>);

/// Every message on this socket comes with its sender. On a listener, for messages sent before they
/// are accepted.
pub fn ask_for_senders(socket: BorrowedFd) -> Result<()> {
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

/// Raises the limit of open files as far as it goes; returns it.
pub fn raise_open_files() -> u64 {
    let mut files = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: a valid structure, read and written.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
            let raised = libc::rlimit { rlim_cur: files.rlim_max, ..files };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
                return raised.rlim_cur;
            }
        }
    }
    files.rlim_cur
}

/// A process of ours takes nothing over from where it happens to be started: no environment
/// (libraries are preloaded by it), no folder that would be held.
pub fn bare(command: &mut std::process::Command) {
    command.env_clear().current_dir("/");
}

/// Descriptors above `last` do not survive the next exec. For use between fork and exec.
pub fn keep_no_more_than(last: RawFd) -> Result<()> {
    let (first, flags) = (last as u32 + 1, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: a plain call; descriptors stay open until the exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    check_size(done as isize).map(drop)
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

/// Sleeps while `word` has the value `seen`, at most so long.
pub fn futex_wait(word: &AtomicU32, seen: u32, most: Duration) {
    let time =
        libc::timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    // SAFETY: a valid word, shared between processes, and a valid time. Any outcome is fine:
    // callers look again.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &time, 0usize, 0);
    }
}

/// Wakes all sleepers on `word`, in all processes.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: a valid word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            0usize,
            0usize,
            0,
        );
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, the buffer is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A buffer aligned to a page, as direct I/O wants it.
#[derive(Debug)]
pub struct Buffer(Mapping);

impl Buffer {
    pub fn new(bytes: usize) -> Result<Buffer> {
        // SAFETY: a new private mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Buffer(Mapping { at, bytes })),
            _ => Err(Error::last_os_error()),
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: private memory of this buffer alone.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.bytes()) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.0.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        ask_for_senders(there.as_fd()).unwrap();
        send(here.as_fd(), &sent, &[file.as_fd(); MAX_FDS]).unwrap();
        let (_, fds, sender) = receive_from(there.as_fd()).unwrap().unwrap();
        assert_eq!((fds.len(), sender.unwrap().pid), (MAX_FDS, std::process::id() as i32));
        drop(here);
        assert!(receive(there.as_fd()).unwrap().is_none());
    }

    #[test]
    fn data_is_found_and_punched() {
        let file = memory_file(c"test", 1 << 30).unwrap();
        assert_eq!(next_data(file.as_fd(), 0), None);
        write_all(file.as_fd(), &[1; 8192], 40960).unwrap();
        assert_eq!(next_data(file.as_fd(), 0), Some((40960, 49152)));
        punch(file.as_fd(), 40960, 4096).unwrap();
        assert_eq!(next_data(file.as_fd(), 0), Some((45056, 49152)));
        assert_eq!(peer(socket_pair().unwrap().0.as_fd()).unwrap().pid, std::process::id() as i32);
    }
}
