//! Pages that are away from the program but in memory: a ring of places in a mapping of our own,
//! filled at one end, emptied at the other.
//!
//! A page is moved in and out by UFFDIO_MOVE, without a copy. What a touch takes back leaves a
//! hole. Places are numbered without end; the number modulo the ring's length is the place.
//!
//! How much was moved is not what the kernel says. Where a page changes while it is being moved,
//! the kernel tries again. Linux 6.18 then moves up to 2 MB that it does not count: it finds them
//! at their target the next time, and ends with EEXIST. So where a move ends early, the page table
//! is asked which places of the pool are taken: only the serving task fills and empties them.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::pagemap::{ENTRY_BYTES, ENTRY_PRESENT, ENTRY_SWAPPED};
use odfork_sys::abi::userfaultfd::REGISTER_MODE_MISSING;
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{args, call, check, SysResult};

use super::room::{map_own, Room};
use crate::kernel_madvise;

/// In an entry of `kept`.
const AHEAD: u64 = 1 << 63;

pub struct Pool {
    start: u64,
    len: u64,
    /// Of this memory.
    pagemap: c_int,
    /// The next number to be given out, and the oldest one not yet cleared.
    pub head: u64,
    pub tail: u64,
    /// Pages in it.
    pub parked: u64,
    /// Pages that the kernel moved and did not count.
    pub uncounted: u64,
    pages: *mut u64,
    /// The slot that holds an earlier content, plus one; and whether it was read ahead.
    kept: *mut u64,
}

impl Pool {
    pub fn new(
        uffd: Userfaultfd,
        pagemap: c_int,
        len: u64,
        room: &mut Room,
    ) -> SysResult<Option<Pool>> {
        let start = map_own(len as usize * PAGE)? as u64;
        uffd.register(start, len * PAGE as u64, REGISTER_MODE_MISSING)?;
        let (Some(pages), Some(kept)) = (room.take(len as usize), room.take(len as usize)) else {
            return Ok(None);
        };
        Ok(Some(Pool {
            start,
            len,
            pagemap,
            head: 0,
            tail: 0,
            parked: 0,
            uncounted: 0,
            pages,
            kept,
        }))
    }

