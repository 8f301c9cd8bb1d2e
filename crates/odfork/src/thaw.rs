//! Thawing: image mappings back to anonymous memory, with their content or,
//! where the program asked for that, as zeros.
//!
//! The truth about every address is asked from the kernel (`PROCMAP_QUERY`,
//! Linux 6.11, else `/proc/self/maps`). Runs in the helper task.

use crate::args;
use crate::helper::Scratch;
use crate::reason::{Done, Reason, Stop};
use crate::registry::Registry;
use crate::guard::Guard;
use crate::survey::{self, Subject};
use crate::sys::{self, Errno, Kernel, SysResult};
use crate::vma::{parse_head, Vma, EXEC, READ, SHARED, WRITE};

const CHUNK: usize = 32 << 20;
const BUFFER_VIEW: usize = 0;
/// `_IOWR('f', 17, struct procmap_query)`, 104 bytes.
const PROCMAP_QUERY: usize = 0xc068_6611;
const COVERING_OR_NEXT: u64 = 0x10;

/// uapi `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// What becomes of the content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Image mappings become anonymous with the same bytes.
    Keep,
    /// Image mappings become zeros: the advice of this number gave them up.
    Zero(i32),
    /// The whole range becomes one anonymous mapping with the same bytes, as
    /// `mremap` needs it, if it could have been one on stock.
    Join,
}

/// A range to thaw.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub start: usize,
    pub end: usize,
    pub content: Content,
    pub subject: Subject<'a>,
}

/// The job: every part of the range that shows an image becomes anonymous.
pub fn job(s: &mut Scratch, order: usize) -> Done<()> {
    // SAFETY: the caller passes the address of an `Order` in its frame and waits.
    let o = unsafe { *(order as *const Order) };
    s.kernel.step = "thaw";
    let fail = |e| Stop::failed(Reason::NoProc, "thaw", e);
    let fd = survey::open(&mut s.kernel, c"/proc/self/maps").map_err(fail)?;
    // Content that is given up or moved needs no guard: whoever writes to it
    // meanwhile races with the program's own call.
    let guard = match o.content {
        Content::Zero(_) | Content::Join => None,
        Content::Keep => {
            let threads = survey::fences(s, &o.subject)?;
            match Guard::hold(s, &o.subject, threads) {
                Err(stop) if threads > 1 => return Err(stop),
                guard => guard.ok(),
            }
        }
    };
    let done = thaw(s, &o, fd);
    if let Some(guard) = guard {
        guard.release();
    }
    done
}

fn thaw(s: &mut Scratch, o: &Order, fd: i32) -> Done<()> {
    s.kernel.step = "thaw";
    let fail = |e| Stop::failed(Reason::NoProc, "thaw", e);
    if o.content == Content::Join {
        return join(s, o, fd);
    }
    let (mut at, mut by_hand) = (o.start, false);
    while at < o.end {
        let Some(v) = covering_or_next(s, fd, at).map_err(fail)? else { break };
        let (start, end) = (v.start.max(at), v.end.min(o.end));
        if start < end && is_image(&v, o.subject.registry) {
            by_hand |= replace(s, &v, (start, end), o.content)?;
        }
        at = v.end.max(at + 1);
    }
    if by_hand {
        advise_others(s, o, fd).map_err(fail)?;
    }
    Ok(())
}

fn is_image(v: &Vma, registry: &Registry) -> bool {
    registry.find(v.dev, v.inode).is_some()
        && v.perms & SHARED == 0
        && !registry.live().any(|(_, i)| i.seed_private == v.start)
}

/// After zeros were written by hand the kernel must not hear the advice for
/// those pages again (it would show the image): the rest of the range hears it here.
fn advise_others(s: &mut Scratch, o: &Order, fd: i32) -> SysResult<()> {
    s.report.by_hand = 1;
    let Content::Zero(advice) = o.content else { return Ok(()) };
    let mut at = o.start;
    while at < o.end {
        let Some(v) = covering_or_next(s, fd, at)? else { break };
        let (start, end) = (v.start.max(at), v.end.min(o.end));
        if start < end && !is_image(&v, o.subject.registry) {
            // SAFETY: the program's own advice for its own memory.
            let _ = unsafe { sys::call(libc::SYS_madvise, args![start, end - start, advice]) };
        }
        at = v.end.max(at + 1);
    }
    Ok(())
}

/// One anonymous mapping over the range, if all of it is private, anonymous (or
/// was, before freezing) and equally protected.
fn join(s: &mut Scratch, o: &Order, fd: i32) -> Done<()> {
    let fail = |e| Stop::failed(Reason::NoProc, "thaw", e);
    let (mut at, mut perms, mut parts) = (o.start, None, 0);
    while at < o.end {
        let Some(v) = covering_or_next(s, fd, at).map_err(fail)? else { return Ok(()) };
        let ours = is_image(&v, o.subject.registry);
        let like = v.perms & SHARED == 0 && (ours || v.inode == 0) && v.perms & READ != 0;
        if v.start > at || !like || perms.is_some_and(|p| p != v.perms) {
            return Ok(());
        }
        (at, perms, parts) = (v.end, Some(v.perms), parts + 1);
    }
    let prot = i32::from(perms.unwrap_or(0) & 7);
    let first = covering_or_next(s, fd, o.start).map_err(fail)?.unwrap_or_default();
    if parts > 1 || is_image(&first, o.subject.registry) {
        keep_content(s, (o.start, o.end), prot)?;
        s.report.thawed += o.end - o.start;
    }
    Ok(())
}

