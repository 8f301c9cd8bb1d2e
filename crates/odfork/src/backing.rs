//! Where backing files come from: unnamed files of huge or of 4 KB pages.
//!
//! Owns making a file, its anchor mappings and its sharing probe, and making views of an
//! existing file. Runs in the helper task only (its rules apply).
//!
//! Huge pages come from a tmpfs mounted nowhere (`fsopen`, `huge=always`), made
//! as root or, failing that, in a user namespace that only the helper enters.

use crate::args;
use crate::plan::Kind;
use crate::reason::{Done, Reason, Stop};
use crate::registry::BackingFile;
use crate::scratch::Scratch;
use crate::step::Step;
use crate::sys::{Errno, Kernel, SysResult, HUGE, PAGE};

/// Content begins here in the file; page 0 is the anchors'.
pub const DATA: usize = HUGE;
/// Size of a backing file: far beyond any growth by `mremap`, so that reading
/// past the content gives zeros and never SIGBUS. A file hole costs nothing.
const FILE_SIZE: usize = 1 << 50;

const FSCONFIG_SET_STRING: usize = 1;
const FSCONFIG_CMD_CREATE: usize = 6;

/// Which backing files the user allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Allowed {
    #[default]
    Auto,
    Huge,
    Small,
}

impl Allowed {
    /// A piece of that kind may be frozen, if the files it needs can be had.
    pub fn takes(self, kind: Kind) -> bool {
        match self {
            Allowed::Auto => true,
            Allowed::Huge => kind == Kind::Huge,
            Allowed::Small => kind == Kind::Small,
        }
    }
}

/// Makes backing files; holds the unmounted tmpfs while the helper lives.
#[derive(Clone, Copy)]
pub struct Source {
    allowed: Allowed,
    mount: Option<i32>,
}

impl Source {
    /// Finds out what can be had, by doing it.
    pub fn open(k: &Kernel, allowed: Allowed) -> Done<Source> {
        k.enter(Step::Backing);
        let mount = match allowed {
            Allowed::Small => None,
            _ => match huge_tmpfs(k) {
                Ok(mount) => Some(mount),
                Err(Errno(libc::ENOSYS)) => None,
                Err(_) => enter_namespace(k).and_then(|()| huge_tmpfs(k)).ok(),
            },
        };
        if allowed == Allowed::Huge && mount.is_none() {
            return Err(Stop::of(Reason::Image));
        }
        Ok(Source { allowed, mount })
    }

    /// Huge pages can be had.
    pub fn huge(&self) -> bool {
        self.mount.is_some()
    }

    /// Thin pieces may go to a 4 KB backing file (not when only huge ones are wanted).
    pub fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Huge || self.allowed != Allowed::Huge
    }

    /// A new empty file, sized, with read and write access.
    pub fn file(&self, k: &Kernel, kind: Kind, need: usize) -> Done<i32> {
        k.enter(Step::Backing);
        let fail = |e| Stop::failed(Reason::Step, Step::Backing, e);
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: static strings; descriptors of this task alone.
        let fd = unsafe {
            match (kind, self.mount) {
                (Kind::Huge, Some(m)) => {
                    k.call(libc::SYS_openat, args![m, c".".as_ptr(), flags, 0o600])
                }
                _ => k.call(libc::SYS_memfd_create, args![c"odfork".as_ptr(), libc::MFD_CLOEXEC]),
            }
        }
        .map_err(fail)?;
        // SAFETY: as above.
        let sized = unsafe {
            k.call(libc::SYS_ftruncate, args![fd, FILE_SIZE])
                .or_else(|_| k.call(libc::SYS_ftruncate, args![fd, need]))
        };
        sized.map_err(|e| Stop::failed(Reason::Limit, Step::Backing, e))?;
        Ok(fd as i32)
    }
}

