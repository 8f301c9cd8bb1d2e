//! `/proc/PID/pagemap`: the bits of its 64-bit entries, and the PAGEMAP_SCAN request (Linux 6.7).
//!
//! For the entries see `Documentation/admin-guide/mm/pagemap.rst`, for the request `<linux/fs.h>`.

use super::iowr;

/// Bytes of an entry; the entry of address `a` lies at `a / page size * ENTRY_BYTES`.
pub const ENTRY_BYTES: usize = 8;
/// The page is in memory and mapped.
pub const ENTRY_PRESENT: u64 = 1 << 63;
/// The page is in swap, or the entry is a marker ([`SWAP_TYPE_MARKER`]).
pub const ENTRY_SWAPPED: u64 = 1 << 62;
/// A page of a file, or of shared anonymous memory (Linux 3.5).
pub const ENTRY_FILE: u64 = 1 << 61;
/// Write-protected by a userfaultfd (Linux 5.13).
pub const ENTRY_UFFD_WP: u64 = 1 << 57;
/// A guard page (Linux 6.15): a touch is SIGSEGV.
pub const ENTRY_GUARD: u64 = 1 << 58;
/// Mapped by nobody else (Linux 4.2).
pub const ENTRY_EXCLUSIVE: u64 = 1 << 56;
/// Written since `4` was written to `clear_refs` (Linux 3.11, `CONFIG_MEM_SOFT_DIRTY`).
pub const ENTRY_SOFT_DIRTY: u64 = 1 << 55;
/// The swap type of an entry that is not present.
pub const ENTRY_SWAP_TYPE: u64 = 0x1f;
/// A swap type that is a marker, not a page (SWP_PTE_MARKER, Linux 6.3; 30 on 6.1). Shown to those
/// with `CAP_SYS_ADMIN` only, as all of the place.
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

/// Its mapping is watched by a userfaultfd that notes writes.
pub const IS_WPALLOWED: u64 = 1;
/// Written since a userfaultfd write-protected it, or never protected.
pub const IS_WRITTEN: u64 = 1 << 1;
/// A page of the file itself: in a private mapping one that was never written.
pub const IS_FILE: u64 = 1 << 2;
/// The page is in memory and mapped.
pub const IS_PRESENT: u64 = 1 << 3;
/// The page is in swap.
pub const IS_SWAPPED: u64 = 1 << 4;
/// The shared page of zeros.
pub const IS_PFNZERO: u64 = 1 << 5;
/// As [`ENTRY_SOFT_DIRTY`].
pub const IS_SOFT_DIRTY: u64 = 1 << 7;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanArg {
    /// Bytes of this structure.
    pub size: u64,
    /// `SCAN_` flags.
    pub flags: u64,
    /// First address of the scan.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Where the kernel stopped. May lie before regions it has returned (seen on 6.18).
    pub walk_end: u64,
    /// Address of an array of [`Region`] for the answer.
    pub vec: u64,
    /// Entries that the array has room for.
    pub vec_len: u64,
    /// Most pages to return; 0 for no limit.
    pub max_pages: u64,
    /// `IS_` bits that are inverted before they are compared.
    pub category_inverted: u64,
    /// `IS_` bits that a page must all have to be returned.
    pub category_mask: u64,
    /// `IS_` bits of which it must have one; 0 asks for none.
    pub category_anyof_mask: u64,
    /// `IS_` bits that the answer shows.
    pub return_mask: u64,
}

/// `struct page_region`: consecutive pages of the same categories (the `IS_` bits).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Those `IS_` bits of the pages that were asked for.
    pub categories: u64,
}
