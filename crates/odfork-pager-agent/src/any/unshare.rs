//! Pages that a fork left shared. The kernel moves only pages that are this memory's alone, and
//! takes them for shared until they are written, even when the child is long gone.
//!
//! Whoever pins a page to read it gets one that is its own: the kernel copies the page if a child
//! still has it, else it only notes that nobody has. process_vm_readv pins. It waits like a touch
//! where the page went away meanwhile, which the serving task must not: it would wait for itself.
//! So another task reads one byte of each page, and ends.

use core::ffi::c_int;

use odfork_sys::{args, call, clone_vfork, getpid, raw};

use super::room::Room;

const STACK: usize = 16 << 10;
/// Most pages at a time.
const MOST: usize = 1024;

pub struct Unshare {
    stack: *mut u8,
    pages: *mut u64,
    count: usize,
    /// Who reads them just now; 0: nobody.
    task: c_int,
    server: c_int,
}

impl Unshare {
    pub fn new(room: &mut Room) -> Option<Unshare> {
        let (stack, pages) = (room.take(STACK)?, room.take(MOST)?);
        Some(Unshare { stack, pages, count: 0, task: 0, server: 0 })
    }

    /// A page that the kernel refused to move.
    pub fn add(&mut self, page: u64) {
        if self.task == 0 && self.count < MOST {
            // SAFETY: below MOST, and nobody else reads it.
            unsafe { *self.pages.add(self.count) = page };
            self.count += 1;
        }
    }

    /// Starts what was asked for.
    pub fn begin(&mut self) {
        if self.task != 0 || self.count == 0 {
            return;
        }
        self.server = getpid();
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_UNTRACED;
        let (stack, own) = (self.stack as usize + STACK, &raw mut *self as usize);
        // SAFETY: a stack of its own; `read` does not return to us, uses no thread-local storage
        // and cannot unwind. What it reads is left alone until it has ended.
        match unsafe { clone_vfork(flags as usize, stack, read, own) } {
            Ok(task) => self.task = task,
            Err(_) => self.count = 0,
        }
    }

    /// How many pages were made exclusive since the last time.
    pub fn end(&mut self) -> u64 {
        if self.task == 0 {
            return 0;
        }
        // SAFETY: a child of ours, which tells by no signal.
        let ended =
            unsafe { call(libc::SYS_wait4, args![self.task, 0, libc::WNOHANG | libc::__WALL, 0]) };
        if ended == Ok(0) {
            return 0;
        }
        self.task = 0;
        core::mem::take(&mut self.count) as u64
    }
}

/// When the serving task is killed, nobody answers: so is this one.
extern "C" fn read(unshare: usize) -> i32 {
    // SAFETY: who started us leaves it as it is.
    let unshare = unsafe { &*(unshare as *const Unshare) };
    let mut byte = 0u8;
    // SAFETY: numbers; room for a byte; the kernel refuses what is not mapped.
    unsafe {
        raw(libc::SYS_prctl, args![libc::PR_SET_PDEATHSIG, libc::SIGKILL]);
        if raw(libc::SYS_getppid, [0; 6]) != unshare.server as isize {
            return 0;
        }
        for at in 0..unshare.count {
            let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let from = libc::iovec { iov_base: *unshare.pages.add(at) as *mut _, iov_len: 1 };
            raw(libc::SYS_process_vm_readv, args![getpid(), &to, 1, &from, 1, 0]);
        }
    }
    0
}
