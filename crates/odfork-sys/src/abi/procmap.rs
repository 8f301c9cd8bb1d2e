//! `PROCMAP_QUERY`, asked of an open `/proc/PID/maps`: one mapping without the text (Linux 6.11).

use super::iowr;

/// `PROCMAP_QUERY`: ENOENT where no mapping fits, ENOTTY before Linux 6.11.
pub const QUERY: u64 = iowr::<Query>(b'f', 17);

/// Flag: the mapping that holds the address, or the next one above it.
pub const COVERING_OR_NEXT_VMA: u64 = 0x10;

/// Flag: mappings of files only.
pub const FILE_BACKED_VMA: u64 = 0x20;

/// Bits of `vma_flags`.
pub const VMA_READABLE: u64 = 1;
/// May be written.
pub const VMA_WRITABLE: u64 = 2;
/// May be executed.
pub const VMA_EXECUTABLE: u64 = 4;
/// Is a shared mapping.
pub const VMA_SHARED: u64 = 8;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// Bytes of this structure.
    pub size: u64,
    /// What is asked for: [`COVERING_OR_NEXT_VMA`], and bits of `vma_flags` it must have.
    pub flags: u64,
    /// The address that is asked about.
    pub address: u64,
    /// Answer: first address of the mapping.
    pub start: u64,
    /// Answer: the address behind its last one.
    pub end: u64,
    /// Answer: its `VMA_` bits.
    pub vma_flags: u64,
    /// Answer: bytes of its pages (2 MB for hugetlb).
    pub page_size: u64,
    /// Answer: offset of its first byte in the file.
    pub offset: u64,
    /// Answer: number of the file; 0 without a file.
    pub inode: u64,
    /// Answer: major number of the file's device.
    pub device_major: u32,
    /// Answer: minor number of the file's device.
    pub device_minor: u32,
    /// Bytes of room at `name_address`; answer: bytes of the name with its end.
    pub name_size: u32,
    /// Bytes of room at `build_id_address`; answer: bytes of the build id.
    pub build_id_size: u32,
    /// Where the name goes; 0 for no name.
    pub name_address: u64,
    /// Where the build id goes; 0 for none.
    pub build_id_address: u64,
}
