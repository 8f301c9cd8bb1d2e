//! userfaultfd as the daemon uses it: read messages, fill pages, wake, poison.
//!
//! Thin: one function for each ioctl, the kernel's error as it is. Making and registering are the
//! agent's. The meaning of errors here (Linux 6.18): EEXIST the page is mapped already; ENOENT no
//! such registered range (unmapped meanwhile); ESRCH the program's memory is gone; EFAULT
//! (CONTINUE) nothing in the file at that place; EAGAIN try again.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::{self, Fill, Message, Range};

fn ioctl<T>(uffd: BorrowedFd, number: u64, argument: &mut T) -> Result<()> {
    // SAFETY: every caller passes the structure that belongs to the number.
    let answer = unsafe { libc::ioctl(uffd.as_raw_fd(), number, std::ptr::from_mut(argument)) };
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Tries again for as long as the kernel says so, within reason.
fn patiently(mut call: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..1000 {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
            other => return other,
        }
    }
    Err(Error::from_raw_os_error(libc::EAGAIN))
}

/// Up to `buffer.len()` messages; 0 when none is there. Never waits, even when the program, which
/// shares the description, has cleared O_NONBLOCK (Linux 6.10; before that, RWF_NOWAIT is not known
/// here and a program could make us wait).
pub fn read(uffd: BorrowedFd, buffer: &mut [Message]) -> Result<usize> {
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: size_of_val(buffer) };
    // SAFETY: messages are plain data of the kernel's layout.
    let mut got = unsafe { libc::preadv2(uffd.as_raw_fd(), &part, 1, -1, libc::RWF_NOWAIT) };
    if got < 0 && Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) {
        // SAFETY: as above.
        got = unsafe { libc::read(uffd.as_raw_fd(), part.iov_base, part.iov_len) };
    }
    match usize::try_from(got) {
        Ok(bytes) => Ok(bytes / size_of::<Message>()),
        Err(_) => match Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(0),
            error => Err(error),
        },
    }
}

/// Whether its owner has finished making it. One that is not ready can be polled, and says "error"
/// for ever.
pub fn is_ready(uffd: BorrowedFd) -> bool {
    wake(uffd, PAGE as u64, PAGE as u64).is_ok()
}

/// Sets O_NONBLOCK again: without it, poll says "error" at once, for ever.
pub fn unblock(uffd: BorrowedFd) {
    // SAFETY: a plain call; it may fail on nothing but a bad descriptor.
    unsafe { libc::fcntl(uffd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
}

/// Puts the content of one or more pages in place, marked as not written, and wakes who waits for
/// them. Returns how many were done before the first that could not be.
///
/// # Errors
/// The first page could not be done.
pub fn copy(uffd: BorrowedFd, address: u64, content: &[u8]) -> Result<usize> {
    assert!(content.len() % PAGE == 0);
    let mut done = 0;
    patiently(|| {
        let mut copy = userfaultfd::CopyPages {
            dst: address + done as u64,
            src: content.as_ptr() as u64 + done as u64,
            len: (content.len() - done) as u64,
            mode: userfaultfd::COPY_MODE_WP,
            copied: 0,
        };
        let answer = ioctl(uffd, userfaultfd::COPY, &mut copy);
        done += usize::try_from(copy.copied).unwrap_or(0).min(content.len() - done);
        if done == content.len() {
            return Ok(());
        }
        answer
    })
    .or_else(|error| if done > 0 { Ok(()) } else { Err(error) })?;
    Ok(done / PAGE)
}

/// Maps the pages of the file that are there, marked as not written, and wakes; returns how many.
pub fn map(uffd: BorrowedFd, address: u64, pages: u64) -> Result<u64> {
    let len = pages * PAGE as u64;
    let mut mapped = 0;
    patiently(|| {
        let range = Range { start: address + mapped, len: len - mapped };
        let mut fill = Fill { range, mode: userfaultfd::CONTINUE_MODE_WP, done: 0 };
        let answer = ioctl(uffd, userfaultfd::CONTINUE, &mut fill);
        mapped += u64::try_from(fill.done).unwrap_or(0).min(len - mapped);
        match answer {
            Err(_) if mapped == len => Ok(()),
            other => other,
        }
    })
    .or_else(|error| if mapped > 0 { Ok(()) } else { Err(error) })?;
    Ok(mapped / PAGE as u64)
}

/// Lets faults in the range come again.
pub fn wake(uffd: BorrowedFd, address: u64, len: u64) -> Result<()> {
    ioctl(uffd, userfaultfd::WAKE, &mut Range { start: address, len })
}

/// Puts content in place without a mark and wakes who waits for it, in one attempt; the bytes done
/// and how it ended. For memory that is not watched for writes (images). EAGAIN: an event has to be
/// read first.
pub fn fill(uffd: BorrowedFd, address: u64, content: &[u8]) -> (usize, Result<()>) {
    let (src, len) = (content.as_ptr() as u64, content.len() as u64);
    let mut copy = userfaultfd::CopyPages { dst: address, src, len, mode: 0, copied: 0 };
    let answer = ioctl(uffd, userfaultfd::COPY, &mut copy);
    (usize::try_from(copy.copied).unwrap_or(0).min(content.len()), answer)
}

/// The same with zeros.
pub fn fill_zero(uffd: BorrowedFd, address: u64, len: usize) -> (usize, Result<()>) {
    let range = Range { start: address, len: len as u64 };
    let mut fill = Fill { range, mode: 0, done: 0 };
    let answer = ioctl(uffd, userfaultfd::ZEROPAGE, &mut fill);
    (usize::try_from(fill.done).unwrap_or(0).min(len), answer)
}

/// Touching the page is a SIGBUS from now on: its content is lost, and zeros would be a lie.
pub fn poison(uffd: BorrowedFd, address: u64) -> Result<()> {
    patiently(|| {
        let range = Range { start: address, len: PAGE as u64 };
        ioctl(uffd, userfaultfd::POISON, &mut Fill { range, mode: 0, done: 0 })
    })
}

/// Whether the memory this descriptor belongs to is gone (its program ended or executed another
/// one). A closed socket is no proof of that: programs close descriptors they do not know.
pub fn is_gone(uffd: BorrowedFd) -> bool {
    // Below every mapping (vm.mmap_min_addr), so nothing can be filled.
    let range = Range { start: PAGE as u64, len: PAGE as u64 };
    let answer = ioctl(uffd, userfaultfd::ZEROPAGE, &mut Fill { range, mode: 0, done: 0 });
    answer.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}
