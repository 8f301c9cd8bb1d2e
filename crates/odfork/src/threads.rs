//! The threads of the process as the kernel knows them, whoever made them.
//!
//! Owns the list of those that a quiesce holds, and the word by which the end of each is heard:
//! the kernel clears it when the thread ends (`CLONE_CHILD_CLEARTID`), and does not wait in a page
//! fault then. On a protected page it stays as it was, and `pthread_join` would never return. So
//! whoever ended while it was protected is looked for afterwards, and its word is cleared here.
//!
//! The word is found through the list of robust locks, which the kernel keeps for each thread and
//! which glibc lays into its thread descriptor, right behind the word:
//!
//! ```text
//! struct pthread:  ... | tid: i32 | i32 | robust_prev | robust_head | ...
//!                        ^ head - 16                    ^ get_robust_list(2)
//! ```
//! A thread has none before its first instructions, and none from the moment on at which it ends:
//! then it is waited for. Threads that libc makes for a wrapper are not born during a pass
//! (`interpose::tasks`). Libc's own (timers, asynchronous I/O) may be; nobody joins those.
//!
//! The locks in that list are marked in the same way if their owner ended meanwhile: the kernel
//! could not write there either, and whoever waits for one would wait for ever.
//!
//! The rules of `helper` apply, with one exception: words that the kernel could not write.

use core::sync::atomic::{AtomicI32, Ordering::SeqCst};

use crate::args;
use crate::listing::each_number;
use crate::progress::{pause, Progress};
use crate::reason::{Done, Reason, Stop};
use crate::scan::{digits, Path, Subject};
use crate::scratch::{Scratch, Thread};
use crate::step::Step;
use crate::sys::{self, Errno, SysResult};
use crate::task;

/// Looks at a thread that stands still in its first or last instructions.
const STILL: u32 = 20;
/// How long the end of a thread is waited for, when nobody is held any more (10 s).
const FAR_NS: u64 = 10_000_000_000;
/// From the word to the list of robust locks.
const BEFORE_LIST: usize = 16;

/// Where a thread's list of robust locks is; 0 for one that begins or ends.
pub fn list_of(tid: i32) -> SysResult<usize> {
    let (mut list, mut length) = (0usize, 0usize);
    // SAFETY: both are valid for writing.
    unsafe { sys::call(libc::SYS_get_robust_list, args![tid, &mut list, &mut length]) }?;
    Ok(list)
}

/// The directory of the process's threads.
pub fn directory(pid: i32) -> Path {
    let mut number = [0u8; 20];
    Path::join(&[b"/proc/", digits(pid as u64, &mut number), b"/task"])
}

/// Notes every thread before anything is protected.
pub fn note_all(s: &mut Scratch, subject: &Subject) -> Done<()> {
    let fail = |e| Stop::failed(Reason::Threads, Step::Quiesce, e);
    s.work.threads.clear();
    if !has_known_layout(subject.tid).map_err(fail)? {
        return Err(Stop::of(Reason::Threads));
    }
    let mut progress = Progress::new(STILL);
    loop {
        let mut all = true;
        each_number(s, &directory(subject.pid), &mut |s, tid| {
            if !note(s, subject.pid, tid as i32)? {
                all = false;
                progress.note_beginner(s, subject.pid, tid);
            }
            Ok(true)
        })
        .map_err(fail)?;
        if all {
            return Ok(());
        }
        if !progress.goes_on() {
            return Err(Stop::of(Reason::Threads));
        }
    }
}

/// The word lies where this file says, at least in the calling thread.
fn has_known_layout(tid: i32) -> SysResult<bool> {
    let list = list_of(tid)?;
    // SAFETY: the descriptor of a living thread; the word is 16 bytes before, in the same one.
    Ok(list != 0 && unsafe { word_of(list).as_ref() }.is_some_and(|w| w.load(SeqCst) == tid))
}

fn word_of(list: usize) -> *const AtomicI32 {
    (list - BEFORE_LIST) as *const AtomicI32
}

/// Notes one thread; false if it cannot be held now: it begins or ends, or there is no room.
pub fn note(s: &mut Scratch, pid: i32, tid: i32) -> SysResult<bool> {
    match list_of(tid) {
        Ok(0) => task::has_ended(&s.kernel, pid, tid as u64),
        // One whose word is elsewhere cannot be told when it ends.
        Ok(list) if value_of(pid, list) != Some(tid) => Ok(false),
        Ok(list) => Ok(s.work.threads.keep(Thread { tid, list })),
        Err(Errno(libc::ESRCH)) => Ok(true),
        Err(e) => Err(e),
    }
}

/// When nothing is protected any more: clears the words of those that have ended. Who joins one
/// waits for that word, so one that ends now is waited for, however slow the machine is.
pub fn settle(s: &mut Scratch, subject: &Subject) {
    let until_ns = sys::now_ns() + FAR_NS;
    for i in 0..s.work.threads.noted().len() {
        let thread = s.work.threads.noted()[i];
        while is_ending(s, subject.pid, thread) && sys::now_ns() < until_ns {
            pause();
        }
    }
}

