//! syscall(2), prctl(2): what is wrapped elsewhere, asked for by number, and system-call filters.

use core::ffi::{c_int, c_long};

use super::advice::{advise, advise_by_vector};
use super::environment::after_change;
use super::errno::{answer, as_libc, get_errno, set_errno};
use super::execute::execute;
use super::life::report;
use super::limits::ends_live;
use super::locking::{lock, lock_all};
use super::mapping::{attach, map, protect, unmap};
use super::privileges::{enter, is_change, is_limiting};
use super::remap::remap;
use super::splice::{note_option, note_value, reaches_memory};
use super::tasks::{is_pi, leave_namespaces, leaves, shares_memory};
use super::waits::{heard, wait};
use crate::begun::timed;
use crate::calls;
use crate::reason::Reason;
use crate::sys::abi::{calls as old, userfaultfd};
use crate::sys::PAGE;
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
        libc::SYS_mmap => map([a, b, c, d, e, f]),
        libc::SYS_munmap => unmap(a, b),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => protect(nr, a, b, c, d),
        libc::SYS_shmat => attach(a, b, c),
        libc::SYS_process_madvise => advise_by_vector([a, b, c, d, e, f]),
        libc::SYS_mlock | libc::SYS_mlock2 => lock(nr, a, b, c),
        libc::SYS_mlockall => lock_all(a),
        libc::SYS_unshare => leave_namespaces(a),
        libc::SYS_setns => enter(a, b),
        libc::SYS_mseal => seal(a, b, c),
        // SAFETY: the caller's own call.
        libc::SYS_remap_file_pages => {
            engine::on_private(a, b, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) })
        }
        // SAFETY: the caller's own call.
        libc::SYS_mbind => give_property(a, b, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) }),
        // SAFETY: the caller's own call.
        libc::SYS_wait4 => {
            // SAFETY: the caller's own call.
            let pid = wait(c as c_int, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) });
            heard(pid > 0, pid)
        }
        // SAFETY: the caller's own call.
        libc::SYS_prctl if a as c_int == libc::PR_SET_PTRACER => {
            // SAFETY: the caller's own call.
            engine::name_tracer(b, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) })
        }
        libc::SYS_rt_sigaction if b != 0 => {
            // SAFETY: the caller's own call.
            engine::with_handler(a as c_int, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) })
        }
        libc::SYS_execve | libc::SYS_execveat => {
            // SAFETY: the caller's own call.
            execute(|| unsafe { sys::raw(nr, [a, b, c, d, e, f]) })
        }
        // SAFETY: the caller's own call.
        libc::SYS_waitid => {
            // SAFETY: the caller's own call.
            let answer = wait(d as c_int, || unsafe { sys::raw(nr, [a, b, c, d, e, f]) });
            heard(answer == 0, answer)
        }
        _ => other(nr, [a, b, c, d, e, f]),
    };
    set_errno(errno);
    as_libc(ret) as c_long
}

/// A call that has no wrapper of its own.
fn other(nr: c_long, a: [usize; 6]) -> isize {
    before_syscall(nr, a[0], a[1], a[2]);
    // SAFETY: the caller's own call.
    let call = || unsafe { sys::raw(nr, a) };
    let ret = if nr == libc::SYS_io_uring_setup {
        // Advice that a ring takes would meet frozen memory. A pass that finds one freezes nothing.
        engine::with_all_thawed(call)
    } else if copies(nr, a[0]) {
        engine::announced(call, |errno| -(errno as isize))
    } else if is_unmended(nr, a[1]) {
        engine::unmended(call)
    } else if has_limit(nr, &a) && engine::is_interrupting() {
        timed(nr, call)
    } else {
        call()
    };
    if ret == 0 && nr == libc::SYS_setsockopt {
        note_value(a[1] as c_int, a[2] as c_int, a[3], a[4] as u32);
    }
    if is_change(nr, a[0]) {
        after_change();
    }
    ret
}

