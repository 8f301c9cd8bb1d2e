//! Zygotes as C sees them.
//!
//! Owns the reading of what C says, and errors as numbers and words. Nothing here panics on bad
//! input: it is EINVAL with words. The comments are the text of odfzygote.h.
//!
//! A cancelled thread would unwind from inside libc's functions through Rust's frames, which must
//! not be: no function is a cancellation point.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::cell::RefCell;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::ptr;
use std::time::Duration;

use odfork_spawn::CancellationGuard;
use odfork_zygote::{Child, Command, Error, Result};

/// Flags of struct odfork_zygote_command. The child outlives its handle and the template.
pub const ODFORK_ZYGOTE_DETACHED: c_uint = 1 << 0;
/// The child has a session of its own.
pub const ODFORK_ZYGOTE_SESSION: c_uint = 1 << 1;
/// `umask` counts.
pub const ODFORK_ZYGOTE_UMASK: c_uint = 1 << 2;

/// A descriptor for the child: `ours` here, `theirs` there.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odfork_zygote_descriptor {
    pub ours: c_int,
    pub theirs: c_int,
}

/// What a child runs, where and with what. Zero or NULL: the template's.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odfork_zygote_command {
    /// sizeof (struct odfork_zygote_command).
    pub size: usize,
    /// One of these three: `python SCRIPT`, `python -m MODULE`, `python -c SOURCE`.
    pub script: *const c_char,
    pub module: *const c_char,
    pub source: *const c_char,
    /// The program's arguments, without its name; a NULL ends them.
    pub argv: *const *const c_char,
    /// The whole environment; a NULL ends it.
    pub envp: *const *const c_char,
    pub directory: *const c_char,
    pub descriptors: *const odfork_zygote_descriptor,
    pub descriptor_count: usize,
    pub flags: c_uint,
    pub umask: c_uint,
    /// Milliseconds until the child is killed.
    pub deadline_ms: u64,
}

/// A child. `pidfd` is readable when it has ended; pidfd_send_signal(2) signals it.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct odfork_zygote_child {
    pub pid: c_int,
    pub pidfd: c_int,
    pub handle: *mut c_void,
}

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// Starts a child in the template of this name. 0, or -1 with errno: ENOENT when no template
/// listens there, EINVAL, EREMOTEIO when the template refused, or a system call's.
///
/// # Safety
/// `name` and the pointers in `command` are NULL or point to what they say, `child` to room.
#[no_mangle]
pub unsafe extern "C" fn odfork_zygote_spawn(
    name: *const c_char,
    command: *const odfork_zygote_command,
    child: *mut odfork_zygote_child,
) -> c_int {
    let _guard = CancellationGuard::enter();
    if child.is_null() {
        return failed(&Error::Protocol("no room for the child"));
    }
    // SAFETY: as the caller promises.
    match unsafe { spawn(name, command) } {
        Ok(made) => {
            let (pid, pidfd) = (made.id() as c_int, made.as_fd().as_raw_fd());
            let handle = Box::into_raw(Box::new(made)).cast();
            // SAFETY: room, as the caller promises.
            unsafe { child.write(odfork_zygote_child { pid, pidfd, handle }) };
            0
        }
        Err(error) => failed(&error),
    }
}

/// Waits at most `timeout_ms` for the child's end, -1: for ever. 1 with its status as waitpid(2)
/// gives it, 0 while it runs, -1 with errno. It is no cancellation point. When the template has
/// died, it waits until the child has ended, whatever the timeout; the status is SIGKILL's then.
///
/// # Safety
/// `child` was filled by odfork_zygote_spawn and not closed; `status` is NULL or points to room.
#[no_mangle]
pub unsafe extern "C" fn odfork_zygote_wait(
    child: *mut odfork_zygote_child,
    timeout_ms: c_int,
    status: *mut c_int,
) -> c_int {
    let _guard = CancellationGuard::enter();
    // SAFETY: as the caller promises; closing makes the handle NULL.
    let Some(made) = (unsafe { child.as_ref().and_then(|c| c.handle.cast::<Child>().as_mut()) })
    else {
        return failed(&Error::Protocol("no child, or one that is closed"));
    };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    match made.wait_for(timeout) {
        Ok(None) => 0,
        Ok(Some(exit)) => {
            if !status.is_null() {
                // SAFETY: room, as the caller promises.
                unsafe { status.write(exit.status.into_raw()) };
            }
            1
        }
        Err(error) => failed(&error),
    }
}

