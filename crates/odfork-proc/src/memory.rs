//! Memory of another process, read without stopping it, or written.
//!
//! Owns the calls. The kernel decides who may: the same user, or root, as for tracing.

use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;

use crate::process::Pid;

fn vector(at: u64, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at as usize as *mut libc::c_void, iov_len: len }
}

/// Reads from `address` on; fewer bytes than asked for where the memory ends.
pub fn read(pid: Pid, address: u64, out: &mut [u8]) -> Result<usize> {
    let ours = vector(out.as_mut_ptr() as u64, out.len());
    let theirs = vector(address, out.len());
    // SAFETY: the kernel writes to `out` only; a bad address there is an error of the call.
    let got = unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) };
    usize::try_from(got).map_err(|_| Error::last_os_error())
}

/// Writes at `address`, as a debugger does: also where the process itself may only read.
pub fn write(pid: Pid, address: u64, bytes: &[u8]) -> Result<()> {
    File::options().write(true).open(format!("/proc/{pid}/mem"))?.write_all_at(bytes, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read() {
        let me = std::process::id() as Pid;
        let source = *b"abc";
        let mut seen = [0u8; 3];
        assert_eq!(read(me, source.as_ptr() as u64, &mut seen).unwrap(), 3);
        assert_eq!(seen, source);
        write(me, seen.as_ptr() as u64, b"xyz").unwrap();
        assert_eq!(std::hint::black_box(&seen), b"xyz");
        assert!(read(me, 8, &mut seen).is_err());
    }
}
