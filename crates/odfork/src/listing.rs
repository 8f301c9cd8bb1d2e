//! Directories of `/proc` whose entries are numbers: tasks, descriptors.
//!
//! Owns reading one without heap. The rules of `helper` apply.

use crate::args;
use crate::scan::{self, Path};
use crate::scratch::Scratch;
use crate::sys::SysResult;
use crate::vma::dec;

/// Asks `goes_on` about every numbered entry until it says no; true if it never did.
pub fn each_number(
    s: &mut Scratch,
    dir: &Path,
    goes_on: &mut dyn FnMut(&mut Scratch, u64) -> SysResult<bool>,
) -> SysResult<bool> {
    let fd = scan::open(&s.kernel, dir.c_str())?;
    let mut buf = [0u64; 512];
    let mut answer = Ok(true);
    while answer == Ok(true) {
        // SAFETY: the buffer is valid for its length and aligned for entries.
        let n = unsafe {
            s.kernel.call(libc::SYS_getdents64, args![fd, buf.as_mut_ptr(), size_of_val(&buf)])
        };
        answer = match n {
            Ok(0) => break,
            Ok(n) => batch_goes_on(s, &buf, n, goes_on),
            Err(e) => Err(e),
        };
    }
    scan::close(fd);
    answer
}

/// The numbered ones of one batch of directory entries (`struct linux_dirent64`:
/// length at 16, name at 19).
fn batch_goes_on(
    s: &mut Scratch,
    buf: &[u64; 512],
    n: usize,
    goes_on: &mut dyn FnMut(&mut Scratch, u64) -> SysResult<bool>,
) -> SysResult<bool> {
    // SAFETY: the same memory as bytes.
    let bytes = unsafe { core::slice::from_raw_parts(buf.as_ptr().cast::<u8>(), n) };
    let mut at = 0;
    while at + 19 < n {
        let len = u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]) as usize;
        let name = bytes[at + 19..].split(|&b| b == 0).next().unwrap_or(b"");
        at += len.max(20);
        if let Some(number) = dec(name) {
            if !goes_on(s, number)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
