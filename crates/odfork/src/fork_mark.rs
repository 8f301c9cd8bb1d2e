//! Whose memory is it? Tells a forked child from a task that borrows its maker's memory.
//!
//! Owns: the mark, a page that fork wipes, and what is asked where there is none yet. A vfork child
//! and a `clone(CLONE_VM)` task have a process number of their own like a forked child, but the
//! runtime's state they see is their maker's, and must be left alone.
//!
//! Rules: called in the program, in signal handlers and in new children: no heap, no lock.

use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crate::args;
use crate::sys::{self, PAGE};

/// A page that fork wipes (`MADV_WIPEONFORK`, Linux 4.14). Not made at the start: most programs
/// that are executed end without a fork, and would pay two calls, a page and its page tables.
pub struct ForkMark {
    page: AtomicUsize,
    /// The C library's `pthread_getcpuclockid`, or 0.
    clock_of: AtomicUsize,
}

/// `pthread_getcpuclockid` of the C library.
type ClockOf = unsafe extern "C" fn(libc::pthread_t, *mut libc::clockid_t) -> i32;

impl Default for ForkMark {
    fn default() -> Self {
        Self::new()
    }
}

impl ForkMark {
    /// None yet.
    pub const fn new() -> Self {
        ForkMark { page: AtomicUsize::new(0), clock_of: AtomicUsize::new(0) }
    }

    /// Where `pthread_getcpuclockid` is. Without it (0: a program without the library of threads
    /// that glibc before 2.34 has) the mark is set at once.
    pub fn trust(&self, clock_of: usize) {
        self.clock_of.store(clock_of, Relaxed);
        if clock_of == 0 {
            self.set();
        }
    }

    /// `Some(true)` in the memory that set it, `Some(false)` in a copy made by fork.
    pub fn is_set(&self) -> Option<bool> {
        self.word().map(|word| word.load(Relaxed) == 1)
    }

    /// Sets it: before the first task that the C library's fork does not make, and before the
    /// first freeze. Only for the process whose memory it is. Without memory for it (or before
    /// Linux 4.14) there is none.
    pub fn set(&self) {
        if let Some(word) = self.word() {
            word.store(1, Relaxed);
        } else {
            // Set before anybody can find it: unset it would say that this memory is a fork's copy.
            let page = new_page();
            if page != 0 && self.page.compare_exchange(0, page, SeqCst, SeqCst).is_err() {
                // SAFETY: a page of our own; another thread's was announced first.
                unsafe { sys::munmap(page, PAGE) };
            }
        }
    }

    /// The memory is not that of process `me`, which is not the one that last worked here.
    pub fn is_borrowed(&self, me: i32) -> bool {
        self.is_set().unwrap_or_else(|| !self.is_forked(me))
    }

    /// The C library's fork made process `me`, not vfork or clone. Only fork notes the new number
    /// in the thread's descriptor, from where this has it without asking the kernel: it is in the
    /// upper bits of the thread's clock (`man 3 pthread_getcpuclockid`; clock numbers are the
    /// kernel's ABI).
    fn is_forked(&self, me: i32) -> bool {
        let at = self.clock_of.load(Relaxed);
        if at == 0 {
            return false;
        }
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the C library's function; the calling thread, and a place for the answer.
        let asked = unsafe {
            let clock_of: ClockOf = core::mem::transmute(at);
            clock_of(libc::pthread_self(), &mut clock)
        };
        asked == 0 && !(clock >> 3) == me
    }

    fn word(&self) -> Option<&AtomicU32> {
        let at = self.page.load(SeqCst);
        // SAFETY: 0, or a page mapped for the life of the process.
        (at != 0).then(|| unsafe { &*(at as *const AtomicU32) })
    }
}

fn new_page() -> usize {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new page that nobody else knows.
    unsafe {
        let Ok(at) = sys::mmap(sys::ZONE - PAGE, PAGE, prot, flags) else { return 0 };
        if sys::call(libc::SYS_madvise, args![at, PAGE, libc::MADV_WIPEONFORK]).is_err() {
            sys::munmap(at, PAGE);
            return 0;
        }
        (*(at as *const AtomicU32)).store(1, Relaxed);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exit status of a child that `make` makes: 1 when it believes that it borrows.
    fn answer(mark: &ForkMark, make: unsafe fn() -> i32) -> i32 {
        // SAFETY: the child only looks and leaves.
        unsafe {
            let pid = make();
            if pid == 0 {
                libc::_exit(i32::from(mark.is_borrowed(sys::getpid())));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            libc::WEXITSTATUS(status)
        }
    }

    unsafe fn raw_fork() -> i32 {
        // SAFETY: passed on to the caller.
        unsafe { sys::raw(libc::SYS_clone, args![libc::SIGCHLD]) as i32 }
    }

    unsafe fn fork() -> i32 {
        // SAFETY: passed on to the caller.
        unsafe { libc::fork() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn a_forked_child_has_memory_of_its_own() {
        let mark = ForkMark::new();
        mark.trust(libc::pthread_getcpuclockid as *const () as usize);
        assert_eq!(mark.is_set(), None);
        assert_eq!(answer(&mark, fork), 0);
        mark.set();
        assert_eq!(mark.is_set(), Some(true));
        assert_eq!(answer(&mark, fork), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn where_the_clock_is_not_known_the_mark_is_set_at_once() {
        let mark = ForkMark::new();
        assert_eq!(answer(&mark, fork), 1);
        mark.trust(0);
        assert_eq!(mark.is_set(), Some(true));
        assert_eq!(answer(&mark, fork), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn a_raw_fork_is_known_by_the_mark_alone() {
        let mark = ForkMark::new();
        mark.trust(libc::pthread_getcpuclockid as *const () as usize);
        assert_eq!(answer(&mark, raw_fork), 1);
        mark.set();
        assert_eq!(answer(&mark, raw_fork), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn marked_memory_is_borrowed_by_everybody_else() {
        let mark = ForkMark::new();
        mark.set();
        assert!(mark.is_borrowed(1));
    }
}
