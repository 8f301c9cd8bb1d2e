//! Memory to build state in that shall become an image: at an address that is free in another run,
//! too.

use crate::error::{Error, Result};
use crate::memory::{self, At, What};
use crate::PAGE;

/// Far below where the kernel puts libraries, mappings and stacks, far above programs and their
/// heaps. The runtime's own zone begins at 0x6800_0000_0000.
const ZONE: u64 = 0x6300_0000_0000;
const STEP: u64 = 1 << 30;
const TRIES: u64 = 4096;

/// Anonymous memory of `bytes` (rounded up to whole pages) that can be read and written, at the
/// first free place of a part of the address space that programs do not use. A program that
/// reserves the same sizes in the same order finds the same addresses.
///
/// # Errors
/// No such place, or no memory.
pub fn reserve(bytes: usize) -> Result<*mut u8> {
    let cannot = |e| Error::io(format!("cannot reserve {bytes} bytes"), e);
    let bytes = bytes.checked_next_multiple_of(PAGE).filter(|&bytes| bytes > 0);
    let bytes = bytes
        .ok_or_else(|| Error::Refused("0 bytes cannot be reserved, nor nearly 2^64".to_owned()))?;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    let mut last = std::io::Error::from_raw_os_error(libc::ENOMEM);
    for n in 0..TRIES {
        // SAFETY: only where nothing is.
        match unsafe { memory::map(At::Free(ZONE + n * STEP), bytes, prot, What::Anonymous) } {
            Ok(address) => return Ok(address as usize as *mut u8),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => last = error,
            Err(error) => return Err(cannot(error)),
        }
    }
    Err(cannot(last))
}
