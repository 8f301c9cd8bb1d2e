//! Forks where the kernel does not tell of them: its event of fork wants CAP_SYS_PTRACE. A child
//! would find zeros where pages are away. So before a fork all of them come back, and none goes
//! until it is over.
//!
//! ```text
//!   program: one thread at a time, without signals     serving task
//!     ASKED, touches the bell                            brings all back: READY
//!                                                        where there is no room for it: REFUSED
//!     forks; NONE                                        may take pages again
//! ```
//!
//! Covered are the C library's fork and whatever calls it, `_Fork`, `clone`, and `syscall` with
//! the numbers of fork, clone and clone3. Not covered: an instruction of the program's own.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use odfork_pager_protocol::PAGE;
use odfork_sys::{block_signals, gettid, pause, restore_signals};

use super::growth;
use super::pager::Pager;
use super::report::status_number;
use super::table::{Entry, Place};
use crate::line::Line;
use crate::messages::die;
use crate::saying::say;
use crate::set_errno;

const NONE: u32 = 0;
const ASKED: u32 = 1;
const READY: u32 = 2;
const REFUSED: u32 = 3;

/// Pages that come back in one go: other touches wait meanwhile.
const PART: u32 = 1024;
/// Goes in which nothing comes back, until it is given up: some seconds.
const MOST_VAIN: u32 = 20_000;

struct Untold {
    is_on: AtomicBool,
    state: AtomicU32,
    /// Which thread forks; 0: none.
    thread: AtomicI32,
    mask: UnsafeCell<u64>,
}

// SAFETY: the mask is used by the thread that forks.
unsafe impl Sync for Untold {}

static UNTOLD: Untold = Untold {
    is_on: AtomicBool::new(false),
    state: AtomicU32::new(NONE),
    thread: AtomicI32::new(0),
    mask: UnsafeCell::new(0),
};

/// The kernel does not tell of this process' forks, or does.
pub fn set(is_on: bool) {
    UNTOLD.is_on.store(is_on, Relaxed);
}

pub fn is_on() -> bool {
    UNTOLD.is_on.load(Relaxed)
}

/// A fork is being prepared, or made: nothing may be taken.
pub fn is_under_way() -> bool {
    UNTOLD.state.load(Acquire) != NONE
}

/// Before a fork. False: there is no room for all of the memory, so it must not be made.
pub fn prepare() -> bool {
    before();
    let is_refused = is_mine() && UNTOLD.state.load(Relaxed) == REFUSED;
    if is_refused {
        end();
        set_errno(libc::ENOMEM);
    }
    !is_refused
}

fn is_mine() -> bool {
    UNTOLD.thread.load(Relaxed) == gettid()
}

/// The same as the C library's handler, for a fork that did not come through a wrapper.
pub extern "C" fn before() {
    if !is_on() || !super::is_active() || is_mine() {
        return;
    }
    let me = gettid();
    let (mask, mut looks) = (block_signals(), 0);
    while UNTOLD.thread.compare_exchange(0, me, Acquire, Relaxed).is_err() {
        looks = pause(looks);
    }
    // SAFETY: this thread forks.
    unsafe { *UNTOLD.mask.get() = mask };
    UNTOLD.state.store(ASKED, Release);
    let mut looks = 0;
    while UNTOLD.state.load(Acquire) == ASKED {
        growth::ask();
        looks = pause(looks);
    }
}

/// After it, in the parent.
pub extern "C" fn after() {
    if is_mine() {
        end();
    }
}

/// In the child, which is alone.
pub fn finish_in_child() {
    if UNTOLD.thread.load(Relaxed) == 0 {
        return;
    }
    if UNTOLD.state.load(Relaxed) == REFUSED {
        die(b"odfork page: there was no room for the memory of this child: ending\n");
    }
    end();
}

fn end() {
    // SAFETY: this thread forks.
    let mask = unsafe { *UNTOLD.mask.get() };
    UNTOLD.state.store(NONE, Release);
    UNTOLD.thread.store(0, Release);
    restore_signals(mask);
}

impl Pager {
    /// A fork waits until nothing is away. False: something is still.
    pub fn bring_all_back(&mut self) -> bool {
        if UNTOLD.state.load(Acquire) != ASKED {
            return true;
        }
        let is_first = self.state.vain == 0;
        if is_first && !self.has_room_for_all() || self.state.vain > MOST_VAIN {
            return self.answer(REFUSED);
        }
        self.state.vain += 1;
        let mut at = 0;
        for _ in 0..PART {
            let Some((page, entry)) = self.next_away(&mut at) else { return self.answer(READY) };
            let is_back = match entry.place {
                Place::Parked(number) => self.take_back(page, number),
                Place::Stored(slot) => self.page_in(page, slot),
                _ => true,
            };
            if !is_back {
                return false;
            }
            // One that is lost is poisoned, in the child, too.
            if self.table.get(page) == entry {
                self.drop_entry(page, entry);
            }
            self.state.vain = 1;
        }
        false
    }

    fn next_away(&self, at: &mut u64) -> Option<(u64, Entry)> {
        loop {
            let (page, entry) = self.table.next(*at, u64::MAX)?;
            *at = page + PAGE as u64;
            if matches!(entry.place, Place::Parked(_) | Place::Stored(_)) {
                return Some((page, entry));
            }
        }
    }

    fn answer(&mut self, state: u32) -> bool {
        self.state.vain = 0;
        UNTOLD.state.store(state, Release);
        true
    }

    fn has_room_for_all(&self) -> bool {
        let (mut at, mut stored) = (0, 0);
        while let Some((_, entry)) = self.next_away(&mut at) {
            stored += u64::from(matches!(entry.place, Place::Stored(_)));
        }
        let (needed, free) = (stored * 4, status_number(c"/proc/meminfo", b"MemAvailable:"));
        let has_room = free == 0 || needed <= free;
        if !has_room {
            let mut line = Line::new();
            line.text(b"odfork page: a fork needs ").number(needed >> 10);
            line.text(b" MB that are not in memory, of ").number(free >> 10);
            line.text(b" MB that are free: refused; with CAP_SYS_PTRACE it needs none\n");
            say(self.program, line.bytes());
        }
        has_room
    }
}
