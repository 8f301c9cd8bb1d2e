//! The control pages: memory shared by one program's agent and the daemon, and the doorbell all
//! agents share.
//!
//! The supervisor makes them and keeps them, so a new daemon finds every call and every list where
//! the old one left it. Who writes what:
//!
//! ```text
//!   field            agent                      daemon
//!   call.asked       +1 when a call is made     reads
//!   call.answered    waits for == asked         sets, then wakes
//!   zap.asked        waits for a change         +1 when a batch is ready, then wakes
//!   zap.answered     sets, then rings           reads
//!   frozen           -                          sets before it answers, reads when it starts
//!   regions          writes before a call       reads while it serves a call, and when it starts
//!   doorbell             +1, then wakes             waits
//! ```
//!
//! A call is repeated by a new daemon when the old one died before it had answered: all calls are
//! idempotent. The daemon trusts nothing here: counts and ranges are checked when they are read,
//! and a lie harms the liar only.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    fence, AtomicI32, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// First word of a control file.
pub const MAGIC: u32 = 0x6f64_7032;

/// Regions a program can have; mappings beyond stay the kernel's.
pub const REGIONS: usize = 4096;
/// Ranges in one batch of zaps.
pub const ZAP_RANGES: usize = 512;
/// Pages in one batch of zaps.
pub const ZAP_PAGES: usize = 1024;
/// Pages in one range: below 2 MB, because from there on the kernel may free the page table (6.14),
/// and what was written could no longer be told.
pub const ZAP_RANGE_PAGES: u32 = 256;

/// What the agent asks. Arguments in `args`, the answer in `result`: zero or a negative error
/// number.
pub mod op {
    /// The region list has changed; nothing else. No arguments.
    pub const REGIONS: u32 = 1;
    /// The region list has changed, and `args[0]`, `args[1]` = offset and bytes are gone from it.
    pub const RELEASE: u32 = 2;
    /// `args[0]`, `args[1]` = offset and bytes become zeros.
    pub const DISCARD: u32 = 3;
    /// No fault of this program is served until SNAPSHOT or THAW.
    pub const FREEZE: u32 = 4;
    /// Give the program `args[0]` (a number of the supervisor's) this one's memory as it is; then
    /// serve again. All of it must have been unmapped after FREEZE.
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

/// One call of the agent and its answer. A program makes one at a time.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// Calls made.
    pub asked: AtomicU32,
    /// Calls answered: equal to `asked` when none waits.
    pub answered: AtomicU32,
    /// Which: a number of [`op`].
    pub op: AtomicU32,
    /// 0.
    pub reserved: u32,
    /// Its arguments.
    pub args: [AtomicU64; 4],
    /// The answer: 0, or a negative error number.
    pub result: AtomicI32,
    /// Zeros.
    pub reserved2: [u32; 7],
}

/// A batch of ranges to unmap. Bits of `clean` and `failed` count pages over all ranges in order.
#[repr(C)]
pub struct Zap {
    /// Batches given.
    pub asked: AtomicU32,
    /// Batches done: equal to `asked` when none waits.
    pub answered: AtomicU32,
    /// Ranges in the batch, at most [`ZAP_RANGES`].
    pub ranges: AtomicU32,
    /// 0.
    pub reserved: u32,
    /// The ranges.
    pub spans: [Span; ZAP_RANGES],
    /// The page was not written since it was mapped with the mark. All others count as written.
    pub clean: [AtomicU64; ZAP_PAGES / 64],
    /// The page was not unmapped: it no longer belongs to a region, or the kernel refused.
    pub failed: [AtomicU64; ZAP_PAGES / 64],
}

/// The control file of one program: [`CONTROL_BYTES`] of shared memory.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// Threads of the program holding `lock` do not touch paged memory; for information only.
    pub state: AtomicU32,
    /// The daemon's: a fork is between FREEZE and the end of SNAPSHOT or THAW.
    pub frozen: AtomicU32,
    /// 0.
    pub reserved: u32,
    /// Zeros.
    pub reserved2: [u64; 6],
    /// What the agent asks of the daemon.
    pub call: Call,
    /// What the daemon asks of the agent.
    pub zap: Zap,
    /// The program's paged memory.
    pub regions: Regions,
}

/// The list of regions, whole at every moment: two places, of which `turn` names the one that
/// holds. A daemon that starts reads it whatever the agent is doing.
#[repr(C)]
pub struct Regions {
    turn: AtomicU32,
    counts: [AtomicU32; 2],
    reserved: u32,
    places: UnsafeCell<[[Span; REGIONS]; 2]>,
}

