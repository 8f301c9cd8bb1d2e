//! Memory of another process, read without stopping it.
//!
//! Owns the call. The kernel decides who may: the same user, or root, as for tracing.

use std::io::{Error, Result};

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
        assert!(read(me, 8, &mut seen).is_err());
    }
}
