//! The control pages: memory shared by one program's agent and the daemon, and the bell all agents share.
//!
//! The supervisor makes them and keeps them, so a new daemon finds every call and every list where the old one left it.
//! Who writes what:
//!
//! ```text
//!   field            agent                      daemon
//!   call.asked       +1 when a call is made     reads
//!   call.answered    waits for == asked         sets, then wakes
//!   zap.asked        waits for a change         +1 when a batch is ready, then wakes
//!   zap.answered     sets, then rings           reads
//!   regions          writes inside a call       reads while it serves a call
//!   bell             +1, then wakes             waits
//! ```
//!
//! A call is repeated by a new daemon when the old one died before it had answered: all calls are idempotent.
//! The daemon trusts nothing here: counts and ranges are checked when they are read, and a lie harms the liar only.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

pub const MAGIC: u32 = 0x6f64_7031;

/// Regions a program can have; mappings beyond stay the kernel's.
pub const REGIONS: usize = 4096;
/// Ranges in one batch of zaps.
pub const ZAP_RANGES: usize = 512;
/// Pages in one batch of zaps.
pub const ZAP_PAGES: usize = 1024;
/// Pages in one range: below 2 MB, because from there on the kernel may free the page table (6.14), and what
/// was written could no longer be told.
pub const ZAP_RANGE_PAGES: u32 = 256;

/// What the agent asks. Arguments in `args`, the answer in `result`: zero or a negative error number.
pub mod op {
    /// The region list has changed; nothing else. No arguments.
    pub const REGIONS: u32 = 1;
    /// The region list has changed, and `args[0]`, `args[1]` = offset and bytes are gone from it.
    pub const RELEASE: u32 = 2;
    /// `args[0]`, `args[1]` = offset and bytes become zeros.
    pub const DISCARD: u32 = 3;
    /// No fault of this program is served until SNAPSHOT or THAW.
    pub const FREEZE: u32 = 4;
    /// Give the program `args[0]` (a number of the supervisor's) this one's memory as it is; then serve again.
    /// All of it must have been unmapped after FREEZE.
    pub const SNAPSHOT: u32 = 5;
    /// Serve again, without a snapshot.
    pub const THAW: u32 = 6;
    /// `args[0]`: 1 an anomalous phase begins, 0 it ends.
    pub const ADVISE: u32 = 7;
    /// `args[0]`, `args[1]` = offset and bytes: have all its pages in memory soon.
    pub const PREFETCH: u32 = 8;
}

/// One range of pages to unmap, or one region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Address in the program, bytes.
    pub address: u64,
    /// Place in the memory file, bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Of a region: its `REGION_*` flags. Of a zap: unused.
    pub flags: u64,
}

/// A forked child does not get it.
pub const REGION_DONTFORK: u64 = 1;
/// A forked child finds zeros in it.
pub const REGION_WIPEONFORK: u64 = 2;

#[repr(C)]
#[derive(Debug)]
pub struct Call {
    pub asked: AtomicU32,
    pub answered: AtomicU32,
    pub op: AtomicU32,
    pub reserved: u32,
    pub args: [AtomicU64; 4],
    pub result: AtomicI32,
    pub reserved2: [u32; 7],
}

/// A batch of ranges to unmap. Bits of `clean` and `failed` count pages over all ranges in order.
#[repr(C)]
pub struct Zap {
    pub asked: AtomicU32,
    pub answered: AtomicU32,
    pub ranges: AtomicU32,
    pub reserved: u32,
    pub spans: [Span; ZAP_RANGES],
    /// The page was not written since it was mapped with the mark. All others count as written.
    pub clean: [AtomicU64; ZAP_PAGES / 64],
    /// The page was not unmapped: it no longer belongs to a region, or the kernel refused.
    pub failed: [AtomicU64; ZAP_PAGES / 64],
}

#[repr(C)]
pub struct Control {
    pub magic: AtomicU32,
    /// Threads of the program holding `lock` do not touch paged memory; for information only.
    pub state: AtomicU32,
    pub reserved: [u64; 7],
    pub call: Call,
    pub zap: Zap,
    pub region_count: AtomicU32,
    pub reserved2: u32,
    pub regions: [Span; REGIONS],
}

/// Bytes of the control file.
pub const CONTROL_BYTES: usize = size_of::<Control>().next_multiple_of(crate::PAGE);

/// The page all agents of a supervisor share: rung when there is something for the daemon to see.
#[repr(C)]
#[derive(Debug)]
pub struct Bell {
    pub rung: AtomicU32,
    /// The daemon sleeps on `rung`: whoever rings has to wake it.
    pub sleeping: AtomicU32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_is_small_and_its_lists_are_aligned() {
        const { assert!(CONTROL_BYTES < 256 * 1024) }
        assert_eq!(core::mem::offset_of!(Control, regions) % 8, 0);
        assert_eq!(core::mem::offset_of!(Control, zap) % 8, 0);
        const { assert!((ZAP_RANGE_PAGES as usize) * 4096 < 2 << 20) };
    }
}