// SAFETY: one agent writes the place that does not hold; readers copy the other one and look at
// `turn` again.
unsafe impl Sync for Regions {}

impl Regions {
    /// A new list, at most [`REGIONS`] long, instead of the one that holds. One writer at a time.
    pub fn publish(&self, list: &[Span]) {
        let turn = self.turn.load(Relaxed).wrapping_add(1);
        let which = turn as usize % 2;
        // Readers of the list before last must see that it no longer holds before they see it
        // change.
        fence(SeqCst);
        for (at, span) in list.iter().take(REGIONS).enumerate() {
            // SAFETY: inside the array.
            unsafe { self.place(which).add(at).write_volatile(*span) };
        }
        self.counts[which].store(list.len().min(REGIONS) as u32, Relaxed);
        self.turn.store(turn, Release);
    }

    /// Hands over the list that holds, from its beginning, and again from its beginning when it
    /// changed meanwhile; returns its length. None: it is no list, or does not stand still (nobody
    /// honest changes it twice within a call).
    pub fn read(&self, mut each: impl FnMut(usize, Span)) -> Option<usize> {
        for _ in 0..1000 {
            let turn = self.turn.load(Acquire);
            let which = turn as usize % 2;
            let count = self.counts[which].load(Relaxed) as usize;
            if count <= REGIONS {
                // SAFETY: inside the array; copied, because the program may change it at any time.
                (0..count)
                    .for_each(|at| each(at, unsafe { self.place(which).add(at).read_volatile() }));
            }
            fence(Acquire);
            if self.turn.load(Relaxed) == turn {
                return (count <= REGIONS).then_some(count);
            }
        }
        None
    }

    fn place(&self, which: usize) -> *mut Span {
        self.places.get().cast::<Span>().wrapping_add(which * REGIONS)
    }
}

/// Bytes of the control file.
pub const CONTROL_BYTES: usize = size_of::<Control>().next_multiple_of(crate::PAGE);

/// The page all agents of a supervisor share: rung when there is something for the daemon to see.
#[repr(C)]
#[derive(Debug)]
pub struct Doorbell {
    /// Times it was rung.
    pub rung: AtomicU32,
    /// The daemon sleeps on `rung`: whoever rings has to wake it.
    pub sleeping: AtomicU32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_is_small_and_its_lists_are_aligned() {
        const { assert!(CONTROL_BYTES < 512 * 1024) }
        assert_eq!(core::mem::offset_of!(Control, regions) % 8, 0);
        assert_eq!(core::mem::offset_of!(Control, zap) % 8, 0);
        const { assert!((ZAP_RANGE_PAGES as usize) * 4096 < 2 << 20) };
    }

    const fn none() -> Regions {
        Regions {
            turn: AtomicU32::new(0),
            counts: [AtomicU32::new(0), AtomicU32::new(0)],
            reserved: 0,
            places: UnsafeCell::new(
                [[Span { address: 0, offset: 0, len: 0, flags: 0 }; REGIONS]; 2],
            ),
        }
    }

    /// Every list of the writer has one number in all its places, and a length that belongs to it.
    #[test]
    fn a_list_is_read_whole_while_it_changes() {
        extern crate std;
        static LIST: Regions = none();
        const LISTS: u64 = 20_000;
        let whole = || {
            let (mut first, mut mixed) = (0, false);
            let count = LIST.read(|at, span| {
                (first, mixed) =
                    if at == 0 { (span.len, false) } else { (first, mixed || span.len != first) };
            });
            count.map(|count| {
                assert!(!mixed, "a list of two lists");
                assert_eq!(count as u64, if count == 0 { 0 } else { first % 100 + 1 });
                first
            })
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=LISTS {
                    let span = Span { len: number, ..Span::default() };
                    LIST.publish(&[span; 100][..(number % 100 + 1) as usize]);
                }
            });
            while whole() != Some(LISTS) {}
        });
        // An agent that stands still in the middle of the next one.
        LIST.counts[1].store(77, Relaxed);
        // SAFETY: inside the array, and nobody else is here.
        unsafe { LIST.place(1).write_volatile(Span { len: 5, ..Span::default() }) };
        assert_eq!(whole(), Some(LISTS));
        LIST.counts[0].store(REGIONS as u32 + 1, Relaxed);
        assert_eq!(LIST.read(|_, _| {}), None);
    }
}
