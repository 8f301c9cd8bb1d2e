//! Touches of pages that are away.

use odfork_pager_protocol::PAGE;
use odfork_sys::{Errno, SysResult};

use super::events::Touch;
use super::pager::Pager;
use super::store::MOST;
use super::table::{Entry, Place};
use super::together;
use crate::clock::now;

const BYTES: u64 = PAGE as u64;
/// Most pages of zeros for one touch: they are all the kernel's one, and take no memory
/// (`unwritten`).
const MOST_ZEROS: u64 = 512;
/// The same for a touch that writes: they are memory at once, and the next ones are not asked for.
pub const MOST_COPIED: u64 = 32;
/// Most pages taken back at once, when they are touched one after the other.
const MOST_RECLAIMS: u64 = 16;
/// The same for one touch: what was taken together is wanted together. Four moves cost hardly more
/// than one.
const LEAST_RECLAIMS: u64 = 4;

impl Pager {
    /// Somebody waits for this page.
    pub fn fault(&mut self, touch: Touch) {
        // It asks again when this process has its turn.
        if self.state.is_out {
            self.group.ask();
            return;
        }
        self.counts.faults += 1;
        let page = touch.address & !(BYTES - 1);
        let done = match self.table.get(page).place {
            _ if self.bell.holds(page) => self.ring(page),
            Place::Parked(number) => self.take_back(page, number),
            Place::Stored(slot) => {
                let begin = now();
                let done = self.page_in(page, slot);
                self.state.need.waited += now() - begin;
                done
            }
            Place::Here | Place::Kept(_) | Place::Zero => self.fill(page, touch.writes),
        };
        if !done {
            // It is there already, or an event must be read first: it tries again.
            let _ = self.uffd.wake(page, BYTES);
        }
    }

    /// From the pool; false: not now.
    pub fn take_back(&mut self, page: u64, number: u64) -> bool {
        let mut most = self.state.reclaims.run(page, MOST_RECLAIMS).max(LEAST_RECLAIMS);
        if self.pool.is_ahead(number) {
            self.state.ahead.ended(true);
            most = most.max(self.state.ahead.run());
        }
        let (before, behind) = self.beside(page, number, most);
        let (from, first) = (page - before * BYTES, number - before);
        let len = (before + 1 + behind) * BYTES;
        let (mut done, mut error) = self.pool.give_back(self.uffd, from, first, len);
        self.are_back(from, first, done);
        if done <= before * BYTES {
            // One before it cannot be moved.
            (done, error) = self.pool.give_back(self.uffd, page, number, BYTES);
            self.are_back(page, number, done);
        }
        self.state.reclaims.expect(page + BYTES * (behind + 1));
        match error {
            _ if done > 0 => true,
            Err(Errno(libc::EAGAIN)) => {
                self.state.must_read = true;
                false
            }
            Err(Errno(libc::EEXIST | libc::ENOENT | libc::ESRCH)) => false,
            // The mapping became another kind since: of read-only memory, or locked.
            _ => self.copy_back(page, number),
        }
    }

    /// How many pages before and behind one lie beside it in the pool, too.
    fn beside(&self, page: u64, number: u64, most: u64) -> (u64, u64) {
        let is_one = |at: u64, number: u64| self.table.get(at).place == Place::Parked(number);
        let place = number % self.pool.len();
        let (mut before, mut behind) = (0, 0);
        while behind + 1 < most
            && place + behind + 1 < self.pool.len()
            && is_one(page + (behind + 1) * BYTES, number + behind + 1)
        {
            behind += 1;
        }
        while before + behind + 1 < most
            && before < place
            && is_one(page - (before + 1) * BYTES, number - before - 1)
        {
            before += 1;
        }
        (before, behind)
    }

    fn copy_back(&mut self, page: u64, number: u64) -> bool {
        let content = self.parked(number);
        let (done, _) = self.uffd.copy(page, content, 0);
        if done == PAGE {
            self.is_back(page, number);
            self.state.resident += 1;
        }
        done == PAGE
    }

    fn are_back(&mut self, page: u64, number: u64, done: u64) {
        for at in 0..done / BYTES {
            self.is_back(page + at * BYTES, number + at);
        }
    }

    fn is_back(&mut self, page: u64, number: u64) {
        let place = self.pool.forget(number).map_or(Place::Here, Place::Kept);
        self.table.set(page, Entry::at(place));
        self.counts.reclaims += 1;
    }