fn covering_or_next(s: &mut Scratch, fd: i32, addr: usize) -> SysResult<Option<Vma>> {
    let mut q = Query {
        size: core::mem::size_of::<Query>() as u64,
        flags: COVERING_OR_NEXT,
        addr: addr as u64,
        ..Query::default()
    };
    // SAFETY: the query is valid for the kernel to read and fill.
    match unsafe { s.kernel.call(libc::SYS_ioctl, args![fd, PROCMAP_QUERY, &mut q]) } {
        Ok(_) => Ok(Some(Vma {
            start: q.start as usize,
            end: q.end as usize,
            perms: (q.vma_flags as u8) & (READ | WRITE | EXEC | SHARED),
            offset: q.offset,
            dev: ((q.major as u64) << 32) | q.minor as u64,
            inode: q.inode,
            ..Vma::default()
        })),
        Err(Errno(libc::ENOENT)) => Ok(None),
        Err(Errno(libc::ENOTTY)) => from_text(s, addr),
        Err(e) => Err(e),
    }
}

/// The same from the text of the map, for kernels before 6.11.
fn from_text(s: &mut Scratch, addr: usize) -> SysResult<Option<Vma>> {
    let fd = survey::open(&mut s.kernel, c"/proc/self/maps")?;
    let (mut found, mut keep) = (None, 0);
    while found.is_none() {
        let room = &mut s.text[keep..];
        // SAFETY: the buffer is valid for its length.
        let n = match unsafe {
            s.kernel.call(libc::SYS_read, args![fd, room.as_mut_ptr(), room.len()])
        } {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => {
                survey::close(fd);
                return Err(e);
            }
        };
        let filled = keep + n;
        let last = s.text[..filled].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
        let lines = s.text[..last].split(|&b| b == b'\n');
        found = lines.filter_map(parse_head).find(|v| v.end > addr);
        s.text.copy_within(last..filled, 0);
        keep = filled - last;
    }
    survey::close(fd);
    Ok(found)
}

/// Replaces a part of an image mapping; true if zeros were written by hand instead.
fn replace(s: &mut Scratch, v: &Vma, (start, end): (usize, usize), content: Content) -> Done<bool> {
    let prot = i32::from(v.perms & 7);
    s.report.thawed += end - start;
    match content {
        Content::Zero(_) => match anonymous(&mut s.kernel, (start, end), prot) {
            Ok(()) => Ok(false),
            Err(stop) => write_zeros(s, (start, end)).map(|()| true).map_err(|_| stop),
        },
        _ => keep_content(s, (start, end), prot).map(|()| false),
    }
}

/// Where the mapping cannot be replaced (at the map-count limit, or sealed),
/// zeros are written, through `/proc/self/mem` so that protection does not matter.
fn write_zeros(s: &mut Scratch, (start, end): (usize, usize)) -> SysResult<()> {
    let a = args![libc::AT_FDCWD, c"/proc/self/mem".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0];
    s.text.fill(0);
    // SAFETY: writes zeros over content that the program gave up.
    unsafe {
        let fd = s.kernel.call(libc::SYS_openat, a)?;
        let mut at = start;
        while at < end {
            let n = s.text.len().min(end - at);
            at += s.kernel.call(libc::SYS_pwrite64, args![fd, s.text.as_ptr(), n, at])?;
        }
        survey::close(fd as i32);
    }
    Ok(())
}

fn anonymous(k: &mut Kernel, (start, end): (usize, usize), prot: i32) -> Done<()> {
    k.step = "thaw";
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let a = args![start, end - start, prot, flags, -1isize, 0];
    // SAFETY: the range shows an image of ours; its content is saved or unwanted.
    unsafe { k.call(libc::SYS_mmap, a) }
        .map(|_| ())
        .map_err(|e| Stop::failed(Reason::Step, "thaw", e))
}

/// Anonymous memory made in place (not moved there), chunk by chunk, so that
/// the kernel joins it with its neighbours to one mapping as before freezing.
fn keep_content(s: &mut Scratch, (start, end): (usize, usize), prot: i32) -> Done<()> {
    let fail = |e| Stop::failed(Reason::Step, "thaw", e);
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    let size = CHUNK.min(end - start);
    // SAFETY: a new mapping.
    let buffer = unsafe { s.kernel.call(libc::SYS_mmap, args![0, size, rw, flags, -1isize, 0]) }
        .map_err(fail)?;
    s.note_view(BUFFER_VIEW, buffer, size);
    let mut at = start;
    let mut result = Ok(());
    while at < end && result.is_ok() {
        let to = (at + size).min(end);
        result = thaw_chunk(&mut s.kernel, (at, to), buffer, prot);
        at = to;
    }
    s.drop_view(BUFFER_VIEW);
    result
}

fn thaw_chunk(k: &mut Kernel, (at, to): (usize, usize), buffer: usize, prot: i32) -> Done<()> {
    let fail = |e| Stop::failed(Reason::Step, "thaw", e);
    let (len, rw) = (to - at, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the chunk belongs to an image mapping, made readable first; the
    // buffer is at least as long; nothing writes to the chunk meanwhile.
    unsafe {
        if prot & libc::PROT_READ == 0 {
            k.call(libc::SYS_mprotect, args![at, len, libc::PROT_READ]).map_err(fail)?;
        }
        core::ptr::copy_nonoverlapping(at as *const u8, buffer as *mut u8, len);
        anonymous(k, (at, to), rw)?;
        core::ptr::copy_nonoverlapping(buffer as *const u8, at as *mut u8, len);
        if prot != rw {
            // Not counted: after the copy this must not be left out.
            crate::sys::call(libc::SYS_mprotect, args![at, len, prot]).map_err(fail)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uapi_size() {
        assert_eq!(core::mem::size_of::<Query>(), 104);
    }
}
