//! The parent's side of a spawn, from clone to exec.
//!
//! Owns the fallback order of clone methods, the signals blocked meanwhile,
//! reading the child's answer, and what the kernel does to the parent when a
//! child that shares its memory changes user. It does not own what the child
//! does (`child`), nor waiting for the program (`process`).
//!
//! ```text
//! parent's thread                          child
//! 1 block all signals
//! 2 take a stack, lay out the arguments
//! 3 clone3 ------------------------------> steps of `child`, on its own stack
//!   (sleeps: CLONE_VFORK)                  4 exec, or report and exit
//! 5 read the report <--------------------- (memory is given back to the parent)
//! 6 keep the stack, restore the signal mask
//! ```

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use odfork_sys::abi::clone::{CloneArgs, CLONE_CLEAR_SIGHAND, CLONE_INTO_CGROUP};
use odfork_sys::{args, call, clone3, clone_vfork, raw, wait4, Errno, SysResult};

use crate::child;
use crate::child_arguments::{ChildArguments, ChildFrame, Report};
use crate::error::{Cause, Step};
use crate::identity::Identity;
use crate::stack::Stack;

/// How a child was made, best method first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CloneMethod {
    /// `clone3`: memory shared, handlers reset and cgroup joined by the kernel.
    Clone3 = 0,
    /// `clone`: memory shared, the rest by the child. Linux before 5.5, or a filter that refuses
    /// `clone3`.
    Clone = 1,
    /// `clone` with a copy of the memory, at the price of fork. A filter that refuses to share it.
    Copy = 2,
}

/// The method to begin with: a filter or kernel that refused once will refuse again.
static FIRST_METHOD: AtomicU8 = AtomicU8::new(CloneMethod::Clone3 as u8);

/// A table of descriptors cannot be shared with a child until its first step copies it: the child
/// gets a copy at once.
static COPY_TABLE: AtomicBool = AtomicBool::new(false);

/// A child that is in its program.
#[derive(Clone, Copy, Debug)]
pub struct Launched {
    pub pid: i32,
    pub method: CloneMethod,
    /// Close-on-exec descriptor of the process, if asked for.
    pub pidfd: Option<i32>,
}

/// A child that did not get there; it has been reaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    pub step: Step,
    pub cause: Cause,
    pub detail: i32,
}

impl Failure {
    fn of(step: Step, Errno(errno): Errno) -> Failure {
        Failure { step, cause: Cause::Errno(errno), detail: 0 }
    }
}

/// Makes the child and waits until it is in its program or has failed.
///
/// # Safety
/// Every pointer in `arguments` is valid until this returns, and nothing behind them is changed
/// meanwhile.
pub unsafe fn launch(
    arguments: &ChildArguments<'_>,
    want_pidfd: bool,
) -> Result<Launched, Failure> {
    let mask = odfork_sys::block_signals();
    let guard = arguments.attributes.change_identity().then(Identity::enter);
    let mut child_arguments = *arguments;
    child_arguments.mask = arguments.attributes.mask.unwrap_or(mask);
    // SAFETY: passed on to the caller.
    let result = unsafe { launch_with_fallback(&child_arguments, want_pidfd) };
    if let Some(guard) = guard {
        guard.leave(result.as_ref().ok().map(|launched| launched.pid));
    }
    // Last: a handler that runs here may jump away and leave nothing behind.
    odfork_sys::restore_signals(mask);
    result
}