fn huge_tmpfs(k: &Kernel) -> SysResult<i32> {
    // SAFETY: static strings; descriptors of this task alone.
    unsafe {
        let fs = k.call(libc::SYS_fsopen, args![c"tmpfs".as_ptr(), 1])?;
        for (key, value) in [(c"huge", c"always"), (c"size", c"0"), (c"mode", c"0700")] {
            let a = args![fs, FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr(), 0];
            k.call(libc::SYS_fsconfig, a)?;
        }
        k.call(libc::SYS_fsconfig, args![fs, FSCONFIG_CMD_CREATE, 0, 0, 0])?;
        let mount = k.call(libc::SYS_fsmount, args![fs, 1, 0])?;
        Ok(mount as i32)
    }
}

/// Moves the helper into a user and mount namespace of its own, where it may
/// mount a tmpfs. The program stays where it is.
fn enter_namespace(k: &Kernel) -> SysResult<()> {
    // SAFETY: the helper is a process of its own with one thread; static strings.
    unsafe {
        let (uid, gid) = (k.call(libc::SYS_geteuid, [0; 6])?, k.call(libc::SYS_getegid, [0; 6])?);
        k.call(libc::SYS_unshare, args![libc::CLONE_NEWUSER | libc::CLONE_NEWNS])?;
        write_file(k, c"/proc/self/setgroups", b"deny")?;
        let mut line = [0u8; 32];
        let n = id_line(&mut line, uid);
        write_file(k, c"/proc/self/uid_map", &line[..n])?;
        let n = id_line(&mut line, gid);
        write_file(k, c"/proc/self/gid_map", &line[..n])
    }
}

fn id_line(out: &mut [u8; 32], id: usize) -> usize {
    let mut at = 0;
    let mut push = |b: u8| {
        out[at] = b;
        at += 1;
    };
    push(b'0');
    push(b' ');
    let mut digits = [0u8; 12];
    let (mut n, mut i) = (id as u32, 0);
    loop {
        digits[i] = b'0' + (n % 10) as u8;
        i += 1;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    digits[..i].iter().rev().for_each(|&d| push(d));
    push(b' ');
    push(b'1');
    at
}

/// Writes a line to a file of `/proc`.
pub fn write_file(k: &Kernel, path: &core::ffi::CStr, text: &[u8]) -> SysResult<()> {
    // SAFETY: valid path and text; the descriptor is the helper's.
    unsafe {
        let a = args![libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0];
        let fd = k.call(libc::SYS_openat, a)?;
        let wrote = k.call(libc::SYS_write, args![fd, text.as_ptr(), text.len()]);
        let _ = k.call(libc::SYS_close, args![fd]);
        wrote.map(|_| ())
    }
}

/// Device and inode of an open file, in the form of the process map.
pub fn identity(k: &Kernel, fd: i32) -> SysResult<(u64, u64)> {
    // SAFETY: stat is plain data for the kernel to fill.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        k.call(libc::SYS_fstat, args![fd, &mut st])?;
        let dev = st.st_dev;
        Ok((((libc::major(dev) as u64) << 32) | libc::minor(dev) as u64, st.st_ino))
    }
}

/// Maps the two anchor mappings of a new backing file; neither goes to children.
pub fn map_anchors(s: &mut Scratch, fd: i32, file: &mut BackingFile) -> SysResult<()> {
    s.kernel.enter(Step::Anchor);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    for (flag, anchor) in
        [(libc::MAP_PRIVATE, &mut file.anchor_private), (libc::MAP_SHARED, &mut file.anchor_shared)]
    {
        let hint = s.results.place(PAGE);
        // SAFETY: new one-page mappings.
        unsafe {
            let at = s.kernel.call(libc::SYS_mmap, args![hint, PAGE, prot, flag, fd, 0])?;
            *anchor = at;
            s.kernel.call(libc::SYS_madvise, args![at, PAGE, libc::MADV_DONTFORK])?;
        }
    }
    Ok(())
}

/// Removes the anchor mappings of a backing file: the file lives on only in mappings.
pub fn unmap_anchors(file: &BackingFile) {
    for anchor in [file.anchor_private, file.anchor_shared] {
        if anchor != 0 {
            // SAFETY: our own one-page mapping.
            unsafe { crate::sys::munmap(anchor, PAGE) };
        }
    }
}

