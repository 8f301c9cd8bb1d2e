//! Live memory: frozen memory that this process maps shared while no child shows its file, so that
//! writes go into the file and nothing has to be copied or refrozen.
//!
//! Owns the switch back to a private mapping, what is known of the pieces that are shared, and
//! which memory may be. The switch to shared is made by a pass, with threads held (`share.rs`).
//! This one is made in the calling thread, while others run:
//!
//! ```text
//! thread A: fork                        thread B: writes x, then y
//!   (shared)                              x -> file
//!   move a private view over the range    (a fault in between waits for the kernel's lock)
//!   fork                                  y -> a private copy, before or after the fork
//! ```
//! What was written before is in the file, which both show; what is written later is a private
//! copy, which the child has or has not, as on stock. `MADV_DONTFORK` is set while it is shared: a
//! fork that nobody announced leaves a hole in the child, and never shares.
//!
//! Before a range is replaced the kernel is asked whether it still is that one shared mapping. The
//! question and the move are two calls; nobody else unmaps what the program itself has mapped
//! ([`Mapped`]) without the lock.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::args;
use crate::backing::{self, DATA};
use crate::registry::{BackingFile, Registry};
use crate::spans::Spans;
use crate::sys::{self, Errno, Kernel, SysResult, HUGE, PAGE};

/// Longer than any room behind an address: a mapping cannot grow to it in place.
const ENDLESS: usize = (1 << 47) - PAGE;

/// Memory that the program has mapped by calls we have seen, private and anonymous. What the C
/// library maps, it may unmap unseen: such memory is never live. Noted in every process, so without
/// a system call, by one thread at a time. A handler that interrupts it is a thread that waits in
/// vain: then nothing is known for good.
pub struct Mapped {
    spans: Spans<4096>,
    is_busy: AtomicBool,
}

/// Looks at a set that another thread changes, which takes a microsecond: for long enough that a
/// processor was found for that thread.
const LOOKS: u32 = 1 << 20;

impl Mapped {
    pub const fn new() -> Self {
        Mapped { spans: Spans::new(), is_busy: AtomicBool::new(false) }
    }

    pub fn add(&self, start: usize, end: usize) {
        self.change(|| self.spans.cover(start, end));
    }

    pub fn remove(&self, start: usize, end: usize) {
        self.change(|| self.spans.uncover(start, end));
    }

    fn change(&self, change: impl FnOnce()) {
        for _ in 0..LOOKS {
            if !self.spans.is_exact() {
                return;
            }
            if !self.is_busy.swap(true, SeqCst) {
                change();
                self.is_busy.store(false, SeqCst);
                return;
            }
            core::hint::spin_loop();
        }
        self.spans.doubt();
    }

    /// In a child, which may be a copy made in the middle of a change.
    pub fn begin_child(&self) {
        self.spans.recover();
        self.is_busy.store(false, SeqCst);
    }

    /// Some of the range may be. Asked at any time.
    pub fn touches(&self, start: usize, end: usize) -> bool {
        self.spans.touches(start, end)
    }

    /// All of the range certainly is. Asked at any time.
    pub fn holds(&self, start: usize, end: usize) -> bool {
        let around = || self.spans.around(start).is_some_and(|(_, to)| to >= end);
        self.spans.is_exact() && self.spans.unchanged(around) == Some(true)
    }
}

/// Mappings that are given up where the program has as many as it may: the way back takes a few
/// more for a moment.
pub struct Spare(usize);

/// So many, each a page, of which no two neighbours are alike.
const SPARES: usize = 16;

impl Spare {
    pub const fn new() -> Self {
        Spare(0)
    }

    /// Makes them, if there are none. False: the program has too many mappings.
    pub fn make(&mut self, zone: &mut usize) -> bool {
        if self.0 != 0 {
            return true;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, of which nobody else knows; not for children.
        unsafe {
            let Ok(at) = sys::mmap(*zone, SPARES * PAGE, libc::PROT_NONE, flags) else {
                return false;
            };
            sys::raw(libc::SYS_madvise, args![at, SPARES * PAGE, libc::MADV_DONTFORK]);
            let divides = |page| {
                let a = args![at + page * PAGE, PAGE, libc::PROT_READ];
                sys::raw(libc::SYS_mprotect, a) == 0
            };
            if !(0..SPARES).step_by(2).all(divides) {
                sys::munmap(at, SPARES * PAGE);
                return false;
            }
            self.0 = at;
        }
        *zone += SPARES * PAGE;
        true
    }

    /// Gives them up; false where there are none.
    pub fn give(&mut self) -> bool {
        let at = core::mem::take(&mut self.0);
        if at != 0 {
            // SAFETY: our own.
            unsafe { sys::munmap(at, SPARES * PAGE) };
        }
        at != 0
    }

    /// In a child: they were not inherited.
    pub fn forget(&mut self) {
        self.0 = 0;
    }
}

/// What is known of live memory.
pub struct Live {
    /// Pieces that may be shared now.
    pieces: AtomicU32,
    /// A look may find more to share.
    pending: AtomicBool,
    /// None is shared any more in this process.
    barred: AtomicBool,
    /// What a fork made private is not mapped again yet.
    unmapped: AtomicBool,
    /// No look before.
    next_look_ns: AtomicU64,
}

impl Live {
    /// Nothing is shared.
    pub const fn new() -> Self {
        Live {
            pieces: AtomicU32::new(0),
            pending: AtomicBool::new(false),
            barred: AtomicBool::new(false),
            next_look_ns: AtomicU64::new(0),
            unmapped: AtomicBool::new(false),
        }
    }

