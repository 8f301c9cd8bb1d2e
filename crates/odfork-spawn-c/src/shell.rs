//! odf_popen2, odf_popen3: a shell's command with pipes to talk through, and how to end the talk.
//!
//! Owns: the ends of the pipes once C gives them back, and the wait for the program. What a shell
//! is told is said here for `system` too. The comments are the text of odfspawn.h.

use core::ffi::{c_char, c_int, c_void, CStr};
use std::io::{Error, ErrorKind};
use std::os::fd::{FromRawFd, OwnedFd};

use odfork_spawn::{exchange, Cause, Command, Stdio};
use odfork_sys::{args, raw, wait4, Errno};

use crate::guard::CallGuard;
use crate::spawn::{odf_process, plain, text};

/// What a program wrote: malloc'd, for the caller to free(); one zero byte behind `out_size` and
/// `err_size` bytes. NULL where the program had no pipe.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_output {
    pub out: *mut c_char,
    pub out_size: usize,
    pub err: *mut c_char,
    pub err_size: usize,
}

/// Starts `/bin/sh -c -- command` with a pipe on standard input and one on standard output:
/// popen(3) in both directions, with descriptors in place of a FILE. Ignored signals and the signal
/// mask are inherited, as there. 0, or -1 with errno (EINVAL: a pointer is NULL).
///
/// A program that reads and writes much at once may wait for its output to be read while the caller
/// waits for its input to be taken: see odf_communicate(). To say that there is no more input,
/// close(process->in) and set it to -1. Threads, cancellation, forked children: as for odf_spawn().
///
/// # Safety
/// `command` is a string, `process` writable.
#[no_mangle]
pub unsafe extern "C" fn odf_popen2(command: *const c_char, process: *mut odf_process) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { open(command, process, false) }
}

/// As odf_popen2(), with a pipe on standard error too.
///
/// # Safety
/// As for odf_popen2().
#[no_mangle]
pub unsafe extern "C" fn odf_popen3(command: *const c_char, process: *mut odf_process) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { open(command, process, true) }
}

/// # Safety
/// As for [`odf_popen2`].
unsafe fn open(line: *const c_char, process: *mut odf_process, with_errors: bool) -> c_int {
    let mut guard = CallGuard::enter();
    if process.is_null() || line.is_null() {
        return guard.fail(libc::EINVAL);
    }
    // SAFETY: a string, says the caller.
    let mut command = shell(unsafe { CStr::from_ptr(line) });
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if with_errors {
        command.stderr(Stdio::piped());
    }
    let started = command.spawn();
    let cause = started.as_ref().err().map(|e| e.cause());
    // SAFETY: writable, says the caller.
    unsafe { process.write(started.map_or(odf_process::none(), odf_process::of)) };
    match cause {
        None => 0,
        Some(Cause::Errno(errno)) => guard.fail(errno),
        Some(Cause::Killed(_)) => guard.fail(libc::ECHILD),
    }
}

/// `--`: a command may begin with a minus.
pub fn shell(line: &CStr) -> Command {
    let mut command = plain(c"/bin/sh", c"sh");
    command.args(["-c", "--"]).arg(text(line));
    command
}

/// Closes the ends of the pipes and the pidfd, waits for the program, and returns its wait status
/// (see waitpid(2)).
/// -1 with errno: EINVAL for NULL, ECHILD when there is nothing to wait for: closed before, never
/// started, or taken by another wait. Afterwards `process` is empty, so that a second call closes
/// nothing. For programs of odf_spawn() too.
///
/// Waits as long as the program runs, whatever signals arrive; no cancellation point. Two threads
/// must not close one process at the same time.
///
/// # Safety
/// `process` is NULL or a process filled by this library, or all zero.
#[no_mangle]
pub unsafe extern "C" fn odf_pclose(process: *mut odf_process) -> c_int {
    let mut guard = CallGuard::enter();
    if process.is_null() {
        return guard.fail(libc::EINVAL);
    }
    // SAFETY: readable and writable, says the caller.
    let held = unsafe { process.replace(odf_process::none()) };
    finish(held).unwrap_or_else(|Errno(errno)| guard.fail(errno))
}

