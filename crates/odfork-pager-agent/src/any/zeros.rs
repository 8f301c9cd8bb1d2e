//! Takes pages that were read and never written (`unwritten`), the oldest first.

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::pagemap;

use super::hand::{is_zero, Left};
use super::pager::Pager;
use super::table::{Entry, Place};
use super::unwritten;
use crate::ioctl;

const BYTES: u64 = PAGE as u64;

impl Pager {
    /// Room for a run of so many pages; how many there may be. Half of all goes at a time: to look
    /// at what the kernel uses has its price.
    pub fn make_room_for_zeros(&mut self, most: u64) -> u64 {
        let all = unwritten::most(self.limit);
        let most = most.min(all);
        if self.unwritten.count + most <= all {
            return most;
        }
        if !self.may_take() || !self.protect() {
            return 0;
        }
        let mut is_done = true;
        while is_done && self.unwritten.count > all / 2 {
            let Some((start, end)) = self.unwritten.oldest() else { break };
            is_done = self.take_zeros(start, end);
            if !is_done {
                self.unwritten.add(start, end);
            }
        }
        self.state.is_unprotected = !self.protect();
        most.min(all.saturating_sub(self.unwritten.count))
    }

    /// Takes those of a run that nobody has written since; false: not now.
    fn take_zeros(&mut self, start: u64, end: u64) -> bool {
        let (mut at, mut is_done) = (start, true);
        while let (true, Some((from, stop))) = (is_done, self.zeros_in(at, end)) {
            let (from, to) = self.takeable(from, stop);
            let first = self.pool.head;
            is_done = !matches!(self.take(from, to), Left::Later);
            // Some may have left the pool already.
            for number in first.max(self.pool.tail)..self.pool.head {
                self.note_zero(number);
            }
            at = to.max(from + BYTES);
        }
        is_done
    }

    /// A page that was just taken. If somebody wrote to it before, it is one as all others.
    fn note_zero(&mut self, number: u64) {
        let page = self.pool.page(number);
        if page != 0 && self.pool.kept(number).is_none() && is_zero(self.parked(number)) {
            self.pool.forget(number);
            self.table.set(page, Entry::at(Place::Zero));
            self.counts.zeros += 1;
        }
    }

    /// The first run of such pages in a range; what is not watched would not be asked for.
    fn zeros_in(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let wanted = pagemap::IS_PRESENT | pagemap::IS_PFNZERO | pagemap::IS_WPALLOWED;
        let mut found = [pagemap::Region::default(); 1];
        let mut scan = pagemap::ScanArg {
            size: size_of::<pagemap::ScanArg>() as u64,
            start,
            end,
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            category_mask: wanted,
            return_mask: wanted,
            ..pagemap::ScanArg::default()
        };
        let count = (start < end).then(|| ioctl(self.pagemap, pagemap::SCAN, &mut scan))?.ok()?;
        (count > 0).then_some((found[0].start, found[0].end))
    }
}
