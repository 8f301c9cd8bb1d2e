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
use odfork_sys::{args, block_signals, gettid, pause, raw, restore_signals};

use super::growth;
use super::pager::Pager;
use super::report::status_number;
use super::table::{Entry, Place};
use crate::line::Line;
use crate::messages::die;
use crate::pending_forks;
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
/// Looks until it is seen whether who forks is still there.
const LOOKS: u32 = 1000;

/// The kernel does not tell of forks of this memory.
pub static IS_ON: AtomicBool = AtomicBool::new(false);

struct Untold {
    state: AtomicU32,
    /// Which task forks; 0: none.
    task: AtomicI32,
    /// The caller of fork is told that it was refused.
    is_told: AtomicBool,
    /// Forks are over since the serving task looked.
    is_over: AtomicBool,
    mask: UnsafeCell<u64>,
}

// SAFETY: the mask is used by the task that forks.
unsafe impl Sync for Untold {}

static UNTOLD: Untold = Untold {
    state: AtomicU32::new(NONE),
    task: AtomicI32::new(0),
    is_told: AtomicBool::new(false),
    is_over: AtomicBool::new(false),
    mask: UnsafeCell::new(0),
};

pub fn set(is_on: bool) {
    IS_ON.store(is_on, Relaxed);
}

pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Forks are to be prepared here: also those of a process that only shares the memory.
pub fn is_needed() -> bool {
    is_on() && growth::has_bell()
}

/// A fork is being prepared, or made: nothing may be taken.
pub fn is_under_way() -> bool {
    UNTOLD.state.load(Acquire) != NONE
}

/// Before a fork that runs no handlers. False: there is no room for all of the memory.
pub fn prepare() -> bool {
    ask();
    let is_refused = is_mine() && UNTOLD.state.load(Relaxed) == REFUSED;
    if is_refused {
        end();
        set_errno(libc::ENOMEM);
    }
    !is_refused
}

fn is_mine() -> bool {
    UNTOLD.task.load(Relaxed) == gettid()
}

/// The C library's handler. It runs behind all others, so that none of them waits for somebody who
/// waits for this fork, and none sees signals blocked.
///
/// # Safety
/// For the C library.
pub unsafe extern "C" fn before() {
    ask();
    if is_mine() && UNTOLD.state.load(Relaxed) == REFUSED {
        UNTOLD.is_told.store(pending_forks::mark_broken(), Relaxed);
    }
}

fn ask() {
    if !is_needed() || is_mine() {
        return;
    }
    let mask = block_signals();
    become_the_one();
    // SAFETY: this task forks.
    unsafe { *UNTOLD.mask.get() = mask };
    UNTOLD.state.store(ASKED, Release);
    // That wakes the serving task.
    growth::ask();
    let mut looks = 0;
    while UNTOLD.state.load(Acquire) == ASKED {
        looks = pause(looks);
    }
}

/// One fork at a time. Another process that shares this memory may have been killed in its own.
fn become_the_one() {
    let (me, mut looks) = (gettid(), 0);
    while let Err(other) = UNTOLD.task.compare_exchange(0, me, Acquire, Relaxed) {
        looks = pause(looks);
        // SAFETY: signal 0 does nothing.
        let is_gone = looks % LOOKS == 0
            && unsafe { raw(libc::SYS_kill, args![other, 0]) } == -(libc::ESRCH as isize);
        if is_gone && UNTOLD.task.compare_exchange(other, me, Acquire, Relaxed).is_ok() {
            return;
        }
    }
}

/// After it, in the parent.
///
/// # Safety
/// For the C library.
pub unsafe extern "C" fn after() {
    finish();
}

pub fn finish() {
    if is_mine() {
        UNTOLD.is_over.store(true, Relaxed);
        end();
    }
}

/// In the child, which is alone and has no pager yet.
pub fn finish_in_child() {
    set(false);
    if UNTOLD.task.load(Relaxed) == 0 {
        return;
    }
    if UNTOLD.state.load(Relaxed) == REFUSED {
        if UNTOLD.is_told.load(Relaxed) {
            // SAFETY: ends this process; whoever forked it waits for it.
            unsafe { raw(libc::SYS_exit_group, args![1]) };
        }
        die(b"odfork page: there was no room for the memory of this child: ending\n");
    }
    end();
}

fn end() {
    // SAFETY: this task forks.
    let mask = unsafe { *UNTOLD.mask.get() };
    UNTOLD.state.store(NONE, Release);
    UNTOLD.task.store(0, Release);
    restore_signals(mask);
}

impl Pager {
    /// Children have this memory, too, since the last look.
    pub fn share_with_untold(&mut self) {
        if UNTOLD.is_over.swap(false, Relaxed) {
            self.share_with_child();
        }
    }

    /// A fork waits until nothing is away. True: something comes back still.
    pub fn bring_all_back(&mut self) -> bool {
        if UNTOLD.state.load(Acquire) != ASKED || self.state.is_out {
            return false;
        }
        let is_first = self.state.vain == 0;
        if is_first && !self.has_room_for_all() || self.state.vain > MOST_VAIN {
            return self.answer(REFUSED);
        }
        self.state.vain += 1;
        let mut at = self.state.back;
        for _ in 0..PART {
            let Some((page, entry)) = self.next_away(&mut at) else {
                // What is moved meanwhile may be where it was looked for before.
                let is_all = self.state.back == 0;
                self.state.back = 0;
                return !is_all || self.answer(READY);
            };
            let is_back = match entry.place {
                Place::Parked(number) => self.take_back(page, number),
                Place::Stored(slot) => self.page_in(page, slot),
                _ => true,
            };
            if !is_back {
                return true;
            }
            // One that is lost is poisoned, in the child, too.
            if self.table.get(page) == entry {
                self.drop_entry(page, entry);
            }
            (self.state.vain, self.state.back) = (1, page);
        }
        true
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
        (self.state.vain, self.state.back) = (0, 0);
        UNTOLD.state.store(state, Release);
        false
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
