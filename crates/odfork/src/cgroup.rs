//! How much memory the process's control groups leave it.
//!
//! Owns reading `memory.max`, `memory.high` and what versions 1 and 2 call them, of the group of
//! the process and of all groups above it. Groups are opened one below the other, so that names of
//! any length do. Runs in the helper task.
//!
//! ```text
//! /proc/self/cgroup      4:memory:/a/b   0::/a/b        which group; version 1 goes before 2
//! /proc/self/mountinfo   ... /a /sys/fs/cgroup/memory ... - cgroup ... memory
//!                            root of what is mounted, where, and which version
//! /proc/self/ns/cgroup   the first namespace or another: `/` may lie below a limit in another
//! ```

use core::ffi::CStr;

use crate::args;
use crate::scan;
use crate::scratch::TEXT;
use crate::sys::{Errno, Kernel, SysResult};
use crate::vma::dec;

/// Of the text buffer, what the name of the group may take (`PATH_MAX` and the line around it).
const NAME: usize = 8 << 10;
/// Groups above one another.
const DEPTH: usize = 256;

/// What the groups leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// No group limits memory.
    Unlimited,
    /// So many bytes, by the tightest limit.
    Bytes(usize),
    /// There is a group, and its limits cannot be read.
    Unknown,
}

impl Left {
    fn min(self, other: Left) -> Left {
        match (self, other) {
            (Left::Bytes(a), Left::Bytes(b)) => Left::Bytes(a.min(b)),
            (Left::Unlimited, other) | (other, Left::Unlimited) => other,
            _ => Left::Unknown,
        }
    }
}

/// The names of a version's files: what is used, and limits on it; and what `memory.stat` calls the
/// page cache that nobody has used lately, of the group and those below.
struct Files {
    kind: &'static [u8],
    used: &'static CStr,
    limits: &'static [&'static CStr],
    cache: &'static [u8],
}

const V1: Files = Files {
    kind: b"cgroup",
    used: c"memory.usage_in_bytes",
    limits: &[c"memory.limit_in_bytes"],
    cache: b"total_inactive_file ",
};
const V2: Files = Files {
    kind: b"cgroup2",
    used: c"memory.current",
    limits: &[c"memory.max", c"memory.high"],
    cache: b"inactive_file ",
};

/// Asks the kernel.
pub fn left(k: &Kernel, text: &mut [u8; TEXT]) -> Left {
    let (name, mounts) = text.split_at_mut(NAME);
    let own = match read_whole(k, c"/proc/self/cgroup", name) {
        // A kernel without control groups.
        Err(Errno(libc::ENOENT)) => return Left::Unlimited,
        Err(_) => return Left::Unknown,
        Ok(own) => own,
    };
    let Some((files, group)) = memory_group(own) else { return Left::Unlimited };
    // In a namespace of its own that name says nothing about the groups above.
    let is_root = group == b"/" && is_in_first_namespace(k);
    let unknown = if is_root { Left::Unlimited } else { Left::Unknown };
    let Ok(found) = open_mount(k, mounts, files, group) else { return unknown };
    let Some((fd, below)) = found else { return unknown };
    walk(k, fd, files, below, mounts)
}

/// What names the namespace of control groups that the kernel begins with.
const FIRST_NAMESPACE: &[u8] = b"cgroup:[4026531835]";

fn is_in_first_namespace(k: &Kernel) -> bool {
    let mut name = [0u8; 32];
    scan::read_link(k, c"/proc/self/ns/cgroup", &mut name) == Ok(FIRST_NAMESPACE)
}

fn read_whole<'a>(k: &Kernel, path: &CStr, buf: &'a mut [u8]) -> SysResult<&'a [u8]> {
    let fd = scan::open(k, path)?;
    let mut filled = 0;
    let done = loop {
        match read(k, fd, &mut buf[filled..]) {
            Ok(0) => break Ok(()),
            Ok(n) => filled += n,
            Err(e) => break Err(e),
        }
        if filled == buf.len() {
            break Err(Errno(libc::EFBIG));
        }
    };
    scan::close(fd);
    done.map(|()| &buf[..filled])
}

fn read(k: &Kernel, fd: i32, buf: &mut [u8]) -> SysResult<usize> {
    // SAFETY: the buffer is valid for its length.
    unsafe { k.call(libc::SYS_read, args![fd, buf.as_mut_ptr(), buf.len()]) }
}