    /// Pages that several threads wait for are read at once, but those whose neighbours are read,
    /// too.
    pub fn read_together(&mut self, touches: &[Touch]) {
        let (mut slots, mut count, mut file) = ([0; together::MOST], 0, -1);
        self.together.forget();
        if touches.len() < 2 || self.state.is_out {
            return;
        }
        let begin = now();
        for touch in touches {
            let page = touch.address & !(BYTES - 1);
            let Place::Stored(slot) = self.table.get(page).place else { continue };
            let Some(fd) = self.store.file_of(slot) else { continue };
            file = fd;
            let is_alone = self.around(page, slot, self.state.ahead.usual()) == (0, 0);
            let is_new = !slots[..count].contains(&slot);
            if count < slots.len() && is_new && is_alone && !self.state.page_ins.expects(page) {
                slots[count] = slot;
                count += 1;
            }
        }
        if count > 1 {
            self.together.read(file, &slots[..count]);
            self.state.need.waited += now() - begin;
        }
    }

    /// From the store, with what follows it there; false: not now.
    pub fn page_in(&mut self, page: u64, slot: u64) -> bool {
        let most = self.state.page_ins.run(page, MOST as u64);
        let mut run = 1;
        while run < most && self.table.get(page + run * BYTES).place == Place::Stored(slot + run) {
            run += 1;
        }
        let (before, behind) = match run {
            1 if most == 1 => {
                let size = self.state.ahead.size();
                self.around(page, slot, size)
            }
            _ => (0, 0),
        };
        self.make_room(before + run + behind);
        let mut first = slot - before;
        let mut count = (before + run + behind) as usize;
        // SAFETY: MOST pages, of this task only.
        let mut buffer = unsafe { core::slice::from_raw_parts_mut(self.buffer, count * PAGE) };
        let mut whole = match self.together.content(slot).filter(|_| count == 1) {
            Some(content) if self.store.holds(slot, content) => {
                buffer.copy_from_slice(content);
                self.counts.together += 1;
                1
            }
            _ => self.store.read(first, buffer),
        };
        if whole as u64 <= before && before > 0 {
            // One before it cannot be read.
            (first, count) = (slot, 1);
            buffer = &mut buffer[..PAGE];
            whole = self.store.read(slot, buffer);
        }
        let offset = (slot - first) as usize;
        if whole <= offset {
            return self.is_lost(page);
        }
        let upto = whole.min(offset + run as usize);
        let (done, error) = self.uffd.copy(page, &buffer[offset * PAGE..upto * PAGE], 0);
        for at in 0..(done / PAGE) as u64 {
            self.table.set(page + at * BYTES, Entry::at(Place::Kept(slot + at)));
        }
        self.counts.page_ins += (done / PAGE) as u64;
        self.state.resident += (done / PAGE) as u64;
        // A walk comes to the store again behind the neighbours that are brought, too.
        self.state.page_ins.expect(page + (done as u64).max(BYTES) + behind * BYTES);
        if done == 0 {
            self.state.must_read |= error == Err(Errno(libc::EAGAIN));
            return false;
        }
        for (at, content) in buffer[..whole.min(count) * PAGE].chunks_exact(PAGE).enumerate() {
            let neighbour = page - offset as u64 * BYTES + at as u64 * BYTES;
            let is_here = offset <= at && at < offset + run as usize;
            if !is_here && !self.bring(neighbour, first + at as u64, content) {
                break;
            }
        }
        true
    }

    /// Pages that are in the store beside this one, before and behind it in its block of this size.
    fn around(&self, page: u64, slot: u64, size: u64) -> (u64, u64) {
        let start = page & !(size * BYTES - 1);
        let (mut before, mut behind) = (0, 0);
        let is_stored = |at: u64, slot: u64| self.table.get(at).place == Place::Stored(slot);
        while page - before * BYTES > start
            && slot > before
            && is_stored(page - (before + 1) * BYTES, slot - before - 1)
        {
            before += 1;
        }
        while page + behind * BYTES < start + (size - 1) * BYTES
            && is_stored(page + (behind + 1) * BYTES, slot + behind + 1)
        {
            behind += 1;
        }
        (before, behind)
    }

    /// Puts a page that was read ahead into the pool; false: not now.
    fn bring(&mut self, page: u64, slot: u64, content: &[u8]) -> bool {
        // Making room may have brought it back.
        if self.pool.room() == 0 || self.table.get(page).place != Place::Stored(slot) {
            return false;
        }
        let (done, _) = self.uffd.copy(self.pool.address(self.pool.head), content, 0);
        if done == PAGE {
            let number = self.pool.push_ahead(page, slot);
            self.table.set(page, Entry::at(Place::Parked(number)));
            self.state.resident += 1;
            self.counts.ahead += 1;
        }
        done == PAGE
    }

    /// The store does not give the page: a touch is SIGBUS from now on, never zeros.
    fn is_lost(&mut self, page: u64) -> bool {
        crate::saying::say(self.program, b"odfork page: a page cannot be read from the store\n");
        self.uffd.poison(page, BYTES).0 > 0
    }

