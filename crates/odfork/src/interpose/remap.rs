//! mremap(2), realloc(3): a mapping of a backing file would grow into the file instead of zeros.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use super::errno::answer;
use super::next::{realloc_is_glibc, Next};
use super::symbols;
use crate::args;
use crate::engine::{self, Remap};
use crate::sys::{self, PAGE};

/// mremap by the kernel, or in its place where memory is frozen. What it refuses whatever the
/// memory is goes to the kernel.
pub fn remap(old: usize, old_len: usize, new_len: usize, flags: c_int, new: usize) -> isize {
    let a = args![old, old_len, new_len, flags, new];
    // SAFETY: the program's own call.
    let call = || unsafe { sys::raw(libc::SYS_mremap, a) };
    // Of shared memory the kernel refuses less: it is doubled where the old length is 0.
    let refused = || engine::on_private(old, old_len.max(1), || double(new_len, flags, new, call));
    let pages = |len: usize| len.checked_next_multiple_of(PAGE).filter(|&n| n > 0);
    let (Some(len), Some(new_len)) = (pages(old_len), pages(new_len)) else {
        return refused();
    };
    let r = Remap { old, len, new_len, flags, new };
    if !is_sound(&r) {
        return refused();
    }
    engine::before_growth(r.new_len.saturating_sub(r.len));
    let target = if r.flags & libc::MREMAP_FIXED != 0 { (r.new, r.new_len) } else { (0, 0) };
    engine::on_private(r.old, r.len, || {
        engine::on_private(target.0, target.1, || {
            engine::forget_mapped(r.old, r.len);
            engine::forget_mapped(target.0, target.1);
            engine::remap(&r, call).unwrap_or_else(|| engine::remap_thawed(&r, call))
        })
    })
}

/// A call that puts a new mapping somewhere, or is refused.
fn double(len: usize, flags: c_int, new: usize, call: impl Fn() -> isize) -> isize {
    match flags & libc::MREMAP_FIXED {
        0 => engine::map(len, call),
        _ => engine::replace(new, len, call),
    }
}

/// The kernel does not refuse the arguments as such.
fn is_sound(r: &Remap) -> bool {
    let has = |flag: c_int| r.flags & flag != 0;
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let moves = has(libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP);
    let Some(end) = r.old.checked_add(r.len) else { return false };
    // The kernel looks at the new address only where it is asked for.
    let new_end = if has(libc::MREMAP_FIXED) { r.new.checked_add(r.new_len) } else { Some(0) };
    let Some(new_end) = new_end else { return false };
    r.old % PAGE == 0
        && r.flags & !known == 0
        && (!moves || has(libc::MREMAP_MAYMOVE))
        && (!has(libc::MREMAP_DONTUNMAP) || r.len == r.new_len)
        && (!has(libc::MREMAP_FIXED) || r.new % PAGE == 0 && (end <= r.new || new_end <= r.old))
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
    answer(|| remap(old as usize, old_len, new_len, flags, new as usize)) as *mut c_void
}

/// glibc marks a chunk that has a mapping of its own in the size before it.
const IS_MMAPPED: usize = 2;

/// realloc(3): glibc resizes a chunk that has a mapping of its own by an internal mremap, which
/// would run into the backing file, or fail where one mapping has become several.
#[no_mangle]
pub unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's word.
    unsafe { resize(Next::Realloc, realloc_is_glibc(), p, size, preloaded_allocator) }
}

/// realloc(3) by the name that stays glibc's where another allocator is preloaded.
#[no_mangle]
pub unsafe extern "C" fn __libc_realloc(p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's word.
    unsafe { resize(Next::LibcRealloc, true, p, size, own_allocator) }
}

type Allocator = (unsafe extern "C" fn(usize) -> *mut c_void, unsafe extern "C" fn(*mut c_void));

fn preloaded_allocator() -> Allocator {
    (libc::malloc, libc::free)
}

/// glibc's own malloc and free, of which another allocator may make its blocks.
fn own_allocator() -> Allocator {
    let found = (symbols::of_libc(c"__libc_malloc"), symbols::of_libc(c"__libc_free"));
    match found {
        // SAFETY: functions of these types.
        (Some(malloc), Some(free)) => unsafe {
            core::mem::transmute::<(usize, usize), Allocator>((malloc, free))
        },
        _ => (libc::malloc, libc::free),
    }
}

