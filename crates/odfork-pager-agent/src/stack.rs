//! Stacks of the agent's own, for threads whose stack is paged memory.
//!
//! Whoever holds the agent's lock must not touch paged memory, and the C library's fork must find
//! its stack in the child before there is any paged memory. A thread whose stack may be paged (a
//! coroutine's, an alternate signal stack) does such work here. The bounds of all memory that ever
//! was paged say which stacks may be, without a lock; a stack between them by chance is switched in
//! vain.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use odfork_sys::{args, block_signals, call_on_stack, raw, restore_signals, stack_pointer};

use crate::{kernel_mmap, kernel_munmap};

const STACK: usize = 512 << 10;
const KEPT: usize = 16;
const BUSY: usize = 1;

static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Lowest addresses; the last bit says that a thread is on it. 0: not mapped yet.
static POOL: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];

/// This range is paged from now on.
pub fn note_paged(address: usize, len: usize) {
    LOWEST.fetch_min(address, Relaxed);
    HIGHEST.fetch_max(address + len, Relaxed);
}

fn may_be_paged(address: usize) -> bool {
    address >= LOWEST.load(Relaxed) && address < HIGHEST.load(Relaxed)
}

/// What goes to the other stack and comes back from it.
struct StackCall<T, F> {
    work: MaybeUninit<F>,
    answer: MaybeUninit<T>,
}

/// Does the work on a stack that is not paged. What it captures must be values: references to the
/// caller's variables would lead back to the stack that is left. Signals wait meanwhile, if the
/// stack is changed: their handlers know nothing of this one's size.
pub fn on_unpaged_stack<T, F: FnOnce() -> T>(work: F) -> T {
    match may_be_paged(stack_pointer()) {
        true => on_pool_stack(work),
        false => work(),
    }
}

/// The same, whatever stack the caller is on.
pub fn on_pool_stack<T, F: FnOnce() -> T>(work: F) -> T {
    let mask = block_signals();
    let Some((base, kept)) = take() else {
        // No memory: as good as can be.
        let answer = work();
        restore_signals(mask);
        return answer;
    };
    let top = (base + STACK - size_of::<StackCall<T, F>>()) & !63;
    let stack_call = top as *mut StackCall<T, F>;
    // SAFETY: the call lies above the stack's first frame, in memory of ours; `open` finds
    // the work there and leaves the answer. It does not unwind (panics end the process) and
    // returns here once, in a forked child as well.
    let answer = unsafe {
        (&raw mut (*stack_call).work).write(MaybeUninit::new(work));
        call_on_stack(top, open::<T, F>, top);
        (*stack_call).answer.assume_init_read()
    };
    give(base, kept);
    restore_signals(mask);
    answer
}

extern "C" fn open<T, F: FnOnce() -> T>(at: usize) {
    let stack_call = at as *mut StackCall<T, F>;
    // SAFETY: `on_pool_stack` filled it.
    unsafe {
        let work = (*stack_call).work.assume_init_read();
        (*stack_call).answer.write(work());
    }
}

/// A stack that nobody is on, and its place in the pool.
fn take() -> Option<(usize, Option<&'static AtomicUsize>)> {
    for place in &POOL {
        let found = place.load(Relaxed);
        if found & BUSY == 0
            && place.compare_exchange(found, found | BUSY, Acquire, Relaxed).is_ok()
        {
            if found != 0 {
                return Some((found, Some(place)));
            }
            let made = map();
            place.store(made.map_or(0, |base| base | BUSY), Release);
            return made.map(|base| (base, Some(place)));
        }
    }
    map().map(|base| (base, None))
}

fn map() -> Option<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let base = odfork_sys::check(kernel_mmap(0, STACK, prot, flags, -1, 0)).ok()?;
    // SAFETY: the lowest page of the new mapping.
    unsafe { raw(libc::SYS_mprotect, args![base, odfork_pager_protocol::PAGE, libc::PROT_NONE]) };
    Some(base)
}

fn give(base: usize, kept: Option<&AtomicUsize>) {
    match kept {
        Some(place) => place.store(base, Release),
        None => drop(kernel_munmap(base, STACK)),
    }
}

/// In a forked child: only the caller is on one.
pub fn release_others() {
    let here = stack_pointer();
    for place in &POOL {
        let base = place.load(Relaxed) & !BUSY;
        if !(base..base + STACK).contains(&here) {
            place.store(base, Relaxed);
        }
    }
}
