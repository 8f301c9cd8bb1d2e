//! malloc of large blocks, out of one paged region.
//!
//! The C library's allocator makes its mappings by calls that no preloaded library sees, so blocks
//! from a size on (128 KB, as there) are allocated here: whole pages, first fit from the lowest
//! address, free pieces in a sorted list outside paged memory. Smaller blocks, and everything when
//! the region or the list is full, are the next allocator's in line. A block's start and length are
//! in the 16 bytes before it.
//!
//! Lock order: the heap's before the agent's. Under either no paged memory is touched.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void, CStr};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use odfork_pager_protocol::control::op;
use odfork_pager_protocol::PAGE;
use odfork_sys::{block_signals, restore_signals, ProcessLock};

use crate::office::{self, mode, Held, STATE};
use crate::stack::steady;
use crate::{life, set_errno};

/// Blocks of malloc from this size on are paged; 0: none.
const LEAST: &CStr = c"ODFORK_PAGE_MALLOC";
/// Address space of the heap; less where it cannot be had.
const MOST_BYTES: usize = 64 << 30;
const LEAST_BYTES: usize = 1 << 30;
const PIECES: usize = 8192;
/// From this length on, freed pages are given back at once.
const GIVE_BACK: usize = 1 << 20;
const HEADER: usize = 16;

/// Free pages. `zero`: they read as zeros.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    len: usize,
    zero: bool,
}

struct Heap {
    lock: ProcessLock,
    pieces: UnsafeCell<[Piece; PIECES]>,
    count: UnsafeCell<usize>,
    start: AtomicUsize,
    end: AtomicUsize,
    least: AtomicUsize,
    /// 0: not made yet; 1: there; 2: not to be had.
    made: AtomicU8,
}

// SAFETY: the cells are used under `lock` only.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap {
    lock: ProcessLock::new(),
    pieces: UnsafeCell::new([Piece { start: 0, len: 0, zero: true }; PIECES]),
    count: UnsafeCell::new(0),
    start: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
    least: AtomicUsize::new(0),
    made: AtomicU8::new(0),
};

pub fn read_options() {
    HEAP.least.store(life::number(LEAST).unwrap_or(0), Relaxed);
}

/// For fork, with signals blocked: nobody is in the middle of a change.
pub fn lock() {
    HEAP.lock.take();
}

pub fn unlock() {
    HEAP.lock.give();
}

/// The list, under the lock. Signals are blocked meanwhile: a handler may fork.
struct Pieces<'a> {
    list: &'a mut [Piece; PIECES],
    count: &'a mut usize,
    mask: u64,
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        HEAP.lock.give();
        restore_signals(self.mask);
    }
}

fn pieces() -> Pieces<'static> {
    let mask = block_signals();
    HEAP.lock.take();
    // SAFETY: the lock is held until the value is dropped.
    unsafe { Pieces { list: &mut *HEAP.pieces.get(), count: &mut *HEAP.count.get(), mask } }
}

impl Pieces<'_> {
    /// First fit; whether it reads as zeros.
    fn take(&mut self, len: usize) -> Option<(usize, bool)> {
        let at = self.list[..*self.count].iter().position(|piece| piece.len >= len)?;
        let piece = &mut self.list[at];
        let found = (piece.start, piece.zero);
        piece.start += len;
        piece.len -= len;
        if piece.len == 0 {
            self.list.copy_within(at + 1..*self.count, at);
            *self.count -= 1;
        }
        Some(found)
    }

    /// Takes `len` bytes that begin exactly here.
    fn take_at(&mut self, start: usize, len: usize) -> Option<bool> {
        let at = self.list[..*self.count].iter().position(|piece| piece.start == start)?;
        let piece = &mut self.list[at];
        if piece.len < len {
            return None;
        }
        let zero = piece.zero;
        piece.start += len;
        piece.len -= len;
        if piece.len == 0 {
            self.list.copy_within(at + 1..*self.count, at);
            *self.count -= 1;
        }
        Some(zero)
    }

    /// Puts pages back. With a full list they are lost to the heap (not to the program: they are
    /// given back).
    fn put(&mut self, start: usize, len: usize, zero: bool) {
        let at = self.list[..*self.count].partition_point(|piece| piece.start < start);
        let joins = |one: &Piece, start: usize| one.start + one.len == start && one.zero == zero;
        let before = at > 0 && joins(&self.list[at - 1], start);
        let next = self.list[..*self.count].get(at).copied();
        let after = next.is_some_and(|next| start + len == next.start && next.zero == zero);
        match (before, after) {
            (true, true) => {
                self.list[at - 1].len += len + self.list[at].len;
                self.list.copy_within(at + 1..*self.count, at);
                *self.count -= 1;
            }
            (true, false) => self.list[at - 1].len += len,
            (false, true) => {
                self.list[at].start = start;
                self.list[at].len += len;
            }
            (false, false) if *self.count < PIECES => {
                self.list.copy_within(at..*self.count, at + 1);
                self.list[at] = Piece { start, len, zero };
                *self.count += 1;
            }
            (false, false) => {}
        }
    }
}

