//! What is asked of a thread's socket while it is held: its limits, whether it is a stream.
//!
//! Owns how: of a copy of the descriptor; where a filter forbids copies, of what else is known. The
//! rules of `helper` apply.

use crate::args;
use crate::held::Process;
use crate::open_files::{of_thread, option_of, with_copy};
use crate::scan::{self, digits, Path, Subject};
use crate::sys::{self, Fault, Kernel, Trace};
use crate::vma::dec;

/// A wait on this descriptor of a thread has no limit of its own, of time or bytes. A copy is
/// asked. Where that is forbidden, what counts is whether the program has given one to any socket.
pub fn has_no_limits(process: Process, subject: &Subject, tid: i32, fd: i32) -> bool {
    let Some(known) = of_thread(process.pid, tid, fd) else { return false };
    if !known.is_of(libc::S_IFSOCK) {
        return true;
    }
    if process.descriptor < 0 {
        return !subject.timed_sockets;
    }
    with_copy(process, &known, fd, |copy| {
        let times = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].map(|name| option_of(copy, name));
        times == [Some([0i64; 2]); 2]
            && option_of(copy, libc::SO_RCVLOWAT).is_none_or(|n: i32| n <= 1)
    }) == Some(true)
}

/// It is a socket without records.
pub fn is_stream(process: Process, tid: i32, fd: i32) -> bool {
    let Some(known) = of_thread(process.pid, tid, fd).filter(|file| file.is_of(libc::S_IFSOCK))
    else {
        return false;
    };
    let kind = |copy| option_of(copy, libc::SO_TYPE) == Some(libc::SOCK_STREAM);
    with_copy(process, &known, fd, kind).unwrap_or_else(|| is_listed(process.pid, known.inode))
}

/// The kernel lists it among streams.
fn is_listed(pid: i32, inode: u64) -> bool {
    let mut number = [0u8; 20];
    let number = digits(pid as u64, &mut number);
    let is_tcp = |line: &[u8]| word(line, 9) == Some(inode);
    let is_unix = |line: &[u8]| word(line, 6) == Some(inode) && word(line, 4) == Some(1);
    any_line(Path::join(&[b"/proc/", number, b"/net/unix"]), &is_unix)
        || any_line(Path::join(&[b"/proc/", number, b"/net/tcp"]), &is_tcp)
        || any_line(Path::join(&[b"/proc/", number, b"/net/tcp6"]), &is_tcp)
}

fn word(line: &[u8], at: usize) -> Option<u64> {
    line.split(|&b| b == b' ').filter(|word| !word.is_empty()).nth(at).and_then(dec)
}

/// Not counted: asked also while threads are let go, which must not fail.
fn any_line(path: Path, is_it: &dyn Fn(&[u8]) -> bool) -> bool {
    let trace = Trace::new();
    let Ok(fd) = scan::open(&Kernel::new(&trace, Fault::None), path.c_str()) else { return false };
    let (mut text, mut kept, mut found) = ([0u8; 4096], 0, false);
    while !found && kept < text.len() {
        let room = &mut text[kept..];
        // SAFETY: the buffer is valid for its length.
        let got = unsafe { sys::raw(libc::SYS_read, args![fd, room.as_mut_ptr(), room.len()]) };
        if got <= 0 {
            break;
        }
        let filled = kept + got as usize;
        let end = text[..filled].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        found = text[..end].split(|&b| b == b'\n').any(is_it);
        text.copy_within(end..filled, 0);
        kept = filled - end;
    }
    scan::close(fd);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn streams_are_known_with_copies_and_without() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let (records, _another) = UnixDatagram::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let process = Process { pid: sys::getpid(), descriptor: -1 };
        let (fds, tid) = ([stream.as_raw_fd(), listener.as_raw_fd()], sys::gettid());
        assert_eq!(fds.map(|fd| is_stream(process, tid, fd)), [true; 2]);
        assert!(!is_stream(process, tid, records.as_raw_fd()) && !is_stream(process, tid, 0));
        let trace = Trace::new();
        let process = Process::open(&Kernel::new(&trace, Fault::None), sys::getpid());
        assert_eq!(fds.map(|fd| is_stream(process, tid, fd)), [true; 2]);
        assert!(!is_stream(process, tid, records.as_raw_fd()));
        scan::close(process.descriptor);
    }
}
