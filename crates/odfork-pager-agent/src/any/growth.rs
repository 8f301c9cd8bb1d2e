//! What the program may map before the serving task knows of it.
//!
//! While all memory that is mapped fits into the limit, nothing of it is watched: whatever the
//! program touches, it stays below. So new memory is counted where the program gets it, and what
//! would not fit is not handed out before it is watched. The program waits for that, however late
//! the serving task gets a processor.
//!
//! Memory is got from mmap, mremap, mprotect and brk, which are counted as they are called; and
//! from the C library's malloc, which calls none of ours. Of its blocks, those are counted that
//! reach higher than any before: once for each GRAIN in each REGION of addresses, so a block that
//! was there before costs two comparisons. Up to a grain of each region may be new and unknown.
//!
//! Who waits touches a page of the bell, which is watched and missing, as if its own memory were
//! away: that needs no call, and no descriptor. The task changes the page to be touched next before
//! it looks. So whoever finds a page to touch after its memory was mapped, and then has touched it,
//! was looked at in between. A forked child has no bell until it has a pager: where it is stands in
//! a page that a fork wipes.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::REGISTER_MODE_MISSING;
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{check, SysResult};

use crate::{kernel_madvise, kernel_mmap, kernel_munmap};

/// Blocks are counted in such pieces of addresses.
const GRAIN_SHIFT: u32 = 17;
const GRAIN: usize = 1 << GRAIN_SHIFT;
/// Grains of a region: 64 MB, as an arena of the C library's has.
const REGION_SHIFT: u32 = 9;
const REGIONS: usize = 4096;

/// Pages of the bell: half of them are made anew together.
const PAGES: usize = 256;
const HALF: usize = PAGES / 2;
const LEN: usize = PAGES * PAGE;

struct Growth {
    is_on: AtomicBool,
    /// Pages that were mapped, in all, and how many may be.
    spent: AtomicU64,
    allowed: AtomicU64,
    /// Where it stands where the bell is; and which page of it is touched next.
    place: AtomicUsize,
    next: AtomicUsize,
    /// For each region, by its number modulo REGIONS, the highest grain of a block.
    tops: [AtomicU32; REGIONS],
}

static GROWTH: Growth = Growth {
    is_on: AtomicBool::new(false),
    spent: AtomicU64::new(0),
    allowed: AtomicU64::new(0),
    place: AtomicUsize::new(0),
    next: AtomicUsize::new(0),
    tops: [const { AtomicU32::new(0) }; REGIONS],
};

fn pages(bytes: usize) -> u64 {
    bytes.div_ceil(PAGE) as u64
}

/// Counts what was mapped; false: it is not to be touched before it is watched.
pub fn spend(bytes: usize) -> bool {
    let pages = pages(bytes);
    GROWTH.spent.fetch_add(pages, SeqCst) + pages <= GROWTH.allowed.load(SeqCst)
}

/// The same; returns when the memory may be touched.
pub fn grown(bytes: usize) {
    if is_on() && bytes > 0 && !spend(bytes) {
        ask();
    }
}

/// An allocator hands out a block that it did not get from us.
#[inline]
pub fn handed_out(block: usize, size: usize) {
    if !is_on() {
        return;
    }
    let grain = ((block + size) >> GRAIN_SHIFT) as u32;
    let top = top_of(grain).load(Relaxed);
    let is_known = top >> REGION_SHIFT == grain >> REGION_SHIFT && top >= grain;
    if block != 0 && !(is_known && size < GRAIN) {
        count(grain, top, size);
    }
}

/// A block has another size, or place.
pub fn resized(old: (usize, usize), block: usize, size: usize) {
    match old.0 == block && size >= GRAIN {
        true => grown(size.saturating_sub(old.1)),
        false => handed_out(block, size),
    }
}

pub fn is_on() -> bool {
    GROWTH.is_on.load(Relaxed)
}

fn top_of(grain: u32) -> &'static AtomicU32 {
    &GROWTH.tops[(grain >> REGION_SHIFT) as usize % REGIONS]
}

