//! What a task beside the program says: it has no standard error of its own.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use odfork_sys::{args, call, getpid, raw};

use crate::close;
use crate::line::Line;

/// The process that tasks in this memory serve; 0: none does.
static SERVED: AtomicI32 = AtomicI32::new(0);

pub fn set_served(program: c_int) {
    SERVED.store(program, Relaxed);
}

/// If we are such a task, one line on the standard error of whom it serves; false: we are not.
pub fn tell(line: &[u8]) -> bool {
    let served = SERVED.load(Relaxed);
    let is_task = served != 0 && served != getpid();
    if is_task {
        say(served, line);
    }
    is_task
}

/// One line on the program's standard error. We hold none of its descriptors: whoever waits for the
/// end of a pipe must not wait for us. Nor do we wait for whoever reads the line.
pub fn say(program: c_int, line: &[u8]) {
    let Some(fd) = its_errors(program).or_else(|| opened_errors(program)) else { return };
    let mut one = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: a list of one; valid bytes; a descriptor of ours.
    unsafe {
        raw(libc::SYS_ppoll, args![&mut one, 1, &[0u64; 2], 0, 8]);
        if one.revents & libc::POLLOUT != 0 {
            raw(libc::SYS_write, args![fd, line.as_ptr(), line.len()]);
        }
        close(fd);
    }
}

/// The very descriptor, so that the next line of the program comes behind ours. A terminal may have
/// room for part of a line only, and is opened anew.
fn its_errors(program: c_int) -> Option<c_int> {
    // SAFETY: numbers, and room for what is asked; descriptors of ours.
    unsafe {
        let process = call(libc::SYS_pidfd_open, args![program, 0]).ok()? as c_int;
        let fd = call(libc::SYS_pidfd_getfd, args![process, 2, 0]);
        close(process);
        let fd = fd.ok()? as c_int;
        let mut stat: libc::stat = core::mem::zeroed();
        let known = call(libc::SYS_fstat, args![fd, &mut stat]).is_ok();
        if known && stat.st_mode & libc::S_IFMT != libc::S_IFCHR {
            return Some(fd);
        }
        close(fd);
    }
    None
}

fn opened_errors(program: c_int) -> Option<c_int> {
    let mut path = Line::new();
    path.text(b"/proc/").number(program as u64).text(b"/fd/2\0");
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let open = args![libc::AT_FDCWD, path.bytes().as_ptr(), flags | libc::O_NOCTTY, 0];
    // SAFETY: a path that ends with zero.
    unsafe { call(libc::SYS_openat, open) }.ok().map(|fd| fd as c_int)
}