/// Tries with a shared table of descriptors, where that is possible, and without. A kernel or
/// filter that forbids the child to share the table, or to leave it, forbids what costs less and
/// not what was asked for.
///
/// # Safety
/// As for [`launch`].
unsafe fn launch_with_fallback(
    arguments: &ChildArguments<'_>,
    want_pidfd: bool,
) -> Result<Launched, Failure> {
    let (shared, all) = (
        [CloneMethod::Clone3, CloneMethod::Clone],
        [CloneMethod::Clone3, CloneMethod::Clone, CloneMethod::Copy],
    );
    if arguments.unneeded.is_some() && !COPY_TABLE.load(Relaxed) {
        // SAFETY: passed on to the caller.
        match unsafe { try_methods(&shared, arguments, want_pidfd) } {
            Err(Attempt::Refused(_) | Attempt::TableRefused(_)) => {}
            Err(Attempt::Failed(failure)) => return Err(failure),
            Ok(launched) => return Ok(launched),
        }
    }
    let whole = ChildArguments { unneeded: None, ..*arguments };
    // SAFETY: passed on to the caller.
    match unsafe { try_methods(&all, &whole, want_pidfd) } {
        Err(Attempt::Refused(e) | Attempt::TableRefused(e)) => Err(Failure::of(Step::Clone, e)),
        Err(Attempt::Failed(failure)) => Err(failure),
        Ok(launched) => {
            // As below; and a method that shares the memory was to be had for a copied table only.
            let learnt = arguments.unneeded.is_some() && arguments.attributes.cgroup.is_none();
            COPY_TABLE.fetch_or(learnt, Relaxed);
            Ok(launched)
        }
    }
}

/// Tries the methods, from the best that is not known to be refused.
///
/// # Safety
/// As for [`launch`].
unsafe fn try_methods(
    methods: &[CloneMethod],
    arguments: &ChildArguments<'_>,
    want_pidfd: bool,
) -> Result<Launched, Attempt> {
    let known = FIRST_METHOD.load(Relaxed);
    let mut refused = Attempt::Refused(Errno(libc::ENOSYS));
    for &method in methods.iter().filter(|&&method| method as u8 >= known) {
        // SAFETY: passed on to the caller.
        match unsafe { attempt(arguments, method, want_pidfd) } {
            Err(Attempt::Refused(e)) => refused = Attempt::Refused(e),
            Ok(launched) => {
                // A cgroup may be refused for its own reasons: nothing is learnt from that.
                if arguments.attributes.cgroup.is_none() {
                    FIRST_METHOD.fetch_max(method as u8, Relaxed);
                }
                return Ok(launched);
            }
            failed => return failed,
        }
    }
    Err(refused)
}

enum Attempt {
    /// This method is not available here; the next may be.
    Refused(Errno),
    /// The child must not leave the shared table of descriptors; no method changes that.
    TableRefused(Errno),
    Failed(Failure),
}

/// # Safety
/// As for [`launch`].
unsafe fn attempt(
    arguments: &ChildArguments<'_>,
    method: CloneMethod,
    want_pidfd: bool,
) -> Result<Launched, Attempt> {
    let stack = match method {
        CloneMethod::Copy => Stack::shared(),
        _ => Stack::take(),
    };
    let stack = stack.map_err(|e| Attempt::Failed(Failure::of(Step::Stack, e)))?;
    let frame = stack.top() as *mut ChildFrame<'_>;
    let mut child_arguments = *arguments;
    child_arguments.reset_handlers = method != CloneMethod::Clone3;
    child_arguments.join_cgroup = method != CloneMethod::Clone3;
    // SAFETY: the frame is ours, large enough (asserted there) and aligned; `clone` obeys its
    // contract with this stack.
    let (made, report) = unsafe {
        frame.write(ChildFrame { arguments: child_arguments, report: Report::default() });
        let made = clone(&stack, method, arguments, want_pidfd);
        (made, (&raw const (*frame).report).read_volatile())
    };
    let refused = |e| refused_or_failed(e, method, arguments.attributes.cgroup.is_some());
    let result = made.map_err(refused).and_then(|(pid, pidfd)| {
        let launched = Launched { pid, method, pidfd };
        settle(launched, report).map_err(|failure| match report.failed {
            Report::SHARED => table_refused_or_failed(failure, report.errno),
            _ => Attempt::Failed(failure),
        })
    });
    drop(stack);
    let mut launched = result?;
    if want_pidfd && launched.pidfd.is_none() {
        launched.pidfd = open_pidfd(launched.pid).ok();
    }
    Ok(launched)
}

