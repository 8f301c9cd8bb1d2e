//! clone(2), pthread_create(3), thrd_create(3), unshare(2), pthread_mutexattr_setprotocol(3): what
//! a pass must know about tasks that are not made by fork, and about threads that nobody can hold
//! still.

use core::ffi::c_int;

use super::errno::{answer, set_errno};
use super::next::Next;
use crate::{args, engine, sys};

/// A task in this address space that is neither a thread nor a vfork child.
pub fn shares_memory(flags: c_int) -> bool {
    flags & libc::CLONE_VM != 0 && flags & (libc::CLONE_THREAD | libc::CLONE_VFORK) == 0
}

/// The task has other privileges than its maker: it may not read that one's memory.
pub fn leaves(flags: c_int) -> bool {
    const ELSEWHERE: c_int = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    flags & ELSEWHERE != 0
}

macro_rules! clones {
    ($($name:ident $next:ident,)*) => {$(
        #[doc = concat!(stringify!($name), "(3).")]
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            f: usize,
            stack: usize,
            flags: c_int,
            arg: usize,
            a: usize,
            b: usize,
            c: usize,
        ) -> c_int {
            make(Next::$next, [f, stack, arg, a, b, c], flags)
        }
    )*};
}

clones! {
    clone Clone,
    // By this name no other library has one.
    __clone LibcClone,
}

fn make(next: Next, [f, stack, arg, a, b, c]: [usize; 6], flags: c_int) -> c_int {
    if leaves(flags) {
        engine::never_overwrite();
    }
    if shares_memory(flags) {
        engine::note_shared_vm();
    } else {
        engine::before_raw_fork();
    }
    // SAFETY: a function of this type, with the caller's arguments.
    let next: extern "C" fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int =
        unsafe { core::mem::transmute(next.get()) };
    let call = || next(f, stack, flags, arg, a, b, c);
    if flags & libc::CLONE_VM != 0 {
        return call();
    }
    engine::announced(call, |errno| {
        set_errno(errno);
        -1
    })
}

/// Futex operations that the kernel does not retry after a page fault: those on
/// priority-inheriting locks, and FUTEX_WAKE_OP.
pub fn is_pi(op: usize) -> bool {
    matches!(op & 0x7f, 5..=8 | 11..=13)
}

/// pthread_mutexattr_setprotocol(3): a priority-inheriting mutex is about to be made.
#[no_mangle]
pub unsafe extern "C" fn pthread_mutexattr_setprotocol(attr: usize, protocol: c_int) -> c_int {
    const PTHREAD_PRIO_INHERIT: c_int = 1;
    if protocol == PTHREAD_PRIO_INHERIT {
        engine::note_pi_futex();
    }
    // SAFETY: the next function in line, with the caller's arguments.
    let next: extern "C" fn(usize, c_int) -> c_int =
        unsafe { core::mem::transmute(Next::SetProtocol.get()) };
    next(attr, protocol)
}

/// pthread_create(3): no thread is made while others are held still, so that its end is heard.
/// And it is the last moment at which a new process is certainly alone in finding out that it is
/// one.
#[no_mangle]
pub unsafe extern "C" fn pthread_create(
    thread: usize,
    attr: usize,
    start: usize,
    arg: usize,
) -> c_int {
    // SAFETY: the next function in line, with the caller's arguments.
    let next: extern "C" fn(usize, usize, usize, usize) -> c_int =
        unsafe { core::mem::transmute(Next::PthreadCreate.get()) };
    if engine::is_live_possible() && attr != 0 && !leave_stack(attr) {
        return libc::EAGAIN;
    }
    engine::beside_no_pass(|| next(thread, attr, start, arg))
}

/// The program gives a thread memory of its own for a stack, where its descriptor lies too: it is
/// never live. False: it must stay so.
fn leave_stack(attr: usize) -> bool {
    let (mut start, mut len) = (0, 0);
    // SAFETY: the C library's function of this type.
    let stack_of: extern "C" fn(usize, &mut usize, &mut usize) -> c_int =
        unsafe { core::mem::transmute(Next::StackOf.get()) };
    let got = stack_of(attr, &mut start, &mut len);
    // Without a stack of its own its end is at 0.
    if got != 0 || start == 0 || start.wrapping_add(len) == 0 {
        return true;
    }
    engine::forget_mapped(start, len);
    engine::on_private(start, len, || 0) == 0
}

/// thrd_create(3): as pthread_create, which it does not call by name.
#[no_mangle]
pub unsafe extern "C" fn thrd_create(thread: usize, start: usize, arg: usize) -> c_int {
    // SAFETY: the next function in line, with the caller's arguments.
    let next: extern "C" fn(usize, usize, usize) -> c_int =
        unsafe { core::mem::transmute(Next::ThrdCreate.get()) };
    engine::beside_no_pass(|| next(thread, start, arg))
}

/// unshare by the kernel.
pub fn leave_namespaces(flags: usize) -> isize {
    if flags as c_int & !(libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_SYSVSEM) != 0 {
        engine::never_overwrite();
    }
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_unshare, args![flags]) };
    match flags as c_int & (libc::CLONE_NEWPID | libc::CLONE_NEWTIME) {
        0 => call(),
        _ => engine::with_new_namespace(call),
    }
}

/// unshare(2): the next child is the first of a namespace, and must be the program's.
#[no_mangle]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    answer(|| leave_namespaces(flags as usize)) as c_int
}
