//! Where backing files come from: unnamed files of huge or of 4 KB pages.
//!
//! Owns finding a source of huge pages, and making files. Runs in the helper task only (its rules
//! apply). In this order:
//!
//! ```text
//! directory    the tmpfs the user names (ODFORK_IMAGE_DIR): it, or none
//! mount        a tmpfs mounted nowhere (`fsopen`, `huge=always`), as root
//! namespace    the same in a user namespace that only the helper enters
//! memfd        where shmem_enabled gives it huge pages, asked for or always
//! memfd        4 KB pages
//! ```

use core::ffi::CStr;

use odfork_sys::directory::{Facts, Objection, DIRECTORY_FLAGS, OPEN_FLAGS};

use crate::args;
use crate::backing::write_file;
use crate::plan::Kind;
use crate::reason::{Done, Reason, Stop};
use crate::scan;
use crate::step::Step;
use crate::sys::abi::tmpfs::{Statfs, HUGE_BLOCKS};
use crate::sys::{Errno, Kernel, SysResult, HUGE, PAGE};

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

/// What gives huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Huge {
    None,
    /// Unnamed files in this directory: the root of an unmounted tmpfs, or the user's directory.
    Directory(i32),
    /// A memfd, where a mapping asks for huge pages before it is written.
    Memfd,
}

/// Makes backing files; holds a directory while the helper lives.
#[derive(Clone, Copy)]
pub struct Source {
    allowed: Allowed,
    huge: Huge,
}

impl Source {
    /// Finds out what can be had, by doing it. `directory`: where the user wants files, or empty.
    pub fn open(k: &Kernel, allowed: Allowed, directory: &CStr) -> Done<Source> {
        k.enter(Step::Backing);
        let huge = match allowed {
            Allowed::Small => Huge::None,
            _ if !directory.is_empty() => {
                let fail = |e| Stop::failed(Reason::ImageDir, Step::Backing, e);
                Huge::Directory(open_directory(k, directory).map_err(fail)?)
            }
            _ => match mounted(k) {
                Ok(mount) => Huge::Directory(mount),
                Err(_) => huge_memfd(k),
            },
        };
        if allowed == Allowed::Huge && huge == Huge::None {
            return Err(Stop::of(Reason::Image));
        }
        Ok(Source { allowed, huge })
    }

    /// Huge pages can be had.
    pub fn huge(&self) -> bool {
        self.huge != Huge::None
    }

    /// Thin pieces may go to a 4 KB backing file (not when only huge ones are wanted).
    pub fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Huge || self.allowed != Allowed::Huge
    }

    /// A new empty file, sized, with read and write access.
    pub fn file(&self, k: &Kernel, kind: Kind, need: usize) -> Done<i32> {
        k.enter(Step::Backing);
        let fail = |e| Stop::failed(Reason::Step, Step::Backing, e);
        let fd = match (kind, self.huge) {
            (Kind::Huge, Huge::Directory(directory)) => unnamed_file(k, directory),
            _ => memfd(k),
        }
        .map_err(fail)?;
        let sized = resize(k, fd, FILE_SIZE).or_else(|_| resize(k, fd, need));
        sized.map_err(|e| Stop::failed(Reason::Limit, Step::Backing, e))?;
        Ok(fd)
    }

    /// Before a window of a file of huge pages is written: makes its page, where writing would not.
    /// `whole`: in one call. Kernels since 6.14 (6.18 does not) may make pages of the size of what
    /// is written. Failing costs that page.
    pub fn prepare(&self, k: &Kernel, hint: usize, fd: i32, offset: usize, whole: bool) {
        if self.huge == Huge::Memfd || !whole {
            let _ = make_page(k, hint, fd, offset / HUGE * HUGE);
        }
    }
}

fn unnamed_file(k: &Kernel, directory: i32) -> SysResult<i32> {
    let a = args![directory, c".".as_ptr(), OPEN_FLAGS, 0o600];
    // SAFETY: a static string; descriptors of this task alone.
    unsafe { k.call(libc::SYS_openat, a) }.map(|fd| fd as i32)
}

/// With the flag that `vm.memfd_noexec=2` wants, where it is known (Linux 6.3). It forbids to
/// execute the file, not memory that shows it.
fn memfd(k: &Kernel) -> SysResult<i32> {
    let make = |flags: u32| {
        // SAFETY: a static string; descriptors of this task alone.
        unsafe { k.call(libc::SYS_memfd_create, args![c"odfork".as_ptr(), flags]) }
    };
    let made = match make(libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL) {
        Err(Errno(libc::EINVAL)) => make(libc::MFD_CLOEXEC),
        other => other,
    };
    made.map(|fd| fd as i32)
}

