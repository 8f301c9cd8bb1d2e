//! odf_spawn: programs started at a price that does not depend on the memory of the process that
//! starts them.
//!
//! Owns the process and the error as C sees them, and the way from strings to a `Command`. What can
//! be asked for is in `options`, shells are in `shell`, how the child is made in the crate
//! odfork-spawn. Nothing here panics on bad input: it is EINVAL with words. The comments are the
//! text of odfspawn.h.

use core::ffi::{c_char, c_int, CStr};
use core::fmt::{self, Write};
use std::ffi::{CString, OsStr};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use odfork_spawn::{Cause, Child, Command, Error, SignalSet, Step};

use crate::guard::CallGuard;
use crate::options::{self, odf_spawn_options, Reason};
use crate::steps::odf_step_name;

/// Size of `text` of struct odf_spawn_error, the closing zero byte included.
pub const ODF_SPAWN_TEXT: usize = 512;

/// A started program. The descriptors are the parent's ends of pipes, close-on-exec, -1 where there
/// is none; who closes one himself sets it to -1.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_process {
    /// 0: none, or waited for already by odf_pclose() or odf_communicate().
    pub pid: libc::pid_t,
    /// With ODF_SPAWN_PIDFD, where the kernel has them.
    pub pidfd: c_int,
    /// To write to the program's standard input.
    pub r#in: c_int,
    /// To read its standard output.
    pub out: c_int,
    /// To read its standard error.
    pub err: c_int,
}

/// Why a program was not started.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_spawn_error {
    /// The step that failed, 1 to 21 (ODF_STEP_); 0: none.
    pub step: c_int,
    /// What odf_spawn() returned.
    pub errnum: c_int,
    /// The signal that killed the child before it became the program (SIGSYS: a system-call
    /// filter); else 0.
    pub signal: c_int,
    /// odf_step_name(step), a constant string.
    pub step_name: *const c_char,
    /// What happened, what was needed, how to fix it. Always ends with a zero byte, cut if it is
    /// too long.
    pub text: [c_char; ODF_SPAWN_TEXT],
}