/// The group that is charged for memory, from `/proc/self/cgroup`: that of version 1 if its memory
/// controller is mounted, else that of version 2.
fn memory_group(text: &[u8]) -> Option<(&'static Files, &[u8])> {
    let mut second = None;
    for line in text.split(|&b| b == b'\n') {
        let mut parts = line.splitn(3, |&b| b == b':');
        let (Some(number), Some(list), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if list.split(|&b| b == b',').any(|c| c == b"memory") {
            return Some((&V1, name));
        }
        if number == b"0" && list.is_empty() {
            second = Some((&V2, name));
        }
    }
    second
}

/// One line of `/proc/self/mountinfo` that mounts those files: its root and mount point.
fn mount<'a>(line: &'a [u8], files: &Files) -> Option<(&'a [u8], &'a [u8])> {
    let mut words = line.split(|&b| b == b' ').filter(|w| !w.is_empty());
    let (root, point) = (words.nth(3)?, words.next()?);
    words.find(|w| *w == b"-")?;
    let (kind, options) = (words.next()?, words.nth(1)?);
    let memory = kind == b"cgroup2" || options.split(|&b| b == b',').any(|o| o == b"memory");
    (kind == files.kind && memory).then_some((root, point))
}

/// What of a group's name lies below the root of a mount.
fn below<'a>(group: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    let rest = group.strip_prefix(root.strip_suffix(b"/").unwrap_or(root))?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// Opens the first mount that shows the group; gives the rest of the group's name too.
fn open_mount<'a>(
    k: &Kernel,
    text: &mut [u8],
    files: &Files,
    group: &'a [u8],
) -> SysResult<Option<(i32, &'a [u8])>> {
    let fd = scan::open(k, c"/proc/self/mountinfo")?;
    let (mut keep, mut found) = (0, Ok(None));
    while let Ok(None) = found {
        let n = match read(k, fd, &mut text[keep..]) {
            Ok(n) if n > 0 => n,
            // The end; or a line longer than the buffer, which cannot be.
            other => {
                found = other.map(|_| None);
                break;
            }
        };
        let filled = keep + n;
        let last = text[..filled].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
        found = open_of_lines(k, &mut text[..last], files, group);
        text.copy_within(last..filled, 0);
        keep = filled - last;
    }
    scan::close(fd);
    found
}

fn open_of_lines<'a>(
    k: &Kernel,
    text: &mut [u8],
    files: &Files,
    group: &'a [u8],
) -> SysResult<Option<(i32, &'a [u8])>> {
    for line in text.split_mut(|&b| b == b'\n') {
        let Some((root, point)) = mount(line, files) else { continue };
        let Some(rest) = below(group, root) else { continue };
        let at = point.as_ptr() as usize - line.as_ptr() as usize;
        let end = at + point.len();
        // The name ends with a zero byte where the space behind it was.
        line[end] = 0;
        return open_below(k, libc::AT_FDCWD, &line[at..=end]).map(|fd| Some((fd, rest)));
    }
    Ok(None)
}

/// Opens a folder by a name that ends with a zero byte.
fn open_below(k: &Kernel, dir: i32, name: &[u8]) -> SysResult<i32> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: a valid name.
    unsafe { k.call(libc::SYS_openat, args![dir, name.as_ptr(), flags, 0]) }.map(|fd| fd as i32)
}

/// The tightest limit from the mount's root down to the group; closes `fd`.
fn walk(k: &Kernel, mut fd: i32, files: &Files, below: &[u8], text: &mut [u8]) -> Left {
    let mut least = of_group(k, fd, files, text);
    let names = below.split(|&b| b == b'/').filter(|n| !n.is_empty());
    for (depth, name) in names.enumerate() {
        let mut buf = [0u8; 256];
        let next = if depth < DEPTH && name.len() < buf.len() {
            buf[..name.len()].copy_from_slice(name);
            open_below(k, fd, &buf[..=name.len()])
        } else {
            Err(Errno(libc::ENAMETOOLONG))
        };
        scan::close(fd);
        let Ok(next) = next else { return Left::Unknown };
        fd = next;
        least = least.min(of_group(k, fd, files, text));
    }
    scan::close(fd);
    least
}

