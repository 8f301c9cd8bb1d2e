//! What agent, supervisor and daemon of the pager agree on.
//!
//! Owns: the kernel's userfaultfd and PAGEMAP_SCAN numbers ([`uapi`]), the pages a program and the
//! daemon share ([`control`]), the messages over the socket ([`wire`]). No code that acts, no heap,
//! no libc calls: the agent is linked into other people's programs.
#![no_std]

pub mod control;
pub mod uapi;
pub mod wire;

/// Bytes of a page; the pager knows only this size.
pub const PAGE: usize = 4096;

/// Bytes of one program's backing memfd: its paged memory lies in one sparse memory file of this
/// size. The page table beside it takes 16 bytes a page, sparse as well.
pub const BACKING_BYTES: u64 = 1 << 40;
