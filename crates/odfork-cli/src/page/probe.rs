//! Whether this user's programs can be paged at all: tried, not guessed; and what is missing when
//! not.

use std::fs;
use std::io::{self, Error};
use std::os::fd::AsRawFd;

use anyhow::{bail, Result};
use odfork_pager::endpoint::Lease;
use odfork_pager::sys;
use odfork_pager_protocol::USERFAULTFD_FEATURES;
use odfork_sys::abi::userfaultfd;

const SYSCTL: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// Makes a userfaultfd as a program would, with what the daemon offers.
///
/// # Errors
/// One line: what is missing, each way to get it, and what would be lost without.
pub fn check(lease: &Lease) -> Result<()> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let failed = match &lease.device {
        // SAFETY: a valid descriptor and flags.
        Some(device) => {
            sys::check(unsafe { libc::ioctl(device.as_raw_fd(), userfaultfd::NEW, flags) })
        }
        None => own(flags),
    };
    let uffd = match failed {
        Ok(uffd) => uffd,
        Err(_) if lease.user_mode => {
            eprintln!("odfork page run: userfaultfd for user mode only: read(2), write(2) and other system calls on paged memory will fail with EFAULT");
            own(flags | userfaultfd::USER_MODE_ONLY)?
        }
        Err(error) => bail!("{}", missing(&error)),
    };
    let mut api =
        userfaultfd::Api { api: userfaultfd::VERSION, features: USERFAULTFD_FEATURES, ioctls: 0 };
    // SAFETY: the structure that belongs to the number; the descriptor is ours and closed once.
    let known = unsafe {
        let known = sys::check(libc::ioctl(uffd, userfaultfd::API, &mut api));
        libc::close(uffd);
        known
    };
    if let Err(error) = known {
        bail!("this kernel's userfaultfd lacks what paging needs (Linux 6.7 for asynchronous write protection; here {}): {error}", kernel());
    }
    Ok(())
}

fn own(flags: i32) -> io::Result<i32> {
    // SAFETY: plain arguments.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if made >= 0 {
        return Ok(made as i32);
    }
    let error = Error::last_os_error();
    let Ok(device) = fs::File::options().read(true).write(true).open("/dev/userfaultfd") else {
        return Err(error);
    };
    // SAFETY: a valid descriptor and flags.
    sys::check(unsafe { libc::ioctl(device.as_raw_fd(), userfaultfd::NEW, flags) })
}

fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn missing(error: &Error) -> String {
    if error.raw_os_error() == Some(libc::ENOSYS) {
        return format!(
            "this kernel ({}) has no userfaultfd: it needs CONFIG_USERFAULTFD and Linux 6.7",
            kernel()
        );
    }
    let sysctl = fs::read_to_string(SYSCTL).unwrap_or_default();
    format!(
        "userfaultfd is not allowed ({error}); one of these is needed: a daemon started by root with 'odfork page daemon --allow-uid {uid}', \
         access to /dev/userfaultfd (mode 0666 or a group of yours), sysctl vm.unprivileged_userfaultfd=1 (now {}), or CAP_SYS_PTRACE. \
         With --allow-user-mode it goes without, but then system calls on paged memory fail with EFAULT, which most programs do not survive",
        sysctl.trim(),
        // SAFETY: no arguments.
        uid = unsafe { libc::geteuid() }
    )
}
