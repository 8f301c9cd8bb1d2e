//! One line for a program that is about to get a SIGBUS it cannot explain.
//!
//! Owns getting it out of a page fault (no heap, no stdio) and out of a table of descriptors in
//! which standard error is not.

use std::fmt::Write as _;

use crate::image::{Image, Lost};

/// A line of fixed size: this runs inside a page fault.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.len += count;
        Ok(())
    }
}

/// Says on the program's standard error which page is lost.
pub fn complain(image: &Image, address: u64, why: Lost) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    let name = image.path().as_os_str().to_str().unwrap_or("image");
    let why = why.words();
    let _ = writeln!(
        line,
        "odfork: the page at {address:#x} of image {name} is lost ({why}); touching it is a SIGBUS"
    );
    // SAFETY: a static path; the descriptors are ours and closed here; the buffer is valid.
    unsafe {
        let fd = libc::open(
            c"/proc/self/fd/2".as_ptr(),
            libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK,
        );
        if fd >= 0 {
            libc::write(fd, line.bytes.as_ptr().cast(), line.len);
            libc::close(fd);
            return;
        }
        // A socket, as services have it, cannot be opened. Linux 5.6.
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32;
        let fd = libc::syscall(libc::SYS_pidfd_getfd, process, 2, 0) as i32;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::send(fd, line.bytes.as_ptr().cast(), line.len, flags);
        for fd in [fd, process] {
            libc::close(fd);
        }
    }
}