/// Makes a sharing probe: one private page that every descendant inherits by fork and
/// nobody ever writes. While it is mapped exclusively, no descendant that could
/// show a backing file of its time is alive.
pub fn make_probe(s: &mut Scratch) -> SysResult<usize> {
    s.kernel.enter(Step::Probe);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let hint = s.results.place(PAGE);
    // SAFETY: a new mapping, written once before it is protected.
    unsafe {
        let at = s.kernel.call(libc::SYS_mmap, args![hint, PAGE, prot, flags, -1isize, 0])?;
        (at as *mut u64).write_volatile(0x6f64_666f_726b);
        if let Err(e) = s.kernel.call(libc::SYS_mprotect, args![at, PAGE, libc::PROT_READ]) {
            crate::sys::munmap(at, PAGE);
            return Err(e);
        }
        Ok(at)
    }
}

/// Maps the file's pages where it is shown, as the memory was before: what counts as resident is
/// what the kernel chooses a victim by when memory runs out. Fork does not copy these entries, and
/// those of huge pages are few. Failing costs that only.
pub fn populate(k: &Kernel, (start, end): (usize, usize)) {
    // SAFETY: without effect on content.
    let _ =
        unsafe { k.call(libc::SYS_madvise, args![start, end - start, libc::MADV_POPULATE_READ]) };
}

/// Reserves addresses for a view, so that 2 MB pages of the file can be mapped as such.
fn reserve(s: &mut Scratch, span: usize) -> SysResult<usize> {
    let room = span.next_multiple_of(HUGE) + HUGE;
    let hint = s.results.zone().next_multiple_of(HUGE) + HUGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let a = args![hint, room, libc::PROT_NONE, flags, -1isize, 0];
    // SAFETY: new addresses, of which an aligned part is kept.
    unsafe {
        let at = s.kernel.call(libc::SYS_mmap, a)?;
        let begin = at.next_multiple_of(HUGE);
        let end = begin + span.next_multiple_of(PAGE);
        crate::sys::munmap(at, begin - at);
        crate::sys::munmap(end, at + room - end);
        Ok(begin)
    }
}

/// A view of the whole backing file to write into: the shared anchor, duplicated
/// (`mremap` with old size 0). The caller notes and unmaps it.
pub fn shared_view(s: &mut Scratch, file: &BackingFile) -> SysResult<usize> {
    if file.anchor_shared == 0 {
        return Err(Errno(libc::ENOENT));
    }
    let at = reserve(s, file.span)?;
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the target was reserved above.
    unsafe {
        s.kernel
            .call(libc::SYS_mremap, args![file.anchor_shared, 0, file.span, how, at])
            .inspect_err(|_| crate::sys::munmap(at, file.span))
    }
}

/// A fresh private mapping of the whole backing file, without an `anon_vma`: the
/// private anchor, doubled (`MREMAP_DONTUNMAP`, Linux 5.13 for files) and grown.
pub fn private_view(s: &mut Scratch, file: &BackingFile) -> SysResult<usize> {
    if file.anchor_private == 0 {
        return Err(Errno(libc::ENOENT));
    }
    let at = reserve(s, file.span)?;
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let double = how | libc::MREMAP_DONTUNMAP;
    // SAFETY: the anchor is ours and stays; the first page of the reserved range
    // takes its twin, which grows over all of it.
    unsafe {
        let grown = s
            .kernel
            .call(libc::SYS_mremap, args![file.anchor_private, PAGE, PAGE, double, at])
            .and_then(|_| {
                crate::sys::munmap(at + PAGE, file.span - PAGE);
                s.kernel.call(libc::SYS_mremap, args![at, PAGE, file.span, 0])
            })
            .and_then(|view| {
                s.kernel.call(libc::SYS_madvise, args![view, file.span, libc::MADV_DOFORK])
            });
        match grown {
            Ok(_) => Ok(at),
            Err(e) => {
                crate::sys::munmap(at, file.span);
                Err(e)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_lines() {
        let mut line = [0u8; 32];
        for (id, want) in
            [(0, "0 0 1"), (65534, "0 65534 1"), (u32::MAX as usize, "0 4294967295 1")]
        {
            let n = id_line(&mut line, id);
            assert_eq!(&line[..n], want.as_bytes());
        }
    }
}
