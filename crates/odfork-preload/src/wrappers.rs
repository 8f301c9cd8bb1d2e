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
//! | realloc | (inside libc) do the same by mremap |
//! | syscall | do any of these without the wrapper |
//! | prctl, syscall | get a filter installed that kills for our later calls |
//! | clone | let a task that is no thread write while memory moves |

use core::ffi::{c_char, c_int, c_long, c_void, CStr};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use odfork_runtime::engine;
use odfork_runtime::reason::Reason;
use odfork_runtime::sys::{self, PAGE};
use odfork_runtime::thaw::Content;

/// Advice of Linux 6.13: puts guard markers into the page tables.
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_DONTNEED_LOCKED: c_int = 24;

/// A function of the next library in line, looked up once.
struct Next {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Next { name, at: AtomicUsize::new(0) }
    }

    fn get(&self) -> usize {
        match self.at.load(Relaxed) {
            0 => {
                let name: *const c_char = self.name.as_ptr();
                // SAFETY: a valid name; dlsym is callable from constructors on.
                let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name) } as usize;
                self.at.store(at, Relaxed);
                at
            }
            at => at,
        }
    }
}

static FORK: Next = Next::new(c"fork");
static REALLOC: Next = Next::new(c"realloc");
static CLONE: Next = Next::new(c"clone");
/// 1: the next realloc is glibc's, whose chunks can be told apart; 2: it is not.
static REALLOC_KIND: AtomicUsize = AtomicUsize::new(0);

/// Looks up what is called on paths where a lookup is unwelcome (signal
/// handlers, a fork that interrupted the allocator).
pub fn resolve() {
    FORK.get();
    REALLOC.get();
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

/// fork(2), cheap. See `engine::fork` in the runtime.
#[no_mangle]
pub unsafe extern "C" fn fork() -> c_int {
    let errno = get_errno();
    let next = FORK.get();
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
            Some(Content::Zero)
        }
        libc::MADV_WIPEONFORK | libc::MADV_REMOVE => Some(Content::Keep),
        _ => None,
    }
}

fn before_madvise(addr: usize, len: usize, advice: c_int) {
    let Some(content) = advice_needs(advice) else { return };
    let Some(len) = len.checked_next_multiple_of(PAGE) else { return };
    if addr % PAGE != 0 || !engine::may_be_frozen(addr, len) {
        return;
    }
    if engine::thaw_range(addr, len, content).is_err() && content == Content::Zero {
        zero_by_hand(addr, len);
    }
}

/// The helper could not run (no process to be had, a filter): zeros are promised,
/// so they are written. Frozen memory was readable and writable when frozen.
fn zero_by_hand(addr: usize, len: usize) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the program gave up the content of the range; asks the kernel
    // first whether all of it is mapped, so that no hole is filled.
    unsafe {
        let mut at = addr;
        while at < addr + len {
            let mut there = 0u8;
            if sys::call(libc::SYS_mincore, odfork_runtime::args![at, PAGE, &mut there]).is_ok() {
                let _ = sys::mmap(at, PAGE, prot, flags);
            }
            at += PAGE;
        }
    }
}

/// madvise(2): frozen memory becomes anonymous first where the advice means its content.
#[no_mangle]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    let errno = get_errno();
    before_madvise(addr as usize, len, advice);
    set_errno(errno);
    // SAFETY: the caller's own call.
    as_libc(unsafe { sys::raw(libc::SYS_madvise, odfork_runtime::args![addr, len, advice]) })
        as c_int
}

/// Growing, duplicating and leaving behind need anonymous memory; shrinking and
/// moving whole do not. Gives the result when the call is done already.
fn before_mremap(old: usize, old_len: usize, new_len: usize, flags: c_int) -> Option<usize> {
    let moves = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    if !(new_len > old_len || moves) || old % PAGE != 0 {
        return None;
    }
    let len = old_len.max(PAGE).checked_next_multiple_of(PAGE)?;
    if !engine::may_be_frozen(old, len) {
        return None;
    }
    if !moves && old_len > 0 && grow_in_place(old + len, new_len.checked_next_multiple_of(PAGE)? - len) {
        return Some(old);
    }
    let _ = engine::thaw_range(old, len, Content::Keep);
    None
}

