//! malloc of large blocks, out of one paged region.
//!
//! Owns the region, its lock and the header of a block; `free_list` the free pages, `malloc` the
//! functions that programs call.
//!
//! The C library's allocator makes its mappings by calls that no preloaded library sees, so blocks
//! from a size on (128 KB, as there) are allocated here: whole pages, first fit from the lowest
//! address, free pieces in a sorted list outside paged memory. Smaller blocks, and everything when
//! the region or the list is full, are the next allocator's in line. A block's start and length are
//! in the 16 bytes before it.
//!
//! Lock order: the heap's before the agent's. Under either no paged memory is touched.

mod free_list;
mod malloc;

use core::cell::UnsafeCell;
use core::ffi::{c_void, CStr};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use odfork_pager_protocol::control::op;
use odfork_pager_protocol::PAGE;
use odfork_sys::{args, block_signals, raw, restore_signals, ProcessLock};

use crate::stack::on_unpaged_stack;
use crate::state::{self, mode, Locked, STATE};
use crate::{calls, setup};
use crate::{messages, options};
use free_list::FreeList;

/// Blocks of malloc from this size on are paged; 0: none.
const LEAST: &CStr = c"ODFORK_PAGE_MALLOC";
/// Address space of the heap; less where it cannot be had.
const MOST_BYTES: usize = 64 << 30;
const SMALLEST_BYTES: usize = 1 << 28;
/// From this length on, freed pages are given back at once.
const GIVE_BACK: usize = 1 << 20;
const HEADER: usize = 16;

struct Heap {
    lock: ProcessLock,
    free: UnsafeCell<FreeList>,
    start: AtomicUsize,
    end: AtomicUsize,
    least: AtomicUsize,
    /// 0: not made yet; 1: there; 2: not to be had.
    made: AtomicU8,
}

// SAFETY: the cell is used under `lock` only.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap {
    lock: ProcessLock::new(),
    free: UnsafeCell::new(FreeList::new()),
    start: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
    least: AtomicUsize::new(0),
    made: AtomicU8::new(0),
};

pub fn read_options() {
    HEAP.least.store(options::number(LEAST).unwrap_or(0), Relaxed);
}

/// For fork, with signals blocked: nobody is in the middle of a change.
pub fn lock() {
    HEAP.lock.take();
}

pub fn unlock() {
    HEAP.lock.give();
}

/// The free list, under the lock. Signals are blocked meanwhile: a handler may fork.
struct LockedList {
    mask: u64,
}

fn free_list() -> LockedList {
    let mask = block_signals();
    HEAP.lock.take();
    LockedList { mask }
}

impl Deref for LockedList {
    type Target = FreeList;
    fn deref(&self) -> &FreeList {
        // SAFETY: the lock is held until self is dropped.
        unsafe { &*HEAP.free.get() }
    }
}

impl DerefMut for LockedList {
    fn deref_mut(&mut self) -> &mut FreeList {
        // SAFETY: as above; the borrow ends with that of self.
        unsafe { &mut *HEAP.free.get() }
    }
}

impl Drop for LockedList {
    fn drop(&mut self) {
        HEAP.lock.give();
        restore_signals(self.mask);
    }
}

/// Makes the region at the first large block.
fn is_there() -> bool {
    match HEAP.made.load(Relaxed) {
        1 => return state::is_own(),
        2 => return false,
        _ => {}
    }
    if STATE.mode.load(Relaxed) == mode::OFF || !state::is_own() {
        return false;
    }
    let mut free = free_list();
    if HEAP.made.load(Relaxed) == 0 {
        let made = on_unpaged_stack(make);
        if let Some((start, len)) = made {
            HEAP.start.store(start, Relaxed);
            HEAP.end.store(start + len, Relaxed);
            free.put(start, len, true);
        }
        HEAP.made.store(if made.is_some() { 1 } else { 2 }, Relaxed);
    }
    HEAP.made.load(Relaxed) == 1
}

/// The region's address and length: at most a quarter of what the program may map (RLIMIT_AS).
fn make() -> Option<(usize, usize)> {
    let mut locked = Locked::take();
    let mut limit = [usize::MAX; 2];
    // SAFETY: room for a limit.
    unsafe { raw(libc::SYS_prlimit64, args![0, libc::RLIMIT_AS as usize, 0, &mut limit]) };
    let mut len = MOST_BYTES;
    while len > limit[0] / 4 && len > SMALLEST_BYTES {
        len /= 2;
    }
    loop {
        match setup::map_region(&mut locked, 0, len) {
            Ok(start) => return Some((start, len)),
            Err(_) if len > SMALLEST_BYTES => len /= 2,
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
    let Some((start, zero)) = free_list().take(len) else { return none };
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
        messages::die(b"odfork page: free() of something that malloc() did not give\n");
    }
    let zero =
        len >= GIVE_BACK && state::is_own() && on_unpaged_stack(move || give_back(start, len));
    free_list().put(start, len, zero);
}

fn give_back(start: usize, len: usize) -> bool {
    let mut locked = Locked::take();
    let Some(region) = locked.regions().holding(start as u64, len as u64) else { return false };
    let offset = region.offset + (start as u64 - region.address);
    calls::ask(&locked, op::DISCARD, [offset, len as u64]) == 0
}
