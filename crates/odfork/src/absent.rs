//! Threads in calls of the program that may never come back: cancelled, left by `longjmp`, or
//! turned into another program.
//!
//! Owns the table. A count would stay at one for ever. A thread's number can be checked: one that
//! is no thread of this process any more is in no call. That is asked when a pass is due, so
//! leaving needs nothing. The thread itself does not matter to its own passes: it forks, so it is
//! not in that call.

use core::sync::atomic::Ordering::SeqCst;

use crate::sync::AtomicI32;

/// More threads at once have no entry.
const MOST: usize = 64;

/// The threads' numbers; 0 where there is none.
pub struct Absent([AtomicI32; MOST]);

impl Absent {
    /// Nobody.
    pub const fn new() -> Self {
        Absent([const { AtomicI32::new(0) }; MOST])
    }

    /// Enters a thread. `None` if the table is full; else what to do at the end is the entry's
    /// affair. A call inside another one, in a signal handler, leaves the outer one's entry.
    pub fn enter(&self, thread: i32) -> Option<Entry<'_>> {
        if self.0.iter().any(|slot| slot.load(SeqCst) == thread) {
            return Some(Entry(None));
        }
        let free = |slot: &&AtomicI32| slot.compare_exchange(0, thread, SeqCst, SeqCst).is_ok();
        self.0.iter().find(free).map(|slot| Entry(Some(slot)))
    }

    /// Some thread other than this one is inside such a call. Those that are gone leave.
    pub fn any_but(&self, me: i32, is_here: impl Fn(i32) -> bool) -> bool {
        self.0.iter().any(|slot| match slot.load(SeqCst) {
            0 => false,
            thread if thread == me => false,
            thread if is_here(thread) => true,
            thread => slot.compare_exchange(thread, 0, SeqCst, SeqCst).is_err(),
        })
    }
}

/// A thread is inside; dropped, it is back.
pub struct Entry<'a>(Option<&'a AtomicI32>);

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(0, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_inside_is_seen_by_others_until_it_is_back_or_gone() {
        let table = Absent::new();
        let (here, nobody) = (|_| true, |_| false);
        let outer = table.enter(7);
        assert!(table.any_but(8, here) && !table.any_but(7, here));
        drop(table.enter(7));
        assert!(table.any_but(8, here), "an inner call ended");
        drop(outer);
        assert!(!table.any_but(8, here));
        core::mem::forget(table.enter(7));
        assert!(!table.any_but(8, nobody), "a thread that is gone");
        assert!(!table.any_but(8, here), "it left");
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Absent::new();
        let all: Vec<_> = (1..=MOST as i32).map(|thread| table.enter(thread)).collect();
        assert!(table.enter(1000).is_none());
        drop(all);
        assert!(table.enter(1000).is_some());
    }
}
