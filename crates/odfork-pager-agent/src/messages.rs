//! What the agent says on standard error: one line when the program is not paged, one before it
//! ends.

use odfork_sys::{args, getpid, raw, Errno};

pub const NOT_PAGED: &[u8] = b"odfork page: this program is NOT paged and has no limit: ";

/// One line on standard error: the program runs, but without the limit it was started with.
pub fn warn_not_paged(why: Errno) {
    let reason: &[u8] = match why.0 {
        libc::EMFILE | libc::ENFILE => {
            b"no descriptors are left for one more program, here or in \
              the daemon: raise the limit of open files (ulimit -Hn \
              where the daemon starts)"
        }
        libc::ENOENT | libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE | libc::EPROTO => {
            b"no daemon answers at ODFORK_PAGE_SOCKET: it was ended, or is of another version"
        }
        libc::EACCES => b"the daemon does not serve this user: 'odfork page daemon --allow-uid'",
        libc::EPERM => {
            b"userfaultfd is not allowed here, or somebody else listens at \
              ODFORK_PAGE_SOCKET"
        }
        libc::EBUSY => {
            b"the kernel may write into its memory by a pin (io_uring, asynchronous \
              I/O, O_DIRECT, files on FUSE, virtiofs, 9p or SMB), or its threads have \
              seccomp filters of their own: --allow-pinning, if nothing large is read \
              that way"
        }
        libc::EEXIST => {
            b"another library takes its calls of mmap, mremap or madvise first \
              (libodfork.so, for example): run it without"
        }
        _ => b"the daemon refused it; its log, beside its socket, may say why",
    };
    let parts: [&[u8]; 3] = [NOT_PAGED, reason, b"\n"];
    let line = parts
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: valid bytes; one call, so that lines of several programs do not mix.
    unsafe { raw(libc::SYS_writev, args![2, line.as_ptr(), line.len()]) };
}

/// One line on standard error.
pub fn say(line: &[u8]) {
    // SAFETY: valid bytes.
    unsafe { raw(libc::SYS_write, args![2, line.as_ptr(), line.len()]) };
}

/// Ends the process at once, with one line on standard error.
pub fn die(why: &[u8]) -> ! {
    if !crate::saying::tell(why) {
        say(why);
    }
    loop {
        // SAFETY: ends this process.
        unsafe { raw(libc::SYS_kill, args![getpid(), libc::SIGKILL]) };
    }
}
