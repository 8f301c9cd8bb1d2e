//! `<linux/userfaultfd.h>` as of Linux 6.18.
//!
//! Written out because the headers of current distributions (6.1) lack WP_ASYNC, POISON and the
//! write-protecting CONTINUE. The prefixes `UFFD_` and `UFFDIO_` are the name of this module.

use super::{io, ior, iowr};

const KIND: u8 = 0xAA;

/// The version of the interface, first field of [`Api`].
pub const VERSION: u64 = 0xAA;

pub const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
/// Wants CAP_SYS_PTRACE.
pub const FEATURE_EVENT_FORK: u64 = 1 << 1;
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
pub const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
pub const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
pub const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
pub const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
/// Linux 5.19.
pub const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
/// Linux 6.4.
pub const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
/// Linux 6.6.
pub const FEATURE_POISON: u64 = 1 << 14;
/// Linux 6.7: a write to a write-protected page drops the protection in the kernel, no message.
pub const FEATURE_WP_ASYNC: u64 = 1 << 15;
/// Linux 6.8.
pub const FEATURE_MOVE: u64 = 1 << 16;

/// Flag of userfaultfd(2): faults from user mode only, allowed without privilege (Linux 5.11).
pub const USER_MODE_ONLY: i32 = 1;

/// Asked of `/dev/userfaultfd` (Linux 6.1); the argument is the flags of userfaultfd(2).
pub const NEW: u64 = io(KIND, 0x00);
pub const API: u64 = iowr::<Api>(KIND, 0x3F);
pub const REGISTER: u64 = iowr::<Register>(KIND, 0x00);
pub const UNREGISTER: u64 = ior::<Range>(KIND, 0x01);
pub const WAKE: u64 = ior::<Range>(KIND, 0x02);
pub const COPY: u64 = iowr::<CopyPages>(KIND, 0x03);
pub const ZEROPAGE: u64 = iowr::<Fill>(KIND, 0x04);
pub const MOVE: u64 = iowr::<MovePages>(KIND, 0x05);
pub const WRITEPROTECT: u64 = iowr::<WriteProtect>(KIND, 0x06);
pub const CONTINUE: u64 = iowr::<Fill>(KIND, 0x07);
pub const POISON: u64 = iowr::<Fill>(KIND, 0x08);

pub const REGISTER_MODE_MISSING: u64 = 1;
pub const REGISTER_MODE_WP: u64 = 2;
pub const REGISTER_MODE_MINOR: u64 = 4;

pub const WRITEPROTECT_MODE_WP: u64 = 1;
pub const COPY_MODE_WP: u64 = 2;
/// Linux 6.4; without it CONTINUE drops the protection, and the page reads as written.
pub const CONTINUE_MODE_WP: u64 = 2;

pub const EVENT_PAGEFAULT: u8 = 0x12;
pub const PAGEFAULT_FLAG_WRITE: u64 = 1;
pub const PAGEFAULT_FLAG_WP: u64 = 2;
pub const PAGEFAULT_FLAG_MINOR: u64 = 4;
/// A descriptor came with it, its number in the low half of `flags`.
pub const EVENT_FORK: u8 = 0x13;
/// mremap: the fields are the old address, the new one, and the length.
pub const EVENT_REMAP: u8 = 0x14;
/// madvise that drops content: the fields are start and end.
pub const EVENT_REMOVE: u8 = 0x15;
/// munmap, and whatever else takes mappings away: the fields are start and end.
pub const EVENT_UNMAP: u8 = 0x16;

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Api {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    pub start: u64,
    pub len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    pub range: Range,
    pub mode: u64,
    pub ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteProtect {
    pub range: Range,
    pub mode: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyPages {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    pub copied: i64,
}

/// `struct uffdio_move`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MovePages {
    pub dst: u64,
    pub src: u64,
    pub len: u64,
    pub mode: u64,
    pub moved: i64,
}

/// `struct uffdio_zeropage`; `uffdio_continue` and `uffdio_poison` have the same shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    pub range: Range,
    pub mode: u64,
    pub done: i64,
}

/// `struct uffd_msg`: read from the descriptor. The fields after `event` are those of a page fault.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    pub event: u8,
    pub reserved: [u8; 7],
    pub flags: u64,
    pub address: u64,
    pub thread: u64,
}