/// Frees the handle. The template kills a child that still runs, unless it is detached.
///
/// # Safety
/// `child` is NULL or was filled by odfork_zygote_spawn.
#[no_mangle]
pub unsafe extern "C" fn odfork_zygote_close(child: *mut odfork_zygote_child) {
    let _guard = CancellationGuard::enter();
    // SAFETY: as the caller promises.
    let Some(child) = (unsafe { child.as_mut() }) else { return };
    if !child.handle.is_null() {
        // SAFETY: made by odfork_zygote_spawn, and freed once.
        drop(unsafe { Box::from_raw(child.handle.cast::<Child>()) });
    }
    child.handle = ptr::null_mut();
    child.pidfd = -1;
}

/// What went wrong in the last call of this thread that failed: what happened, and how to fix it.
/// Valid until the thread's next failure.
#[no_mangle]
pub extern "C" fn odfork_zygote_error() -> *const c_char {
    WORDS.with_borrow(|words| words.as_ptr())
}

/// Keeps the words and sets errno.
fn failed(error: &Error) -> c_int {
    let number = match error {
        Error::NotRunning(_) => libc::ENOENT,
        Error::Refused(_) | Error::Ended => libc::EREMOTEIO,
        Error::Folder(error) => error.raw_os_error().unwrap_or(libc::EPERM),
        Error::System(_, error) => error.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EINVAL,
    };
    let words = error.to_string().replace('\0', " ");
    WORDS.set(CString::new(words).unwrap_or_default());
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = number };
    -1
}

unsafe fn spawn(name: *const c_char, command: *const odfork_zygote_command) -> Result<Child> {
    // SAFETY: as the caller of the interface promises, here and below.
    let (name, asked) = unsafe { (text(name), command.as_ref()) };
    let asked = asked.ok_or(Error::Protocol("no command"))?;
    if asked.size != size_of::<odfork_zygote_command>() {
        return Err(Error::Protocol("size is not sizeof (struct odfork_zygote_command)"));
    }
    let name = name.and_then(OsStr::to_str).ok_or(Error::Protocol("no name"))?;
    // SAFETY: as above.
    unsafe { command_of(asked) }?.spawn(name)
}

unsafe fn command_of(asked: &odfork_zygote_command) -> Result<Command> {
    const ONE: Error = Error::Protocol("a command needs one of script, module and source");
    // SAFETY: as the caller promises, here and below.
    let given = unsafe { (text(asked.script), text(asked.module), text(asked.source)) };
    let mut command = match given {
        (Some(path), None, None) => Command::script(path),
        (None, Some(name), None) => Command::module(name.to_str().ok_or(ONE)?),
        (None, None, Some(source)) => Command::source(source.to_str().ok_or(ONE)?),
        _ => return Err(ONE),
    };
    // SAFETY: as above.
    unsafe {
        for argument in list(asked.argv) {
            command.arg(argument);
        }
        if !asked.envp.is_null() {
            command.envs(list(asked.envp).filter_map(pair));
        }
        if let Some(folder) = text(asked.directory) {
            command.current_dir(folder);
        }
        descriptors(asked, &mut command)?;
    }
    if asked.flags & ODFORK_ZYGOTE_DETACHED != 0 {
        command.detached();
    }
    if asked.flags & ODFORK_ZYGOTE_SESSION != 0 {
        command.new_session();
    }
    if asked.flags & ODFORK_ZYGOTE_UMASK != 0 {
        command.umask(asked.umask);
    }
    if asked.deadline_ms != 0 {
        command.deadline(Duration::from_millis(asked.deadline_ms));
    }
    Ok(command)
}

unsafe fn descriptors(asked: &odfork_zygote_command, command: &mut Command) -> Result<()> {
    if asked.descriptors.is_null() {
        return Ok(());
    }
    // SAFETY: so many, as the caller promises.
    let all = unsafe { std::slice::from_raw_parts(asked.descriptors, asked.descriptor_count) };
    for one in all {
        let theirs = u32::try_from(one.theirs).map_err(|_| Error::Protocol("a number below 0"))?;
        if one.ours < 0 {
            return Err(Error::Protocol("a descriptor below 0"));
        }
        // SAFETY: open, or copying it fails.
        let ours = unsafe { BorrowedFd::borrow_raw(one.ours) }.try_clone_to_owned();
        let ours = ours.map_err(|error| Error::System("copying a descriptor".into(), error))?;
        command.descriptor(ours, theirs);
    }
    Ok(())
}

unsafe fn text<'a>(at: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: NULL or a string, as the caller promises.
    (!at.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(at) }.to_bytes()))
}

/// The strings of a list that a NULL ends; none for NULL.
unsafe fn list<'a>(at: *const *const c_char) -> impl Iterator<Item = &'a OsStr> {
    let mut place = at;
    std::iter::from_fn(move || {
        if place.is_null() {
            return None;
        }
        // SAFETY: not beyond the NULL, where `text` gives None and nobody asks again.
        let found = unsafe { text(*place) };
        place = if found.is_some() { place.wrapping_add(1) } else { ptr::null() };
        found
    })
}

fn pair(variable: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}
