//! userfaultfd as the daemon uses it: read messages, fill pages, wake, poison.
//!
//! Owns how long a request is tried again and what counts as done; the requests are
//! `odfork_sys::userfaultfd`. Making and registering are the agent's.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::{self as abi, Message};
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{Errno, SysResult};

fn of(uffd: BorrowedFd) -> Userfaultfd {
    Userfaultfd(uffd.as_raw_fd())
}

fn io<T>(answer: SysResult<T>) -> Result<T> {
    answer.map_err(|error| Error::from_raw_os_error(error.0))
}

/// Retries on EAGAIN, a limited number of times.
fn retry_on_again(mut call: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..1000 {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
            other => return other,
        }
    }
    Err(Error::from_raw_os_error(libc::EAGAIN))
}

/// Up to `buffer.len()` messages; 0 when none is there. Never waits.
pub fn read(uffd: BorrowedFd, buffer: &mut [Message]) -> Result<usize> {
    io(of(uffd).read(buffer))
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
    retry_on_again(|| {
        let (more, answer) =
            of(uffd).copy(address + done as u64, &content[done..], abi::COPY_MODE_WP);
        done += more;
        if done == content.len() {
            return Ok(());
        }
        io(answer)
    })
    .or_else(|error| if done > 0 { Ok(()) } else { Err(error) })?;
    Ok(done / PAGE)
}

/// Maps the pages of the file that are there, marked as not written, and wakes; returns how many.
pub fn map(uffd: BorrowedFd, address: u64, pages: u64) -> Result<u64> {
    let len = pages * PAGE as u64;
    let mut mapped = 0;
    retry_on_again(|| {
        let (more, answer) = of(uffd).map(address + mapped, len - mapped, abi::CONTINUE_MODE_WP);
        mapped += more;
        match answer {
            Err(_) if mapped == len => Ok(()),
            other => io(other),
        }
    })
    .or_else(|error| if mapped > 0 { Ok(()) } else { Err(error) })?;
    Ok(mapped / PAGE as u64)
}

/// Lets faults in the range come again.
pub fn wake(uffd: BorrowedFd, address: u64, len: u64) -> Result<()> {
    io(of(uffd).wake(address, len))
}

/// Touching the page raises SIGBUS from now on: its content is lost, and zeros would be wrong.
pub fn poison(uffd: BorrowedFd, address: u64) -> Result<()> {
    retry_on_again(|| io(of(uffd).poison(address, PAGE as u64).1))
}

/// Whether the memory this descriptor belongs to is gone (its program ended or executed another
/// one). A closed socket is no proof of that: programs close descriptors they do not know.
pub fn is_gone(uffd: BorrowedFd) -> bool {
    // Below every mapping (vm.mmap_min_addr), so nothing can be filled.
    of(uffd).zero(PAGE as u64, PAGE as u64).1 == Err(Errno(libc::ESRCH))
}
