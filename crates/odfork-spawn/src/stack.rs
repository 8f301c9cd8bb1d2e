//! Stacks for children, kept for the next spawn.
//!
//! Owns the mappings: a guard page, the stack, and at its upper end the words
//! that parent and child exchange. It does not own what they say (`arguments`).
//!
//! ```text
//!   at               at + GUARD                             top          at + TOTAL
//!   | no access      | stack, grows down  <-----------------| ChildFrame      |
//! ```
//!
//! A stack is taken by swapping its address out of a slot and given back by
//! storing it in an empty one, so no two threads hold the same stack and nobody
//! waits. In the child of a fork the slots show the child's own copies; a stack
//! that another thread held at that moment is lost to it (64 KB of address
//! space, of which a page or two were touched), never used twice.

use core::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use odfork_sys::{args, call, raw, SysResult};

const PAGE: usize = 4096;
const GUARD: usize = PAGE;
const TOTAL: usize = 64 << 10;
/// Room for the words exchanged; a multiple of 64, so that the stack's end is aligned.
pub const FRAME_BYTES: usize = 256;

const KEPT: usize = 16;
static SLOTS: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];

/// A stack held by the caller until it is dropped.
pub struct Stack {
    at: usize,
    /// Kept for the next one; a shared one is not (after a fork it would be in two processes).
    kept: bool,
}

impl Stack {
    /// One that was used before, or a new one.
    pub fn take() -> SysResult<Stack> {
        for slot in &SLOTS {
            if slot.load(Relaxed) == 0 {
                continue;
            }
            let at = slot.swap(0, Acquire);
            if at != 0 {
                return Ok(Stack { at, kept: true });
            }
        }
        map(libc::MAP_PRIVATE).map(|at| Stack { at, kept: true })
    }

    /// One whose content a child that has a copy of all other memory shares.
    pub fn shared() -> SysResult<Stack> {
        map(libc::MAP_SHARED).map(|at| Stack { at, kept: false })
    }

    /// Lowest address a child may write, and how many bytes it has.
    pub fn room(&self) -> (usize, usize) {
        (self.at + GUARD, TOTAL - GUARD - FRAME_BYTES)
    }

    /// Where the stack ends and the exchanged words begin; 64-byte aligned.
    pub fn top(&self) -> usize {
        self.at + TOTAL - FRAME_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let free = |slot: &&AtomicUsize| {
            slot.load(Relaxed) == 0 && slot.compare_exchange(0, self.at, AcqRel, Relaxed).is_ok()
        };
        if self.kept && SLOTS.iter().find(free).is_some() {
            return;
        }
        // SAFETY: our mapping; no child runs on it any more (the holder waited).
        unsafe { raw(libc::SYS_munmap, args![self.at, TOTAL]) };
    }
}

fn map(sharing: i32) -> SysResult<usize> {
    let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping wherever the kernel likes, and its lowest page made
    // inaccessible: a child that needs more dies instead of writing elsewhere.
    unsafe {
        let at = call(libc::SYS_mmap, args![0, TOTAL, prot, flags, -1isize, 0])?;
        if let Err(e) = call(libc::SYS_mprotect, args![at, GUARD, libc::PROT_NONE]) {
            raw(libc::SYS_munmap, args![at, TOTAL]);
            return Err(e);
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_parts_lie_as_drawn() {
        let stack = Stack::take().unwrap();
        let (start, length) = stack.room();
        assert_eq!(start + length, stack.top());
        assert_eq!(stack.top() % 64, 0);
        // SAFETY: both ends of the memory that was asked for.
        unsafe {
            (start as *mut u8).write_volatile(1);
            ((stack.top() + FRAME_BYTES - 1) as *mut u8).write_volatile(1);
        }
    }

    /// Holders mark their stack; nobody else's mark may be there.
    #[test]
    fn no_stack_is_held_twice() {
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for mark in 1..=32u64 {
                let failed = &failed;
                scope.spawn(move || {
                    for _ in 0..500 {
                        let stack = Stack::take().unwrap();
                        let word = stack.room().0 as *mut u64;
                        // SAFETY: the stack is ours while we hold it.
                        unsafe {
                            word.write_volatile(mark);
                            std::thread::yield_now();
                            if word.read_volatile() != mark {
                                failed.store(true, Relaxed);
                            }
                        }
                    }
                });
            }
        });
        assert!(!failed.load(Relaxed));
        assert!(SLOTS.iter().all(|slot| slot.load(Relaxed) % PAGE == 0));
    }
}
