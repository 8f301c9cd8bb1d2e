//! The functions that the wrappers stand before: the next of that name in the search order.
//!
//! Owns looking them up: all of them, once, in the constructor. Later is too late: another thread
//! may hold the loader's lock, and wait in a library's constructor for the one that asks. Where
//! they are is remembered in the engine's [`Notes`](engine::Notes).

use core::ffi::{c_int, c_void, CStr};
use core::sync::atomic::Ordering::Relaxed;

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
    Fcntl c"fcntl64",
    MutexShared c"pthread_mutexattr_setpshared",
    MutexRobust c"pthread_mutexattr_setrobust",
    CondShared c"pthread_condattr_setpshared",
    RwLockShared c"pthread_rwlockattr_setpshared",
    BarrierShared c"pthread_barrierattr_setpshared",
    SemInit c"sem_init",
}

/// How the path of the C library ends.
const LIBC: &[u8] = b"libc.so.6";

const _: () = assert!(NAMES.len() <= engine::MAX_NEXT);

impl Next {
    /// Its address; 0 where there is none.
    pub fn get(self) -> usize {
        match engine::state().notes.next[self as usize].load(Relaxed) {
            // Called by an earlier constructor than ours.
            0 => look_up(self as usize),
            at => at,
        }
    }
}

fn look_up(number: usize) -> usize {
    // SAFETY: a valid name; dlsym is callable from constructors on.
    let at = unsafe { libc::dlsym(libc::RTLD_NEXT, NAMES[number].as_ptr()) } as usize;
    engine::state().notes.next[number].store(at, Relaxed);
    at
}

/// Looks everything up. Called by the constructor.
pub fn resolve() {
    (0..NAMES.len()).for_each(|number| {
        look_up(number);
    });
    // SAFETY: as in `look_up`.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) } as usize;
    engine::state().notes.find_object.store(find, Relaxed);
    let glibc = is_in_libc(Next::Realloc.get());
    engine::state().notes.realloc_is_glibc.store(glibc, Relaxed);
}

/// The next realloc is glibc's, whose chunks can be told apart.
pub fn realloc_is_glibc() -> bool {
    engine::state().notes.realloc_is_glibc.load(Relaxed)
}

/// That address is in the C library. Not by dlopen: it allocates, in every program executed.
fn is_in_libc(address: usize) -> bool {
    let mut found = (address, false);
    // SAFETY: the callback gets a pointer to `found`, alive during the call.
    unsafe { libc::dl_iterate_phdr(Some(look_in_libc), (&raw mut found).cast()) };
    found.1
}

unsafe extern "C" fn look_in_libc(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes valid headers of a loaded object, and `found` is the caller's.
    unsafe {
        let (info, found) = (&*info, &mut *found.cast::<(usize, bool)>());
        if info.dlpi_name.is_null() || !CStr::from_ptr(info.dlpi_name).to_bytes().ends_with(LIBC) {
            return 0;
        }
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        found.1 = headers.iter().any(|ph| {
            let start = info.dlpi_addr as usize + ph.p_vaddr as usize;
            ph.p_type == libc::PT_LOAD && (start..start + ph.p_memsz as usize).contains(&found.0)
        });
    }
    1
}