    /// Zeros; false: it was there already, or not now.
    fn fill(&mut self, page: u64, writes: bool) -> bool {
        let most = if writes { MOST_COPIED } else { MOST_ZEROS };
        let mut most = self.state.fills.run(page, most);
        if !writes {
            most = self.make_room_for_zeros(most);
        }
        // Where no more of the kernel's can be had, as if it was written.
        let writes = writes || most == 0;
        most = most.max(1);
        if writes {
            // It takes pages, perhaps this one: another thread's touch may have brought it here
            // since this one was told. So what is here is looked at behind it.
            self.make_room(most);
        }
        if matches!(self.table.get(page).place, Place::Parked(_) | Place::Stored(_)) {
            return false;
        }
        let mut run = 1;
        while run < most && self.is_untouched(page + run * BYTES) {
            run += 1;
        }
        let (mut done, mut error) = self.put_zeros(page, run, writes);
        if matches!(error, Err(Errno(libc::ENOENT | libc::EEXIST))) && done == 0 && run > 1 {
            // The mapping ends before, or what follows is there.
            (done, error) = self.put_zeros(page, 1, writes);
        }
        match writes {
            true => self.state.resident += done / BYTES,
            false if done > 0 => self.unwritten.add(page, page + done),
            false => {}
        }
        for at in (page..page + done).step_by(PAGE) {
            // What was stale here has been given up by now: the page was missing.
            let entry = self.table.get(at);
            if entry != Entry::at(Place::Here) {
                self.drop_entry(at, entry);
            }
        }
        self.counts.filled += done / BYTES;
        self.state.fills.expect(page + done.max(BYTES));
        match error {
            _ if done > 0 => {}
            Err(Errno(libc::EAGAIN)) => self.state.must_read = true,
            Err(Errno(libc::EEXIST | libc::ENOENT | libc::ESRCH)) | Ok(()) => {}
            // No memory of the kind that is paged: the kernel's again.
            Err(_) => drop(self.uffd.unregister(page, BYTES)),
        }
        done > 0
    }

    fn put_zeros(&self, page: u64, count: u64, writes: bool) -> (u64, SysResult<()>) {
        if !writes {
            return self.uffd.zero(page, count * BYTES);
        }
        // SAFETY: `count` is at most MOST_COPIED.
        let zeros = unsafe { core::slice::from_raw_parts(self.zeros, count as usize * PAGE) };
        let (done, error) = self.uffd.copy(page, zeros, 0);
        (done as u64, error)
    }

    fn is_untouched(&self, page: u64) -> bool {
        matches!(self.table.get(page).place, Place::Here | Place::Zero)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::Ordering::Relaxed;

    use odfork_sys::check;

    use super::*;
    use crate::any::{make, uffd, ORDER, WATCHED};
    use crate::kernel_mmap;

    const PAGES: u64 = 64;
    const LIMIT: u64 = 512;

    /// The state of a serving task that does not run: nothing but what the test asks for is taken.
    fn pager() -> SysResult<&'static mut Pager> {
        let uffd = uffd()?;
        // SAFETY: nobody else reads or writes the path.
        unsafe { (&mut *ORDER.paths.get())[0][..5].copy_from_slice(b"/tmp\0") };
        ORDER.group.store(crate::any::group::found(LIMIT).unwrap(), Relaxed);
        let task = make(uffd).unwrap();
        // SAFETY: it was just made, and is nobody else's.
        Ok(unsafe { &mut (*task).pager })
    }

    /// Pages with content, between others that cannot be read.
    fn pages() -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let len = PAGES as usize * PAGE;
        let around = kernel_mmap(0, len + 2 * PAGE, libc::PROT_NONE, flags, -1, 0);
        let start = check(around).unwrap() + PAGE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        check(kernel_mmap(start, len, prot, flags | libc::MAP_FIXED, -1, 0)).unwrap();
        for page in 0..PAGES as usize {
            // SAFETY: just mapped.
            unsafe { ((start + page * PAGE) as *mut u8).write_volatile(page as u8 + 1) };
        }
        start as u64
    }

    /// Two threads wait for one page. The first one's touch has brought it, and the room that is
    /// made for the second one's is this very page.
    #[test]
    fn a_page_that_made_room_is_not_filled_with_zeros() {
        let pager = match pager() {
            Ok(pager) => pager,
            Err(error) => return std::println!("skipped: userfaultfd: {error:?}"),
        };
        let start = pages();
        pager.uffd.register(start, PAGES * BYTES, WATCHED).unwrap();
        pager.clear_written(start, start + PAGES * BYTES);
        (pager.state.resident, pager.state.hand) = (LIMIT, start);
        let touch = Touch { address: start, writes: true };
        pager.fault(touch);
        assert!(matches!(pager.table.get(start).place, Place::Stored(_)));
        pager.fault(touch);
        assert!(matches!(pager.table.get(start).place, Place::Kept(_)));
        // SAFETY: it is mapped, and was just brought back.
        assert_eq!(unsafe { (start as *const u8).read_volatile() }, 1);
        crate::close(pager.uffd.0);
    }
}
