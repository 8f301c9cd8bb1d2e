//! What agent, supervisor and daemon of the pager agree on.
//!
//! Owns: the pages a program and the daemon share ([`control`]), the messages over the socket
//! ([`wire`]). No code that acts, no heap, no libc calls: the agent is linked into other people's
//! programs. The kernel's numbers are in `odfork_sys::abi`.
#![no_std]

pub mod control;
pub mod wire;

use odfork_sys::abi::userfaultfd;

/// Bytes of a page; the pager knows only this size.
pub const PAGE: usize = 4096;

/// Bytes of one program's backing memfd: its paged memory lies in one sparse memory file of this
/// size. The page table beside it takes 16 bytes a page, sparse as well.
pub const BACKING_BYTES: u64 = 1 << 40;

/// Bytes of the file through which the processes of a group (`page run --memory any`) have one
/// limit. Its first word is the limit in pages, the third one the time at which the last process
/// came or went (monotonic, nanoseconds).
pub const GROUP_BYTES: usize = 32768;

/// Bytes of a slot of that file, from the second one on: of a process, whose number is the first
/// word, or of nobody (0).
pub const GROUP_SLOT: usize = 128;

/// What paging of all memory needs of userfaultfd; moves are of Linux 6.8. The kernel's event of a
/// fork, which wants CAP_SYS_PTRACE, comes on top if it can be had.
pub const MOVING_FEATURES: u64 = userfaultfd::FEATURE_EVENT_REMAP
    | userfaultfd::FEATURE_EVENT_REMOVE
    | userfaultfd::FEATURE_EVENT_UNMAP
    | userfaultfd::FEATURE_MOVE
    | userfaultfd::FEATURE_WP_ASYNC
    | userfaultfd::FEATURE_POISON;

/// What the daemon needs of it; the last one is of Linux 6.7.
pub const USERFAULTFD_FEATURES: u64 = userfaultfd::FEATURE_PAGEFAULT_FLAG_WP
    | userfaultfd::FEATURE_MISSING_SHMEM
    | userfaultfd::FEATURE_MINOR_SHMEM
    | userfaultfd::FEATURE_WP_HUGETLBFS_SHMEM
    | userfaultfd::FEATURE_WP_UNPOPULATED
    | userfaultfd::FEATURE_POISON
    | userfaultfd::FEATURE_WP_ASYNC;