/// Makes the region at the first large block.
fn is_there() -> bool {
    match HEAP.made.load(Relaxed) {
        1 => return office::is_own(),
        2 => return false,
        _ => {}
    }
    if STATE.mode.load(Relaxed) == mode::OFF || !office::is_own() {
        return false;
    }
    let mut pieces = pieces();
    if HEAP.made.load(Relaxed) == 0 {
        let made = steady(make);
        if let Some((start, len)) = made {
            HEAP.start.store(start, Relaxed);
            HEAP.end.store(start + len, Relaxed);
            pieces.put(start, len, true);
        }
        HEAP.made.store(if made.is_some() { 1 } else { 2 }, Relaxed);
    }
    HEAP.made.load(Relaxed) == 1
}

/// The region's address and length.
fn make() -> Option<(usize, usize)> {
    let mut held = Held::take();
    let mut len = MOST_BYTES;
    loop {
        match office::map_region(&mut held, 0, len) {
            Ok(start) => return Some((start, len)),
            Err(_) if len > LEAST_BYTES => len /= 2,
            Err(_) => return None,
        }
    }
}

fn is_ours(block: *const c_void) -> bool {
    let at = block as usize;
    at >= HEAP.start.load(Relaxed) && at < HEAP.end.load(Relaxed)
}

fn wants(size: usize) -> bool {
    let least = HEAP.least.load(Relaxed);
    least != 0 && size >= least && size < 1 << 46
}

/// A block of ours; whether it reads as zeros. Null: take the next allocator's.
fn allocate(size: usize, align: usize) -> (*mut c_void, bool) {
    let none = (core::ptr::null_mut(), false);
    if !is_there() || !align.is_power_of_two() || align > 1 << 30 {
        return none;
    }
    let slack = if align > HEADER { align } else { 0 };
    let Some(len) = (size + HEADER + slack).checked_next_multiple_of(PAGE) else { return none };
    let Some((start, zero)) = pieces().take(len) else { return none };
    let block = (start + HEADER).next_multiple_of(align.max(HEADER));
    // SAFETY: pages of the heap's region that nobody else has; the header lies before the block in
    // them.
    unsafe { (block as *mut [usize; 2]).sub(1).write([start, len]) };
    (block as *mut c_void, zero)
}

/// Start and length of a block's pages.
fn header(block: *const c_void) -> (usize, usize) {
    // SAFETY: a block of ours, with its header before it.
    let [start, len] = unsafe { block.cast::<[usize; 2]>().sub(1).read() };
    (start, len)
}

fn release(block: *mut c_void) {
    let (start, len) = header(block);
    let (from, to) = (HEAP.start.load(Relaxed), HEAP.end.load(Relaxed));
    if start < from || len == 0 || len % PAGE != 0 || start + len > to {
        life::die(b"odfork page: free() of something that malloc() did not give\n");
    }
    let zero = len >= GIVE_BACK && office::is_own() && steady(move || give_back(start, len));
    pieces().put(start, len, zero);
}

fn give_back(start: usize, len: usize) -> bool {
    let mut held = Held::take();
    let Some(region) = held.regions().holding(start as u64, len as u64) else { return false };
    let offset = region.offset + (start as u64 - region.address);
    office::ask(&held, op::DISCARD, [offset, len as u64]) == 0
}

/// Functions of the next allocator in line.
#[derive(Clone, Copy)]
enum Next {
    Malloc,
    Calloc,
    Realloc,
    Free,
    Memalign,
    AlignedAlloc,
    PosixMemalign,
    UsableSize,
}

static NEXT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

impl Next {
    fn get(self) -> usize {
        let name = match self {
            Next::Malloc => c"malloc",
            Next::Calloc => c"calloc",
            Next::Realloc => c"realloc",
            Next::Free => c"free",
            Next::Memalign => c"memalign",
            Next::AlignedAlloc => c"aligned_alloc",
            Next::PosixMemalign => c"posix_memalign",
            Next::UsableSize => c"malloc_usable_size",
        };
        let place = &NEXT[self as usize];
        match place.load(Relaxed) {
            0 => {
                // SAFETY: a valid name; a lookup that succeeds allocates nothing.
                let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
                if at == 0 {
                    life::die(b"odfork page: no allocator behind ours\n");
                }
                place.store(at, Relaxed);
                at
            }
            at => at,
        }
    }
}

