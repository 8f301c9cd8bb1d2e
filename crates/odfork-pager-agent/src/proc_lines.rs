//! Lines of a file of /proc, numbers and addresses in them, without a heap.

use core::ffi::{c_int, CStr};

use odfork_sys::{args, call, SysResult};

use crate::close;

/// Digits at the start of a text.
pub fn number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: u64, &digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

/// The addresses at the start of a mapping's first line.
pub fn range_of(line: &[u8]) -> Option<(u64, u64)> {
    let dash = line.iter().position(|&byte| byte == b'-').filter(|&at| at <= 16)?;
    let space = line.iter().position(|&byte| byte == b' ')?;
    let hex = |text: &[u8]| u64::from_str_radix(core::str::from_utf8(text).ok()?, 16).ok();
    Some((hex(&line[..dash])?, hex(line.get(dash + 1..space)?)?))
}

/// Lines one after the other; of one that is longer than the buffer, pieces.
pub struct Lines {
    fd: c_int,
    room: [u8; 4096],
    from: usize,
    to: usize,
}

impl Lines {
    pub fn open(path: &CStr) -> SysResult<Lines> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: a valid path.
        let fd = unsafe { call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), flags, 0])? };
        Ok(Lines { fd: fd as c_int, room: [0; 4096], from: 0, to: 0 })
    }

    /// Of a file that is open already, from its beginning.
    pub fn again(fd: c_int) -> SysResult<Lines> {
        // SAFETY: plain arguments.
        let fd = unsafe {
            call(libc::SYS_lseek, args![fd, 0, libc::SEEK_SET])?;
            call(libc::SYS_fcntl, args![fd, libc::F_DUPFD_CLOEXEC, 0])?
        };
        Ok(Lines { fd: fd as c_int, room: [0; 4096], from: 0, to: 0 })
    }

    pub fn next(&mut self) -> Option<&[u8]> {
        loop {
            let ready = &self.room[self.from..self.to];
            if let Some(end) = ready.iter().position(|&byte| byte == b'\n') {
                let start = self.from;
                self.from += end + 1;
                return Some(&self.room[start..start + end]);
            }
            self.room.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
            if self.to == self.room.len() {
                self.to = 0;
                return Some(&self.room);
            }
            // SAFETY: room up to the end of the buffer.
            let got = unsafe {
                let at = self.room.as_mut_ptr().add(self.to);
                call(libc::SYS_read, args![self.fd, at, self.room.len() - self.to])
            };
            match got {
                Ok(got) if got > 0 => self.to += got,
                _ => return None,
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        close(self.fd);
    }
}
