//! The userfaultfd of a session, and a table of descriptors that nobody else sees.
//!
//! Owns which way of making one is taken, and what it takes to be left alone. The requests
//! themselves are `odfork_sys::userfaultfd`.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use odfork_sys::abi::userfaultfd as abi;
use odfork_sys::userfaultfd::{self, Userfaultfd};
use odfork_sys::{Errno, SysResult};

/// The calling thread gets a table of descriptors of its own, a copy.
pub fn own_table() -> Result<()> {
    // SAFETY: changes the calling thread only, which nobody else's code runs in.
    check(unsafe { libc::unshare(libc::CLONE_FILES) })
}

/// Closes everything in the calling thread's own table but these.
pub fn close_others(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().map(|&fd| fd as u32).collect();
    keep.sort_unstable();
    let mut from = 0;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = fd.saturating_add(1);
    }
}

fn close_range(first: u32, last: u32) {
    // SAFETY: descriptors of the calling thread's own table that nothing here refers to.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } < 0 {
        // Before Linux 5.9: as many as a usual limit allows.
        for fd in first..=last.min(4096) {
            // SAFETY: as above.
            unsafe { libc::close(fd as RawFd) };
        }
    }
}

/// A userfaultfd, and whether it can poison pages (Linux 6.6).
///
/// # Errors
/// `PermissionDenied` when no way is allowed, `Unsupported` when this kernel's is too old.
pub fn open(user_faults: bool) -> Result<(OwnedFd, bool)> {
    let made = open_any(user_faults).map_err(io_error)?;
    // SAFETY: new and ours.
    let owned = unsafe { OwnedFd::from_raw_fd(made.0) };
    let events = abi::FEATURE_EVENT_REMAP | abi::FEATURE_EVENT_REMOVE | abi::FEATURE_EVENT_UNMAP;
    for (features, poison) in [(events | abi::FEATURE_POISON, true), (events, false)] {
        if made.enable(features).is_ok() {
            return Ok((owned, poison));
        }
    }
    Err(Error::new(ErrorKind::Unsupported, "this kernel's userfaultfd is older than Linux 4.11"))
}

fn open_any(user_faults: bool) -> SysResult<Userfaultfd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let refused = match userfaultfd::create(flags) {
        Err(error @ Errno(libc::EPERM)) => error,
        other => return other,
    };
    userfaultfd::create_from_device(flags).or_else(|_| match user_faults {
        true => userfaultfd::create(flags | abi::USER_MODE_ONLY),
        // The system call's refusal says more than that of the device.
        false => Err(refused),
    })
}

pub fn io_error(error: Errno) -> Error {
    Error::from_raw_os_error(error.0)
}

/// Waits for the next message.
pub fn wait(uffd: BorrowedFd) {
    let mut entry = libc::pollfd { fd: uffd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry. Any outcome is fine: the caller looks again.
    unsafe { libc::poll(&mut entry, 1, -1) };
}

/// An empty file: mapped, it is a SIGBUS to whoever touches it.
pub fn empty_file() -> Result<File> {
    // SAFETY: a static name; the descriptor is new and ours.
    unsafe {
        let fd = libc::memfd_create(c"odfork-lost".as_ptr(), libc::MFD_CLOEXEC);
        check(fd)?;
        Ok(File::from_raw_fd(fd))
    }
}

fn check(answer: i32) -> Result<()> {
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}
