//! The ptrace requests that are used, each as one safe call. Linux only; nothing is decided here.
//!
//! Seizing (Linux 3.4) instead of attaching: the program is not stopped by it and sees no signal. All calls must come
//! from the thread that seized.

use std::io::{Error, Result};
use std::ptr;

/// What a wait gave.
pub type Status = libc::c_int;

fn request(what: libc::c_uint, tid: i32, address: usize, data: usize) -> Result<libc::c_long> {
    // SAFETY: callers pass requests whose data is a number, or a pointer valid during the call.
    let result = unsafe {
        libc::ptrace(
            what,
            tid,
            ptr::with_exposed_provenance_mut::<libc::c_void>(address),
            ptr::with_exposed_provenance_mut::<libc::c_void>(data),
        )
    };
    if result == -1 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Threads, exec and exit are reported; forked children are left alone.
pub fn seize(tid: i32) -> Result<()> {
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEEXIT;
    request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

pub fn interrupt(tid: i32) -> Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

pub fn go_on(tid: i32, signal: i32) -> Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Leaves it stopped as its parent wants it, but ready to be told to go on.
pub fn listen(tid: i32) -> Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

pub fn detach(tid: i32, signal: i32) -> Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// The number that came with an event: the new thread's id, or the exit status.
pub fn message(tid: i32) -> Result<u64> {
    let mut number: libc::c_ulong = 0;
    let place = ptr::from_mut(&mut number).expose_provenance();
    request(libc::PTRACE_GETEVENTMSG, tid, 0, place)?;
    Ok(number)
}

/// One report of `tid` (-1: of any thread seized by this one), if there is one now.
pub fn wait(tid: i32) -> Result<Option<(i32, Status)>> {
    let mut status = 0;
    // SAFETY: the status is valid for the call to fill. __WNOTHREAD: children of other threads are theirs.
    let found = unsafe {
        libc::waitpid(tid, &mut status, libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD)
    };
    match found {
        -1 => Err(Error::last_os_error()),
        0 => Ok(None),
        found => Ok(Some((found, status))),
    }
}

#[cfg(target_arch = "x86_64")]
pub mod registers {
    //! What carrying out a system call in another process takes.

    use super::{ptr, request, Result};

    pub fn get(tid: i32) -> Result<libc::user_regs_struct> {
        // SAFETY: all-zero numbers are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let place = ptr::from_mut(&mut registers).expose_provenance();
        request(libc::PTRACE_GETREGS, tid, 0, place)?;
        Ok(registers)
    }

    pub fn set(tid: i32, registers: &libc::user_regs_struct) -> Result<()> {
        request(libc::PTRACE_SETREGS, tid, 0, ptr::from_ref(registers).expose_provenance())
            .map(drop)
    }

    pub fn step(tid: i32) -> Result<()> {
        request(libc::PTRACE_SINGLESTEP, tid, 0, 0).map(drop)
    }
}
