//! odf_system: system(3), at vfork's price.
//!
//! Owns: SIGINT and SIGQUIT ignored while any thread waits for its command, counted, so that the
//! first one keeps what the last one gives back. What the shell is told is in `shell`. The comments
//! are the text of odfspawn.h.
//!
//! ```text
//!   thread 1   ignore, keep  |-------- waits --------| count 2 -> 1
//!   thread 2          count 1 -> 2  |--------- waits ---------| count 1 -> 0: give back
//! ```
//!
//! The lock is held for a few system calls with all signals blocked, so that no handler runs into
//! it; it names its owner's pid, so that one copied by a fork is not believed, nor is the count.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, CStr};

use odfork_spawn::{Cause, Error, SignalSet, Step};
use odfork_sys::{args, raw, sigaction, Action, Errno, ProcessLock};

use crate::guard::CallGuard;
use crate::shell::{shell, wait};

/// system(3): runs `/bin/sh -c -- command` and waits for it. While it waits, the process ignores
/// SIGINT and SIGQUIT and the thread blocks SIGCHLD; the command has the dispositions and the mask
/// of before. Several threads may be here at once.
///
/// Returns the wait status (see waitpid(2)); that of exit(127) when the shell cannot be executed.
/// -1 with errno when no child could be made (EAGAIN, ENOMEM) or it cannot be waited for (ECHILD:
/// SIGCHLD is ignored). command NULL: 1 if there is a shell, else 0. Unlike system(3) it is no
/// cancellation point. Forked children: as for odf_spawn(); a child that another thread forks
/// meanwhile inherits the ignored signals.
///
/// # Safety
/// `command` is NULL or a string.
#[no_mangle]
pub unsafe extern "C" fn odf_system(command: *const c_char) -> c_int {
    let mut guard = CallGuard::enter();
    if command.is_null() {
        return c_int::from(run(c"exit 0") == Ok(0));
    }
    // SAFETY: a string, says the caller.
    run(unsafe { CStr::from_ptr(command) }).unwrap_or_else(|Errno(errno)| guard.fail(errno))
}

fn run(line: &CStr) -> Result<c_int, Errno> {
    let blocked = ChildSignal::block();
    let ignored = Ignored::enter();
    let mut command = shell(line);
    command.signal_mask(SignalSet::from_bits(blocked.before)).default_signals(ignored.defaults());
    match command.spawn() {
        Ok(child) => wait(child.id() as c_int),
        Err(error) => not_started(&error),
    }
}

/// Of a shell that did not start: as if it had exited or been killed, unless there was no child.
fn not_started(error: &Error) -> Result<c_int, Errno> {
    match (error.step(), error.cause()) {
        (Step::Request | Step::Pipe | Step::Stack | Step::Clone, Cause::Errno(errno)) => {
            Err(Errno(errno))
        }
        (_, Cause::Errno(_)) => Ok(127 << 8),
        (_, Cause::Killed(signal)) => Ok(signal),
    }
}

/// SIGCHLD is blocked in this thread until this is dropped.
struct ChildSignal {
    before: u64,
}

impl ChildSignal {
    fn block() -> ChildSignal {
        let (set, mut before) = (1u64 << (libc::SIGCHLD - 1), 0u64);
        // SAFETY: both sets are 8 bytes, the kernel's size.
        unsafe { raw(libc::SYS_rt_sigprocmask, args![libc::SIG_BLOCK, &set, &mut before, 8]) };
        ChildSignal { before }
    }
}

impl Drop for ChildSignal {
    fn drop(&mut self) {
        odfork_sys::restore_signals(self.before);
    }
}

const KEY_SIGNALS: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// Sets it; what it was before, to be given back exactly so.
fn set(signal: c_int, action: &Action) -> Action {
    // SAFETY: a handler given back was the program's own.
    let done = unsafe { sigaction(signal, Some(action)) };
    debug_assert!(done.is_ok());
    done.unwrap_or_default()
}

/// Process-wide: how many wait, and what they keep for the last of them.
struct Saved {
    pid: c_int,
    count: u32,
    before: [Action; 2],
}

struct Shared(UnsafeCell<Saved>);

// SAFETY: touched only by the holder of the lock (`with_saved`).
unsafe impl Sync for Shared {}

static LOCK: ProcessLock = ProcessLock::new();
static SAVED: Shared =
    Shared(UnsafeCell::new(Saved { pid: 0, count: 0, before: [Action::new(libc::SIG_DFL); 2] }));

fn with_saved<R>(act: impl FnOnce(&mut Saved) -> R) -> R {
    let mask = odfork_sys::block_signals();
    let me = odfork_sys::getpid();
    LOCK.take();
    // SAFETY: the lock is held.
    let saved = unsafe { &mut *SAVED.0.get() };
    if saved.pid != me {
        (saved.pid, saved.count) = (me, 0);
    }
    let result = act(saved);
    LOCK.give();
    odfork_sys::restore_signals(mask);
    result
}

/// The keys' signals are ignored until the last of these is dropped.
struct Ignored {
    before: [Action; 2],
}

impl Ignored {
    fn enter() -> Ignored {
        with_saved(|saved| {
            if saved.count == 0 {
                saved.before = KEY_SIGNALS.map(|signal| set(signal, &Action::new(libc::SIG_IGN)));
            }
            saved.count += 1;
            Ignored { before: saved.before }
        })
    }

    /// What the command must not find ignored: what the program did not ignore before.
    fn defaults(&self) -> SignalSet {
        let asked = KEY_SIGNALS.into_iter().zip(&self.before);
        asked
            .filter(|(_, before)| before.handler != libc::SIG_IGN)
            .fold(SignalSet::empty(), |set, (signal, _)| set.with(signal))
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        with_saved(|saved| {
            saved.count = saved.count.saturating_sub(1);
            if saved.count == 0 {
                for (signal, before) in KEY_SIGNALS.into_iter().zip(&saved.before) {
                    set(signal, before);
                }
            }
        });
    }
}
