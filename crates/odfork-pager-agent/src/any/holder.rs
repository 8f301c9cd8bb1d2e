//! The holder: a second task with the descriptors of the serving task, which outlives it.
//!
//! When the last descriptor of a userfaultfd is closed, whoever touches a page that is missing gets
//! zeros. The program holds its own one; that of a child is held by nobody else than who gives it
//! its memory. So a second task has the same table of descriptors: a child's is in it from the
//! moment on in which the event of the fork is read. When the serving task is killed, the program
//! is killed with it, and what a child misses by then is poisoned as soon as it is touched:
//! SIGBUS, never zeros. When this task is killed, the program is killed, too.
//!
//! The kernel's out-of-memory killer kills both, as they share the memory. Children that were made
//! through the C library find then that the gate is missing.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::abi::userfaultfd::{Message, EVENT_PAGEFAULT};
use odfork_sys::userfaultfd::Userfaultfd;
use odfork_sys::{args, call, clone_vfork, getpid, raw, Errno, SysResult};

use crate::close;
use crate::descriptors::high;

pub const STACK: usize = 32 << 10;
/// Descriptors of children are the lowest free ones; ours are above.
const HIGHEST: c_int = 1024;
const MOST: usize = 128;
/// All addresses of a program, but those that nobody may map.
pub const LOWEST: u64 = 0x10000;
pub const ALL: u64 = 0x7fff_ffff_f000 - LOWEST;

pub struct Holder {
    pub stack: *mut u8,
    /// Of the program.
    pub uffd: Userfaultfd,
    /// A descriptor of the task that is outlived.
    pub task: c_int,
}

impl Holder {
    /// For this very task: they share their descriptors from now on. It is a child of the program,
    /// as this task is, with the same exit signal.
    pub fn start(&mut self) -> SysResult<()> {
        // SAFETY: no arguments but a process.
        let task = unsafe { call(libc::SYS_pidfd_open, args![getpid(), 0]) }?;
        self.task = high(task as c_int);
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PARENT | libc::CLONE_UNTRACED;
        let (stack, own) = (self.stack as usize + STACK, &raw mut *self as usize);
        // SAFETY: a stack of its own; `hold` does not return to us, uses no thread-local storage
        // and cannot unwind.
        unsafe { clone_vfork(flags as usize, stack, hold, own) }.map(drop)
    }
}

extern "C" fn hold(holder: usize) -> i32 {
    // SAFETY: who started us leaves it as it is.
    let (task, program) = unsafe {
        let holder = &*(holder as *const Holder);
        (holder.task, holder.uffd)
    };
    // SAFETY: constant strings.
    unsafe {
        raw(libc::SYS_setsid, [0; 6]);
        raw(libc::SYS_chdir, args![c"/".as_ptr()]);
        raw(libc::SYS_prctl, args![libc::PR_SET_NAME, c"odfork-hold".as_ptr()]);
    }
    let mut ended = [entry(task)];
    while ended[0].revents == 0 {
        poll(&mut ended, None);
    }
    while poison_what_is_touched(program) {}
    0
}

const fn entry(fd: c_int) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn poll(list: &mut [libc::pollfd], nap: Option<&[u64; 2]>) {
    let time = nap.map_or(0, |nap| nap.as_ptr() as usize);
    // SAFETY: a list of the length given, and a time or none.
    unsafe { raw(libc::SYS_ppoll, args![list.as_mut_ptr(), list.len(), time, 0, 8]) };
}

/// One round over all children that did not get everything, and over the program itself, whose
/// vforked children have its memory. False: there are no such children.
fn poison_what_is_touched(program: Userfaultfd) -> bool {
    const NAP: [u64; 2] = [0, 100_000_000];
    let (mut list, mut count) = ([entry(-1); MOST], 0);
    for fd in 0..HIGHEST {
        // Who was told about already, and not answered, comes again.
        let is_one = fd != program.0 && Userfaultfd(fd).wake(LOWEST, ALL).is_ok();
        if is_one && count < MOST - 1 {
            list[count] = entry(fd);
            count += 1;
        }
    }
    if count == 0 {
        return false;
    }
    list[count] = entry(program.0);
    let _ = program.wake(LOWEST, ALL);
    poll(&mut list[..=count], Some(&NAP));
    for one in &list[..=count] {
        let uffd = Userfaultfd(one.fd);
        let is_over = answer(uffd);
        if is_over && one.fd != program.0 {
            close(one.fd);
        }
    }
    true
}

/// True: nobody has that memory any more.
fn answer(uffd: Userfaultfd) -> bool {
    let mut messages = [Message::default(); 16];
    // What else was read just goes on.
    let got = uffd.read(&mut messages).unwrap_or(0);
    for message in messages[..got.min(16)].iter().filter(|one| one.event == EVENT_PAGEFAULT) {
        let page = message.address & !(PAGE as u64 - 1);
        if uffd.poison(page, PAGE as u64).1 == Err(Errno(libc::EAGAIN)) {
            // Not now: it comes again.
            let _ = uffd.wake(page, PAGE as u64);
        }
    }
    // No such range in any case.
    uffd.poison(LOWEST, PAGE as u64).1 == Err(Errno(libc::ESRCH))
}
