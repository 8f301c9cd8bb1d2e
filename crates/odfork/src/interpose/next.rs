//! The functions that the wrappers stand before: the next of that name in the search order.
//!
//! Owns looking them up: all of them, once, in the constructor. Later is too late: another thread
//! may hold the loader's lock, and wait in a library's constructor for the one that asks. Where
//! they are is remembered in the engine's [`Notes`](engine::Notes). Four have no wrapper
//! (`FindObject`, `RegisterForks` to `ClockOf`): where they are, and whether they are there,
//! depends on the C library and its version.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::symbols::{self, Object, Which};
use crate::engine;

macro_rules! functions {
    ($($which:ident $name:literal,)*) => {
        /// A function of the next library in line.
        #[derive(Clone, Copy)]
        pub enum Next {
            $($which,)*
        }

        /// In the order of their numbers.
        const NAMES: &[&CStr] = &[$($name,)*];
    };
}

functions! {
    FindObject c"_dl_find_object",
    Fork c"fork",
    Realloc c"realloc",
    Clone c"clone",
    PthreadCreate c"pthread_create",
    ThrdCreate c"thrd_create",
    SetProtocol c"pthread_mutexattr_setprotocol",
    Wait3 c"wait3",
    Wait4 c"wait4",
    WaitPid c"waitpid",
    WaitId c"waitid",
    SetUid c"setuid",
    SetGid c"setgid",
    SetEuid c"seteuid",
    SetEgid c"setegid",
    SetReUid c"setreuid",
    SetReGid c"setregid",
    SetResUid c"setresuid",
    SetResGid c"setresgid",
    SetGroups c"setgroups",
    InitGroups c"initgroups",
    MallocTrim c"malloc_trim",
    SemOpen c"sem_open",
    SBrk c"sbrk",
    ExecVe c"execve",
    ExecV c"execv",
    ExecVp c"execvp",
    ExecVpe c"execvpe",
    FExecVe c"fexecve",
    ExecVeAt c"execveat",
    Wait c"wait",
    ForkOnly c"_Fork",
    Open c"open",
    OpenChecked c"__open_2",
    OpenAt c"openat",
    OpenAtChecked c"__openat_2",
    Fcntl c"fcntl",
    MutexShared c"pthread_mutexattr_setpshared",
    MutexRobust c"pthread_mutexattr_setrobust",
    CondShared c"pthread_condattr_setpshared",
    RwLockShared c"pthread_rwlockattr_setpshared",
    BarrierShared c"pthread_barrierattr_setpshared",
    SemInit c"sem_init",
    RegisterForks c"__register_atfork",
    StackOf c"pthread_attr_getstack",
    ClockOf c"pthread_getcpuclockid",
    EpollWait c"epoll_wait",
    EpollPWait c"epoll_pwait",
    Poll c"poll",
    PPoll c"ppoll",
    Select c"select",
    ClockNanosleep c"clock_nanosleep",
    USleep c"usleep",
    RecvMMsg c"recvmmsg",
    SendMMsg c"sendmmsg",
    VmSplice c"vmsplice",
    SigTimedWait c"sigtimedwait",
    SemTimedOp c"semtimedop",
    Nanosleep c"nanosleep",
    SigAction c"sigaction",
    Signal c"signal",
    SysVSignal c"sysv_signal",
    SigSet c"sigset",
    LibcClone c"__clone",
    LibcRealloc c"__libc_realloc",
    DlSym c"dlsym",
}

const _: () = assert!(NAMES.len() <= engine::MAX_NEXT);
const _: () = assert!(Next::FindObject as usize == engine::FIND_OBJECT);

impl Next {
    /// Its address; 0 where there is none.
    #[inline]
    pub fn get(self) -> usize {
        match self.known() {
            0 => self.search(),
            at => at,
        }
    }

    /// Called by an earlier constructor than ours, or in a library loaded since: glibc before 2.34
    /// has those of threads in one of its own.
    #[cold]
    fn search(self) -> usize {
        let number = self as usize;
        look_up(number..number + 1);
        self.known()
    }

    /// The same, without a search.
    fn known(self) -> usize {
        engine::state().notes.next[self as usize].load(Relaxed)
    }
}

/// Finds each in the first object that has it.
fn look_up(numbers: Range<usize>) {
    let notes = &engine::state().notes;
    let is_missing = |number: usize| notes.next[number].load(Relaxed) == 0;
    let mut take = |object: &Object| {
        notes.is_glibc.fetch_or(object.is_glibc, Relaxed);
        for number in numbers.clone().filter(|&number| is_missing(number)) {
            let Some(at) = object.function(NAMES[number]) else { continue };
            notes.next[number].store(at, Relaxed);
            if number == Next::Realloc as usize {
                notes.realloc_is_glibc.store(object.is_glibc, Relaxed);
            }
        }
    };
    symbols::visit(Which::Behind, &mut take);
    if numbers.clone().any(is_missing) {
        symbols::visit(Which::Before, &mut take);
    }
}

/// The C library's dlsym. Not that of a library which stands before it, and asks us for this one.
/// Asked at the first call, which may come before any constructor, and from another library's
/// dl_iterate_phdr.
pub fn dlsym() -> usize {
    match Next::DlSym.known() {
        0 => match symbols::of_libc(c"dlsym") {
            Some(at) => {
                engine::state().notes.next[Next::DlSym as usize].store(at, Relaxed);
                at
            }
            None => Next::DlSym.get(),
        },
        at => at,
    }
}

/// Names of wrappers that go on to a function of another name.
const OTHERS: [&CStr; 9] = [
    c"open64",
    c"openat64",
    c"__open64_2",
    c"__openat64_2",
    c"fcntl64",
    c"bsd_signal",
    c"ssignal",
    c"__sigaction",
    c"__sysv_signal",
];

/// A wrapper of that name goes on to this function, or makes the call itself.
pub fn leads_to(name: &CStr, function: usize) -> bool {
    if OTHERS.contains(&name) {
        return false;
    }
    let number = NAMES.iter().position(|&other| other == name);
    number.is_none_or(|number| engine::state().notes.next[number].load(Relaxed) == function)
}

/// Looks everything up, but for dlsym. Called by the constructor.
pub fn resolve() {
    look_up(0..Next::DlSym as usize);
    engine::state().fork_mark.trust(Next::ClockOf.known());
}

/// The program's C library is glibc.
pub fn is_glibc() -> bool {
    engine::state().notes.is_glibc.load(Relaxed)
}

/// The next realloc is glibc's, whose chunks can be told apart.
pub fn realloc_is_glibc() -> bool {
    engine::state().notes.realloc_is_glibc.load(Relaxed)
}