/// What one group leaves. A file that is not there is no limit: the root group of version 2 has
/// none, nor has a group whose parent does not pass the memory controller on. Page cache counts as
/// free: the kernel drops it before it kills.
fn of_group(k: &Kernel, fd: i32, files: &Files, text: &mut [u8]) -> Left {
    let mut least = u64::MAX;
    for limit in files.limits {
        match number(k, fd, limit) {
            Ok(Some(limit)) => least = least.min(limit),
            Ok(None) | Err(Errno(libc::ENOENT)) => {}
            Err(_) => return Left::Unknown,
        }
    }
    if least == u64::MAX {
        return Left::Unlimited;
    }
    let Ok(used) = number(k, fd, files.used) else { return Left::Unknown };
    let used = used.unwrap_or(0).saturating_sub(cache(k, fd, files, text));
    Left::Bytes(least.saturating_sub(used) as usize)
}

/// Bytes of page cache in a group; none where that cannot be read.
fn cache(k: &Kernel, dir: i32, files: &Files, text: &mut [u8]) -> u64 {
    let read = read_at(k, dir, c"memory.stat", text);
    read.ok().and_then(|n| scan::field(&text[..n], files.cache)).unwrap_or(0)
}

/// The number in a file of a group; `None` for `max`, and for what version 1 says instead.
fn number(k: &Kernel, dir: i32, name: &CStr) -> SysResult<Option<u64>> {
    let mut text = [0u8; 32];
    let n = read_at(k, dir, name, &mut text)?;
    parse(&text[..n]).ok_or(Errno(libc::EIO))
}

/// What one call reads of a file in a folder: all of it, where the kernel makes it up.
fn read_at(k: &Kernel, dir: i32, name: &CStr, text: &mut [u8]) -> SysResult<usize> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a valid name.
    let fd = unsafe { k.call(libc::SYS_openat, args![dir, name.as_ptr(), flags, 0]) }? as i32;
    let n = read(k, fd, text);
    scan::close(fd);
    n
}

fn parse(text: &[u8]) -> Option<Option<u64>> {
    match text.trim_ascii() {
        b"max" => Some(None),
        digits => dec(digits).map(|n| (n < 1 << 62).then_some(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_goes_before_two() {
        let hybrid = b"4:cpu,memory:/a b\n1:cpu:/c\n0::/d\n";
        assert!(matches!(memory_group(hybrid), Some((f, b"/a b")) if f.kind == b"cgroup"));
        let pure = b"0::/d:e\n";
        assert!(matches!(memory_group(pure), Some((f, b"/d:e")) if f.kind == b"cgroup2"));
        assert!(memory_group(b"1:name=systemd:/x\n").is_none());
    }

    #[test]
    fn mounts_are_told_apart() {
        let one =
            b"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        assert_eq!(mount(one, &V1), Some((&b"/"[..], &b"/sys/fs/cgroup/memory"[..])));
        assert_eq!(mount(one, &V2), None);
        let other = b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert_eq!(mount(other, &V1), None);
        let two = b"38 31 0:31 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate";
        assert_eq!(mount(two, &V2), Some((&b"/docker/x"[..], &b"/sys/fs/cgroup"[..])));
    }

    #[test]
    fn a_group_below_the_mounts_root() {
        assert_eq!(below(b"/a/b", b"/"), Some(&b"/a/b"[..]));
        assert_eq!(below(b"/a/b", b"/a"), Some(&b"/b"[..]));
        assert_eq!(below(b"/a", b"/a"), Some(&b""[..]));
        assert_eq!(below(b"/ab", b"/a"), None);
        assert_eq!(below(b"/", b"/.."), None);
    }

    #[test]
    fn numbers_and_the_least_of_them() {
        assert_eq!(parse(b"max\n"), Some(None));
        assert_eq!(parse(b"9223372036854771712\n"), Some(None));
        assert_eq!(parse(b"4096\n"), Some(Some(4096)));
        assert_eq!(parse(b""), None);
        assert_eq!(Left::Bytes(3).min(Left::Bytes(2)), Left::Bytes(2));
        assert_eq!(Left::Unlimited.min(Left::Bytes(2)), Left::Bytes(2));
        assert_eq!(Left::Unknown.min(Left::Bytes(2)), Left::Unknown);
    }
}
