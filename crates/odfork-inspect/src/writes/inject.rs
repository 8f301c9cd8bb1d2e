//! A userfaultfd made inside another process, used from outside: what method "scan" needs.
//!
//! The kernel lets a process write-protect its own memory only. So one of its stopped threads is
//! made to carry out userfaultfd(2), by an instruction it has already (the vdso holds one);
//! pidfd_getfd gives us the descriptor, and a close(2) carried out the same way leaves the process
//! with none. All ioctls come from us. When our descriptor is closed, the kernel takes all
//! protection back. x86-64 only, Linux 6.7 for UFFD_FEATURE_WP_ASYNC.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{bail, Result};
use odfork_sys::abi::userfaultfd::{self, Api, Range, Register};

/// Agrees with the kernel on asynchronous write protection.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn shake_hands(faults: &OwnedFd) -> Result<()> {
    let mut api =
        Api { api: userfaultfd::VERSION, features: userfaultfd::FEATURE_WP_ASYNC, ioctls: 0 };
    // SAFETY: the structure is valid for the kernel to read and fill.
    let result =
        unsafe { libc::ioctl(faults.as_raw_fd(), userfaultfd::API, std::ptr::from_mut(&mut api)) };
    if result != 0 {
        bail!("this kernel has no asynchronous write protection (Linux 6.7)");
    }
    Ok(())
}

/// Registers a mapping. One that cannot be (of a device, say) is left: all its pages count as
/// written.
pub fn register(faults: &OwnedFd, start: u64, end: u64) {
    let mut request = Register {
        range: Range { start, len: end - start },
        mode: userfaultfd::REGISTER_MODE_WP,
        ioctls: 0,
    };
    // SAFETY: the structure is valid for the kernel to read and fill; the range is of the other
    // process.
    unsafe {
        libc::ioctl(faults.as_raw_fd(), userfaultfd::REGISTER, std::ptr::from_mut(&mut request));
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn probe() -> Result<(), String> {
    Err("written for x86-64 only".into())
}

#[cfg(not(target_arch = "x86_64"))]
pub fn userfault(_target: &mut odfork_proc::tracee::Tracee) -> Result<OwnedFd> {
    bail!("method scan is written for x86-64 only")
}

#[cfg(target_arch = "x86_64")]
pub use x86::{probe, userfault};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::fs::File;
    use std::io::Error;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    use anyhow::{anyhow, bail, Context, Result};
    use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};

    use crate::writes::inject::shake_hands;
    use odfork_proc::maps;
    use odfork_proc::ptrace::{self, registers};
    use odfork_proc::tracee::Tracee;
    use odfork_sys::abi::userfaultfd;

    /// The second is what a user without privileges may ask for.
    const FLAGS: [i64; 2] =
        [libc::O_CLOEXEC as i64, (libc::O_CLOEXEC | userfaultfd::USER_MODE_ONLY) as i64];
    const STEP_TIMEOUT: Duration = Duration::from_secs(2);

    /// Tries on ourselves whether the kernel gives such a descriptor.
    pub fn probe() -> Result<(), String> {
        let made = FLAGS.iter().find_map(|&flags| {
            // SAFETY: makes a descriptor.
            let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
            // SAFETY: a new descriptor that nobody else owns.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
        });
        let Some(faults) = made else {
            return Err(format!("userfaultfd is refused here: {}", Error::last_os_error()));
        };
        shake_hands(&faults).map_err(|error| error.to_string())
    }

    /// The process must be stopped.
    pub fn userfault(tracee: &mut Tracee) -> Result<OwnedFd> {
        let tid = tracee.interrupted_thread().ok_or_else(|| {
            anyhow!("no thread of process {} can make a system call for us", tracee.pid)
        })?;
        let gate = gate(tracee.pid)?;
        let mut made = Err(anyhow!("userfaultfd was not tried"));
        for flags in FLAGS {
            made = call(tid, gate, libc::SYS_userfaultfd, flags);
            if made.is_ok() {
                break;
            }
        }
        let theirs = made.context("userfaultfd in the process")?;
        let ours = take(tracee.pid, theirs as i32);
        call(tid, gate, libc::SYS_close, theirs).context("close in the process")?;
        let ours = ours?;
        shake_hands(&ours)?;
        Ok(ours)
    }

    /// Address of a `syscall` instruction the process has: in its vdso.
    fn gate(pid: i32) -> Result<u64> {
        let vdso = maps::of_process(pid)?.into_iter().find(|mapping| mapping.name == "[vdso]");
        let vdso = vdso.context("no vdso")?;
        let mut code = vec![0; vdso.bytes() as usize];
        File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut code, vdso.start)?;
        let at = code.windows(2).position(|pair| pair == [0x0f, 0x05]);
        Ok(vdso.start + at.context("the vdso holds no syscall instruction")? as u64)
    }

    /// Makes a stopped thread carry out one system call, and puts its registers back.
    fn call(tid: i32, gate: u64, number: libc::c_long, argument: i64) -> Result<i64> {
        let saved = registers::get(tid)?;
        let mut borrowed = saved;
        borrowed.rip = gate;
        borrowed.rax = number as u64;
        borrowed.rdi = argument as u64;
        // Not inside a system call: the kernel must not restart anything with these registers.
        borrowed.orig_rax = u64::MAX;
        registers::set(tid, &borrowed)?;
        let stepped = registers::step(tid).map_err(anyhow::Error::from).and_then(|()| settle(tid));
        let result = registers::get(tid).map(|registers| registers.rax as i64);
        registers::set(tid, &saved)?;
        stepped?;
        match result? {
            code @ -4095..=-1 => Err(Error::from_raw_os_error(-code as i32).into()),
            value => Ok(value),
        }
    }

    fn settle(tid: i32) -> Result<()> {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            match ptrace::wait(tid) {
                Ok(Some((_, status))) if libc::WIFSTOPPED(status) => {
                    if libc::WSTOPSIG(status) == libc::SIGTRAP {
                        return Ok(());
                    }
                    bail!("signal {} came in between", libc::WSTOPSIG(status));
                }
                Ok(Some(_)) => bail!("the thread ended meanwhile"),
                Ok(None) if Instant::now() > end => bail!("the thread does not stop again"),
                Ok(None) => std::thread::sleep(Duration::from_micros(20)),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A copy of a descriptor of another process.
    fn take(pid: i32, theirs: i32) -> Result<OwnedFd> {
        let pid = Pid::from_raw(pid).context("no process")?;
        let process = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
        pidfd_getfd(process, theirs, PidfdGetfdFlags::empty()).context("pidfd_getfd")
    }
}
