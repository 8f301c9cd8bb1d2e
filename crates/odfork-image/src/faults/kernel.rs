//! The userfaultfd of a session, and a table of descriptors that nobody else sees.
//!
//! Thin. Filling pages is `odfork_pager::uffd`; here are making it, giving it memory, and what it takes to be left alone.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use odfork_sys::abi::userfaultfd::{self, Api, Range, Register};

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
    let uffd = open_any(user_faults)?;
    let events = userfaultfd::FEATURE_EVENT_REMAP | userfaultfd::FEATURE_EVENT_REMOVE;
    for (features, poison) in [(events | userfaultfd::FEATURE_POISON, true), (events, false)] {
        let mut api = Api { api: userfaultfd::VERSION, features, ioctls: 0 };
        // SAFETY: the structure belongs to the number.
        let answer = unsafe { libc::ioctl(uffd.as_raw_fd(), userfaultfd::API, &mut api) };
        if answer == 0 {
            return Ok((uffd, poison));
        }
    }
    Err(Error::new(ErrorKind::Unsupported, "this kernel's userfaultfd is older than Linux 4.11"))
}

fn open_any(user_faults: bool) -> Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let refused = match call(flags) {
        Ok(uffd) => return Ok(uffd),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => error,
        Err(error) => return Err(error),
    };
    let device = File::options().read(true).write(true).open("/dev/userfaultfd");
    if let Ok(device) = device {
        // SAFETY: the argument is flags.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), userfaultfd::NEW, flags) };
        if fd >= 0 {
            // SAFETY: new and ours.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    if user_faults {
        return call(flags | userfaultfd::USER_MODE_ONLY);
    }
    Err(refused)
}

fn call(flags: i32) -> Result<OwnedFd> {
    // SAFETY: flags only; the descriptor is new and ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, flags);
        check(fd as i32)?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Faults on missing pages of this memory go to the userfaultfd.
pub fn register(uffd: BorrowedFd, start: u64, len: u64) -> Result<()> {
    let mut register = Register {
        range: Range { start, len },
        mode: userfaultfd::REGISTER_MODE_MISSING,
        ioctls: 0,
    };
    // SAFETY: the structure belongs to the number.
    check(unsafe { libc::ioctl(uffd.as_raw_fd(), userfaultfd::REGISTER, &mut register) })
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
