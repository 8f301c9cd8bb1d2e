//! tmpfs as fstatfs(2) shows it. `libc` keeps the flags to itself.

/// `struct statfs` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statfs {
    pub kind: i64,
    pub block_size: i64,
    pub blocks: u64,
    pub free: [u64; 2],
    pub files: [u64; 2],
    pub id: [i32; 2],
    pub name_length: i64,
    pub fragment_size: i64,
    pub flags: i64,
    pub spare: [i64; 4],
}

/// `f_type` of a tmpfs.
pub const MAGIC: i64 = 0x0102_1994;
/// `f_flags`: mounted noexec.
pub const ST_NOEXEC: i64 = 8;
/// Blocks of `st_blocks` in a huge page of 2 MB.
pub const HUGE_BLOCKS: i64 = (2 << 20) / 512;