/// The call would begin anew with its limit of time.
fn has_limit(nr: c_long, a: &[usize; 6]) -> bool {
    calls::limit_of(nr).is_some_and(|limit| calls::has_limit(limit, &a.map(|word| word as u64)))
}

/// Nothing mends the call if it is interrupted.
fn is_unmended(nr: c_long, b: usize) -> bool {
    match nr {
        libc::SYS_recvmmsg | libc::SYS_sendmmsg | libc::SYS_vmsplice => true,
        libc::SYS_ioctl => is_driven(b),
        _ => false,
    }
}

/// What it does is up to a driver. Not so the commonest on terminals, and those on sockets and any
/// descriptor, which do not wait.
fn is_driven(request: usize) -> bool {
    const SOCKETS: usize = 0x89;
    let asks = [libc::TCGETS, libc::TIOCGWINSZ, libc::TIOCGPGRP, libc::FIONREAD, libc::FIONBIO];
    let any = [libc::FIOCLEX, libc::FIONCLEX, libc::FIOASYNC];
    let request = request as u32 as usize;
    !(request >> 8 == SOCKETS || asks.iter().chain(&any).any(|&one| one as usize == request))
}

/// The call copies this memory. What clone3 is told lies in memory: supposed so.
fn copies(nr: c_long, a: usize) -> bool {
    match nr {
        old::SYS_fork | libc::SYS_clone3 => true,
        libc::SYS_clone => a as c_int & libc::CLONE_VM == 0,
        _ => false,
    }
}

/// The call lets the kernel reach memory behind the page tables, or waits on a word by its place in
/// a file.
fn bars_live(nr: c_long, a: usize, b: usize, c: usize) -> bool {
    let direct = |flags: usize| flags as c_int & libc::O_DIRECT != 0;
    match nr {
        libc::SYS_vmsplice | libc::SYS_io_setup | libc::SYS_io_uring_setup => true,
        libc::SYS_futex => b as c_int & libc::FUTEX_PRIVATE_FLAG == 0,
        libc::SYS_futex_waitv => true,
        libc::SYS_setrlimit => ends_live(a as c_int, b),
        libc::SYS_prlimit64 => ends_live(b as c_int, c),
        old::SYS_open => direct(b),
        libc::SYS_openat => direct(c),
        libc::SYS_openat2 => sys::read_word(sys::getpid(), c).is_none_or(|f| direct(f as usize)),
        libc::SYS_fcntl => b as c_int == libc::F_SETFL && direct(c),
        libc::SYS_setsockopt => reaches_memory(b as c_int, c as c_int),
        _ => false,
    }
}

fn before_syscall(nr: c_long, a: usize, b: usize, c: usize) {
    if engine::is_live_possible() && bars_live(nr, a, b, c) {
        engine::bar_live();
    }
    if is_change(nr, a) || leaves_or_keeps(nr, a) {
        engine::never_overwrite();
    }
    match nr {
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => before_filter(),
        libc::SYS_seccomp if is_filter(a, c) => before_filter(),
        libc::SYS_userfaultfd => before_userfaultfd(),
        libc::SYS_ioctl if b as u64 == userfaultfd::NEW => before_userfaultfd(),
        libc::SYS_io_uring_setup if is_unseen_ring(b) => engine::stay_plain(Reason::Pinned),
        libc::SYS_setsockopt => note_option(b as c_int, c as c_int),
        libc::SYS_futex if is_pi(b) => engine::note_pi_futex(),
        libc::SYS_clone if shares_memory(a as c_int) => engine::note_shared_vm(),
        old::SYS_fork | libc::SYS_clone | libc::SYS_clone3 => engine::before_raw_fork(),
        libc::SYS_exit_group => report(),
        _ => {}
    }
}