macro_rules! next {
    ($which:expr, $kind:ty $(, $argument:expr)*) => {{
        // SAFETY: the C library's function of this type; the arguments are the caller's.
        unsafe { core::mem::transmute::<usize, $kind>($which.get())($($argument),*) }
    }};
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Allocate2 = unsafe extern "C" fn(usize, usize) -> *mut c_void;

/// malloc(3).
///
/// # Safety
/// As for malloc(3).
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    if wants(size) {
        let (block, _) = allocate(size, HEADER);
        if !block.is_null() {
            return block;
        }
    }
    next!(Next::Malloc, Allocate, size)
}

/// calloc(3).
///
/// # Safety
/// As for calloc(3).
#[no_mangle]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if let Some(bytes) = count.checked_mul(size).filter(|&bytes| wants(bytes)) {
        let (block, zero) = allocate(bytes, HEADER);
        if !block.is_null() {
            if !zero {
                // SAFETY: a block of ours of that size.
                unsafe { core::ptr::write_bytes(block.cast::<u8>(), 0, bytes) };
            }
            return block;
        }
    }
    next!(Next::Calloc, Allocate2, count, size)
}

/// free(3).
///
/// # Safety
/// As for free(3).
#[no_mangle]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if is_ours(block) {
        // SAFETY: errno always exists; free keeps it.
        let errno = unsafe { *libc::__errno_location() };
        release(block);
        return set_errno(errno);
    }
    next!(Next::Free, unsafe extern "C" fn(*mut c_void), block)
}

/// realloc(3).
///
/// # Safety
/// As for realloc(3).
#[no_mangle]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: passed on.
        return unsafe { malloc(size) };
    }
    if !is_ours(block) {
        if !wants(size) {
            type Resize = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
            return next!(Next::Realloc, Resize, block, size);
        }
        type Size = unsafe extern "C" fn(*mut c_void) -> usize;
        let old = next!(Next::UsableSize, Size, block);
        // SAFETY: a block of the next allocator's.
        return unsafe { move_block(block, old, size) };
    }
    if size == 0 {
        release(block);
        return core::ptr::null_mut();
    }
    let (start, len) = header(block);
    let room = start + len - block as usize;
    if size <= room && size >= room / 2 {
        return block;
    }
    let end = (block as usize).checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE));
    if let Some(more) = end.map(|end| end.saturating_sub(start + len)).filter(|&more| more > 0) {
        if pieces().take_at(start + len, more).is_some() {
            // SAFETY: the header of this block.
            unsafe { block.cast::<[usize; 2]>().sub(1).write([start, len + more]) };
            return block;
        }
    }
    // SAFETY: a block of ours.
    unsafe { move_block(block, room, size) }
}

/// # Safety
/// `block` has `old` bytes and is freed.
unsafe fn move_block(block: *mut c_void, old: usize, size: usize) -> *mut c_void {
    // SAFETY: two different blocks, each with as many bytes.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(size));
            free(block);
        }
        new
    }
}

/// memalign(3).
///
/// # Safety
/// As for memalign(3).
#[no_mangle]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    let block = aligned(align, size);
    match block.is_null() {
        true => next!(Next::Memalign, Allocate2, align, size),
        false => block,
    }
}

/// aligned_alloc(3).
///
/// # Safety
/// As for aligned_alloc(3).
#[no_mangle]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    let block = aligned(align, size);
    match block.is_null() {
        true => next!(Next::AlignedAlloc, Allocate2, align, size),
        false => block,
    }
}

/// posix_memalign(3).
///
/// # Safety
/// As for posix_memalign(3).
#[no_mangle]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let block =
        if align % size_of::<usize>() == 0 { aligned(align, size) } else { core::ptr::null_mut() };
    if block.is_null() {
        type Place = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
        return next!(Next::PosixMemalign, Place, to, align, size);
    }
    // SAFETY: the caller's place for the answer.
    unsafe { to.write(block) };
    0
}

fn aligned(align: usize, size: usize) -> *mut c_void {
    match wants(size) {
        true => allocate(size, align).0,
        false => core::ptr::null_mut(),
    }
}

/// malloc_usable_size(3).
///
/// # Safety
/// As for malloc_usable_size(3).
#[no_mangle]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if is_ours(block) {
        let (start, len) = header(block);
        return start + len - block as usize;
    }
    next!(Next::UsableSize, unsafe extern "C" fn(*mut c_void) -> usize, block)
}
