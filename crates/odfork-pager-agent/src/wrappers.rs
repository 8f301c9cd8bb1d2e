//! The C library's functions that make, change or unmake paged memory.
//!
//! | function | on paged memory the kernel would |
//! | --- | --- |
//! | mmap (large private anonymous ones are taken over) | MAP_FIXED: leave pages nobody maps |
//! | munmap | the same |
//! | mremap | move it out of the userfaultfd's reach |
//! | madvise DONTNEED, FREE | keep the content, where zeros are expected |
//! | madvise DONTFORK, DOFORK, WIPEONFORK, KEEPONFORK | let a child inherit the mapping itself |
//! | madvise REMOVE, GUARD, COLLAPSE | change the backing memfd: refused, as by older kernels |
//! | mlock, mlock2, mlockall | read everything in and lose it all the same: refused |
//!
//! The daemon's work does not depend on `mprotect`, `brk` and `sbrk`: `any` counts what they bring.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use odfork_pager_protocol::control::{op, REGION_DONTFORK, REGION_WIPEONFORK};
use odfork_pager_protocol::PAGE;
use odfork_sys::abi::advice::{MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};
use odfork_sys::{args, raw};

use crate::regions::whole_pages;
use crate::stack::on_unpaged_stack;
use crate::state::{self, mode, Locked, STATE};
use crate::{any, calls, setup};
use crate::{as_libc, kernel_madvise, kernel_mmap, kernel_munmap, set_errno};

/// `MAP_32BIT`, which x86-64 alone has.
const LOW: c_int = if cfg!(target_arch = "x86_64") { 0x40 } else { 0 };

/// What makes a mapping one that is left to the kernel.
const NOT_OURS: c_int = libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_GROWSDOWN
    | libc::MAP_STACK
    | libc::MAP_HUGETLB
    | libc::MAP_LOCKED
    | libc::MAP_POPULATE
    | LOW;

fn is_ours(len: usize, prot: c_int, flags: c_int) -> bool {
    let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    flags & (plain | libc::MAP_SHARED | NOT_OURS) == plain
        && prot == libc::PROT_READ | libc::PROT_WRITE
        && len >= STATE.threshold.load(Relaxed)
        && STATE.mode.load(Relaxed) != mode::OFF
        && state::is_own()
}

/// mmap(2).
///
/// # Safety
/// As for mmap(2).
#[no_mangle]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let at = address as usize;
    as_libc(on_unpaged_stack(move || map(at, len, prot, flags, fd, offset))) as *mut c_void
}

fn map(at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> isize {
    if is_ours(len, prot, flags) {
        if let Some(pages) = whole_pages(len) {
            let mut locked = Locked::take();
            // On any failure the kernel gets it, as if we were not here.
            if let Ok(mapped) = setup::map_region(&mut locked, at, pages) {
                return mapped as isize;
            }
        }
    }
    let call = || kernel_mmap(at, len, prot, flags, fd, offset);
    match flags & libc::MAP_FIXED != 0 && state::is_active() {
        true => map_over(at, len, call).unwrap_or_else(call),
        false if any::is_active() => any::watch_new(call(), len, prot, flags),
        false => call(),
    }
}

/// mmap64(2), the same on this machine.
///
/// # Safety
/// As for mmap(2).
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: passed on to the caller.
    unsafe { mmap(address, len, prot, flags, fd, offset) }
}

/// Makes a call that replaces or removes all mappings of a range, and forgets what was paged there.
/// None, and nothing done: nothing was.
fn map_over(address: usize, len: usize, call: impl Fn() -> isize) -> Option<isize> {
    let len = whole_pages(len)? as u64;
    let address = address as u64;
    if address % PAGE as u64 != 0 || len == 0 || address.checked_add(len)? > 1 << 47 {
        return None;
    }
    let mut locked = Locked::take();
    if !locked.regions().overlaps(address, len) {
        return None;
    }
    if !locked.regions().split(address, len) {
        return Some(-(libc::ENOMEM as isize));
    }
    let answer = call();
    if odfork_sys::check(answer).is_ok() {
        while let Some(span) = locked.regions().remove_one(address, len) {
            calls::publish(&mut locked);
            calls::ask(&locked, op::RELEASE, [span.offset, span.len]);
        }
    }
    Some(answer)
}

/// munmap(2).
///
/// # Safety
/// As for munmap(2).
#[no_mangle]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    let at = address as usize;
    as_libc(on_unpaged_stack(move || unmap(at, len))) as c_int
}

fn unmap(at: usize, len: usize) -> isize {
    let call = || kernel_munmap(at, len);
    match state::is_active() {
        true => map_over(at, len, call).unwrap_or_else(call),
        false => call(),
    }
}

