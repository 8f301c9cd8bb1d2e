//! `<linux/userfaultfd.h>` as of Linux 6.18.
//!
//! Written out because the headers of current distributions (6.1) lack WP_ASYNC, POISON and the
//! write-protecting CONTINUE. The prefixes `UFFD_` and `UFFDIO_` are the name of this module.

use super::{io, ior, iowr};

const KIND: u8 = 0xAA;

/// The version of the interface, first field of [`Api`].
pub const VERSION: u64 = 0xAA;

/// Writes to protected pages are reported as such.
pub const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
/// Wants CAP_SYS_PTRACE.
pub const FEATURE_EVENT_FORK: u64 = 1 << 1;
/// mremap is reported ([`EVENT_REMAP`]).
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
/// madvise that drops content is reported ([`EVENT_REMOVE`]).
pub const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
/// munmap is reported ([`EVENT_UNMAP`]).
pub const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
/// Missing pages of shared memory and memory files (Linux 4.11).
pub const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
/// Pages of such files that are there, but not mapped (Linux 5.14).
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
/// `UFFDIO_API`: agrees on features; the first request.
pub const API: u64 = iowr::<Api>(KIND, 0x3F);
/// `UFFDIO_REGISTER`: watches a range.
pub const REGISTER: u64 = iowr::<Register>(KIND, 0x00);
/// `UFFDIO_UNREGISTER`: watches it no longer, and wakes who waits.
pub const UNREGISTER: u64 = ior::<Range>(KIND, 0x01);
/// `UFFDIO_WAKE`: lets who waits in a range try again.
pub const WAKE: u64 = ior::<Range>(KIND, 0x02);
/// `UFFDIO_COPY`: fills missing pages with content.
pub const COPY: u64 = iowr::<CopyPages>(KIND, 0x03);
/// `UFFDIO_ZEROPAGE`: fills missing pages with zeros.
pub const ZEROPAGE: u64 = iowr::<Fill>(KIND, 0x04);
/// `UFFDIO_MOVE`: moves pages of this memory without a copy (Linux 6.8).
pub const MOVE: u64 = iowr::<MovePages>(KIND, 0x05);
/// `UFFDIO_WRITEPROTECT`: protects a range or lifts the protection (Linux 5.7).
pub const WRITEPROTECT: u64 = iowr::<WriteProtect>(KIND, 0x06);
/// `UFFDIO_CONTINUE`: maps the pages that the file has (Linux 5.13).
pub const CONTINUE: u64 = iowr::<Fill>(KIND, 0x07);
/// `UFFDIO_POISON`: makes a touch a SIGBUS (Linux 6.6).
pub const POISON: u64 = iowr::<Fill>(KIND, 0x08);

/// Reports a touch of a page that is not there.
pub const REGISTER_MODE_MISSING: u64 = 1;
/// Reports a write to a protected page.
pub const REGISTER_MODE_WP: u64 = 2;
/// Reports a touch of a page that the file has and nobody has mapped.
pub const REGISTER_MODE_MINOR: u64 = 4;

/// [`WRITEPROTECT`]: protects; without it the protection is lifted.
pub const WRITEPROTECT_MODE_WP: u64 = 1;
/// [`COPY`]: the pages are write-protected from the start.
pub const COPY_MODE_WP: u64 = 2;
/// Linux 6.4; without it CONTINUE drops the protection, and the page reads as written.
pub const CONTINUE_MODE_WP: u64 = 2;

/// A page fault: the fields are its flags, the address and the thread.
pub const EVENT_PAGEFAULT: u8 = 0x12;
/// The touch was a write.
pub const PAGEFAULT_FLAG_WRITE: u64 = 1;
/// It met write protection.
pub const PAGEFAULT_FLAG_WP: u64 = 2;
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
    /// Always [`VERSION`].
    pub api: u64,
    /// `FEATURE_` bits asked for; the answer has all that the kernel knows.
    pub features: u64,
    /// Answer: which requests there are, one bit for each number.
    pub ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    /// First address; whole pages.
    pub start: u64,
    /// Bytes; whole pages.
    pub len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    /// What is watched.
    pub range: Range,
    /// `REGISTER_MODE_` bits.
    pub mode: u64,
    /// Answer: which requests this range allows, one bit for each number.
    pub ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteProtect {
    /// What is protected.
    pub range: Range,
    /// [`WRITEPROTECT_MODE_WP`] or 0.
    pub mode: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyPages {
    /// Where the content goes.
    pub dst: u64,
    /// Where it is in the caller's memory.
    pub src: u64,
    /// Bytes; whole pages.
    pub len: u64,
    /// [`COPY_MODE_WP`] or 0.
    pub mode: u64,
    /// Answer: bytes done, or a negative error number.
    pub copied: i64,
}

/// `struct uffdio_move`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MovePages {
    /// Where the pages go.
    pub dst: u64,
    /// Where they are.
    pub src: u64,
    /// Bytes; whole pages.
    pub len: u64,
    /// 0 here; `UFFDIO_MOVE_MODE_` bits.
    pub mode: u64,
    /// Answer: bytes done, or a negative error number.
    pub moved: i64,
}

/// `struct uffdio_zeropage`; `uffdio_continue` and `uffdio_poison` have the same shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    /// What is filled, mapped or poisoned.
    pub range: Range,
    /// [`CONTINUE_MODE_WP`] or 0.
    pub mode: u64,
    /// Answer: bytes done, or a negative error number.
    pub done: i64,
}

/// `struct uffd_msg`: read from the descriptor. The fields after `event` are those of a page fault.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// Which `EVENT_` it is; the fields below are named for a page fault.
    pub event: u8,
    /// Zeros.
    pub reserved: [u8; 7],
    /// `PAGEFAULT_FLAG_` bits.
    pub flags: u64,
    /// The address that was touched.
    pub address: u64,
    /// Id of the thread that touched it, with `UFFD_FEATURE_THREAD_ID`.
    pub thread: u64,
}
