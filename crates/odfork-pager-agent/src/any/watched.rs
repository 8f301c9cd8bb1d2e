//! Which ranges are watched, as far as we know: registered with the userfaultfd.
//!
//! A range may be watched that is not noted here, never the other way round for longer than until
//! its event was read. Watching it again is harmless.

use super::room::Room;

/// As many as a process may have mappings by default.
const MOST: usize = 65536;

type Range = (u64, u64);

pub struct Watched {
    /// Sorted; no two touch.
    ranges: *mut Range,
    count: usize,
}

impl Watched {
    pub fn new(room: &mut Room) -> Option<Watched> {
        Some(Watched { ranges: room.take(MOST)?, count: 0 })
    }

    fn list(&self) -> &[Range] {
        // SAFETY: `count` of MOST are set.
        unsafe { core::slice::from_raw_parts(self.ranges, self.count) }
    }

    pub fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.list().partition_point(|range| range.1 <= start);
        self.list().get(at).is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// The end of the range that holds the address.
    pub fn end_of(&self, address: u64) -> Option<u64> {
        let at = self.list().partition_point(|range| range.1 <= address);
        self.list().get(at).filter(|range| range.0 <= address).map(|range| range.1)
    }

    pub fn add(&mut self, start: u64, end: u64) {
        let first = self.list().partition_point(|range| range.1 < start);
        let last = self.list().partition_point(|range| range.0 <= end);
        let (mut from, mut to) = (start, end);
        for range in self.list().iter().take(last).skip(first) {
            (from, to) = (from.min(range.0), to.max(range.1));
        }
        self.replace(first, last, &[(from, to)]);
    }

    pub fn remove(&mut self, start: u64, end: u64) {
        let first = self.list().partition_point(|range| range.1 <= start);
        let last = self.list().partition_point(|range| range.0 < end);
        if first >= last {
            return;
        }
        let ends = (self.list().get(first), self.list().get(last - 1));
        let (Some(&(from, _)), Some(&(_, to))) = ends else { return };
        let (left, right) = ((from, start), (end, to));
        match (from < start, end < to) {
            (true, true) => self.replace(first, last, &[left, right]),
            (true, false) => self.replace(first, last, &[left]),
            (false, true) => self.replace(first, last, &[right]),
            (false, false) => self.replace(first, last, &[]),
        }
    }

    /// Without room the new ones are not noted.
    fn replace(&mut self, first: usize, last: usize, new: &[Range]) {
        let new = match self.count - (last - first) + new.len() > MOST {
            true => &[],
            false => new,
        };
        // SAFETY: `first <= last <= count`, and what comes is at most MOST in all.
        unsafe {
            let behind = self.ranges.add(last);
            core::ptr::copy(behind, self.ranges.add(first + new.len()), self.count - last);
            core::ptr::copy_nonoverlapping(new.as_ptr(), self.ranges.add(first), new.len());
        }
        self.count = self.count - (last - first) + new.len();
    }
}