/// mremap(2). Paged memory is never moved by the kernel: it is copied to a new mapping.
///
/// # Safety
/// As for mremap(2).
#[no_mangle]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    // SAFETY: passed on to the caller.
    let answer =
        on_unpaged_stack(move || unsafe { remap(old as usize, old_len, new_len, flags, target) });
    as_libc(answer) as *mut c_void
}

/// # Safety
/// As for mremap(2).
unsafe fn remap(
    at: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    target: *mut c_void,
) -> isize {
    if state::is_active() {
        let first = whole_pages(old_len.max(1)).unwrap_or(PAGE);
        let (mine, target_mine) = {
            let mut locked = Locked::take();
            let fixed = flags & libc::MREMAP_FIXED != 0;
            let over = fixed && locked.regions().overlaps(target as u64, new_len as u64);
            (locked.regions().overlaps(at as u64, first as u64), over)
        };
        if mine {
            // SAFETY: passed on to the caller.
            return unsafe { move_paged(at, old_len, new_len, flags, target) };
        }
        if target_mine {
            // What mremap does to its target.
            unmap(target as usize, new_len);
        }
    }
    // SAFETY: the program's own call.
    let answer = unsafe { raw(libc::SYS_mremap, args![at, old_len, new_len, flags, target]) };
    let answer = any::pieces::or_each(answer, at, (old_len, new_len), flags, target as usize);
    any::remapped((at, old_len), answer, new_len);
    answer
}

/// # Safety
/// As for mremap(2).
unsafe fn move_paged(
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    target: *mut c_void,
) -> isize {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let keep = flags & libc::MREMAP_DONTUNMAP != 0;
    let (Some(from), Some(to)) = (whole_pages(old_len), whole_pages(new_len)) else {
        return -(libc::EINVAL as isize);
    };
    if old % PAGE != 0 || from == 0 || to == 0 || fixed && !may_move || keep && from != to {
        return -(libc::EINVAL as isize);
    }
    if Locked::take().regions().holding(old as u64, from as u64).is_none() {
        return -(libc::EFAULT as isize);
    }
    if !fixed && !keep && to <= from {
        if to < from {
            unmap(old + to, from - to);
        }
        return old as isize;
    }
    if !may_move {
        return -(libc::ENOMEM as isize);
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let place = if fixed { libc::MAP_FIXED } else { 0 };
    // SAFETY: a new mapping, or one at the place the caller named; then a copy between two mappings
    // that do not overlap (a fixed target that overlaps was refused by the kernel's rule, below).
    unsafe {
        let wanted = if fixed { target as usize } else { 0 };
        if fixed && wanted < old + from && old < wanted + to {
            return -(libc::EINVAL as isize);
        }
        let new = map(wanted, to, prot, plain | place, -1, 0);
        if odfork_sys::check(new).is_err() {
            return -(libc::ENOMEM as isize);
        }
        raw(libc::SYS_mprotect, args![old, from, prot]);
        core::ptr::copy_nonoverlapping(old as *const u8, new as *mut u8, from.min(to));
        match keep {
            true => drop(advise(old, from, libc::MADV_DONTNEED)),
            false => drop(unmap(old, from)),
        }
        new
    }
}

/// mprotect(2): what can be written now may be new memory.
///
/// # Safety
/// As for mprotect(2).
#[no_mangle]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: usize, prot: c_int) -> c_int {
    // SAFETY: the program's own call.
    let answer = unsafe { raw(libc::SYS_mprotect, args![address, len, prot]) };
    if answer == 0 && prot & libc::PROT_WRITE != 0 {
        any::growth::grown(len);
    }
    as_libc(answer) as c_int
}

/// madvise(2).
///
/// # Safety
/// As for madvise(2).
#[no_mangle]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: usize, advice: c_int) -> c_int {
    let at = address as usize;
    let answer = match state::is_active() {
        true => on_unpaged_stack(move || advise(at, len, advice)),
        false if any::is_active() => any::advise(at, len, advice),
        false => kernel_madvise(at, len, advice),
    };
    as_libc(answer) as c_int
}

fn advise(address: usize, len: usize, advice: c_int) -> isize {
    let pages = whole_pages(len).filter(|&len| len > 0 && address % PAGE == 0);
    let Some(pages) =
        pages.filter(|&len| address.checked_add(len).is_some_and(|end| end <= 1 << 47))
    else {
        return kernel_madvise(address, len, advice);
    };
    let mut locked = Locked::take();
    if is_kernels(advice) || !locked.regions().overlaps(address as u64, pages as u64) {
        drop(locked);
        return kernel_madvise(address, len, advice);
    }
    let mut answer = 0;
    let (mut at, mut left) = (address as u64, pages as u64);
    while left > 0 {
        let piece = locked.regions().piece(at, left);
        let one = match piece.offset {
            Some(offset) => advise_paged(&mut locked, (piece.address, piece.len, offset), advice),
            None => kernel_madvise(piece.address as usize, piece.len as usize, advice),
        };
        if one < 0 {
            answer = one;
        }
        at += piece.len;
        left -= piece.len;
    }
    answer
}

