//! setuid(2) and its kin: a process is about to have other privileges than its relatives.
//!
//! Refreezing in place overwrites file pages when the sharing probe says that nobody else shows
//! them. A descendant that may not read this process could lie by unmapping the probe alone. So
//! before privileges change, all processes that share backing files are told to overwrite none
//! (`docs/design/runtime.md`). Until then the code is trusted, and a wrapper is enough.

use core::ffi::c_int;

use super::environment;
use super::errno::answer;
use super::next::Next;
use crate::{args, engine, sys};

macro_rules! changes {
    ($($name:ident $next:ident ($($arg:ident),*),)*) => {$(
        #[doc = concat!(stringify!($name), ": the C library's, which changes every thread.")]
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> c_int {
            engine::never_overwrite();
            // SAFETY: the next function in line, with the caller's arguments.
            let next: extern "C" fn($(changes!(@word $arg)),*) -> c_int =
                unsafe { core::mem::transmute(Next::$next.get()) };
            let result = next($($arg),*);
            environment::after_change();
            result
        }
    )*};
    (@word $arg:ident) => { usize };
}

changes! {
    setuid SetUid (user),
    setgid SetGid (group),
    seteuid SetEuid (user),
    setegid SetEgid (group),
    setreuid SetReUid (real, effective),
    setregid SetReGid (real, effective),
    setresuid SetResUid (real, effective, saved),
    setresgid SetResGid (real, effective, saved),
    setgroups SetGroups (count, groups),
    initgroups InitGroups (user, group),
}

macro_rules! calls {
    ($($name:ident $number:ident ($($arg:ident),*),)*) => {$(
        #[doc = concat!(stringify!($name), "(2).")]
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> c_int {
            engine::never_overwrite();
            answer(|| {
                // SAFETY: the caller's own call.
                let ret = unsafe { sys::raw(libc::$number, args![$($arg),*]) };
                environment::after_change();
                ret
            }) as c_int
        }
    )*};
}

calls! {
    capset SYS_capset (header, data),
    chroot SYS_chroot (path),
    pivot_root SYS_pivot_root (new, old),
    // They answer with the number before, for which there is no error.
    setfsuid SYS_setfsuid (user),
    setfsgid SYS_setfsgid (group),
}

/// setns by the kernel. In another pid namespace a helper of ours would have another number than it
/// expects. Which kind of namespace it is need not be said: then it is supposed to be one.
pub fn enter(namespace: usize, kind: usize) -> isize {
    const CHILDREN: c_int = libc::CLONE_NEWPID | libc::CLONE_NEWTIME;
    engine::never_overwrite();
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_setns, args![namespace, kind]) };
    let ret = match kind as c_int {
        0 => engine::with_new_namespace(call),
        kind if kind & CHILDREN != 0 => engine::with_new_namespace(call),
        _ => call(),
    };
    environment::after_change();
    ret
}

/// setns(2).
#[no_mangle]
pub unsafe extern "C" fn setns(namespace: usize, kind: c_int) -> c_int {
    answer(|| enter(namespace, kind as usize)) as c_int
}

/// A call by number that changes what this process may do, or where it is.
pub fn is_change(nr: i64, a: usize) -> bool {
    match nr {
        libc::SYS_prctl => is_limiting(a as c_int),
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setfsuid
        | libc::SYS_setfsgid
        | libc::SYS_setgroups
        | libc::SYS_capset
        | libc::SYS_chroot
        | libc::SYS_pivot_root
        | libc::SYS_seccomp
        | libc::SYS_landlock_restrict_self => true,
        _ => false,
    }
}

/// What prctl(2) takes away.
pub fn is_limiting(op: c_int) -> bool {
    matches!(
        op,
        libc::PR_SET_NO_NEW_PRIVS
            | libc::PR_SET_SECCOMP
            | libc::PR_SET_DUMPABLE
            | libc::PR_CAPBSET_DROP
            | libc::PR_SET_SECUREBITS
    )
}
