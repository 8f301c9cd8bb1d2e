//! Whether this user's programs can be paged at all: tried, not guessed; and what is missing when
//! not.

use std::fs;
use std::io::Error;
use std::os::fd::AsRawFd;

use anyhow::{bail, Result};
use odfork_pager::endpoint::Lease;
use odfork_pager_protocol::USERFAULTFD_FEATURES;
use odfork_sys::abi::userfaultfd::USER_MODE_ONLY;
use odfork_sys::userfaultfd::{self, Userfaultfd};
use odfork_sys::{Errno, SysResult};

const SYSCTL: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// Makes a userfaultfd as a program would, with what the daemon offers.
///
/// # Errors
/// One line: what is missing, each way to get it, and what would be lost without.
pub fn check(lease: &Lease) -> Result<()> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let made = match &lease.device {
        Some(device) => userfaultfd::create_from(device.as_raw_fd(), flags),
        None => own(flags),
    };
    let made = match made {
        Ok(made) => made,
        Err(_) if lease.user_mode => {
            eprintln!(
                "odfork page run: userfaultfd for user mode only: read(2), write(2) and \
                 other system calls on paged memory will fail with EFAULT"
            );
            own(flags | USER_MODE_ONLY).map_err(io_error)?
        }
        Err(error) => bail!("{}", missing(&io_error(error))),
    };
    let known = made.enable(USERFAULTFD_FEATURES);
    // SAFETY: the descriptor is ours and closed once.
    unsafe { libc::close(made.0) };
    if let Err(error) = known {
        let (kernel, error) = (kernel(), io_error(error));
        bail!(
            "this kernel's userfaultfd lacks what paging needs (Linux 6.7 for asynchronous write \
             protection; here {kernel}): {error}"
        );
    }
    Ok(())
}

fn own(flags: i32) -> SysResult<Userfaultfd> {
    // The system call's refusal says more than that of the device.
    userfaultfd::create(flags)
        .or_else(|error| userfaultfd::create_from_device(flags).map_err(|_| error))
}

fn io_error(error: Errno) -> Error {
    Error::from_raw_os_error(error.0)
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
        "userfaultfd is not allowed ({error}); one of these is needed: a daemon started by root \
         with 'odfork page daemon --allow-uid {uid}', access to /dev/userfaultfd (mode 0666 or a \
         group of yours), sysctl vm.unprivileged_userfaultfd=1 (now {}), or CAP_SYS_PTRACE. With \
         --allow-user-mode it goes without, but then system calls on paged memory fail with \
         EFAULT, which most programs do not survive",
        sysctl.trim(),
        // SAFETY: no arguments.
        uid = unsafe { libc::geteuid() }
    )
}