fn advise_paged(
    locked: &mut Locked,
    (address, len, offset): (u64, u64, u64),
    advice: c_int,
) -> isize {
    let mut mark = |set, clear| {
        if !locked.regions().split(address, len) {
            return -(libc::ENOMEM as isize);
        }
        locked.regions().mark(address, len, set, clear);
        calls::publish(locked);
        calls::ask(locked, op::REGIONS, [0; 2]) as isize
    };
    match advice {
        libc::MADV_DONTFORK => mark(REGION_DONTFORK, 0),
        libc::MADV_DOFORK => mark(0, REGION_DONTFORK),
        libc::MADV_WIPEONFORK => mark(REGION_WIPEONFORK, 0),
        libc::MADV_KEEPONFORK => mark(0, REGION_WIPEONFORK),
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => {
            calls::ask(locked, op::DISCARD, [offset, len]) as isize
        }
        libc::MADV_REMOVE | libc::MADV_COLLAPSE | MADV_GUARD_INSTALL | MADV_GUARD_REMOVE => {
            -(libc::EINVAL as isize)
        }
        // Hints about how the kernel should page it: it does not.
        _ => 0,
    }
}

/// The kernel may have it: it neither gives content up nor depends on where that is. It may touch
/// pages, so not under the lock.
fn is_kernels(advice: c_int) -> bool {
    const KNOWN: [c_int; 20] = [
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
        libc::MADV_WIPEONFORK,
        libc::MADV_KEEPONFORK,
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_DONTNEED_LOCKED,
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_MERGEABLE,
        libc::MADV_UNMERGEABLE,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_REMOVE,
        libc::MADV_COLLAPSE,
        MADV_GUARD_INSTALL,
    ];
    !KNOWN.contains(&advice) && advice != MADV_GUARD_REMOVE
}

/// mlock(2): paged memory cannot be locked.
///
/// # Safety
/// As for mlock(2).
#[no_mangle]
pub unsafe extern "C" fn mlock(address: *const c_void, len: usize) -> c_int {
    if holds_paged(address as usize, len) {
        set_errno(libc::ENOMEM);
        return -1;
    }
    // SAFETY: the program's own call.
    as_libc(unsafe { raw(libc::SYS_mlock, args![address, len]) }) as c_int
}

/// mlock2(2), as mlock.
///
/// # Safety
/// As for mlock2(2).
#[no_mangle]
pub unsafe extern "C" fn mlock2(address: *const c_void, len: usize, flags: libc::c_uint) -> c_int {
    if holds_paged(address as usize, len) {
        set_errno(libc::ENOMEM);
        return -1;
    }
    // SAFETY: the program's own call.
    as_libc(unsafe { raw(libc::SYS_mlock2, args![address, len, flags]) }) as c_int
}

/// mlockall(2): refused once something is paged; before that, nothing will be.
///
/// # Safety
/// As for mlockall(2).
#[no_mangle]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if state::is_active() || any::is_active() {
        set_errno(libc::ENOMEM);
        return -1;
    }
    // SAFETY: the program's own call.
    let answer = as_libc(unsafe { raw(libc::SYS_mlockall, args![flags]) }) as c_int;
    if answer == 0 {
        STATE.mode.store(mode::OFF, Relaxed);
    }
    answer
}

fn holds_paged(address: usize, len: usize) -> bool {
    let look = move || Locked::take().regions().overlaps(address as u64, len as u64);
    state::is_active() && on_unpaged_stack(look)
}

extern "C" {
    /// The C library's other name of it.
    fn __sbrk(more: isize) -> *mut c_void;
}

/// sbrk(2).
///
/// # Safety
/// As for sbrk(2).
#[no_mangle]
pub unsafe extern "C" fn sbrk(more: isize) -> *mut c_void {
    // SAFETY: the program's own call.
    let old = unsafe { __sbrk(more) };
    if old as isize != -1 {
        any::growth::grown(more.max(0) as usize);
    }
    old
}

/// brk(2).
///
/// # Safety
/// As for brk(2).
#[no_mangle]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    // SAFETY: 0 changes nothing; then the program's own call.
    let moved = unsafe { sbrk((end as isize).wrapping_sub(__sbrk(0) as isize)) };
    if moved as isize == -1 {
        -1
    } else {
        0
    }
}
