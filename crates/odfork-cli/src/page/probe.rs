//! Whether this user's programs can be paged at all, and in which way: tried, not guessed; and what
//! is missing when not.

use std::fs::{self, File};
use std::io::Error;
use std::os::fd::AsRawFd;

use anyhow::{bail, Result};
use odfork_pager::endpoint::Lease;
use odfork_pager_protocol::{MOVING_FEATURES, USERFAULTFD_FEATURES};
use odfork_sys::abi::procmap;
use odfork_sys::abi::userfaultfd::{FEATURE_EVENT_FORK, USER_MODE_ONLY};
use odfork_sys::userfaultfd::{self, Userfaultfd};
use odfork_sys::{args, call, Errno, SysResult};

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
        Err(error) => bail!("{}", missing_for_daemon(&io_error(error))),
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

/// Whether the kernel tells of forks, where all memory can be paged; else, in one line, what is
/// missing.
pub fn moves() -> Result<bool, String> {
    let made =
        own(libc::O_CLOEXEC | libc::O_NONBLOCK).map_err(|error| missing(&io_error(error), ""))?;
    let told = made.enable(MOVING_FEATURES | FEATURE_EVENT_FORK);
    let known = told.or_else(|_| made.enable(MOVING_FEATURES));
    // SAFETY: the descriptor is ours and closed once.
    unsafe { libc::close(made.0) };
    match known.is_ok() && answers_about_mappings() {
        true => Ok(told.is_ok()),
        false => Err(format!(
            "paging of all memory needs Linux 6.11 (UFFDIO_MOVE and PROCMAP_QUERY; here {}): \
             --memory large pages large mappings from 6.7 on",
            kernel()
        )),
    }
}

fn answers_about_mappings() -> bool {
    let Ok(maps) = File::open("/proc/self/maps") else { return false };
    let mut query = procmap::Query {
        size: size_of::<procmap::Query>() as u64,
        flags: procmap::COVERING_OR_NEXT_VMA,
        ..procmap::Query::default()
    };
    // SAFETY: the structure that belongs to the request.
    unsafe { call(libc::SYS_ioctl, args![maps.as_raw_fd(), procmap::QUERY, &mut query]) }.is_ok()
}

/// By the system call, or by the device.
pub fn own(flags: i32) -> SysResult<Userfaultfd> {
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

fn missing(error: &Error, daemon: &str) -> String {
    if error.raw_os_error() == Some(libc::ENOSYS) {
        return format!(
            "this kernel ({}) has no userfaultfd: it needs CONFIG_USERFAULTFD and Linux 6.7",
            kernel()
        );
    }
    let sysctl = fs::read_to_string(SYSCTL).unwrap_or_default();
    format!(
        "userfaultfd is not allowed ({error}); one of these is needed: {daemon}access to \
         /dev/userfaultfd (mode 0666 or a group of yours), sysctl vm.unprivileged_userfaultfd=1 \
         (now {}), or CAP_SYS_PTRACE",
        sysctl.trim(),
    )
}

/// The same for programs of a daemon, and what goes without.
fn missing_for_daemon(error: &Error) -> String {
    // SAFETY: no arguments.
    let uid = unsafe { libc::geteuid() };
    let daemon = format!("a daemon started by root with 'odfork page daemon --allow-uid {uid}', ");
    format!(
        "{}. With --allow-user-mode it goes without, but then system calls on paged memory fail \
         with EFAULT, which most programs do not survive",
        missing(error, &daemon)
    )
}