    /// Some piece may be shared.
    pub fn is_any(&self) -> bool {
        self.pieces.load(SeqCst) != 0
    }

    /// Counts them again; gives their bytes.
    pub fn count(&self, registry: &Registry) -> usize {
        let parts = registry.shared();
        self.pieces.store(parts.len() as u32, SeqCst);
        parts.iter().map(|part| part.end - part.start).sum()
    }

    /// Never again in this process, nor in its children.
    pub fn bar(&self) {
        self.barred.store(true, SeqCst);
    }

    pub fn is_barred(&self) -> bool {
        self.barred.load(SeqCst)
    }

    /// Something became private, or was frozen.
    pub fn expect(&self) {
        self.pending.store(true, Relaxed);
    }

    /// It is time for a look.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.pending.load(Relaxed) && now_ns >= self.next_look_ns.load(Relaxed)
    }

    /// A look was made: `more` may be found later, but not before that time.
    pub fn looked(&self, more: bool, next_ns: u64) {
        self.pending.store(more, Relaxed);
        self.next_look_ns.store(next_ns, Relaxed);
    }

    /// What a fork made private is to be mapped again.
    pub fn is_unmapped(&self) -> bool {
        self.unmapped.load(Relaxed)
    }

    pub fn set_unmapped(&self, is_so: bool) {
        self.unmapped.store(is_so, Relaxed);
    }

    /// In a child: nothing it shows is shared, nor ever will be.
    pub fn begin_child(&self) {
        self.set_unmapped(false);
        self.pieces.store(0, SeqCst);
        self.looked(false, 0);
    }
}

/// Where the content of a piece begins in its file.
pub fn place(file: &BackingFile) -> usize {
    DATA + file.start % HUGE
}

/// Maps privately what is shared of a file. EFAULT: something else is there.
pub fn make_private(
    k: &Kernel,
    zone: usize,
    file: &BackingFile,
    (start, end): (usize, usize),
) -> SysResult<()> {
    let len = end - start;
    if !is_shared(start)? {
        return Ok(());
    }
    if !is_one_mapping(start, len) {
        return Err(Errno(libc::EFAULT));
    }
    let view = backing::private_view(k, zone, file)?;
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let before = place(file) + (start - file.start);
    let a = args![view + before, len, len, how, start];
    // SAFETY: the target shows the same bytes of the same file; the view is ours.
    unsafe {
        let moved = k.call(libc::SYS_mremap, a);
        if moved.is_err() {
            sys::munmap(view, file.span);
        }
        moved?;
        // What lies before and behind the part that was moved.
        sys::munmap(view, before);
        let behind = before + len;
        if behind < file.span {
            sys::munmap(view + behind, file.span - behind);
        }
    }
    Ok(())
}

/// The mapping at that address is shared. Of a private one the kernel says that it cannot be
/// doubled; of a shared one, that there is no room for so large a double.
pub fn is_shared(at: usize) -> SysResult<bool> {
    // SAFETY: cannot succeed, and then changes nothing.
    match unsafe { sys::call(libc::SYS_mremap, args![at, 0, ENDLESS, 0]) } {
        Err(Errno(libc::EINVAL)) => Ok(false),
        Err(Errno(libc::ENOMEM)) => Ok(true),
        Err(e) => Err(e),
        Ok(_) => Err(Errno(libc::EFAULT)),
    }
}

/// All of the range is one mapping: the kernel says EFAULT of a range that is more before it finds
/// that there is no room to grow.
pub fn is_one_mapping(start: usize, len: usize) -> bool {
    // SAFETY: cannot succeed, and then changes nothing.
    let answer = unsafe { sys::call(libc::SYS_mremap, args![start, len, ENDLESS, 0]) };
    answer == Err(Errno(libc::ENOMEM))
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_a_mapping_is() {
        let map = |flags| {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_ANONYMOUS);
            // SAFETY: new mappings, never unmapped.
            unsafe { sys::mmap(0, 8 * PAGE, prot, flags) }.unwrap()
        };
        let (shared, private) = (map(libc::MAP_SHARED), map(libc::MAP_PRIVATE));
        assert_eq!((is_shared(shared), is_shared(private)), (Ok(true), Ok(false)));
        assert!(is_one_mapping(shared, 8 * PAGE) && is_one_mapping(private, PAGE));
        // SAFETY: a page of the test's own.
        unsafe { sys::munmap(shared + 4 * PAGE, PAGE) };
        assert!(!is_one_mapping(shared, 8 * PAGE) && is_one_mapping(shared, 4 * PAGE));
        assert_eq!(is_shared(shared + 4 * PAGE), Err(Errno(libc::EFAULT)));
    }

    #[test]
    fn what_was_unmapped_is_not_held() {
        let mapped = Mapped::new();
        mapped.add(100, 200);
        mapped.add(200, 300);
        assert!(mapped.holds(150, 250) && !mapped.holds(150, 301) && !mapped.holds(50, 150));
        mapped.remove(180, 190);
        assert!(!mapped.holds(150, 250) && mapped.holds(190, 300));
        (0..5000).for_each(|i| mapped.add(1000 + 10 * i, 1005 + 10 * i));
        assert!(!mapped.holds(190, 300), "a full set claims too much");
    }
}
