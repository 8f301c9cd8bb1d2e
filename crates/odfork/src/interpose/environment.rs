//! `LD_PRELOAD` after a change of root or user: an entry that cannot be opened any more.
//!
//! The loader writes a line to stderr for it in every program executed, which plain fork would not
//! show. So our own entry is taken out of the environment that such a process passes on, and what
//! it executes runs plain.

use core::ffi::c_char;

use crate::{args, engine, sys};

const NAME: &[u8] = b"LD_PRELOAD=";
/// Longest path of a library looked at.
const PATH: usize = 4096;

extern "C" {
    static mut environ: *mut *mut c_char;
}

/// After a call that may have made the library unreachable. A borrower of the memory leaves the
/// environment alone: it is another process's.
pub fn after_change() {
    if engine::is_fenced() || !engine::owns_memory() {
        return;
    }
    // SAFETY: the C library's environment: strings that end with a zero byte, and a null at the
    // end. A program that changes it in another thread meanwhile races with its own execve, too.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = core::slice::from_raw_parts_mut((*entry).cast(), libc::strlen(*entry) + 1);
            if text.starts_with(NAME) {
                drop_unreachable(&mut text[NAME.len()..], &is_reachable);
            }
            entry = entry.add(1);
        }
    }
}

/// Takes our entries out of the list, which ends with a zero byte, if they are out of reach.
fn drop_unreachable(list: &mut [u8], is_reachable: &dyn Fn(&[u8]) -> bool) {
    let is_end = |b: u8| matches!(b, 0 | b':' | b' ');
    let mut at = 0;
    while at < list.len() && list[at] != 0 {
        let length = list[at..].iter().position(|&b| is_end(b)).unwrap_or(0);
        let path = &list[at..at + length];
        if is_ours(path) && !is_reachable(path) {
            let next = at + length + usize::from(list[at + length] != 0);
            list.copy_within(next.., at);
        } else {
            at += length + 1;
        }
    }
}

fn is_ours(path: &[u8]) -> bool {
    let file = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    file.len() < path.len() && file.starts_with(b"libodfork.so")
}

/// The loader of a program executed now could open it, as far as this process can tell.
fn is_reachable(path: &[u8]) -> bool {
    let mut name = [0u8; PATH];
    if path.len() >= PATH {
        return true;
    }
    name[..path.len()].copy_from_slice(path);
    // As the loader will: a filter that kills for this call kills every program executed.
    let a = args![libc::AT_FDCWD, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0];
    // SAFETY: a path that ends with a zero byte; the descriptor is ours.
    unsafe {
        match sys::call(libc::SYS_openat, a) {
            Ok(fd) => sys::raw(libc::SYS_close, args![fd]) == 0,
            Err(e) => !matches!(e, sys::Errno(libc::ENOENT | libc::EACCES | libc::ENOTDIR)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_entry_goes_and_others_stay() {
        for (before, after) in [
            ("/a/libodfork.so\0", "\0"),
            ("/a/libodfork.so:/b/x.so\0", "/b/x.so\0"),
            ("/b/x.so /a/libodfork.so\0", "/b/x.so \0"),
            ("/b/x.so:/a/libodfork.so:y.so\0", "/b/x.so:y.so\0"),
            ("libodfork.so:/b/x.so\0", "libodfork.so:/b/x.so\0"),
        ] {
            let mut list = before.as_bytes().to_vec();
            drop_unreachable(&mut list, &|_| false);
            assert!(list.starts_with(after.as_bytes()), "{before:?}: {list:?}");
            let mut list = before.as_bytes().to_vec();
            drop_unreachable(&mut list, &|_| true);
            assert_eq!(list, before.as_bytes());
        }
    }
}
