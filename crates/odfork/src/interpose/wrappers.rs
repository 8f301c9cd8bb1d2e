//! The C library's functions that see or break frozen memory.
//!
//! Each wrapper does one thing more than the function it stands for, and only
//! when memory it touches may be frozen; results and `errno` are the
//! function's own. Why each is here:
//!
//! | function | on frozen memory the kernel would |
//! | --- | --- |
//! | fork | copy page tables that need not be there |
//! | madvise DONTNEED, FREE, ... | show the image again instead of zeros, or refuse |
//! | mremap | grow into the image's file instead of zeros |
//! | madvise DONTFORK, DONTDUMP; mlock, mlock2, mlockall | lose the property when it is thawed: it is thawed first |
//! | process_madvise | do as madvise, for this process too (Linux 6.13) |
//! | realloc | (inside libc) do the same by mremap |
//! | syscall | do any of these without the wrapper |
//! | prctl, syscall | get a filter installed that kills for our later calls |
//! | pthread_create, pthread_mutexattr_setprotocol | (guard) fail where a protected page is written without retry |
//! | vmsplice, setsockopt | keep a page of an image beyond its mappings |
//! | unshare | make our helper the first process of the program's new namespace |
//! | clone | let a task that is no thread write while memory moves |

use core::ffi::{c_char, c_int, c_long, c_void, CStr};
use core::sync::atomic::Ordering::Relaxed;

use crate::reason::Reason;
use crate::sys::{self, PAGE};
use crate::thaw::Content;
use crate::{args, engine};

/// Advice of Linux 6.13: puts guard markers into the page tables.
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_DONTNEED_LOCKED: c_int = 24;
/// Linux 5.6.
const CLONE_NEWTIME: c_int = 0x80;

/// A function of the next library in line, looked up once; where it is, is remembered in
/// the engine's [`Notes`](engine::Notes).
#[derive(Clone, Copy)]
enum Next {
    Fork,
    Realloc,
    Clone,
    PthreadCreate,
    SetProtocol,
}

impl Next {
    const fn name(self) -> &'static CStr {
        match self {
            Next::Fork => c"fork",
            Next::Realloc => c"realloc",
            Next::Clone => c"clone",
            Next::PthreadCreate => c"pthread_create",
            Next::SetProtocol => c"pthread_mutexattr_setprotocol",
        }
    }

    fn get(self) -> usize {
        let place = &engine::state().notes.next[self as usize];
        match place.load(Relaxed) {
            0 => {
                let name: *const c_char = self.name().as_ptr();
                // SAFETY: a valid name; dlsym is callable from constructors on.
                let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name) } as usize;
                place.store(at, Relaxed);
                at
            }
            at => at,
        }
    }
}

/// Looks up what is called on paths where a lookup is unwelcome (signal
/// handlers, a fork that interrupted the allocator).
pub fn resolve() {
    Next::Fork.get();
    Next::Realloc.get();
}

fn set_errno(e: i32) {
    // SAFETY: libc's thread-local errno always exists.
    unsafe { *libc::__errno_location() = e };
}

fn get_errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// As libc's wrappers return: -1 and errno, or the value.
fn as_libc(ret: isize) -> isize {
    match sys::check(ret) {
        Ok(v) => v as isize,
        Err(e) => {
            set_errno(e.0);
            -1
        }
    }
}

/// fork(2), cheap. See [`engine::fork`].
///
/// # Safety
/// As for fork(2).
#[no_mangle]
pub unsafe extern "C" fn fork() -> c_int {
    let errno = get_errno();
    let next = Next::Fork.get();
    // SAFETY: the C library's fork; errno is put back before it runs, so that
    // only a failure of fork itself changes it.
    unsafe {
        engine::fork(|| {
            set_errno(errno);
            match next {
                0 => as_libc(sys::raw(libc::SYS_fork, [0; 6])) as c_int,
                at => core::mem::transmute::<usize, extern "C" fn() -> c_int>(at)(),
            }
        })
    }
}

/// What has to happen to frozen memory before an advice may be carried out.
fn advice_needs(advice: c_int) -> Option<Content> {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | MADV_DONTNEED_LOCKED | MADV_GUARD_INSTALL => {
            Some(Content::Zero(advice))
        }
        libc::MADV_REMOVE => Some(Content::Keep),
        _ => None,
    }
}

/// Advice that gives a mapping a property. Memory that has one is never frozen, so it
/// must not be when it gets one: a thaw later would lose it.
fn is_property(advice: c_int) -> bool {
    matches!(advice, libc::MADV_WIPEONFORK | libc::MADV_DONTFORK | libc::MADV_DONTDUMP)
}

/// This kernel knows the advice: it accepts it for an empty range.
fn is_known_advice(advice: c_int) -> bool {
    // SAFETY: an empty range.
    unsafe { sys::raw(libc::SYS_madvise, args![0, 0, advice]) == 0 }
}

