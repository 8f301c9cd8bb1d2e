//! Starts the command to be measured, held before its exec until it is seized.
//!
//! Owns the fork and exec; the command keeps our terminal, process group and descriptors, as under time(1). Its signal
//! dispositions are the ones we were given, with SIGPIPE back at its default.

use std::ffi::{CString, OsString};
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};

use super::target::Target;

/// A started command, at its first instruction.
#[derive(Debug)]
pub struct Launched {
    pub target: Target,
}

/// The command could not be executed.
#[derive(Debug)]
pub struct NotStarted {
    pub status: u8,
    pub line: String,
}

/// Where the command's standard output goes when it is not ours.
pub type Output = Option<OwnedFd>;

/// Starts the command; the outer error is ours, the inner one the command's.
pub fn launch(
    words: &[OsString],
    marker: Option<i32>,
    output: Output,
) -> Result<Result<Launched, NotStarted>> {
    let words: Vec<CString> = words
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<_, _>>()
        .context("a word of the command holds a zero byte")?;
    let mut arguments: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(std::ptr::null());
    let (go_read, go_write) = pipe()?;
    let (failed_read, failed_write) = pipe()?;
    let output_fd = output.as_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: the child makes system calls only, on data made before the fork.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(Error::last_os_error()).context("cannot fork for the command");
    }
    if pid == 0 {
        // SAFETY: the child of the fork above; `arguments` ends with a null pointer.
        unsafe {
            become_command(&arguments, go_read.as_raw_fd(), failed_write.as_raw_fd(), output_fd)
        }
    }
    drop((go_read, failed_write));
    let seized = Target::seize(pid, marker);
    let _ = std::fs::File::from(go_write).write_all(b"g");
    let mut code = [0; 4];
    let failed = std::fs::File::from(failed_read).read_exact(&mut code).is_ok();
    let mut target = seized?;
    if failed {
        return Ok(Err(not_started(&words[0], i32::from_ne_bytes(code), target)));
    }
    // The exec's own report: what follows is the command. Anything else here is seen again by the measuring.
    let event = target.next(None)?;
    target.go_on(event);
    Ok(Ok(Launched { target }))
}

/// CHILD: no heap, no locks.
///
/// # Safety
/// Only in a new child; `arguments` ends with a null pointer.
unsafe fn become_command(
    arguments: &[*const libc::c_char],
    go: i32,
    failed: i32,
    output: Option<i32>,
) -> ! {
    let mut byte = 0u8;
    // SAFETY: plain system calls on descriptors of ours and on strings that the parent made.
    unsafe {
        libc::read(go, std::ptr::from_mut(&mut byte).cast(), 1);
        if let Some(output) = output {
            libc::dup2(output, libc::STDOUT_FILENO);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::execvp(arguments[0], arguments.as_ptr());
        let code = *libc::__errno_location();
        libc::write(failed, std::ptr::from_ref(&code).cast(), 4);
        libc::_exit(127)
    }
}

fn not_started(program: &CString, code: i32, mut target: Target) -> NotStarted {
    target.release();
    // SAFETY: our own child, which has left by _exit; no status is wanted.
    unsafe { libc::waitpid(target.pid, std::ptr::null_mut(), 0) };
    let name = program.to_string_lossy();
    if code == libc::ENOENT {
        NotStarted { status: 127, line: format!("{name}: command not found") }
    } else {
        let why = Error::from_raw_os_error(code);
        NotStarted { status: 126, line: format!("{name} cannot be executed: {why}") }
    }
}

/// Both ends close-on-exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(Error::last_os_error()).context("cannot make a pipe");
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
