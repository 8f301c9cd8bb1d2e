//! syscall(2), prctl(2): what is wrapped elsewhere, asked for by number, and system-call filters.

use core::ffi::{c_int, c_long};

use super::advice::{advise, advise_by_vector};
use super::errno::{as_libc, get_errno, set_errno};
use super::life::report;
use super::locking::{lock, lock_all};
use super::remap::remap;
use super::tasks::{is_pi, leave_namespaces, shares_memory};
use super::waits::wait;
use crate::reason::Reason;
use crate::{args, engine, sys};

/// syscall(2): the same care for calls that skip their wrappers.
#[no_mangle]
pub unsafe extern "C" fn syscall(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let errno = get_errno();
    let ret = match nr {
        libc::SYS_madvise => advise(a, b, c as c_int),
        libc::SYS_mremap => remap(a, b, c, d as c_int, e),
        libc::SYS_process_madvise => advise_by_vector([a, b, c, d, e, f]),
        libc::SYS_mlock | libc::SYS_mlock2 => lock(nr, a, b, c),
        libc::SYS_mlockall => lock_all(a),
        libc::SYS_unshare => leave_namespaces(a),
        // SAFETY: the caller's own call.
        libc::SYS_wait4 => wait(c as c_int, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) }),
        // SAFETY: the caller's own call.
        libc::SYS_waitid => wait(d as c_int, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) }),
        _ => {
            before_syscall(nr, a, b);
            // SAFETY: the caller's own call.
            unsafe { sys::raw(nr, [a, b, c, d, e, f]) }
        }
    };
    set_errno(errno);
    as_libc(ret) as c_long
}

fn before_syscall(nr: c_long, a: usize, b: usize) {
    match nr {
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => before_filter(),
        libc::SYS_seccomp if a <= 1 => before_filter(),
        libc::SYS_userfaultfd if engine::anything_frozen() => {
            let _ = engine::thaw_all();
            engine::bar(Reason::Userfaultfd);
        }
        libc::SYS_vmsplice => engine::note_splice(),
        libc::SYS_futex if is_pi(b) => engine::note_pi_futex(),
        libc::SYS_clone if shares_memory(a as c_int) => engine::note_shared_vm(),
        libc::SYS_fork | libc::SYS_clone | libc::SYS_clone3 => engine::before_raw_fork(),
        libc::SYS_exit_group => report(),
        _ => {}
    }
}

/// A system-call filter is about to be installed. What may be forbidden later is
/// done now: memory goes back, and the report is written.
fn before_filter() {
    report();
    engine::before_filter();
}

/// prctl(2): a filter is about to be installed.
#[no_mangle]
pub unsafe extern "C" fn prctl(op: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let errno = get_errno();
    if op == libc::PR_SET_SECCOMP {
        before_filter();
    }
    set_errno(errno);
    // SAFETY: the caller's own call.
    as_libc(unsafe { sys::raw(libc::SYS_prctl, args![op, a, b, c, d]) }) as c_int
}
