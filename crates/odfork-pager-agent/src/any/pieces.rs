//! mremap of memory that the kernel holds in several mappings.
//!
//! Who fills memory through a userfaultfd gives each mapping an anon_vma at once. Without it, what
//! mprotect divided and was only read has none, and the kernel joins it again. So what is one
//! mapping on stock may be several here, and an mremap of all of it is EFAULT. Then each is moved
//! by itself.

use core::ffi::c_int;

use odfork_pager_protocol::PAGE;
use odfork_sys::{args, check, raw, Errno};

use crate::messages::die;
use crate::proc_lines::{range_of, Lines};
use crate::{kernel_mmap, kernel_munmap};

const MOST: usize = 64;

/// Mappings of a range, in order: start and end, within the range.
struct Pieces {
    list: [(usize, usize); MOST],
    count: usize,
    prot: c_int,
}

impl Pieces {
    /// Of a range without holes, all of one kind: private anonymous memory with the same rights.
    fn of(start: usize, end: usize) -> Option<Pieces> {
        let mut found = Pieces { list: [(0, 0); MOST], count: 0, prot: 0 };
        let mut at = start;
        let mut lines = Lines::open(c"/proc/self/maps").ok()?;
        while let Some(line) = lines.next() {
            let (from, to, prot) = anonymous(line)?;
            if to <= at {
                continue;
            }
            let is_next = from <= at && prot? == found.prot || found.count == 0;
            if !is_next || from > at || found.count == MOST {
                return None;
            }
            found.prot = prot?;
            found.list[found.count] = (at, to.min(end));
            found.count += 1;
            at = to;
            if at >= end {
                return Some(found);
            }
        }
        None
    }
}

/// The range of a mapping, and its rights if it is private anonymous memory; None: no such line.
fn anonymous(line: &[u8]) -> Option<(usize, usize, Option<c_int>)> {
    let (from, to) = range_of(line)?;
    let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let mut words = words.skip(1);
    let prot = match words.next()? {
        b"rw-p" => Some(libc::PROT_READ | libc::PROT_WRITE),
        b"r--p" => Some(libc::PROT_READ),
        _ => None,
    };
    let is_anonymous =
        words.nth(2) == Some(b"0") && words.next().is_none_or(|name| name[0] != b'[');
    Some((from as usize, to as usize, prot.filter(|_| is_anonymous)))
}

fn move_one(from: usize, len: usize, flags: c_int, to: usize) -> Result<usize, Errno> {
    let flags = flags | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's own memory, moved as it has asked for.
    check(unsafe { raw(libc::SYS_mremap, args![from, len, len, flags, to]) })
}

/// The answer of an mremap of a program that is paged so, each mapping moved if need be.
pub fn or_each(
    answer: isize,
    at: usize,
    lens: (usize, usize),
    flags: c_int,
    target: usize,
) -> isize {
    match answer == -(libc::EFAULT as isize) && super::is_active() {
        true => remap(at, lens, flags, target),
        false => answer,
    }
}

/// What mremap(2) of all of it would do; EFAULT where it is no such memory.
fn remap(at: usize, lens: (usize, usize), flags: c_int, target: usize) -> isize {
    let fault = -(libc::EFAULT as isize);
    let [old_len, new_len] = [lens.0, lens.1].map(|len| len.next_multiple_of(PAGE));
    let overlaps = target < at + old_len && at < target.saturating_add(new_len);
    if at % PAGE != 0 || new_len == 0 || flags & libc::MREMAP_FIXED != 0 && overlaps {
        return fault;
    }
    // Before Linux 6.17 what is too much has been unmapped already.
    let shrinks = flags & libc::MREMAP_FIXED != 0 && new_len < old_len;
    let rest = || Pieces::of(at, at + new_len).filter(|_| shrinks);
    let pieces = Pieces::of(at, at + old_len).or_else(rest);
    let Some(pieces) = pieces.filter(|pieces| pieces.count > 1) else { return fault };
    let moves = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0 || new_len > old_len;
    if !moves {
        return match new_len < old_len {
            true => {
                check(kernel_munmap(at + new_len, old_len - new_len)).map_or(fault, |_| at as isize)
            }
            false => at as isize,
        };
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return -(libc::ENOMEM as isize);
    }
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (place, fixed) = match flags & libc::MREMAP_FIXED != 0 {
        true => (target, libc::MAP_FIXED),
        false => (0, 0),
    };
    let to = kernel_mmap(place, new_len, pieces.prot, private | fixed, -1, 0);
    let Ok(to) = check(to) else { return to };
    for &(from, end) in &pieces.list[..pieces.count] {
        let (offset, end) = (from - at, end.min(at + new_len));
        if from >= end {
            break;
        }
        if let Err(error) = move_one(from, end - from, flags, to + offset) {
            if offset > 0 {
                die(b"odfork page: part of an mremap was done, and the rest is refused: ending\n");
            }
            let _ = kernel_munmap(to, new_len);
            return -(error.0 as isize);
        }
    }
    if new_len < old_len && flags & libc::MREMAP_DONTUNMAP == 0 {
        let _ = kernel_munmap(at + new_len, old_len - new_len);
    }
    to as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_told_apart() {
        let line = b"7f00-7fff rw-p 00000000 00:00 0 ";
        assert_eq!(anonymous(line), Some((0x7f00, 0x7fff, Some(3))));
        let named = b"7f00-7fff r--p 00000000 00:00 0 [anon:heap]";
        assert_eq!(anonymous(named), Some((0x7f00, 0x7fff, None)));
        let file = b"7f00-7fff rw-p 00001000 fd:01 77                     /lib/x.so";
        assert_eq!(anonymous(file), Some((0x7f00, 0x7fff, None)));
        assert_eq!(anonymous(b"rubbish"), None);
    }
}