/// Adds anonymous memory right behind a frozen mapping, if those addresses are free.
fn grow_in_place(end: usize, more: usize) -> bool {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    match unsafe { sys::mmap(end, more, prot, flags) } {
        Ok(at) if at == end => true,
        Ok(at) => {
            // SAFETY: a kernel before 4.17 took the address as a hint.
            unsafe { sys::munmap(at, more) };
            false
        }
        Err(_) => false,
    }
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
    let grown = before_mremap(old as usize, old_len, new_len, flags);
    set_errno(errno);
    if let Some(at) = grown {
        return at as *mut c_void;
    }
    let a = odfork_runtime::args![old, old_len, new_len, flags, new];
    // SAFETY: the caller's own call.
    as_libc(unsafe { sys::raw(libc::SYS_mremap, a) }) as *mut c_void
}

/// glibc marks a chunk that has a mapping of its own in the size before it.
const IS_MMAPPED: usize = 2;

/// realloc(3): glibc grows a mapped chunk by an internal mremap, which would
/// run into the image's file; such a chunk is copied instead.
#[no_mangle]
pub unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the next realloc in line, with the caller's arguments.
    let next: extern "C" fn(*mut c_void, usize) -> *mut c_void =
        unsafe { core::mem::transmute(REALLOC.get()) };
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
    match REALLOC_KIND.load(Relaxed) {
        0 => {
            // SAFETY: looks up a symbol of the C library itself.
            let own = unsafe {
                let c = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if c.is_null() { 0 } else { libc::dlsym(c, c"realloc".as_ptr()) as usize }
            };
            let same = own != 0 && own == REALLOC.get();
            REALLOC_KIND.store(if same { 1 } else { 2 }, Relaxed);
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
    match nr {
        libc::SYS_madvise => before_madvise(a, b, c as c_int),
        libc::SYS_mremap => {
            if let Some(at) = before_mremap(a, b, c, d as c_int) {
                set_errno(errno);
                return at as c_long;
            }
        }
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => engine::before_filter(),
        libc::SYS_seccomp if a <= 1 => engine::before_filter(),
        libc::SYS_userfaultfd if engine::anything_frozen() => {
            let _ = engine::thaw_all();
            engine::bar(Reason::Userfaultfd);
        }
        libc::SYS_clone if shares_memory(a as c_int) => engine::note_shared_vm(),
        libc::SYS_exit_group => crate::life::report(),
        _ => {}
    }
    set_errno(errno);
    // SAFETY: the caller's own call.
    as_libc(unsafe { sys::raw(nr, [a, b, c, d, e, f]) }) as c_long
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
    }
    // SAFETY: the next clone in line, with the caller's arguments.
    let next: extern "C" fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int =
        unsafe { core::mem::transmute(CLONE.get()) };
    next(f, stack, flags, arg, a, b, c)
}

/// prctl(2): a filter is about to be installed.
#[no_mangle]
pub unsafe extern "C" fn prctl(op: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let errno = get_errno();
    if op == libc::PR_SET_SECCOMP {
        engine::before_filter();
    }
    set_errno(errno);
    // SAFETY: the caller's own call.
    as_libc(unsafe { sys::raw(libc::SYS_prctl, odfork_runtime::args![op, a, b, c, d]) }) as c_int
}

/// _exit(2): the report of a program that leaves without exit(3).
#[no_mangle]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    crate::life::report();
    // SAFETY: ends the process.
    unsafe {
        loop {
            sys::raw(libc::SYS_exit_group, odfork_runtime::args![status]);
        }
    }
}

/// _Exit(3).
#[no_mangle]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by its other name.
    unsafe { _exit(status) }
}