fn resize(k: &Kernel, fd: i32, size: usize) -> SysResult<()> {
    // SAFETY: a file of the helper's.
    unsafe { k.call(libc::SYS_ftruncate, args![fd, size]) }.map(|_| ())
}

/// The directory the user names, if it is fit.
fn open_directory(k: &Kernel, path: &CStr) -> SysResult<i32> {
    // SAFETY: a valid path; descriptors of this task alone; plain data for the kernel to fill.
    let (fd, facts, user) = unsafe {
        let fd =
            k.call(libc::SYS_openat, args![libc::AT_FDCWD, path.as_ptr(), DIRECTORY_FLAGS, 0])?;
        let mut st: libc::stat = core::mem::zeroed();
        let mut fs = Statfs::default();
        k.call(libc::SYS_fstat, args![fd, &mut st])?;
        k.call(libc::SYS_fstatfs, args![fd, &mut fs])?;
        let facts = Facts {
            owner: st.st_uid,
            mode: st.st_mode,
            kind: fs.kind,
            flags: fs.flags,
            blocks: fs.blocks,
        };
        (fd as i32, facts, k.call(libc::SYS_geteuid, [0; 6])? as u32)
    };
    match facts.objection(user) {
        Some(objection) => Err(Errno(objection.errno())),
        None if gives_huge_pages(k, unnamed_file(k, fd)?) => Ok(fd),
        None => Err(Errno(Objection::SmallPages.errno())),
    }
}

/// One page touched in a new file brings 2 MB. Closes the file.
fn gives_huge_pages(k: &Kernel, fd: i32) -> bool {
    let blocks = || -> SysResult<i64> {
        resize(k, fd, HUGE)?;
        make_page(k, 0, fd, 0)?;
        // SAFETY: plain data for the kernel to fill.
        unsafe {
            let mut st: libc::stat = core::mem::zeroed();
            k.call(libc::SYS_fstat, args![fd, &mut st])?;
            Ok(st.st_blocks)
        }
    };
    let whole = blocks().is_ok_and(|blocks| blocks >= HUGE_BLOCKS);
    scan::close(fd);
    whole
}

/// What a memfd brings, by the setting and by trying.
fn huge_memfd(k: &Kernel) -> Huge {
    let mut text = [0u8; 128];
    let setting = scan::slurp(k, c"/sys/kernel/mm/transparent_hugepage/shmem_enabled", &mut text);
    let chosen = setting.ok().and_then(|text| text.split(|b| b"[]".contains(b)).nth(1));
    if !matches!(chosen, Some(b"always" | b"within_size" | b"force" | b"advise")) {
        return Huge::None;
    }
    match memfd(k) {
        Ok(fd) if gives_huge_pages(k, fd) => Huge::Memfd,
        _ => Huge::None,
    }
}

/// Touches a page by a mapping that asks for huge ones. The mapping goes again.
fn make_page(k: &Kernel, hint: usize, fd: i32, offset: usize) -> SysResult<()> {
    let (prot, room) = (libc::PROT_READ | libc::PROT_WRITE, 2 * HUGE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: new addresses, and a mapping placed inside them.
    unsafe {
        let a = args![hint, room, libc::PROT_NONE, flags, -1isize, 0];
        let at = k.call(libc::SYS_mmap, a)?;
        let window = at.next_multiple_of(HUGE);
        let made = k
            .call(libc::SYS_mmap, args![window, HUGE, prot, fixed, fd, offset])
            .and_then(|_| k.call(libc::SYS_madvise, args![window, HUGE, libc::MADV_HUGEPAGE]))
            .and_then(|_| {
                k.call(libc::SYS_madvise, args![window, PAGE, libc::MADV_POPULATE_WRITE])
            });
        crate::sys::munmap(at, room);
        made.map(|_| ())
    }
}

/// A tmpfs of huge pages that is mounted nowhere.
fn mounted(k: &Kernel) -> SysResult<i32> {
    match huge_tmpfs(k) {
        Err(Errno(libc::ENOSYS)) => Err(Errno(libc::ENOSYS)),
        Err(_) => enter_namespace(k).and_then(|()| huge_tmpfs(k)),
        made => made,
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
