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
//! The rules of `helper` apply, with one exception: a word that the kernel could not clear.

use core::sync::atomic::{AtomicI32, Ordering::SeqCst};

use crate::args;
use crate::listing::each_number;
use crate::reason::{Done, Reason, Stop};
use crate::scan::{digits, slurp, Path, Subject};
use crate::scratch::{Scratch, Thread};
use crate::step::Step;
use crate::sys::{self, Errno, SysResult};

/// How long a thread may be in its first or last instructions, in rounds of 0.2 ms.
const ROUNDS: u32 = 20;
/// From the word to the list of robust locks.
const BEFORE_LIST: usize = 16;

/// Where a thread's list of robust locks is; 0 for one that begins or ends.
fn list_of(tid: i32) -> SysResult<usize> {
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
    for _ in 0..ROUNDS {
        let all =
            each_number(s, &directory(subject.pid), &mut |s, tid| note(s, subject.pid, tid as i32));
        if all.map_err(fail)? {
            return Ok(());
        }
        pause();
    }
    Err(Stop::of(Reason::Threads))
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
        Ok(0) => has_ended(s, tid),
        // One whose word is elsewhere cannot be told when it ends.
        Ok(list) if value_of(pid, list) != Some(tid) => Ok(false),
        Ok(list) => Ok(s.work.threads.keep(Thread { tid, list })),
        Err(Errno(libc::ESRCH)) => Ok(true),
        Err(e) => Err(e),
    }
}

/// It is listed and has ended: a main thread that did not wait for the others.
fn has_ended(s: &mut Scratch, tid: i32) -> SysResult<bool> {
    let mut number = [0u8; 20];
    let path = Path::join(&[b"/proc/", digits(tid as u64, &mut number), b"/stat"]);
    let mut text = [0u8; 256];
    let line = slurp(&s.kernel, path.c_str(), &mut text)?;
    // The name before it may hold any byte but is in brackets.
    let state = line.iter().rposition(|&b| b == b')').and_then(|at| line.get(at + 2));
    Ok(matches!(state, Some(b'Z' | b'X')))
}

/// When nothing is protected any more: clears the words of those that have ended.
pub fn settle(s: &mut Scratch, subject: &Subject) {
    for &thread in s.work.threads.noted() {
        for _ in 0..ROUNDS {
            match list_of(thread.tid) {
                // It ends now: its word was tried before or will be.
                Ok(0) => pause(),
                Err(Errno(libc::ESRCH)) => {
                    clear_word(subject.pid, thread);
                    break;
                }
                _ => break,
            }
        }
    }
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

/// Gives others 0.2 ms.
pub fn pause() {
    let t = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
    // SAFETY: sleeps.
    unsafe { sys::raw(libc::SYS_nanosleep, args![&t, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

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
