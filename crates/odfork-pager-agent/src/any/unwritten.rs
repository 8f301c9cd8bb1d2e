//! Pages that the program has read and never written: the kernel's one page of zeros.
//!
//! They take no memory, and a write makes each a page of its own without asking. So there are few
//! of them at a time: the oldest are away again, and a touch asks for them.

use odfork_pager_protocol::PAGE;

use super::room::Room;

const BYTES: u64 = PAGE as u64;

/// The part of the limit that they may become.
const PART: u64 = 16;

/// Runs of them, in the order in which they came.
pub struct Unwritten {
    /// Start and end of each: a ring.
    runs: *mut (u64, u64),
    len: u64,
    head: u64,
    tail: u64,
    /// Pages in all runs.
    pub count: u64,
}

/// As many as there may be under a limit.
pub fn most(limit: u64) -> u64 {
    limit / PART
}

impl Unwritten {
    pub fn new(limit: u64, room: &mut Room) -> Option<Unwritten> {
        let len = most(limit) + 2;
        Some(Unwritten { runs: room.take(len as usize)?, len, head: 0, tail: 0, count: 0 })
    }

    /// Each has a page at least, so there is room: what is too much goes at once.
    pub fn add(&mut self, start: u64, end: u64) {
        // SAFETY: below the length.
        unsafe { *self.runs.add((self.head % self.len) as usize) = (start, end) };
        self.head += 1;
        self.count += (end - start) / BYTES;
    }

    /// The oldest run, which is none any more.
    pub fn oldest(&mut self) -> Option<(u64, u64)> {
        if self.tail == self.head {
            return None;
        }
        // SAFETY: below the length.
        let (start, end) = unsafe { *self.runs.add((self.tail % self.len) as usize) };
        self.tail += 1;
        self.count -= (end - start) / BYTES;
        Some((start, end))
    }
}
