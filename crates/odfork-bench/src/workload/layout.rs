//! How a subject's memory is obtained: the layouts, and the system calls behind them.
//!
//! Does not own what is in the memory (`memory`) nor the pool of huge pages (`hugetlb`).

use std::fs;

use anyhow::{anyhow, bail, Result};

use super::children::is_harness_alone;
use super::hugetlb;
use super::PAGE;
use crate::mapping::obtain as obtain_new;
use crate::words::words;

/// Blocks of the malloc layout: below glibc's mmap threshold, so they come from the brk heap.
pub(super) const BLOCK: usize = 64 * 1024;

/// Who gets transparent huge pages.
pub const THP_MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

words! {
    /// How the memory is obtained.
    Layout: 4 {
        /// One anonymous private mapping of 4 KB pages.
        Mapped = "mapped",
        /// The same with MADV_HUGEPAGE: what transparent huge pages do for a fork.
        Huge = "huge",
        /// Many 64 KB blocks of malloc.
        Malloced = "malloced",
        /// Huge pages of 2 MB from the pool (MAP_HUGETLB).
        Hugetlb = "hugetlb",
    }
}

/// Pages in a row.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub start: *mut u8,
    pub pages: usize,
}

/// At least `size` bytes of it, rounded down to pages, untouched.
pub(super) fn obtain(size: usize, layout: Layout) -> Result<Vec<Extent>> {
    match layout {
        Layout::Mapped => map(size, small_pages()),
        Layout::Huge => map(size, libc::MADV_HUGEPAGE),
        Layout::Malloced => allocate_blocks(size),
        // Nothing is accessed: it need not be of the pool.
        Layout::Hugetlb if is_harness_alone() => map(size, small_pages()),
        Layout::Hugetlb => {
            let start = hugetlb::map(size)?;
            Ok(vec![Extent { start, pages: size / PAGE }])
        }
    }
}

/// The advice that brings 4 KB pages: none where nobody gets others unasked. Memory with advice
/// about huge pages is never live.
fn small_pages() -> libc::c_int {
    let mode = fs::read_to_string(THP_MODE).unwrap_or_default();
    if mode.contains("[always]") {
        libc::MADV_NOHUGEPAGE
    } else {
        libc::MADV_NORMAL
    }
}

fn map(size: usize, advice: libc::c_int) -> Result<Vec<Extent>> {
    let pages = size / PAGE;
    if pages == 0 {
        return Ok(Vec::new());
    }
    let start = map_anonymous(pages * PAGE)?;
    // SAFETY: the range was just mapped. Advice may fail on kernels without huge pages: then there
    // are none.
    unsafe { libc::madvise(start.cast(), pages * PAGE, advice) };
    Ok(vec![Extent { start, pages }])
}

/// New private anonymous memory, untouched.
pub fn map_anonymous(length: usize) -> Result<*mut u8> {
    // The harness alone wants addresses, however small the machine.
    let reserve = if is_harness_alone() { libc::MAP_NORESERVE } else { 0 };
    obtain_new(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | reserve, -1)
        .map_err(|error| anyhow!("cannot map {length} bytes: {error}"))
}

/// Touches `bytes` of new memory and gives it back. On a virtual machine whose host takes free
/// memory away (free page reporting), the first touch of a free page costs up to a hundred times a
/// normal one; what is taken next then finds pages the host has backed. Best effort: on any refusal
/// nothing is warmed.
pub fn warm_free_memory(bytes: u64) {
    const HUGE: usize = 2 << 20;
    let length = (bytes as usize).next_multiple_of(HUGE);
    if bytes == 0 {
        return;
    }
    let Ok(start) = map_anonymous(length) else {
        return;
    };
    // SAFETY: the range was just mapped and is unmapped once, used by nobody else.
    unsafe {
        libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE);
        for page in (0..length).step_by(PAGE) {
            start.add(page).write_volatile(1);
        }
        libc::munmap(start.cast(), length);
    }
}

fn allocate_blocks(size: usize) -> Result<Vec<Extent>> {
    (0..size / BLOCK)
        .map(|_| {
            // SAFETY: malloc has no precondition; the block is BLOCK bytes, aligned for u64.
            let start = unsafe { libc::malloc(BLOCK) }.cast::<u8>();
            if start.is_null() {
                bail!("malloc of {BLOCK} bytes failed");
            }
            Ok(Extent { start, pages: BLOCK / PAGE })
        })
        .collect()
}
