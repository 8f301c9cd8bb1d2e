//! Mappings as values: the one place of this crate that calls mmap and its relatives.
//!
//! Owns no policy. Addresses are plain numbers: the memory belongs to the program, or does not
//! exist yet.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The kernel chooses.
    Anywhere,
    /// Here, or EEXIST when something is there.
    Free(u64),
    /// Here, over what is there, which must be ours.
    Over(u64),
}

/// What is mapped.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// Private anonymous memory.
    Anonymous,
    /// A file privately, from this offset on.
    Private(&'a File, u64),
}

/// Maps `bytes` (a multiple of the page size) with access `prot` (PROT_*); the address.
///
/// # Errors
/// Those of mmap(2); EEXIST when [`At::Free`] is not free.
///
/// # Safety
/// [`At::Over`] destroys what is there: it must be a mapping of the caller's own that nobody refers
/// to.
pub unsafe fn map(at: At, bytes: usize, prot: u32, what: What) -> Result<u64> {
    let (hint, place) = match at {
        At::Anywhere => (0, 0),
        At::Free(address) => (address, libc::MAP_FIXED_NOREPLACE),
        At::Over(address) => (address, libc::MAP_FIXED),
    };
    let (kind, fd, offset) = match what {
        What::Anonymous => (libc::MAP_ANONYMOUS, -1, 0),
        What::Private(file, offset) => (0, file.as_raw_fd(), offset),
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | kind | place;
    let wanted = hint as usize as *mut libc::c_void;
    // SAFETY: passed on to the caller.
    let got = unsafe { libc::mmap(wanted, bytes, prot as i32, flags, fd, offset as i64) };
    if got == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    if hint != 0 && got as u64 != hint {
        // Before Linux 4.17 the flag is unknown and the address a hint.
        // SAFETY: just mapped, nobody refers to it.
        unsafe { libc::munmap(got, bytes) };
        return Err(Error::from_raw_os_error(libc::EEXIST));
    }
    Ok(got as u64)
}

/// # Safety
/// Nobody may refer to the memory any more.
pub unsafe fn unmap(address: u64, bytes: usize) -> Result<()> {
    // SAFETY: passed on to the caller.
    check(unsafe { libc::munmap(address as usize as *mut libc::c_void, bytes) })
}

/// Changes the access.
///
/// # Safety
/// Nobody refers to the memory in a way the new access forbids.
pub unsafe fn protect(address: u64, bytes: usize, prot: u32) -> Result<()> {
    // SAFETY: passed on to the caller.
    check(unsafe { libc::mprotect(address as usize as *mut libc::c_void, bytes, prot as i32) })
}

/// madvise(2); the advice given here never changes content.
pub fn advise(address: u64, bytes: usize, advice: i32) -> Result<()> {
    debug_assert!([
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
    ]
    .contains(&advice));
    // SAFETY: see above.
    check(unsafe { libc::madvise(address as usize as *mut libc::c_void, bytes, advice) })
}

fn check(answer: i32) -> Result<()> {
    if answer < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Private memory that is zero until it is used; unmapped on drop.
#[derive(Debug)]
pub struct Memory {
    address: u64,
    bytes: usize,
}

impl Memory {
    pub fn new(bytes: usize) -> Result<Memory> {
        let bytes = bytes.max(1).next_multiple_of(crate::PAGE);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let address = unsafe { map(At::Anywhere, bytes, prot as u32, What::Anonymous)? };
        Ok(Memory { address, bytes })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.address as usize as *mut u8
    }
}

impl std::ops::Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: ours, readable, and initialised: the kernel gives zeros.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.bytes) }
    }
}

impl std::ops::DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: references into it do not outlive it.
        let _ = unsafe { unmap(self.address, self.bytes) };
    }
}

// SAFETY: plain memory; sharing is governed by references into it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}