/// madvise by the kernel, after frozen memory was thawed as the advice needs.
fn advise(addr: usize, len: usize, advice: c_int) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_madvise, args![addr, len, advice]) };
    let Some(pages) = len.checked_next_multiple_of(PAGE) else { return call() };
    if addr % PAGE != 0 || addr.checked_add(pages).is_none() {
        return call();
    }
    if is_property(advice) {
        return engine::with_property(addr, pages, call);
    }
    let Some(content) = advice_needs(advice).filter(|_| is_known_advice(advice)) else {
        return call();
    };
    if let Some(answer) = engine::call_if_plain(addr, pages, false, call) {
        return answer;
    }
    engine::with_thawed(addr, pages, content, false, |thawed| {
        match (thawed, content) {
            (Ok(true), _) => 0,
            // Without the helper zeros cannot be had: say that the advice failed,
            // which madvise(2) allows, rather than show old content.
            (Err(_), Content::Zero(_)) => -(libc::EAGAIN as isize),
            _ => call(),
        }
    })
}

/// madvise(2): frozen memory becomes anonymous first where the advice means its content.
#[no_mangle]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    let errno = get_errno();
    let ret = advise(addr as usize, len, advice);
    set_errno(errno);
    as_libc(ret) as c_int
}

/// process_madvise by the kernel: for frozen memory the answer of kernels before
/// 6.13, which knew no advice there that gives content up.
fn advise_by_vector(a: [usize; 6]) -> isize {
    if engine::anything_frozen() && advice_needs(a[3] as c_int).is_some() {
        return -(libc::EINVAL as isize);
    }
    // SAFETY: the program's own call.
    unsafe { sys::raw(libc::SYS_process_madvise, a) }
}

/// process_madvise(2).
#[no_mangle]
pub unsafe extern "C" fn process_madvise(
    pidfd: c_int,
    vec: *const c_void,
    count: usize,
    advice: c_int,
    flags: core::ffi::c_uint,
) -> isize {
    let errno = get_errno();
    let ret = advise_by_vector(args![pidfd, vec, count, advice, flags]);
    set_errno(errno);
    as_libc(ret)
}

/// Locks memory, thawed before: a lock would stay behind with the image.
fn lock(nr: c_long, addr: usize, len: usize, flags: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(nr, args![addr, len, flags]) };
    let start = addr & !(PAGE - 1);
    let pages = len.checked_add(addr - start).and_then(|n| n.checked_next_multiple_of(PAGE));
    let Some(pages) = pages.filter(|&n| n > 0 && start.checked_add(n).is_some()) else {
        return call();
    };
    engine::with_property(start, pages, call)
}

/// mlock(2).
#[no_mangle]
pub unsafe extern "C" fn mlock(addr: *const c_void, len: usize) -> c_int {
    let errno = get_errno();
    let ret = lock(libc::SYS_mlock, addr as usize, len, 0);
    set_errno(errno);
    as_libc(ret) as c_int
}

/// mlock2(2).
#[no_mangle]
pub unsafe extern "C" fn mlock2(
    addr: *const c_void,
    len: usize,
    flags: core::ffi::c_uint,
) -> c_int {
    let errno = get_errno();
    let ret = lock(libc::SYS_mlock2, addr as usize, len, flags as usize);
    set_errno(errno);
    as_libc(ret) as c_int
}

fn lock_all(flags: usize) -> isize {
    if engine::anything_frozen() {
        let _ = engine::thaw_all();
    }
    // SAFETY: the program's own call.
    engine::with_property(0, usize::MAX, || unsafe { sys::raw(libc::SYS_mlockall, args![flags]) })
}

/// mlockall(2).
#[no_mangle]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let errno = get_errno();
    let ret = lock_all(flags as usize);
    set_errno(errno);
    as_libc(ret) as c_int
}

/// mremap by the kernel. Growing, duplicating and leaving behind need anonymous
/// memory; shrinking and moving whole do not.
fn remap(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> isize {
    let a = args![old, old_len, new_len, flags, new];
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_mremap, a) };
    let moves = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    let (Some(len), Some(new_pages)) =
        (old_len.max(PAGE).checked_next_multiple_of(PAGE), new_len.checked_next_multiple_of(PAGE))
    else {
        return call();
    };
    let grows = new_pages > len || old_len == 0;
    if !(grows || moves) || old % PAGE != 0 {
        return call();
    }
    if let Some(answer) = engine::call_if_plain(old, len, true, call) {
        return answer;
    }
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    engine::with_thawed(old, len, Content::Join, may_move, |thawed| match thawed {
        Ok(_) => call(),
        // Rather no room, as when the addresses behind are taken, than wrong bytes.
        Err(_) => -(libc::ENOMEM as isize),
    })
}

/// mremap(2).
#[no_mangle]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let errno = get_errno();
    let ret = remap(old as usize, old_len, new_len, flags, new as usize);
    set_errno(errno);
    as_libc(ret) as *mut c_void
}

/// glibc marks a chunk that has a mapping of its own in the size before it.
const IS_MMAPPED: usize = 2;