/// Of a process without pid the descriptors are nobody's: all zero would be standard input.
fn finish(held: odf_process) -> Result<c_int, Errno> {
    if held.pid <= 0 {
        return Err(Errno(libc::ECHILD));
    }
    for fd in [held.r#in, held.out, held.err, held.pidfd].into_iter().filter(|&fd| fd >= 0) {
        // SAFETY: the caller's, who has given it up.
        unsafe { raw(libc::SYS_close, args![fd]) };
    }
    wait(held.pid)
}

/// An end that C gave up.
fn owned(fd: c_int) -> Option<OwnedFd> {
    // SAFETY: the caller's, who has given it up; -1 is none.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The status, by a raw call: libc's would be a cancellation point.
pub fn wait(pid: c_int) -> Result<c_int, Errno> {
    wait4(pid, 0)?.ok_or(Errno(libc::ECHILD))
}

/// Writes `size` bytes of `input` to the program and closes its input, while reading what it writes
/// to standard output and error to their ends, all at once, so that no full pipe can block either
/// side. Then as odf_pclose(): waits, returns the wait status and leaves `process` empty. If the
/// program stops reading, the rest of the input is dropped, and SIGPIPE is not raised. Pipes the
/// process does not have are left out.
///
/// -1 with errno: EINVAL for NULL (`input` may be NULL if `size` is 0), ECHILD when there is
/// nothing to wait for, ENOMEM when the output does not fit in memory, or what poll(2) and read(2)
/// say. `output` is empty then, the pipes are closed, and if `process` still has its pid, the
/// program has to be ended and waited for by odf_pclose().
///
/// # Safety
/// `process` as for odf_pclose(), `input` points to `size` readable bytes, `output` is writable.
#[no_mangle]
pub unsafe extern "C" fn odf_communicate(
    process: *mut odf_process,
    input: *const c_void,
    size: usize,
    output: *mut odf_output,
) -> c_int {
    let mut guard = CallGuard::enter();
    if process.is_null() || output.is_null() || input.is_null() && size > 0 {
        return guard.fail(libc::EINVAL);
    }
    let input = match size {
        0 => &[],
        // SAFETY: `size` bytes, says the caller.
        _ => unsafe { core::slice::from_raw_parts(input.cast::<u8>(), size) },
    };
    // SAFETY: both are writable, says the caller.
    let (process, output) = unsafe {
        output.write(odf_output::NONE);
        (&mut *process, &mut *output)
    };
    communicate(process, input, output).unwrap_or_else(|Errno(errno)| guard.fail(errno))
}

fn communicate(
    process: &mut odf_process,
    input: &[u8],
    output: &mut odf_output,
) -> Result<c_int, Errno> {
    if process.pid <= 0 {
        return Err(Errno(libc::ECHILD));
    }
    let held = *process;
    *process = odf_process { pid: held.pid, pidfd: held.pidfd, ..odf_process::none() };
    let (wanted_out, wanted_err) = (held.out >= 0, held.err >= 0);
    let pipes = (
        owned(held.r#in).map(Into::into),
        owned(held.out).map(Into::into),
        owned(held.err).map(Into::into),
    );
    let (out, err) = exchange(pipes, input).map_err(errno)?;
    let mut found = odf_output::NONE;
    if wanted_out {
        (found.out, found.out_size) = given(&out)?;
    }
    if wanted_err {
        (found.err, found.err_size) = given(&err).inspect_err(|_| found.free())?;
    }
    *process = odf_process::none();
    let status = finish(odf_process { r#in: -1, out: -1, err: -1, ..held });
    match status {
        Ok(_) => *output = found,
        Err(_) => found.free(),
    }
    status
}

impl odf_output {
    const NONE: odf_output = odf_output {
        out: core::ptr::null_mut(),
        out_size: 0,
        err: core::ptr::null_mut(),
        err_size: 0,
    };

    fn free(&self) {
        // SAFETY: from malloc, or null, and nobody else has them.
        unsafe {
            libc::free(self.out.cast());
            libc::free(self.err.cast());
        }
    }
}

/// A copy that C can free.
fn given(bytes: &[u8]) -> Result<(*mut c_char, usize), Errno> {
    // SAFETY: room for the bytes and a zero byte, or null.
    unsafe {
        let room = libc::malloc(bytes.len() + 1).cast::<u8>();
        if room.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len());
        room.add(bytes.len()).write(0);
        Ok((room.cast(), bytes.len()))
    }
}

fn errno(error: Error) -> Errno {
    let unnamed = match error.kind() {
        ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    };
    Errno(error.raw_os_error().unwrap_or(unnamed))
}
