//! The agent's thread: unmaps pages when the daemon asks, and says which of them were not written.
//!
//! A raw thread without thread-local storage of its own: it makes system calls and touches the control pages, nothing
//! else. Unmapping is MADV_DONTNEED, which keeps the page in the file. Whether it was written is read right behind that: a page that was
//! mapped with the mark and not written leaves a marker in its page table entry; only that counts as clean. Whatever
//! else is found (nothing, or the page mapped again) counts as written. It runs under the agent's lock, and only for ranges
//! that are in the region list at the same place: a mapping that took a region's address must not be touched.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use odfork_pager_protocol::control::{Control, Span, ZAP_PAGES, ZAP_RANGES, ZAP_RANGE_PAGES};
use odfork_pager_protocol::{uapi, PAGE};
use odfork_sys::{block_signals, clone_vfork, restore_signals, SysResult};

use crate::office::{self, Held, STATE};
use crate::regions::Regions;
use crate::{futex_wait, ioctl, kernel_madvise, kernel_mmap, kernel_munmap};

const STACK: usize = 64 << 10;

/// Starts it for the control pages there are now.
pub fn start() -> SysResult<()> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let stack = odfork_sys::check(kernel_mmap(0, STACK, prot, flags, -1, 0))?;
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let control = STATE.control.load(Acquire) as usize;
    // It inherits the mask: no signal of the program is ever delivered to it.
    let mask = block_signals();
    // SAFETY: a new stack; `work` never returns, uses no thread-local storage and cannot unwind. Without CLONE_VFORK the
    // call returns at once.
    let started = unsafe { clone_vfork(flags as usize, stack + STACK, work, control) };
    restore_signals(mask);
    if started.is_err() {
        kernel_munmap(stack, STACK);
    }
    started.map(drop)
}

extern "C" fn work(control: usize) -> i32 {
    // SAFETY: the control pages stay mapped while this thread lives: only a forked child unmaps them, which does not have it.
    let zap = unsafe { &(*(control as *const Control)).zap };
    loop {
        let asked = zap.asked.load(Acquire);
        if asked == zap.answered.load(Relaxed) {
            futex_wait(&zap.asked, asked);
            continue;
        }
        let ranges = (zap.ranges.load(Acquire) as usize).min(ZAP_RANGES);
        zap.clean.iter().chain(&zap.failed).for_each(|word| word.store(0, Relaxed));
        Held::take_by_worker(|regions| {
            let mut first = 0;
            for at in 0..ranges {
                // SAFETY: inside the array; the daemon writes it before `asked` and leaves it until `answered`.
                let span = unsafe { zap.spans.as_ptr().add(at).read_volatile() };
                let pages = (span.len as usize / PAGE).min(ZAP_RANGE_PAGES as usize);
                if first + pages > ZAP_PAGES {
                    break;
                }
                if unmap(regions, &span, pages) {
                    mark_clean(&span, pages, first, &zap.clean);
                } else {
                    (first..first + pages).for_each(|page| set(&zap.failed, page));
                }
                first += pages;
            }
        });
        zap.answered.store(asked, Release);
        office::ring();
    }
}

fn set(words: &[AtomicU64], page: usize) {
    words[page / 64].fetch_or(1 << (page % 64), Relaxed);
}

fn unmap(regions: &Regions, span: &Span, pages: usize) -> bool {
    let len = (pages * PAGE) as u64;
    let same = regions
        .holding(span.address, len)
        .is_some_and(|region| region.offset + (span.address - region.address) == span.offset);
    const DONTNEED_LOCKED: i32 = 24;
    same && kernel_madvise(span.address as usize, len as usize, DONTNEED_LOCKED) == 0
}

/// Sets the bits of pages whose marker is there.
fn mark_clean(span: &Span, pages: usize, first: usize, clean: &[AtomicU64]) {
    let mut found = [uapi::PageRegion::default(); ZAP_RANGE_PAGES as usize];
    let mut scan = uapi::Scan {
        size: size_of::<uapi::Scan>() as u64,
        start: span.address,
        end: span.address + (pages * PAGE) as u64,
        vec: found.as_mut_ptr() as u64,
        vec_len: found.len() as u64,
        // A marker is a swap entry that is not "written".
        category_mask: uapi::PAGE_IS_SWAPPED | uapi::PAGE_IS_WRITTEN,
        category_inverted: uapi::PAGE_IS_WRITTEN,
        return_mask: uapi::PAGE_IS_SWAPPED,
        ..uapi::Scan::default()
    };
    let Ok(count) = ioctl(STATE.pagemap.load(Relaxed), uapi::PAGEMAP_SCAN, &mut scan) else {
        return;
    };
    for region in &found[..count.min(found.len())] {
        let from = region.start.max(span.address) - span.address;
        let to = region.end.min(scan.end).saturating_sub(span.address);
        for page in from as usize / PAGE..to as usize / PAGE {
            set(clean, first + page);
        }
    }
}