#[cold]
fn count(grain: u32, top: u32, size: usize) {
    if top >> REGION_SHIFT == grain >> REGION_SHIFT {
        top_of(grain).fetch_max(grain, Relaxed);
        grown((grain.saturating_sub(top) as usize * GRAIN).max(size));
    } else {
        top_of(grain).store(grain, Relaxed);
        grown(size + GRAIN);
    }
}

/// Returns when all that is mapped by now was looked at.
pub fn ask() {
    let place = GROWTH.place.load(SeqCst) as *const usize;
    if place.is_null() {
        return;
    }
    let next = GROWTH.next.load(SeqCst) * PAGE;
    // SAFETY: pages of ours, for reading. Nobody unmaps them but a child, which is alone then.
    unsafe {
        let bell = place.read_volatile();
        if bell != 0 {
            ((bell + next) as *const u8).read_volatile();
        }
    }
}

/// Pages that were counted so far: before a look at what is mapped.
pub fn spent() -> u64 {
    GROWTH.spent.load(SeqCst)
}

/// So many more than those may be mapped.
pub fn allow(spent: u64, more: u64) {
    GROWTH.allowed.store(spent + more, SeqCst);
}

/// Memory was given up: what was the top of a region may be new again.
pub fn forget_tops() {
    GROWTH.tops.iter().for_each(|top| top.store(0, Relaxed));
}

/// Of the serving task: the bell of this process.
pub struct Bell {
    start: u64,
    place: u64,
}

impl Bell {
    pub fn new(uffd: Userfaultfd) -> SysResult<Bell> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = check(kernel_mmap(0, LEN, libc::PROT_READ, flags, -1, 0))?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let place = check(kernel_mmap(0, PAGE, prot, flags, -1, 0))?;
        check(kernel_madvise(start, LEN, libc::MADV_DONTFORK))?;
        check(kernel_madvise(place, PAGE, libc::MADV_WIPEONFORK))?;
        uffd.register(start as u64, LEN as u64, REGISTER_MODE_MISSING)?;
        // SAFETY: a new page of ours.
        unsafe { (place as *mut usize).write_volatile(start) };
        // They are there from now on, and are never taken: the task must not wait for them.
        forget_tops();
        GROWTH.next.store(0, SeqCst);
        GROWTH.place.store(place, SeqCst);
        Ok(Bell { start: start as u64, place: place as u64 })
    }

    pub fn holds(&self, page: u64) -> bool {
        (self.start..self.start + LEN as u64).contains(&page)
    }

    /// The one page of it that can be written.
    pub fn place(&self) -> (u64, u64) {
        (self.place, self.place + PAGE as u64)
    }

    /// Before a look: who comes from now on touches another page. Those of the other half are made
    /// anew meanwhile. False: that failed, and nobody is asked to come any more.
    pub fn turn(&self, uffd: Userfaultfd) -> bool {
        let next = (GROWTH.next.load(Relaxed) + 1) % PAGES;
        let mut is_done = true;
        if next % HALF == 0 {
            let (start, len) = (self.start + (next * PAGE) as u64, (HALF * PAGE) as u64);
            let (at, bytes) = (start as usize, HALF * PAGE);
            is_done = uffd
                .unregister(start, len)
                .and_then(|()| check(kernel_madvise(at, bytes, libc::MADV_DONTNEED)))
                .and_then(|_| uffd.register(start, len, REGISTER_MODE_MISSING))
                .is_ok();
        }
        GROWTH.next.store(next, SeqCst);
        is_done
    }
}

/// The task serves.
pub fn begin() {
    GROWTH.is_on.store(true, Relaxed);
}

/// In a child, alone: it has no pager yet.
pub fn end() {
    GROWTH.is_on.store(false, Relaxed);
    match GROWTH.place.swap(0, Relaxed) {
        0 => {}
        place => drop(kernel_munmap(place, PAGE)),
    }
}
