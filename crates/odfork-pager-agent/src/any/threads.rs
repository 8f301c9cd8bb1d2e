//! Pages that the kernel itself writes or reads when a thread ends, and then does not wait for us:
//! thread descriptors (the thread's number, the list of robust mutexes), and robust mutexes held.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::pagemap::{ENTRY_BYTES, ENTRY_PRESENT};
use odfork_sys::{args, call, getpid};

use super::pager::Pager;
use super::table::Place;
use crate::numbered;

const BYTES: u64 = PAGE as u64;
/// Most mutexes of one thread.
const MOST_HELD: usize = 2048;

/// The head of a thread's list, as the kernel knows it.
fn robust_head(thread: c_int) -> Option<u64> {
    let (mut head, mut len) = (0u64, 0usize);
    // SAFETY: room for both answers.
    let asked = unsafe { call(libc::SYS_get_robust_list, args![thread, &mut head, &mut len]) };
    asked.is_ok().then_some(head)
}

impl Pager {
    /// Lists them anew, and brings back what is away. False: not all could be found, so nothing
    /// may be taken.
    pub fn protect(&mut self) -> bool {
        self.protected.count = self.protected.always;
        self.state.is_protecting = true;
        let mut is_whole = true;
        let listed = numbered::each(self.protected.tasks, |thread| {
            is_whole &= self.protect_thread(thread);
            true
        });
        self.state.is_protecting = false;
        listed.is_ok() && is_whole && !self.state.must_read
    }

    /// The descriptor holds the head, and is smaller than a page to both sides.
    fn protect_thread(&mut self, thread: c_int) -> bool {
        let Some(head) = robust_head(thread) else {
            // It has ended, or its rights are not ours.
            return !is_there(self.program, thread);
        };
        if head == 0 {
            return true;
        }
        let around = [head - BYTES, head, head + BYTES];
        let is_noted = around.into_iter().all(|address| self.protected.add(address));
        around.into_iter().for_each(|address| self.bring_back(address));
        let (Some(first), Some(offset), Some(pending)) =
            (self.word(head), self.word(head + 8), self.word(head + 16))
        else {
            return is_noted;
        };
        let mut held = true;
        let mut mutex = |pager: &mut Pager, entry: u64| {
            // The lowest bit tells another kind of mutex.
            let (entry, word) = (entry & !1, (entry & !1).wrapping_add(offset));
            held &= pager.protected.add(entry) && pager.protected.add(word);
            pager.bring_back(entry);
            pager.bring_back(word);
        };
        if pending != 0 {
            mutex(self, pending);
        }
        let mut entry = first;
        for _ in 0..MOST_HELD {
            if entry & !1 == head || entry & !1 == 0 {
                break;
            }
            mutex(self, entry);
            let Some(next) = self.word(entry & !1) else { break };
            entry = next;
        }
        is_noted && held
    }

    fn bring_back(&mut self, address: u64) {
        let page = address & !(BYTES - 1);
        match self.table.get(page).place {
            Place::Parked(number) => drop(self.take_back(page, number)),
            Place::Stored(slot) => drop(self.page_in(page, slot)),
            Place::Here | Place::Kept(_) | Place::Zero => {}
        }
    }

    /// A word of the program, if its page is present: a touch would wait for this very task.
    fn word(&self, address: u64) -> Option<u64> {
        let mut entry = 0u64;
        let place = address as usize / PAGE * ENTRY_BYTES;
        let mut word = 0u64;
        let to = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
        let from = libc::iovec { iov_base: address as *mut _, iov_len: 8 };
        // SAFETY: room for 8 bytes each; the kernel refuses what is not mapped.
        unsafe {
            call(libc::SYS_pread64, args![self.pagemap, &mut entry, ENTRY_BYTES, place]).ok()?;
            if entry & ENTRY_PRESENT == 0 || address % 8 != 0 {
                return None;
            }
            let read = args![getpid(), &to, 1, &from, 1, 0];
            (call(libc::SYS_process_vm_readv, read) == Ok(8)).then_some(word)
        }
    }
}

fn is_there(program: c_int, thread: c_int) -> bool {
    // SAFETY: signal 0 does nothing.
    unsafe { call(libc::SYS_tgkill, args![program, thread, 0]) }.is_ok()
}