/// The call makes a task with other privileges, or lets the kernel keep pages beyond their
/// mappings: a ring sends without copying.
fn leaves_or_keeps(nr: c_long, a: usize) -> bool {
    match nr {
        libc::SYS_vmsplice | libc::SYS_io_uring_setup => true,
        libc::SYS_clone => leaves(a as c_int),
        // The first word of `struct clone_args`.
        libc::SYS_clone3 => sys::read_word(sys::getpid(), a).is_none_or(leaves),
        _ => false,
    }
}

/// Whether seccomp(2) may install a filter. Without a program it cannot: libseccomp asks so which
/// flags the kernel knows.
fn is_filter(op: usize, program: usize) -> bool {
    op == libc::SECCOMP_SET_MODE_STRICT as usize
        || op == libc::SECCOMP_SET_MODE_FILTER as usize && program != 0
}

/// A userfaultfd is about to be made: memory it may watch must be anonymous.
fn before_userfaultfd() {
    if engine::anything_frozen() {
        engine::stay_plain(Reason::Userfaultfd);
    }
}

/// ioctl(2): the other way to a userfaultfd, by `/dev/userfaultfd`.
#[no_mangle]
pub unsafe extern "C" fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    let errno = get_errno();
    if request as u64 == userfaultfd::NEW {
        before_userfaultfd();
    }
    // SAFETY: the caller's own call.
    let call = || unsafe { sys::raw(libc::SYS_ioctl, args![fd, request, arg]) };
    let ret = if is_driven(request) { engine::unmended(call) } else { call() };
    set_errno(errno);
    as_libc(ret) as c_int
}

/// A ring in the program's own memory, or without a descriptor: no look at the process finds it.
fn is_unseen_ring(parameters: usize) -> bool {
    const NO_MMAP: i32 = 1 << 14;
    const REGISTERED_FD_ONLY: i32 = 1 << 15;
    // The third word of `struct io_uring_params`.
    let flags = sys::read_word(sys::getpid(), parameters.wrapping_add(8));
    flags.is_none_or(|flags| flags & (NO_MMAP | REGISTERED_FD_ONLY) != 0)
}

/// A system-call filter is about to be installed. What may be forbidden later is
/// done now: memory goes back, and the report is written.
fn before_filter() {
    report();
    engine::before_filter();
}

/// mseal by the kernel: sealed memory could be neither thawed nor rebuilt later.
fn seal(at: usize, len: usize, flags: usize) -> isize {
    // SAFETY: the program's own call.
    give_property(at, len, || unsafe { sys::raw(libc::SYS_mseal, args![at, len, flags]) })
}

/// mseal(2), which later versions of the C library have.
#[no_mangle]
pub unsafe extern "C" fn mseal(at: usize, len: usize, flags: usize) -> c_int {
    answer(|| seal(at, len, flags)) as c_int
}

/// Gives memory a policy, a name or a seal, which a backing file would not have: thawed before.
fn give_property(at: usize, len: usize, call: impl FnOnce() -> isize) -> isize {
    let start = at & !(PAGE - 1);
    let pages = len.checked_add(at - start).and_then(|n| n.checked_next_multiple_of(PAGE));
    match pages.filter(|&n| n > 0 && start.checked_add(n).is_some()) {
        Some(pages) => {
            engine::on_private(start, pages, || engine::with_property(start, pages, |_| call()))
        }
        None => call(),
    }
}

/// prctl(2): a filter is about to be installed, or memory gets a name.
#[no_mangle]
pub unsafe extern "C" fn prctl(op: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let errno = get_errno();
    if is_limiting(op) {
        engine::never_overwrite();
    }
    if op == libc::PR_SET_SECCOMP {
        before_filter();
    }
    // SAFETY: the caller's own call.
    let call = || unsafe { sys::raw(libc::SYS_prctl, args![op, a, b, c, d]) };
    let ret = match op {
        libc::PR_SET_VMA => give_property(b, c, call),
        libc::PR_SET_PTRACER => engine::name_tracer(a, call),
        _ => call(),
    };
    set_errno(errno);
    as_libc(ret) as c_int
}