impl odf_process {
    pub const fn none() -> odf_process {
        odf_process { pid: 0, pidfd: -1, r#in: -1, out: -1, err: -1 }
    }

    /// What the child has, which is forgotten here and belongs to C.
    pub fn of(mut child: Child) -> odf_process {
        let number = |fd: Option<OwnedFd>| fd.map_or(-1, IntoRawFd::into_raw_fd);
        odf_process {
            pid: child.id() as libc::pid_t,
            pidfd: number(child.take_pidfd()),
            r#in: number(child.stdin.take().map(OwnedFd::from)),
            out: number(child.stdout.take().map(OwnedFd::from)),
            err: number(child.stderr.take().map(OwnedFd::from)),
        }
    }
}

/// Starts the program `file` with `argv` and `envp`, both as given (argv[0] too; entries of envp
/// need no `=`), each ended by NULL. envp NULL: the caller's environ. options NULL: none, as
/// posix_spawn without attributes. At the price of vfork: what the caller's memory holds is not
/// copied, whatever its size.
///
/// Returns 0 once the program is executed, and fills `process`; else an errno, and nothing is left
/// of the child. Errors come from the step that failed; EINVAL also for wishes that make no sense,
/// ECHILD when the child was killed before it became the program. `error` may be NULL; it is filled
/// in any case. errno is not touched.
///
/// Any thread may call it, and so may the child of a fork() of a program with threads. It is no
/// cancellation point (a pending request acts at the next one) and not to be called with
/// asynchronous cancellation. Signals that arrive meanwhile wait until the program is executed.
/// Nobody may change the strings or environ meanwhile.
///
/// # Safety
/// All pointers are NULL where that is allowed, or point to what is said here.
#[no_mangle]
pub unsafe extern "C" fn odf_spawn(
    process: *mut odf_process,
    file: *const c_char,
    argv: *const *mut c_char,
    envp: *const *mut c_char,
    options: *const odf_spawn_options,
    error: *mut odf_spawn_error,
) -> c_int {
    let _guard = CallGuard::enter();
    // SAFETY: passed on from the caller.
    let started = unsafe {
        match process.is_null() {
            true => Err(Failure::Invalid("process is NULL; it says how to reach the program")),
            false => request(file, (argv, envp), options).and_then(|mut c| Ok(c.spawn()?)),
        }
    };
    let report = odf_spawn_error::of(started.as_ref().err());
    // SAFETY: both are null or writable, says the caller.
    unsafe {
        if !process.is_null() {
            process.write(started.map_or(odf_process::none(), odf_process::of));
        }
        if !error.is_null() {
            error.write(report);
        }
    }
    report.errnum
}

enum Failure {
    Invalid(Reason),
    Step(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Step(error)
    }
}

impl From<Reason> for Failure {
    fn from(words: Reason) -> Failure {
        Failure::Invalid(words)
    }
}

type Strings = *const *mut c_char;

/// # Safety
/// As for [`odf_spawn`].
unsafe fn request(
    file: *const c_char,
    (argv, envp): (Strings, Strings),
    options: *const odf_spawn_options,
) -> Result<Command, Failure> {
    if file.is_null() {
        return Err("file is NULL; name the program".into());
    }
    // SAFETY: passed on from the caller.
    unsafe {
        let arguments = strings(argv);
        let Some((name, rest)) = arguments.split_first() else {
            return Err("argv is NULL or empty; begin it with the program's name".into());
        };
        let mut command = plain(CStr::from_ptr(file), name);
        command.search_path(false).args(rest.iter().map(|a| text(a)));
        if !envp.is_null() {
            command.environment(strings(envp).into_iter().map(CString::from).collect());
        }
        options::read(options, &mut command)?;
        Ok(command)
    }
}

/// A command that changes nothing, as C has it (Rust has an empty signal mask and SIGPIPE's
/// default).
pub fn plain(file: &CStr, name: &CStr) -> Command {
    let mut command = Command::new(text(file));
    command.arg0(text(name)).environment(inherited());
    command.inherit_signal_mask().default_signals(SignalSet::empty());
    command
}

pub fn text(string: &CStr) -> &OsStr {
    OsStr::from_bytes(string.to_bytes())
}

/// environ as it is: with what std cannot express.
fn inherited() -> Vec<CString> {
    extern "C" {
        static environ: Strings;
    }
    // SAFETY: nobody may change the environment while a program is started, as with posix_spawn;
    // clearenv leaves null.
    unsafe { strings(environ).into_iter().map(CString::from).collect() }
}

/// # Safety
/// `first` is null or a list of strings ended by null, all of which outlive the use of the answer.
unsafe fn strings<'a>(first: Strings) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    let mut at = first;
    // SAFETY: nothing beyond the null that ends the list is read.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            all.push(CStr::from_ptr(*at));
            at = at.add(1);
        }
    }
    all
}

impl odf_spawn_error {
    fn of(failure: Option<&Failure>) -> odf_spawn_error {
        let (step, cause) = match failure {
            None => (0, Cause::Errno(0)),
            Some(Failure::Invalid(_)) => (Step::Request as c_int, Cause::Errno(libc::EINVAL)),
            Some(Failure::Step(error)) => (error.step() as c_int, error.cause()),
        };
        let (errnum, signal) = match cause {
            Cause::Errno(errno) => (errno, 0),
            Cause::Killed(signal) => (libc::ECHILD, signal),
        };
        let step_name = odf_step_name(step);
        let mut report =
            odf_spawn_error { step, errnum, signal, step_name, text: [0; ODF_SPAWN_TEXT] };
        let mut line = Line { text: &mut report.text, used: 0 };
        // A line that is full cuts the rest.
        let _ = match failure {
            None => Ok(()),
            Some(Failure::Invalid(words)) => write!(line, "cannot start: step request: {words}"),
            Some(Failure::Step(error)) => write!(line, "{error}"),
        };
        report
    }
}

/// Writes whole characters as long as there is room for them and a zero byte.
struct Line<'a> {
    text: &'a mut [c_char; ODF_SPAWN_TEXT],
    used: usize,
}

impl Write for Line<'_> {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        for c in words.chars() {
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            if self.used + bytes.len() >= ODF_SPAWN_TEXT {
                return Err(fmt::Error);
            }
            for &byte in bytes {
                self.text[self.used] = byte as c_char;
                self.used += 1;
            }
        }
        Ok(())
    }
}
