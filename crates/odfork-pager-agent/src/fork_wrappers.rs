//! The C library's functions that fork, as programs call them.
//!
//! The handlers (`fork_handlers`) can neither refuse nor choose their stack. So a fork that cannot
//! succeed is refused here. Before it: when the supervisor is gone, or when the thread's own
//! storage is paged, since the child would need that before it has memory. After it: when the
//! handlers failed; then the child has exited at once and is waited for. A thread on a paged stack
//! forks on another one, which the child has from the start.

use core::ffi::{c_char, c_int, c_void};

use crate::any::{self, untold};
use crate::connection;
use crate::next_symbol::NextSymbol;
use crate::pending_forks::{self, PendingFork};
use crate::state::{self, Locked};
use crate::{set_errno, stack};

/// Bytes of the C library's description of a thread, at least.
const THREAD: u64 = 2048;
/// The C library's.
pub static FORK: NextSymbol = NextSymbol::named(c"fork");

/// fork(2).
///
/// # Safety
/// As for fork(2).
#[no_mangle]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    let pending = match state::is_active() || untold::is_needed() {
        true => PendingFork::claim(),
        false => None,
    };
    // SAFETY: the C library's function of this type.
    let child = on_fork_stack(move || unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn() -> libc::pid_t>(FORK.get())()
    });
    if child == 0 {
        pending_forks::forget();
        if any::adopted::is_adopted() {
            // SAFETY: this is the only thread.
            unsafe { any::in_child() };
        }
        return 0;
    }
    let is_broken = pending.is_some_and(PendingFork::end);
    if child > 0 && is_broken {
        // It has ended, or is about to. Somebody else may have waited for it.
        let _ = odfork_sys::wait4(child, libc::__WALL);
        set_errno(libc::ENOMEM);
        return -1;
    }
    child
}

/// forkpty(3).
///
/// # Safety
/// As for forkpty(3).
#[no_mangle]
pub unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> c_int {
    static NEXT: NextSymbol = NextSymbol::named(c"forkpty");
    type Kind =
        unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    // SAFETY: the C library's function of this type.
    on_fork_stack(move || unsafe {
        core::mem::transmute::<usize, Kind>(NEXT.get())(master, name, settings, size)
    })
}

/// daemon(3).
///
/// # Safety
/// As for daemon(3).
#[no_mangle]
pub unsafe extern "C" fn daemon(keep_folder: c_int, keep_files: c_int) -> c_int {
    static NEXT: NextSymbol = NextSymbol::named(c"daemon");
    type Kind = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: the C library's function of this type.
    on_fork_stack(move || unsafe {
        core::mem::transmute::<usize, Kind>(NEXT.get())(keep_folder, keep_files)
    })
}

fn on_fork_stack(work: impl FnOnce() -> c_int) -> c_int {
    if !state::is_active() {
        return work();
    }
    // SAFETY: no arguments.
    let (here, thread) = (odfork_sys::stack_pointer() as u64, unsafe { libc::pthread_self() });
    let (is_paged, may) = stack::on_unpaged_stack(move || {
        let mut locked = Locked::take();
        let may = !locked.regions().overlaps(thread, THREAD) && connection::is_supervised();
        (locked.regions().overlaps(here, 1), may)
    });
    if !may {
        set_errno(libc::EAGAIN);
        return -1;
    }
    match is_paged {
        true => stack::on_pool_stack(work),
        false => work(),
    }
}
