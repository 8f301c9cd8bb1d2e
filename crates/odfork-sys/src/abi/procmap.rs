//! `PROCMAP_QUERY`, asked of an open `/proc/PID/maps`: one mapping without the text (Linux 6.11).

use super::iowr;

pub const QUERY: u64 = iowr::<Query>(b'f', 17);

/// Flag: the mapping that holds the address, or the next one above it.
pub const COVERING_OR_NEXT_VMA: u64 = 0x10;

/// Bits of `vma_flags`.
pub const VMA_READABLE: u64 = 1;
pub const VMA_WRITABLE: u64 = 2;
pub const VMA_EXECUTABLE: u64 = 4;
pub const VMA_SHARED: u64 = 8;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    pub size: u64,
    pub flags: u64,
    pub address: u64,
    pub start: u64,
    pub end: u64,
    pub vma_flags: u64,
    pub page_size: u64,
    pub offset: u64,
    pub inode: u64,
    pub device_major: u32,
    pub device_minor: u32,
    pub name_size: u32,
    pub build_id_size: u32,
    pub name_address: u64,
    pub build_id_address: u64,
}
