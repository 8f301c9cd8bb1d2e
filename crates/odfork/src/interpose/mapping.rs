//! mmap(2), munmap(2), mprotect(2), pkey_mprotect(2), shmat(2): the runtime learns which addresses
//! do not show a backing file any more, and what access to those is that do. sbrk(2) too: what the
//! program may write more.

use core::ffi::{c_int, c_long, c_void};

use super::errno::answer;
use super::next::Next;
use crate::sys::{self, HUGE, PAGE};
use crate::{args, engine};

/// mmap by the kernel.
pub fn map(a: [usize; 6]) -> isize {
    engine::before_mapping();
    if will_be_written(a[2] as c_int, a[3] as c_int) {
        engine::before_growth(a[1]);
    }
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_mmap, a) };
    let len = mapped_len(a[1], a[3] as c_int, a[4] as c_int);
    let answer = match a[3] as c_int & libc::MAP_FIXED {
        0 => engine::map(len, call),
        _ => replace(a[0], len, call),
    };
    const MINE: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if let Ok(at) = sys::check(answer) {
        if a[3] as c_int & (MINE | libc::MAP_GROWSDOWN) == MINE {
            engine::note_mapped(at, a[1]);
        }
    }
    answer
}

/// How much the kernel maps of that length: of huge pages whole ones.
fn mapped_len(len: usize, flags: c_int, fd: c_int) -> usize {
    let of_file = flags & libc::MAP_ANONYMOUS == 0;
    let page = match flags as u32 >> libc::MAP_HUGE_SHIFT & libc::MAP_HUGE_MASK as u32 {
        _ if of_file && (len % HUGE == 0 || !engine::anything_frozen()) => PAGE,
        _ if of_file => page_of(fd),
        _ if flags & libc::MAP_HUGETLB == 0 => PAGE,
        0 => HUGE,
        bits => 1 << bits,
    };
    len.checked_next_multiple_of(page).unwrap_or(len)
}

/// What the kernel maps of a file at least.
fn page_of(fd: c_int) -> usize {
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    let about = unsafe {
        let mut about: libc::statfs = core::mem::zeroed();
        sys::raw(libc::SYS_fstatfs, args![fd, &mut about]);
        about
    };
    match about.f_type {
        libc::HUGETLBFS_MAGIC => about.f_bsize as usize,
        _ => PAGE,
    }
}

/// A call that puts something new there, or nothing.
fn replace(start: usize, len: usize, call: impl Fn() -> isize) -> isize {
    engine::on_private(start, len, || {
        engine::forget_mapped(start, len);
        engine::replace(start, len, call)
    })
}

/// Memory that the program means to use: anonymous, or its own copy of a file.
fn will_be_written(prot: c_int, flags: c_int) -> bool {
    let own = flags & (libc::MAP_ANONYMOUS | libc::MAP_PRIVATE) != 0;
    own && flags & libc::MAP_NORESERVE == 0 && prot & libc::PROT_WRITE != 0
}

/// mmap(2).
#[no_mangle]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    answer(|| map(args![addr, len, prot, flags, fd, offset])) as *mut c_void
}

/// mmap(2) by its other name.
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the same function.
    unsafe { mmap(addr, len, prot, flags, fd, offset) }
}

/// munmap by the kernel.
pub fn unmap(addr: usize, len: usize) -> isize {
    engine::before_mapping();
    // SAFETY: the program's own call.
    replace(addr, len, || unsafe { sys::raw(libc::SYS_munmap, args![addr, len]) })
}

/// sem_open(3): a shared page that the C library maps itself, where frozen memory may have been
/// that it has unmapped.
#[no_mangle]
pub unsafe extern "C" fn sem_open(name: usize, how: usize, mode: usize, value: usize) -> usize {
    // SAFETY: the next function in line; its arguments are in registers, the last two if it asks.
    let next: extern "C" fn(usize, usize, usize, usize) -> usize =
        unsafe { core::mem::transmute(Next::SemOpen.get()) };
    engine::map(PAGE, || next(name, how, mode, value) as isize) as usize
}

/// munmap(2).
#[no_mangle]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    answer(|| unmap(addr as usize, len)) as c_int
}

/// mprotect or pkey_mprotect by the kernel.
pub fn protect(nr: c_long, addr: usize, len: usize, prot: usize, key: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(nr, args![addr, len, prot, key]) };
    let answer = engine::on_private(addr, len, || match (nr, key as c_int) {
        // A key is a property that frozen memory would lose when it is given up.
        (libc::SYS_pkey_mprotect, 1..) => engine::with_property(
            addr & !(PAGE - 1),
            len.checked_next_multiple_of(PAGE).unwrap_or(0),
            |_| call(),
        ),
        _ => engine::protect(addr, len, prot as i32, call),
    });
    // Barriers of garbage collectors, which protect page by page, must not cost more.
    if len >= HUGE && prot as c_int & libc::PROT_WRITE != 0 && sys::check(answer).is_ok() {
        engine::after_growth(len);
    }
    answer
}

/// sbrk(2).
#[no_mangle]
pub unsafe extern "C" fn sbrk(by: isize) -> *mut c_void {
    // SAFETY: the next function of that name.
    let next: extern "C" fn(isize) -> *mut c_void =
        unsafe { core::mem::transmute(Next::SBrk.get()) };
    engine::before_growth(usize::try_from(by).unwrap_or(0));
    next(by)
}

/// mprotect(2).
#[no_mangle]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int {
    answer(|| protect(libc::SYS_mprotect, addr as usize, len, prot as usize, 0)) as c_int
}

/// pkey_mprotect(2).
#[no_mangle]
pub unsafe extern "C" fn pkey_mprotect(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    key: c_int,
) -> c_int {
    let nr = if key == -1 { libc::SYS_mprotect } else { libc::SYS_pkey_mprotect };
    answer(|| protect(nr, addr as usize, len, prot as usize, key as usize)) as c_int
}

/// shmat by the kernel. Of a segment whose size cannot be had, attaching fails too.
pub fn attach(id: usize, addr: usize, flags: usize) -> isize {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_shmat, args![id, addr, flags]) };
    let len = if engine::anything_frozen() { segment_len(id) } else { 0 };
    match flags as c_int & libc::SHM_REMAP {
        0 => engine::map(len, call),
        _ => replace(addr & !(PAGE - 1), len, call),
    }
}

fn segment_len(id: usize) -> usize {
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    unsafe {
        let mut about: libc::shmid_ds = core::mem::zeroed();
        sys::raw(libc::SYS_shmctl, args![id, libc::IPC_STAT, &mut about]);
        about.shm_segsz
    }
}

/// shmat(2).
#[no_mangle]
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    answer(|| attach(id as usize, addr as usize, flags as usize)) as *mut c_void
}
