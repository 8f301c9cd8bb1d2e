//! tmpfs as fstatfs(2) shows it. `libc` keeps the flags to itself.

/// `struct statfs` of 64-bit Linux.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statfs {
    /// `f_type`: the magic number of the file system.
    pub kind: i64,
    /// Bytes of a block.
    pub block_size: i64,
    /// Size in blocks; 0 for a tmpfs without a limit.
    pub blocks: u64,
    /// Blocks that are free, and those that an ordinary user may have.
    pub free: [u64; 2],
    /// Inodes, and those that are free.
    pub files: [u64; 2],
    /// Number of the file system.
    pub id: [i32; 2],
    /// Most bytes of a name.
    pub name_length: i64,
    /// `f_frsize`.
    pub fragment_size: i64,
    /// `f_flags`: the `ST_` bits of the mount.
    pub flags: i64,
    /// Not used by the kernel.
    pub spare: [i64; 4],
}

/// `f_type` of a tmpfs.
pub const MAGIC: i64 = 0x0102_1994;
/// `f_flags`: mounted noexec.
pub const ST_NOEXEC: i64 = 8;
/// Blocks of `st_blocks` in a huge page of 2 MB.
pub const HUGE_BLOCKS: i64 = (2 << 20) / 512;