/// realloc(3): glibc grows a mapped chunk by an internal mremap, which would
/// run into the image's file; such a chunk is copied instead.
#[no_mangle]
pub unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the next realloc in line, with the caller's arguments.
    let next: extern "C" fn(*mut c_void, usize) -> *mut c_void =
        unsafe { core::mem::transmute(Next::Realloc.get()) };
    if p.is_null() || size == 0 || !engine::anything_frozen() || !next_is_glibc() {
        return next(p, size);
    }
    // SAFETY: a glibc chunk has its size in the word before it.
    let header = unsafe { *(p as *const usize).sub(1) };
    let usable = (header & !7).saturating_sub(16);
    if header & IS_MMAPPED == 0 || !engine::may_be_frozen(p as usize - 16, usable + 16) {
        return next(p, size);
    }
    // SAFETY: malloc and free of the same allocator; both blocks are valid for
    // the smaller of the two sizes.
    unsafe {
        let fresh = libc::malloc(size);
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(p as *const u8, fresh as *mut u8, usable.min(size));
            libc::free(p);
        }
        fresh
    }
}

fn next_is_glibc() -> bool {
    let kind = &engine::state().notes.realloc_kind;
    match kind.load(Relaxed) {
        0 => {
            // SAFETY: looks up a symbol of the C library itself.
            let own = unsafe {
                let c = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if c.is_null() {
                    0
                } else {
                    libc::dlsym(c, c"realloc".as_ptr()) as usize
                }
            };
            let same = own != 0 && own == Next::Realloc.get();
            kind.store(if same { 1 } else { 2 }, Relaxed);
            same
        }
        kind => kind == 1,
    }
}

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
        libc::SYS_exit_group => super::life::report(),
        _ => {}
    }
}

/// A system-call filter is about to be installed. What may be forbidden later is
/// done now: memory goes back, and the report is written.
fn before_filter() {
    super::life::report();
    engine::before_filter();
}

/// A task in this address space that is neither a thread nor a vfork child.
fn shares_memory(flags: c_int) -> bool {
    flags & libc::CLONE_VM != 0 && flags & (libc::CLONE_THREAD | libc::CLONE_VFORK) == 0
}

/// clone(3).
#[no_mangle]
pub unsafe extern "C" fn clone(
    f: usize,
    stack: usize,
    flags: c_int,
    arg: usize,
    a: usize,
    b: usize,
    c: usize,
) -> c_int {
    if shares_memory(flags) {
        engine::note_shared_vm();
    } else {
        engine::before_raw_fork();
    }
    // SAFETY: the next clone in line, with the caller's arguments.
    let next: extern "C" fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int =
        unsafe { core::mem::transmute(Next::Clone.get()) };
    next(f, stack, flags, arg, a, b, c)
}

/// Futex operations that the kernel does not retry after a page fault: those on
/// priority-inheriting locks, and FUTEX_WAKE_OP.
fn is_pi(op: usize) -> bool {
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

/// pthread_create(3): remembers where the thread's descriptor lies.
#[no_mangle]
pub unsafe extern "C" fn pthread_create(
    thread: *mut usize,
    attr: usize,
    start: usize,
    arg: usize,
) -> c_int {
    // SAFETY: the next function in line, with the caller's arguments.
    let next: extern "C" fn(*mut usize, usize, usize, usize) -> c_int =
        unsafe { core::mem::transmute(Next::PthreadCreate.get()) };
    engine::before_thread();
    let result = next(thread, attr, start, arg);
    if result == 0 {
        // SAFETY: written by the call.
        engine::note_thread(unsafe { *thread });
    }
    result
}

/// vmsplice(2): pages of ours may go into a pipe and outlive their mappings.
#[no_mangle]
pub unsafe extern "C" fn vmsplice(fd: c_int, iov: usize, count: usize, flags: u32) -> isize {
    engine::note_splice();
    let errno = get_errno();
    // SAFETY: the caller's own call.
    let ret = unsafe { sys::raw(libc::SYS_vmsplice, args![fd, iov, count, flags]) };
    set_errno(errno);
    as_libc(ret)
}

/// setsockopt(2): so may they by MSG_ZEROCOPY.
#[no_mangle]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: usize,
    len: u32,
) -> c_int {
    if level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY {
        engine::note_splice();
    }
    let errno = get_errno();
    // SAFETY: the caller's own call.
    let ret = unsafe { sys::raw(libc::SYS_setsockopt, args![fd, level, name, value, len]) };
    set_errno(errno);
    as_libc(ret) as c_int
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

fn leave_namespaces(flags: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_unshare, args![flags]) };
    match flags as c_int & (libc::CLONE_NEWPID | CLONE_NEWTIME) {
        0 => call(),
        _ => engine::with_new_namespace(call),
    }
}

/// unshare(2): the next child is the first of a namespace, and must be the program's.
#[no_mangle]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let errno = get_errno();
    let ret = leave_namespaces(flags as usize);
    set_errno(errno);
    as_libc(ret) as c_int
}

/// _exit(2): the report of a program that leaves without exit(3).
#[no_mangle]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    super::life::report();
    // SAFETY: ends the process.
    unsafe {
        loop {
            sys::raw(libc::SYS_exit_group, args![status]);
        }
    }
}

/// _Exit(3).
#[no_mangle]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by its other name.
    unsafe { _exit(status) }
}
