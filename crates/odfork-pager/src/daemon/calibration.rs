//! Measures what a reclaim costs on this machine; the hand's maximum rate follows from it. (The
//! paper: 250 us, hence 300 pages/s.)
//!
//! One thread touches memory that is complete but not mapped, page by page; another maps the pages.
//! The cost is the time the first waits plus the time the second computes, as for a paged program
//! and this daemon.

use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use odfork_pager_protocol::{PAGE, USERFAULTFD_FEATURES};
use odfork_sys::abi::userfaultfd::{self, Message};

use crate::sys::{self, check, Mapping};
use crate::uffd;

const PAGES: usize = 256;
/// Where userfaultfd is not to be had: two wakes and a system call on a slow machine.
const ASSUMED_NS: u64 = 15_000;

/// A reclaim is more than the bare fault: finding the page to unmap, unmapping it, the clock.
/// Measured: twice the time.
const WHOLE: u64 = 2;

/// Nanoseconds of one reclaim.
pub fn reclaim_ns() -> u64 {
    WHOLE * measure().map_or(ASSUMED_NS, |ns| ns.clamp(1_000, 1_000_000))
}

fn measure() -> Result<u64> {
    let file = sys::memory_file(c"odfork-page-calibration", (PAGES * PAGE) as u64)?;
    sys::write_all(file.as_fd(), &vec![1u8; PAGES * PAGE], 0)?;
    let memory = Mapping::of(file.as_fd(), PAGES * PAGE)?;
    let uffd = open(memory.as_ptr() as u64)?;
    let began = sys::now_ns();
    // SAFETY: no arguments.
    let here = unsafe { libc::sched_getcpu() };
    let served = std::thread::scope(|scope| {
        // It owns the descriptor: however it ends, nobody waits any more.
        let server = scope.spawn(move || {
            keep_off(here);
            serve(uffd)
        });
        for page in 0..PAGES {
            // SAFETY: inside the mapping; the server maps it.
            unsafe { memory.as_ptr().add(page * PAGE).read_volatile() };
        }
        server.join().ok().flatten()
    });
    let waited = sys::now_ns() - began;
    let served = served.ok_or_else(|| Error::other("not every fault was served"))?;
    Ok((waited + served) / PAGES as u64)
}

/// A userfaultfd on the mapping. User mode is enough and needs no right. When it is closed touches
/// go through.
fn open(start: u64) -> Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | userfaultfd::USER_MODE_ONLY;
    // SAFETY: flags only; the descriptor is owned by nobody else.
    let uffd = unsafe {
        let fd = check(libc::syscall(libc::SYS_userfaultfd, flags) as i32)?;
        OwnedFd::from_raw_fd(fd)
    };
    let mut api =
        userfaultfd::Api { api: userfaultfd::VERSION, features: USERFAULTFD_FEATURES, ioctls: 0 };
    let range = userfaultfd::Range { start, len: (PAGES * PAGE) as u64 };
    let mut register = userfaultfd::Register {
        range,
        mode: userfaultfd::REGISTER_MODE_MINOR | userfaultfd::REGISTER_MODE_WP,
        ioctls: 0,
    };
    // SAFETY: each request with its structure.
    unsafe {
        check(libc::ioctl(uffd.as_raw_fd(), userfaultfd::API, &mut api))?;
        check(libc::ioctl(uffd.as_raw_fd(), userfaultfd::REGISTER, &mut register))?;
    }
    Ok(uffd)
}

/// Maps one page for each fault; the time computed, if it was all of them. Whatever fails, the
/// toucher is let through.
fn serve(uffd: OwnedFd) -> Option<u64> {
    let began = sys::thread_ns();
    let mut message = [Message::default()];
    for _ in 0..PAGES {
        let mut ready = libc::pollfd { fd: uffd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid descriptor; reading does not wait, as for the fault threads.
        unsafe { libc::poll(&mut ready, 1, -1) };
        if uffd::read(uffd.as_fd(), &mut message).ok()? != 1 {
            return None;
        }
        let address = message[0].address & !(PAGE as u64 - 1);
        uffd::map(uffd.as_fd(), address, 1).ok()?;
    }
    Some(sys::thread_ns() - began)
}

/// Two threads that happen to share a processor wake each other for a tenth of the usual price: not
/// to be relied on.
fn keep_off(processor: i32) {
    // SAFETY: a set of processors, read, changed within its size and set again; with one
    // processor the kernel refuses it.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(0, size, &mut allowed) != 0 {
            return;
        }
        if let Some(at) = usize::try_from(processor).ok().filter(|&at| at < size * 8) {
            libc::CPU_CLR(at, &mut allowed);
        }
        libc::sched_setaffinity(0, size, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reclaim_costs_more_than_a_read() {
        match measure() {
            Ok(ns) => assert!(ns > 500, "{ns}"),
            Err(error) if error.raw_os_error().is_some() => println!("SKIPPED: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
