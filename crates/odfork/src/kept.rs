//! Anonymous memory where a backing file shows, with the properties that it had before.
//!
//! Owns what a new mapping is given: that nothing is reserved for it (`MAP_NORESERVE`), and the
//! advice about huge pages. Which memory has which is in `addresses.rs`. Runs in the helper task
//! and in the program.

use crate::addresses::Addresses;
use crate::args;
use crate::sys::{self, Kernel, SysResult};

/// Bits of properties, as `addresses.rs` keeps them.
pub const HUGEPAGE: u32 = 1;
pub const NOHUGEPAGE: u32 = 2;
pub const NORESERVE: u32 = 4;
/// What the program asked for while no thaw was to be had.
pub const DONTFORK: u32 = 8;
pub const DONTDUMP: u32 = 16;
pub const WIPEONFORK: u32 = 32;

/// Maps anonymous memory at `range`, privately, with the properties of such a place: of the range
/// itself, or of memory that grows into it. `how`: further flags. Where it lies now.
pub fn map(
    k: &Kernel,
    (start, end): (usize, usize),
    access: i32,
    how: i32,
    kept: u32,
) -> SysResult<usize> {
    let reserve = if kept & NORESERVE != 0 { libc::MAP_NORESERVE } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | how | reserve;
    let a = args![start, end - start, access, flags, -1isize, 0];
    // SAFETY: what is there is unwanted, kept elsewhere, or nothing.
    let at = unsafe { k.call(libc::SYS_mmap, a) }?;
    advise((at, at + end - start), kept);
    Ok(at)
}

/// The advice that the parts of a range had goes to what lies there now.
pub fn advise_again(addresses: &Addresses, (start, end): (usize, usize)) {
    let mut at = start;
    while at < end {
        let (kept, until) = addresses.kept(at, end);
        advise((at, until), kept);
        at = until;
    }
}

fn advise((start, end): (usize, usize), kept: u32) {
    for (bit, advice) in [
        (HUGEPAGE, libc::MADV_HUGEPAGE),
        (NOHUGEPAGE, libc::MADV_NOHUGEPAGE),
        (DONTFORK, libc::MADV_DONTFORK),
        (DONTDUMP, libc::MADV_DONTDUMP),
        (WIPEONFORK, libc::MADV_WIPEONFORK),
    ] {
        if kept & bit != 0 {
            // SAFETY: advice without effect on content; where it is refused nothing is lost.
            let _ = unsafe { sys::call(libc::SYS_madvise, args![start, end - start, advice]) };
        }
    }
}