/// It ends now: its word was tried before or will be. One that has ended gets its word cleared.
fn is_ending(s: &mut Scratch, pid: i32, thread: Thread) -> bool {
    let ended = match list_of(thread.tid) {
        // A main thread that has ended stays listed.
        Ok(0) => task::has_ended(&s.kernel, pid, thread.tid as u64),
        Err(Errno(libc::ESRCH)) => Ok(true),
        _ => return false,
    };
    if ended == Ok(true) {
        mark_locks(pid, thread);
        clear_word(pid, thread);
    }
    ended == Ok(false)
}

/// The word of the thread with that list, read with care.
fn value_of(pid: i32, list: usize) -> Option<i32> {
    sys::read_word(pid, list.checked_sub(BEFORE_LIST)?)
}

/// Does what the kernel could not do for a thread that is gone. Where the kernel could, the memory
/// may be gone as well, so that it is read with care. While the word is set nobody frees it.
fn clear_word(pid: i32, thread: Thread) {
    let word = word_of(thread.list);
    if value_of(pid, thread.list) == Some(thread.tid) {
        // SAFETY: readable just now, and nobody but the one who waits for it to become 0 frees it.
        unsafe {
            let _ = (*word).compare_exchange(thread.tid, 0, SeqCst, SeqCst);
            sys::raw(libc::SYS_futex, args![word, libc::FUTEX_WAKE, i32::MAX]);
        }
    }
}

/// As many as the kernel looks at.
const MOST_LOCKS: usize = 2048;

/// As the kernel does at the end of a thread: locks that it holds have lost their owner. The list
/// is `struct robust_list_head`: the next lock, from a lock to its word, the lock under way. Before
/// each pointer to the next glibc has one to the lock before. The kernel may have marked the first
/// ones, whose new owners have linked them elsewhere: so this begins with the last.
fn mark_locks(pid: i32, thread: Thread) {
    let long = |at: usize| sys::read_long(pid, at);
    let head = thread.list;
    let Some(offset) = long(head + 8) else { return };
    if let Some(pending) = long(head + 16).filter(|&lock| lock != 0) {
        mark_lock(pid, thread.tid, pending, offset);
    }
    let mut next = long(head - 8);
    for _ in 0..MOST_LOCKS {
        let Some(lock) = next.map(|lock| lock & !1).filter(|&lock| lock > 8 && lock != head) else {
            break;
        };
        next = long(lock - 8);
        mark_lock(pid, thread.tid, lock, offset);
    }
}

/// Locks that inherit priorities are the kernel's business: nobody is held beside those.
fn mark_lock(pid: i32, tid: i32, lock: usize, offset: usize) {
    let at = lock.wrapping_add(offset);
    if at % 4 != 0 {
        return;
    }
    let word = at as *const AtomicI32;
    // Who begins to wait for it meanwhile says so in the word.
    while let Some(value) = sys::read_word(pid, at) {
        if value as u32 & libc::FUTEX_TID_MASK != tid as u32 {
            return;
        }
        let waiters = value as u32 & libc::FUTEX_WAITERS;
        let orphan = (waiters | libc::FUTEX_OWNER_DIED) as i32;
        // SAFETY: readable just now, aligned, and the lock of a thread that is gone: nobody unmaps
        // it but by a mistake, which ends this task and no other.
        unsafe {
            if (*word).compare_exchange(value, orphan, SeqCst, SeqCst).is_ok() {
                sys::raw(libc::SYS_futex, args![word, libc::FUTEX_WAKE, 1]);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_a_thread_that_is_gone_lose_their_owner() {
        // Before the head the last lock; the word is 16 bytes behind a lock's pointer to the next.
        let mut words = [0usize; 14];
        let at = |i: usize, words: &[usize; 14]| words.as_ptr() as usize + i * 8;
        let (head, one, two) = (at(1, &words), at(6, &words), at(11, &words));
        (words[0], words[1], words[2]) = (two, one, 16);
        // The first has another owner by now, who has linked it elsewhere.
        (words[5], words[6], words[10], words[11]) = (0, 0, one, head);
        let waits = libc::FUTEX_WAITERS as usize;
        (words[8], words[13]) = (8, 7 | waits);
        mark_locks(sys::getpid(), Thread { tid: 7, list: head });
        let now = |i: usize| unsafe { (&raw const words[i]).read_volatile() };
        assert_eq!((now(8), now(13)), (8, waits | libc::FUTEX_OWNER_DIED as usize));
    }

    #[test]
    fn the_word_of_a_thread_is_before_its_list() {
        assert_eq!(has_known_layout(sys::gettid()), Ok(true));
        let other = std::thread::spawn(|| has_known_layout(sys::gettid())).join();
        assert_eq!(other.unwrap(), Ok(true));
    }

    #[test]
    fn the_end_of_a_thread_is_made_up_for() {
        let mut descriptor = [0i32; 8];
        let list = (&raw mut descriptor as usize) + BEFORE_LIST;
        for (value, want) in [(7, 0), (8, 8)] {
            descriptor[0] = value;
            clear_word(sys::getpid(), Thread { tid: 7, list });
            // SAFETY: the test's own memory.
            assert_eq!(unsafe { (&raw const descriptor[0]).read_volatile() }, want);
        }
        clear_word(sys::getpid(), Thread { tid: 7, list: 4096 + BEFORE_LIST });
    }
}
