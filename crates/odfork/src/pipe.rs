//! Memory of the program, read and written through a pipe.
//!
//! Owns how: the system calls that do that directly are forbidden in some containers, and an
//! address of the program may lead nowhere. The rules of `helper` apply.

use crate::args;
use crate::held::Pipe;
use crate::scan;
use crate::sys::{self, Kernel, SysResult};

impl Pipe {
    pub fn new(k: &Kernel) -> SysResult<Pipe> {
        let (mut ends, flags) = ([0i32; 2], libc::O_CLOEXEC | libc::O_NONBLOCK);
        // SAFETY: two descriptors of the helper's.
        unsafe { k.call(libc::SYS_pipe2, args![&mut ends, flags]) }?;
        Ok(Pipe { out: ends[0], into: ends[1] })
    }

    /// Reads memory of the program, which need not be there.
    pub fn read(self, at: u64, to: &mut [u8]) -> bool {
        self.put(at as usize, to.len()) && self.take(to.as_mut_ptr() as usize, to.len())
    }

    /// The kernel checks the addresses: what cannot be read or written is an error.
    pub fn put(self, at: usize, length: usize) -> bool {
        // SAFETY: read by the kernel.
        let done = unsafe { sys::call(libc::SYS_write, args![self.into, at, length]) };
        done == Ok(length) || self.drain()
    }

    pub fn take(self, at: usize, length: usize) -> bool {
        // SAFETY: a buffer of this task's, or what the caller answers for.
        let done = unsafe { sys::call(libc::SYS_read, args![self.out, at, length]) };
        done == Ok(length) || self.drain()
    }

    /// After a failure a part may be left in it. False, always.
    fn drain(self) -> bool {
        let mut rest = [0u8; 512];
        // SAFETY: the buffer is valid for its length.
        while unsafe { sys::raw(libc::SYS_read, args![self.out, &mut rest, rest.len()]) } > 0 {}
        false
    }

    pub fn close(self) {
        scan::close(self.out);
        scan::close(self.into);
    }
}