    pub fn range(&self) -> (u64, u64) {
        (self.start, self.start + self.len * PAGE as u64)
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn address(&self, number: u64) -> u64 {
        self.start + number % self.len * PAGE as u64
    }

    /// Places from the head on that are free and lie side by side.
    pub fn room(&self) -> u64 {
        (self.len - (self.head - self.tail)).min(self.len - self.head % self.len)
    }

    /// The page of a number; 0: none.
    pub fn page(&self, number: u64) -> u64 {
        // SAFETY: below the length.
        unsafe { *self.pages.add((number % self.len) as usize) }
    }

    pub fn kept(&self, number: u64) -> Option<u64> {
        // SAFETY: below the length.
        (unsafe { *self.kept.add((number % self.len) as usize) } & !AHEAD).checked_sub(1)
    }

    /// Nobody has touched it since it was read.
    pub fn is_ahead(&self, number: u64) -> bool {
        // SAFETY: below the length.
        unsafe { *self.kept.add((number % self.len) as usize) & AHEAD != 0 }
    }

    /// A page was read from this slot to the head.
    pub fn push_ahead(&mut self, page: u64, slot: u64) -> u64 {
        let number = self.push(page, Some(slot));
        // SAFETY: below the length.
        unsafe { *self.kept.add((number % self.len) as usize) |= AHEAD };
        number
    }

    fn set(&mut self, number: u64, page: u64, kept: Option<u64>) {
        let at = (number % self.len) as usize;
        // SAFETY: below the length.
        unsafe {
            *self.pages.add(at) = page;
            *self.kept.add(at) = kept.map_or(0, |slot| slot + 1);
        }
    }

    /// A page was moved to the head.
    pub fn push(&mut self, page: u64, kept: Option<u64>) -> u64 {
        let number = self.head;
        self.set(number, page, kept);
        self.head += 1;
        self.parked += 1;
        number
    }

    /// Another address has the page now.
    pub fn rename(&mut self, number: u64, page: u64) {
        // SAFETY: below the length.
        unsafe { *self.pages.add((number % self.len) as usize) = page };
    }

    /// Moves pages of the program to the head; the bytes done, and how it ended.
    pub fn take_in(&mut self, uffd: Userfaultfd, page: u64, len: u64) -> (u64, SysResult<()>) {
        let to = self.address(self.head);
        let (done, error) = uffd.move_pages(to, page, len);
        if error.is_ok() {
            return (done, error);
        }
        let more = self.run(to + done, to + len, true);
        self.uncounted += more / PAGE as u64;
        (done + more, error)
    }

    /// Moves pages back to the program and wakes who waits for them; the bytes done, and how it
    /// ended.
    pub fn give_back(
        &mut self,
        uffd: Userfaultfd,
        page: u64,
        number: u64,
        len: u64,
    ) -> (u64, SysResult<()>) {
        let from = self.address(number);
        let (done, error) = uffd.move_pages(page, from, len);
        if error.is_ok() {
            return (done, error);
        }
        let more = self.run(from + done, from + len, false);
        if more > 0 {
            self.uncounted += more / PAGE as u64;
            let _ = uffd.wake(page + done, more);
        }
        (done + more, error)
    }

    /// How many bytes of places in a row are taken, or free.
    fn run(&self, start: u64, end: u64, is_taken: bool) -> u64 {
        let mut at = start;
        while at < end {
            let mut entries = [0u64; 64];
            let count = entries.len().min((end - at) as usize / PAGE);
            let from = at / PAGE as u64 * ENTRY_BYTES as u64;
            let read = args![self.pagemap, entries.as_mut_ptr(), count * ENTRY_BYTES, from];
            // SAFETY: as much room as said.
            if unsafe { call(libc::SYS_pread64, read) } != Ok(count * ENTRY_BYTES) {
                crate::messages::die(b"odfork page: the page table cannot be read: ending\n");
            }
            let stop = |&entry: &u64| (entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0) != is_taken;
            match entries[..count].iter().position(stop) {
                Some(run) => return at + (run * PAGE) as u64 - start,
                None => at += (count * PAGE) as u64,
            }
        }
        end - start
    }

    /// Forgets a page; the slot of its earlier content. What is left in memory goes when the tail
    /// comes by.
    pub fn forget(&mut self, number: u64) -> Option<u64> {
        let kept = self.kept(number);
        if self.page(number) != 0 {
            self.parked -= 1;
        }
        self.set(number, 0, None);
        kept
    }

    /// Gives the memory of the oldest places back, of which nothing is wanted any more. Watched
    /// memory cannot be given up by whoever watches it, so it is not watched meanwhile: all of it,
    /// as a part would be a mapping more, and there may be as many as there can be.
    pub fn clear(&mut self, uffd: Userfaultfd, to: u64) {
        let (all, all_len) = (self.start, self.len * PAGE as u64);
        let mut done = uffd.unregister(all, all_len);
        while self.tail < to && done.is_ok() {
            let run = (to - self.tail).min(self.len - self.tail % self.len);
            let (start, len) = (self.address(self.tail) as usize, run as usize * PAGE);
            done = check(kernel_madvise(start, len, libc::MADV_DONTNEED)).map(drop);
            self.tail += run;
        }
        if done.and_then(|()| uffd.register(all, all_len, REGISTER_MODE_MISSING)).is_err() {
            crate::messages::die(b"odfork page: the pool cannot be emptied: ending\n");
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use odfork_sys::abi::userfaultfd::{FEATURE_MOVE, USER_MODE_ONLY};
    use odfork_sys::{userfaultfd, Errno};

    use super::*;
    use crate::descriptors::open_high;

    const BYTES: u64 = PAGE as u64;

    fn userfaultfd() -> SysResult<Userfaultfd> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        let uffd = userfaultfd::create(flags)?;
        uffd.enable(FEATURE_MOVE).map(|()| uffd)
    }

    /// The kernel's omission is a race. What it leaves behind is not: pages are at their target,
    /// and a move that should bring them ends with EEXIST.
    #[test]
    fn pages_that_the_kernel_did_not_count_are_seen() {
        let uffd = match userfaultfd() {
            Ok(uffd) => uffd,
            Err(error) => return std::println!("skipped: moves by userfaultfd: {error:?}"),
        };
        let mut room = Room::new(1 << 20).unwrap();
        let pagemap = open_high(c"/proc/self/pagemap");
        let mut pool = Pool::new(uffd, pagemap, 100, &mut room).unwrap().unwrap();
        let memory = map_own(100 * PAGE).unwrap() as u64;
        uffd.register(memory, 100 * BYTES, REGISTER_MODE_MISSING).unwrap();
        for page in 0..100 {
            let content = [page as u8 + 1; PAGE];
            assert_eq!(uffd.copy(memory + page * BYTES, &content, 0), (PAGE, Ok(())));
        }
        assert_eq!(uffd.move_pages(pool.address(0), memory, 70 * BYTES).0, 70 * BYTES);
        let exists = Err(Errno(libc::EEXIST));
        assert_eq!(pool.take_in(uffd, memory, 80 * BYTES), (70 * BYTES, exists));
        for page in 0..70 {
            pool.push(memory + page * BYTES, None);
        }
        let rest = memory + 70 * BYTES;
        assert_eq!(pool.take_in(uffd, rest, 30 * BYTES), (30 * BYTES, Ok(())));
        let some = memory + 10 * BYTES;
        assert_eq!(uffd.move_pages(some, pool.address(10), 5 * BYTES).0, 5 * BYTES);
        assert_eq!(pool.give_back(uffd, some, 10, 8 * BYTES), (5 * BYTES, exists));
        let next = some + 5 * BYTES;
        assert_eq!(pool.give_back(uffd, next, 15, 3 * BYTES), (3 * BYTES, Ok(())));
        for page in 10..18 {
            // SAFETY: it was just given back.
            assert_eq!(unsafe { *((memory + page * BYTES) as *const u8) }, page as u8 + 1);
        }
        assert_eq!(pool.uncounted, 75);
    }
}
