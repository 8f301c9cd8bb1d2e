//! Numbers and structures of `<linux/userfaultfd.h>` and PAGEMAP_SCAN as of Linux 6.18.
//!
//! Written out because the headers of current distributions (6.1) lack WP_ASYNC, POISON and the
//! mark for CONTINUE. All numbers of this interface are in this one file;
//! `tests::sizes_are_those_in_the_numbers` holds the layouts.

pub const UFFD_API: u64 = 0xAA;

pub const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
pub const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
pub const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
pub const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
/// Linux 5.19.
pub const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
/// Linux 6.4.
pub const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
/// Linux 6.6.
pub const FEATURE_POISON: u64 = 1 << 14;
/// Linux 6.7: a write to a marked page drops the mark in the kernel, no message.
pub const FEATURE_WP_ASYNC: u64 = 1 << 15;

/// All that paging needs; the last one is of Linux 6.7.
pub const FEATURES: u64 = FEATURE_PAGEFAULT_FLAG_WP
    | FEATURE_MISSING_SHMEM
    | FEATURE_MINOR_SHMEM
    | FEATURE_WP_HUGETLBFS_SHMEM
    | FEATURE_WP_UNPOPULATED
    | FEATURE_POISON
    | FEATURE_WP_ASYNC;

/// Flag of userfaultfd(2): faults from user mode only, allowed without privilege.
pub const USER_MODE_ONLY: u32 = 1;

pub const IOC_NEW: u64 = 0xAA00;
pub const IOC_API: u64 = ioc(3, 0x3F, 24);
pub const IOC_REGISTER: u64 = ioc(3, 0x00, 32);
pub const IOC_UNREGISTER: u64 = ioc(2, 0x01, 16);
pub const IOC_WAKE: u64 = ioc(2, 0x02, 16);
pub const IOC_COPY: u64 = ioc(3, 0x03, 40);
pub const IOC_ZEROPAGE: u64 = ioc(3, 0x04, 32);
pub const IOC_CONTINUE: u64 = ioc(3, 0x07, 32);
pub const IOC_POISON: u64 = ioc(3, 0x08, 32);

/// `_IOC(dir, 0xAA, nr, size)`.
const fn ioc(dir: u64, nr: u64, size: u64) -> u64 {
    dir << 30 | size << 16 | 0xAA << 8 | nr
}

pub const REGISTER_MISSING: u64 = 1;
pub const REGISTER_WP: u64 = 2;
pub const REGISTER_MINOR: u64 = 4;

pub const COPY_MODE_WP: u64 = 2;
/// Linux 6.4; without it CONTINUE drops the mark, and the page reads as written.
pub const CONTINUE_MODE_WP: u64 = 2;

pub const EVENT_PAGEFAULT: u8 = 0x12;
pub const PAGEFAULT_MINOR: u64 = 4;
/// A descriptor came with it, its number in the low half of `flags`.
pub const EVENT_FORK: u8 = 0x13;
/// mremap: the fields are the old address, the new one, and the length.
pub const EVENT_REMAP: u8 = 0x14;
/// madvise that drops content: the fields are start and end.
pub const EVENT_REMOVE: u8 = 0x15;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Api {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    pub start: u64,
    pub len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    pub range: Range,
    pub mode: u64,
    pub ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Copy {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    pub copied: i64,
}

/// ZEROPAGE, CONTINUE and POISON have this one shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    pub range: Range,
    pub mode: u64,
    pub done: i64,
}

/// One message read from the descriptor. The fields after `event` are those of a page fault.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    pub event: u8,
    pub reserved: [u8; 7],
    pub flags: u64,
    pub address: u64,
    pub thread: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`, Linux 6.7.
pub const PAGEMAP_SCAN: u64 = 3 << 30 | 96 << 16 | (b'f' as u64) << 8 | 16;
/// An error where the memory is not watched in the WP_ASYNC way.
pub const SCAN_CHECK_WP_ASYNC: u64 = 1 << 1;
pub const PAGE_IS_WRITTEN: u64 = 1 << 1;
pub const PAGE_IS_SWAPPED: u64 = 1 << 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    pub size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    pub walk_end: u64,
    pub vec: u64,
    pub vec_len: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub category_anyof_mask: u64,
    pub return_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRegion {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`, Linux 6.11: asked of /proc/PID/maps.
pub const PROCMAP_QUERY: u64 = 3 << 30 | 104 << 16 | (b'f' as u64) << 8 | 17;
pub const COVERING_OR_NEXT: u64 = 0x10;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MappingQuery {
    pub size: u64,
    pub flags: u64,
    pub address: u64,
    pub start: u64,
    pub end: u64,
    pub mapping_flags: u64,
    pub page_size: u64,
    pub offset: u64,
    pub inode: u64,
    pub device: [u32; 2],
    pub name_size: u32,
    pub build_id_size: u32,
    pub name: u64,
    pub build_id: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::size_of;

    #[test]
    fn sizes_are_those_in_the_numbers() {
        let size = |number: u64| (number >> 16 & 0x3FFF) as usize;
        assert_eq!(size_of::<Api>(), size(IOC_API));
        assert_eq!(size_of::<Register>(), size(IOC_REGISTER));
        assert_eq!(size_of::<Range>(), size(IOC_WAKE));
        assert_eq!(size_of::<Copy>(), size(IOC_COPY));
        assert_eq!(size_of::<Fill>(), size(IOC_ZEROPAGE));
        assert_eq!(size_of::<Fill>(), size(IOC_CONTINUE));
        assert_eq!(size_of::<Scan>(), size(PAGEMAP_SCAN));
        assert_eq!(size_of::<MappingQuery>(), size(PROCMAP_QUERY));
        assert_eq!(size_of::<Message>(), 32);
        assert_eq!((IOC_API, IOC_COPY), (0xc018_aa3f, 0xc028_aa03));
    }
}