/// # Safety
/// As for realloc(3).
unsafe fn resize(
    next: Next,
    is_glibc: bool,
    p: *mut c_void,
    size: usize,
    allocator: fn() -> Allocator,
) -> *mut c_void {
    // SAFETY: a function of this type, with the caller's arguments.
    let next: Realloc = unsafe { core::mem::transmute(next.get()) };
    if p.is_null()
        || size == 0
        || size > isize::MAX as usize - 2 * PAGE
        || !engine::anything_frozen()
        || !is_glibc
    {
        return next(p, size);
    }
    // SAFETY: a glibc chunk has two words before it.
    let Some(chunk) = (unsafe { Chunk::of_mapping(p as usize) }) else { return next(p, size) };
    let whole = chunk.whole_for(size);
    if whole == chunk.whole || !engine::was_ever_frozen(chunk.block, chunk.whole) {
        return next(p, size);
    }
    if whole < chunk.whole {
        shrink(&chunk, whole, || next(p, size))
    } else {
        grow(&chunk, whole).unwrap_or_else(|| copy(&chunk, size, allocator()))
    }
}

type Realloc = extern "C" fn(*mut c_void, usize) -> *mut c_void;

/// A chunk of glibc's that has a mapping of its own.
///
/// ```text
/// block             header (two words)       chunk                 block + whole
/// | padding         | offset, size and flags | what the program has |
/// ```
struct Chunk {
    block: usize,
    whole: usize,
    /// From the block to the header.
    offset: usize,
}

const WORD: usize = size_of::<usize>();

impl Chunk {
    /// That chunk, if it is one.
    ///
    /// # Safety
    /// A chunk of glibc's.
    unsafe fn of_mapping(p: usize) -> Option<Chunk> {
        // SAFETY: the header of the chunk.
        let (offset, size) = unsafe { (*((p - 2 * WORD) as *const usize), size_word(p)) };
        let whole = offset + (size & !7);
        (size & IS_MMAPPED != 0).then_some(Chunk { block: p - 2 * WORD - offset, whole, offset })
    }

    /// The length of the mapping if the chunk had that size, as glibc reckons it.
    fn whole_for(&self, size: usize) -> usize {
        let chunk = (size + WORD).next_multiple_of(2 * WORD).max(4 * WORD);
        (chunk + self.offset + WORD).next_multiple_of(PAGE)
    }

    fn pointer(&self) -> usize {
        self.block + self.offset + 2 * WORD
    }
}

/// The size and flags of a chunk.
unsafe fn size_word(p: usize) -> usize {
    // SAFETY: the caller vouches for the chunk.
    unsafe { *((p - WORD) as *const usize) }
}

/// glibc does it; the end of the block is unmapped if the size says so.
fn shrink(chunk: &Chunk, whole: usize, next: impl Fn() -> *mut c_void) -> *mut c_void {
    let result = Cell::new(core::ptr::null_mut());
    engine::replace(chunk.block + whole, chunk.whole - whole, || {
        result.set(next());
        // SAFETY: the chunk stays where it is, at the smaller size or as it was.
        let now = unsafe { size_word(chunk.pointer()) };
        if (now & !7) + chunk.offset == whole {
            0
        } else {
            -(libc::ENOMEM as isize)
        }
    });
    result.get()
}

/// As glibc's `mremap_chunk`.
fn grow(chunk: &Chunk, whole: usize) -> Option<*mut c_void> {
    let at = remap(chunk.block, chunk.whole, whole, libc::MREMAP_MAYMOVE, 0);
    let block = sys::check(at).ok()?;
    let now = Chunk { block, whole, offset: chunk.offset };
    // SAFETY: the header of the chunk at its new place.
    unsafe { *((now.pointer() - WORD) as *mut usize) = (whole - chunk.offset) | IS_MMAPPED };
    Some(now.pointer() as *mut c_void)
}

/// Where no mapping can be had, as glibc does then too.
fn copy(chunk: &Chunk, size: usize, (malloc, free): Allocator) -> *mut c_void {
    // SAFETY: malloc and free of the allocator the chunk is of; the block is smaller than `size`.
    unsafe {
        let fresh = malloc(size);
        if !fresh.is_null() {
            let from = chunk.pointer() as *const u8;
            let usable = chunk.whole - chunk.offset - 2 * WORD;
            core::ptr::copy_nonoverlapping(from, fresh as *mut u8, usable.min(size));
            free(chunk.pointer() as *mut c_void);
        }
        fresh
    }
}