/// What kernels and filters answer to what they do not know or do not want is a reason to try the
/// next method; so is a cgroup that the kernel will not join at birth. Anything else (too many
/// processes, too little memory, no number for the pidfd) will not get better there.
fn refused_or_failed(e: Errno, method: CloneMethod, cgroup: bool) -> Attempt {
    match e {
        Errno(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL | libc::E2BIG) => {
            Attempt::Refused(e)
        }
        Errno(libc::EAGAIN | libc::ENOMEM) => Attempt::Failed(Failure::of(Step::Clone, e)),
        e if cgroup && method == CloneMethod::Clone3 => Attempt::Refused(e),
        e => Attempt::Failed(Failure::of(Step::Clone, e)),
    }
}

/// Of a child that could not leave the shared table. One for which there was no memory would not
/// get it by a copy either.
fn table_refused_or_failed(failure: Failure, errno: i32) -> Attempt {
    match errno {
        libc::ENOMEM | libc::EMFILE => Attempt::Failed(failure),
        _ => Attempt::TableRefused(Errno(errno)),
    }
}

/// The pid and, where the call gives one, the pidfd.
///
/// # Safety
/// The frame at the top of `stack` is laid out; see [`launch`].
unsafe fn clone(
    stack: &Stack,
    method: CloneMethod,
    arguments: &ChildArguments<'_>,
    want_pidfd: bool,
) -> SysResult<(i32, Option<i32>)> {
    let memory = if method == CloneMethod::Copy { 0 } else { libc::CLONE_VM };
    let table = if arguments.unneeded.is_some() { libc::CLONE_FILES } else { 0 };
    let sharing = libc::CLONE_VFORK | memory | table;
    if method != CloneMethod::Clone3 {
        let flags = (sharing | libc::SIGCHLD) as usize;
        // SAFETY: the stack ends at `top`, aligned; `enter` obeys the rules of `child`.
        let pid = unsafe { clone_vfork(flags, stack.top(), child::enter, stack.top())? };
        return Ok((pid, None));
    }
    let (start, length) = stack.room();
    let mut pidfd = -1i32;
    let mut clone = CloneArgs {
        flags: sharing as u64 | CLONE_CLEAR_SIGHAND,
        exit_signal: libc::SIGCHLD as u64,
        stack: start as u64,
        stack_size: length as u64,
        ..CloneArgs::default()
    };
    if want_pidfd {
        clone.flags |= libc::CLONE_PIDFD as u64;
        clone.pidfd = &raw mut pidfd as u64;
    }
    if let Some(cgroup) = arguments.attributes.cgroup {
        clone.flags |= CLONE_INTO_CGROUP;
        clone.cgroup = cgroup as u64;
    }
    // SAFETY: as above; the kernel writes the pidfd before the call returns.
    let pid = unsafe { clone3(&clone, child::enter, stack.top())? };
    Ok((pid, want_pidfd.then_some(pidfd)))
}

/// A child in its program has left the step `exec` without a failure. Any other is reaped here.
fn settle(launched: Launched, report: Report) -> Result<Launched, Failure> {
    if report.failed == 0 && report.step == Step::Exec as u32 {
        return Ok(launched);
    }
    if let Some(fd) = launched.pidfd {
        // SAFETY: ours, and nobody was told of it.
        unsafe { raw(libc::SYS_close, args![fd]) };
    }
    // Another thread's wait may have taken it, or children are not to be waited for.
    let status = wait4(launched.pid, 0).ok().flatten();
    let cause = match report.failed {
        Report::FAILED | Report::SHARED => Cause::Errno(report.errno),
        _ => Cause::Killed(status.map_or(libc::SIGKILL, |s| s & 0x7f)),
    };
    Err(Failure { step: Step::from_number(report.step), cause, detail: report.detail })
}

/// For the methods that do not give one. The pid is still the child's: it has not been waited for.
pub fn open_pidfd(pid: i32) -> SysResult<i32> {
    // SAFETY: numbers only.
    unsafe { call(libc::SYS_pidfd_open, args![pid, 0]) }.map(|fd| fd as i32)
}
