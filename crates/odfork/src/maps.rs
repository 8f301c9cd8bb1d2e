//! Questions to the kernel about single mappings of this memory: `PROCMAP_QUERY` (Linux 6.11), else
//! the text of `/proc/self/maps`.

use crate::args;
use crate::quiesce;
use crate::scan;
use crate::scratch::Scratch;
use crate::sys::abi::procmap;
use crate::sys::{Errno, SysResult};
use crate::vma::{parse_head, pins_memory, Vma, EXEC, READ, SHARED, WRITE};

/// The mapping that holds an address, or the next one behind it.
pub fn covering_or_next(s: &mut Scratch, fd: i32, addr: usize) -> SysResult<Option<Vma>> {
    let mut q = procmap::Query {
        size: size_of::<procmap::Query>() as u64,
        flags: procmap::COVERING_OR_NEXT_VMA,
        address: addr as u64,
        ..Default::default()
    };
    // SAFETY: the query is valid for the kernel to read and fill.
    match unsafe { s.kernel.call(libc::SYS_ioctl, args![fd, procmap::QUERY, &mut q]) } {
        Ok(_) => Ok(Some(Vma {
            start: q.start as usize,
            end: q.end as usize,
            perms: (q.vma_flags as u8) & (READ | WRITE | EXEC | SHARED),
            offset: q.offset,
            dev: (u64::from(q.device_major) << 32) | u64::from(q.device_minor),
            inode: q.inode,
            ..Vma::default()
        })),
        Err(Errno(libc::ENOENT)) => Ok(None),
        Err(Errno(libc::ENOTTY)) => from_text(s, addr),
        Err(e) => Err(e),
    }
}

/// The range lies in one mapping like the one that the look has found there.
pub fn is_still(s: &mut Scratch, maps: i32, v: &Vma, (from, to): (usize, usize)) -> bool {
    still(s, maps, v, from).0.is_some_and(|now| now.start <= from && now.end >= to)
}

/// What is left, at an address or behind it, of a mapping that the look has found: the program may
/// have given up a part in the middle. None, and where to go on: something else is there.
pub fn still(s: &mut Scratch, maps: i32, v: &Vma, from: usize) -> (Option<Vma>, usize) {
    let Ok(Some(now)) = covering_or_next(s, maps, from) else { return (None, v.end) };
    let place = |v: &Vma| (v.offset as usize).wrapping_sub(v.start);
    let (start, end) = (now.start.max(v.start), now.end.min(v.end));
    let is_same = now.perms == v.perms
        && (now.dev, now.inode) == (v.dev, v.inode)
        && (v.inode == 0 || place(&now) == place(v));
    let offset = v.offset + start.saturating_sub(v.start) as u64;
    ((is_same && start < end).then_some(Vma { start, end, offset, ..*v }), end)
}

/// The same from the text of the map, for kernels before 6.11.
fn from_text(s: &mut Scratch, addr: usize) -> SysResult<Option<Vma>> {
    let fd = scan::open(&s.kernel, c"/proc/self/maps")?;
    let (mut found, mut keep) = (None, 0);
    while found.is_none() {
        let room = &mut s.work.text[keep..];
        // SAFETY: the buffer is valid for its length.
        let n = match unsafe {
            s.kernel.call(libc::SYS_read, args![fd, room.as_mut_ptr(), room.len()])
        } {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => {
                scan::close(fd);
                return Err(e);
            }
        };
        let filled = keep + n;
        let last = s.work.text[..filled].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
        let lines = s.work.text[..last].split(|&b| b == b'\n');
        found = lines.filter_map(parse_head).find(|v| v.end > addr);
        s.work.text.copy_within(last..filled, 0);
        keep = filled - last;
    }
    scan::close(fd);
    Ok(found)
}

/// A mapping says that the kernel may write by itself: that of `io_submit`, of a device.
pub fn pin(s: &mut Scratch, fd: i32) -> SysResult<bool> {
    let mut at = 0;
    loop {
        let mut q = procmap::Query {
            size: size_of::<procmap::Query>() as u64,
            flags: procmap::COVERING_OR_NEXT_VMA | procmap::FILE_BACKED_VMA | procmap::VMA_SHARED,
            address: at,
            name_address: s.work.text.as_mut_ptr() as u64,
            name_size: libc::PATH_MAX as u32,
            ..Default::default()
        };
        // SAFETY: the query is valid for the kernel to read and fill, and there is room for a name.
        match unsafe { s.kernel.call(libc::SYS_ioctl, args![fd, procmap::QUERY, &mut q]) } {
            Ok(_) if pins_memory(&s.work.text) => return Ok(true),
            Ok(_) => at = q.end,
            Err(Errno(libc::ENOENT)) => return Ok(false),
            // A name may be longer.
            Err(Errno(libc::ENOTTY | libc::ENAMETOOLONG)) => break,
            Err(e) => return Err(e),
        }
    }
    let maps = scan::open(&s.kernel, c"/proc/self/maps")?;
    let mut pins = false;
    let kernel = s.kernel;
    let read = quiesce::each_map_line(&kernel, maps, &mut s.work.text, &mut |_, v| pins |= v.pins);
    scan::close(maps);
    read.map(|()| pins)
}
