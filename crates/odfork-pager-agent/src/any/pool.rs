//! Pages that are away from the program but in memory: a ring of places in a mapping of our own,
//! filled at one end, emptied at the other.
//!
//! A page is moved in and out by UFFDIO_MOVE, without a copy. What a touch takes back leaves a
//! hole. Places are numbered without end; the number modulo the ring's length is the place.

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::REGISTER_MODE_MISSING;
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{check, SysResult};

use super::room::{map_own, Room};
use crate::kernel_madvise;

/// In an entry of `kept`.
const AHEAD: u64 = 1 << 63;

pub struct Pool {
    start: u64,
    len: u64,
    /// The next number to be given out, and the oldest one not yet cleared.
    pub head: u64,
    pub tail: u64,
    /// Pages in it.
    pub parked: u64,
    pages: *mut u64,
    /// The slot that holds an earlier content, plus one; and whether it was read ahead.
    kept: *mut u64,
}

impl Pool {
    pub fn new(uffd: Userfaultfd, len: u64, room: &mut Room) -> SysResult<Option<Pool>> {
        let start = map_own(len as usize * PAGE)? as u64;
        uffd.register(start, len * PAGE as u64, REGISTER_MODE_MISSING)?;
        let (Some(pages), Some(kept)) = (room.take(len as usize), room.take(len as usize)) else {
            return Ok(None);
        };
        Ok(Some(Pool { start, len, head: 0, tail: 0, parked: 0, pages, kept }))
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
    /// memory cannot be given up by whoever watches it, so it is not watched meanwhile.
    pub fn clear(&mut self, uffd: Userfaultfd, to: u64) {
        while self.tail < to {
            let run = (to - self.tail).min(self.len - self.tail % self.len);
            let (start, len) = (self.address(self.tail), run * PAGE as u64);
            let done = uffd
                .unregister(start, len)
                .and_then(|()| {
                    check(kernel_madvise(start as usize, len as usize, libc::MADV_DONTNEED))
                })
                .and_then(|_| uffd.register(start, len, REGISTER_MODE_MISSING));
            if done.is_err() {
                crate::messages::die(b"odfork page: the pool cannot be emptied: ending\n");
            }
            self.tail += run;
        }
    }
}
