//! libodfork_pager.so: takes over a program's large anonymous memory and hands its paging to the
//! daemon.
//!
//! | module | owns |
//! | --- | --- |
//! | wrappers | mmap, munmap, mremap, madvise, mlock: what touches paged memory |
//! | heap | malloc of large blocks, out of a paged region |
//! | fork_wrappers, fork_handlers, pending_forks | a forked child gets the memory |
//! | files, pins | the kernel holds no pin on a page of it |
//! | identity | the worker thread follows a change of user |
//! | advice | `odfork_page_advise` |
//! | state, regions, mappings | what is paged, and whether it still is mapped |
//! | connection, setup, calls | the supervisor, the userfaultfd, calls to the daemon |
//! | worker | the thread that unmaps pages when the daemon asks |
//! | unlimited | what has no limit, in a line |
//! | init, options, messages | the constructor, variables, lines on standard error |
//! | adopt | the entry of `page adopt`, in a program that was running already |
//! | any | paging of all memory, by another way (`--memory any`) |
//! | descriptors, stack, proc_lines, numbered, line | life inside somebody else's program |
//!
//! Rules: on any doubt a mapping is left to the kernel. No heap, no standard library, no
//! thread-local storage, no libc wrapper that could be interposed. Whoever holds the lock touches
//! no paged memory: the daemon may need the lock (through the worker) before it can serve the
//! fault. Nothing is written to the program's descriptors.
#![no_std]

mod adopt;
mod advice;
mod any;
mod calls;
mod clock;
mod connection;
mod descriptors;
mod files;
mod fork_handlers;
mod fork_wrappers;
mod heap;
mod identity;
mod init;
mod line;
mod mappings;
mod messages;
mod next_symbol;
mod numbered;
mod options;
mod panic;
mod pending_forks;
mod pins;
mod proc_lines;
mod regions;
mod saying;
mod setup;
mod stack;
mod state;
mod unlimited;
mod worker;
mod wrappers;

use core::ffi::c_int;
use odfork_sys::{args, call, raw, Errno};

/// The calling thread's errno.
fn set_errno(error: c_int) {
    // SAFETY: libc's thread-local errno always exists.
    unsafe { *libc::__errno_location() = error };
}

/// As libc's wrappers return: -1 and errno, or the value.
fn as_libc(answer: isize) -> isize {
    match odfork_sys::check(answer) {
        Ok(value) => value as isize,
        Err(error) => {
            set_errno(error.0);
            -1
        }
    }
}

/// mmap by the kernel.
fn kernel_mmap(
    address: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> isize {
    // SAFETY: a mapping of the program's own making, or a new one at a free address.
    unsafe { raw(libc::SYS_mmap, args![address, len, prot, flags, fd, offset]) }
}

/// munmap by the kernel.
fn kernel_munmap(address: usize, len: usize) -> isize {
    // SAFETY: the program's own call, or memory of ours.
    unsafe { raw(libc::SYS_munmap, args![address, len]) }
}

/// madvise by the kernel.
fn kernel_madvise(address: usize, len: usize, advice: c_int) -> isize {
    // SAFETY: the program's own call, or advice about paged memory.
    unsafe { raw(libc::SYS_madvise, args![address, len, advice]) }
}

fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: a descriptor of ours.
        unsafe { raw(libc::SYS_close, args![fd]) };
    }
}

/// Sleeps while the word, shared between processes, has this value.
fn futex_wait(word: &core::sync::atomic::AtomicU32, seen: u32) {
    // SAFETY: a valid word; any outcome is fine, callers look again.
    unsafe { raw(libc::SYS_futex, args![word.as_ptr(), libc::FUTEX_WAIT, seen, 0usize]) };
}

/// The same for a millisecond at most.
fn futex_wait_briefly(word: &core::sync::atomic::AtomicU32, seen: u32) {
    const BRIEFLY: [i64; 2] = [0, 1_000_000];
    // SAFETY: a valid word and a valid time; any outcome is fine.
    unsafe { raw(libc::SYS_futex, args![word.as_ptr(), libc::FUTEX_WAIT, seen, &BRIEFLY]) };
}

fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: a valid word.
    unsafe { raw(libc::SYS_futex, args![word.as_ptr(), libc::FUTEX_WAKE, i32::MAX]) };
}

/// ioctl by the kernel.
fn ioctl<T>(fd: c_int, number: u64, argument: &mut T) -> Result<usize, Errno> {
    // SAFETY: callers pass the structure that belongs to the number.
    unsafe { call(libc::SYS_ioctl, args![fd, number, core::ptr::from_mut(argument)]) }
}
