//! `/proc/PID/pagemap`: the bits of its 64-bit entries, and the PAGEMAP_SCAN request (Linux 6.7).
//!
//! For the entries see `Documentation/admin-guide/mm/pagemap.rst`, for the request `<linux/fs.h>`.

use super::iowr;

/// Bytes of an entry; the entry of address `a` lies at `a / page size * ENTRY_BYTES`.
pub const ENTRY_BYTES: usize = 8;
pub const ENTRY_PRESENT: u64 = 1 << 63;
pub const ENTRY_SWAPPED: u64 = 1 << 62;
/// A page of a file, or of shared anonymous memory (Linux 3.5).
pub const ENTRY_FILE: u64 = 1 << 61;
/// Write-protected by a userfaultfd (Linux 5.13).
pub const ENTRY_UFFD_WP: u64 = 1 << 57;
/// Mapped by nobody else (Linux 4.2).
pub const ENTRY_EXCLUSIVE: u64 = 1 << 56;
pub const ENTRY_SOFT_DIRTY: u64 = 1 << 55;
/// The swap type of an entry that is not present.
pub const ENTRY_SWAP_TYPE: u64 = 0x1f;
/// A swap type that is a marker, not a page (SWP_PTE_MARKER, Linux 5.19).
pub const SWAP_TYPE_MARKER: u64 = 31;
/// What a marker says: the bits above its type. The lowest is write protection by a userfaultfd;
/// every other means an access that fails for good: poison (Linux 6.6), a guard (Linux 6.13).
pub const MARKER_FAILS: u64 = ((1 << 55) - 1) & !0x3f;

/// `PAGEMAP_SCAN`.
pub const SCAN: u64 = iowr::<ScanArg>(b'f', 16);

/// Write-protects again what the scan returns.
pub const SCAN_WP_MATCHING: u64 = 1 << 0;
/// An error where the memory is not watched in the WP_ASYNC way.
pub const SCAN_CHECK_WPASYNC: u64 = 1 << 1;

/// Written since a userfaultfd write-protected it, or never protected.
pub const IS_WRITTEN: u64 = 1 << 1;
/// A page of the file itself: in a private mapping one that was never written.
pub const IS_FILE: u64 = 1 << 2;
pub const IS_PRESENT: u64 = 1 << 3;
pub const IS_SWAPPED: u64 = 1 << 4;
/// The shared page of zeros.
pub const IS_PFNZERO: u64 = 1 << 5;
pub const IS_SOFT_DIRTY: u64 = 1 << 7;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanArg {
    pub size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    /// Where the kernel stopped. May lie before regions it has returned (seen on 6.18).
    pub walk_end: u64,
    pub vec: u64,
    pub vec_len: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub category_anyof_mask: u64,
    pub return_mask: u64,
}

/// `struct page_region`: consecutive pages of the same categories (the `IS_` bits).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}
