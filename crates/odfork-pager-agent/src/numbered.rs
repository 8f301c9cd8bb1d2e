//! Folders of /proc whose entries are numbers: descriptors, threads. Without a heap.

use core::ffi::c_int;

use odfork_sys::{args, call, SysResult};

/// What `getdents64` puts before a name.
const HEAD: usize = 19;

/// Calls it with every number in the folder, until it answers false. An error: not all were seen.
pub fn each(folder: c_int, mut visit: impl FnMut(c_int) -> bool) -> SysResult<()> {
    #[repr(C, align(8))]
    struct Entries([u8; 4096]);
    let mut room = Entries([0; 4096]);
    // SAFETY: plain arguments.
    unsafe { call(libc::SYS_lseek, args![folder, 0, libc::SEEK_SET])? };
    loop {
        let list = args![folder, room.0.as_mut_ptr(), room.0.len()];
        // SAFETY: the buffer has the size given.
        let got = unsafe { call(libc::SYS_getdents64, list)? };
        if got == 0 {
            return Ok(());
        }
        let mut entries = &room.0[..got];
        while entries.len() > HEAD {
            let length = usize::from(u16::from_ne_bytes([entries[16], entries[17]]));
            let (entry, rest) = entries.split_at(length.clamp(HEAD, entries.len()));
            if number(&entry[HEAD..]).is_some_and(|number| !visit(number)) {
                return Ok(());
            }
            entries = rest;
        }
    }
}

/// Of a name that is one.
fn number(name: &[u8]) -> Option<c_int> {
    let end = name.iter().position(|&byte| byte == 0)?;
    core::str::from_utf8(&name[..end]).ok()?.parse().ok()
}
