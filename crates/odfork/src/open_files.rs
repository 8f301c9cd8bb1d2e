//! What open descriptors say about I/O that reaches memory behind the page tables.
//!
//! Owns two looks. The first is at the helper's own copy of the caller's descriptors, before it
//! closes them: cheap, and sockets can be asked too. The second, while other threads are held, is
//! at `/proc`: they may have opened more since, or have tables of their own. Neither asks the
//! server of a FUSE mount, which may be the waiting thread. The rules of `helper` apply.

use crate::args;
use crate::file_kind::{self, file, File};
use crate::held::Process;
use crate::listing::each_number;
use crate::reason::{Done, Reason, Stop};
use crate::scan::{self, digits, field, Path, Subject};
use crate::scratch::Scratch;
use crate::sys::{self, Errno, Fault, Kernel, SysResult, Trace};
use crate::task;
use crate::{threads, vma};

/// Tables up to this size are walked by number; in larger ones `/proc` says what is in use.
const WALKED: u64 = 65536;

/// What was found among the descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// An io_uring, or a device that writes to memory it was told of.
    pub pins: bool,
    /// A file opened with `O_DIRECT`: a read by another thread may be under way.
    pub direct: bool,
    /// A userfaultfd: page faults are the program's own affair.
    pub userfaultfd: bool,
    /// A socket that sends from memory without copying (`SO_ZEROCOPY`).
    pub zerocopy: bool,
    /// A file of a server (FUSE, 9p, SMB), which may read past the page cache unasked, or a device.
    pub served: bool,
    /// The table could not be read.
    pub unknown: bool,
}

impl Found {
    /// The kernel may write to memory by itself, in a process with so many threads. What could not
    /// be read may say so.
    pub fn may_pin(&self, threads: u64) -> bool {
        self.unknown || self.pins || self.direct && threads > 1
    }

    /// A reason not to freeze in a process with so many threads.
    pub fn forbids(&self, threads: u64) -> Done<()> {
        match self {
            Found { unknown: true, .. } => Err(Stop::of(Reason::NoProc)),
            Found { userfaultfd: true, .. } => Err(Stop::of(Reason::Userfaultfd)),
            Found { pins: true, .. } => Err(Stop::of(Reason::Pinned)),
            Found { direct: true, .. } if threads > 1 => Err(Stop::of(Reason::Pinned)),
            _ => Ok(()),
        }
    }
}

/// Looks at this task's own descriptors and closes them all.
pub fn look_and_close(s: &mut Scratch) -> Found {
    let (mut found, kernel) = (Found::default(), s.kernel);
    let mut common = Common::new(&kernel);
    // Makes room for the descriptor that the rest of the look needs.
    look_at(&mut found, &mut common, 0);
    scan::close(0);
    let text = scan::slurp(&s.kernel, c"/proc/self/status", &mut s.work.text);
    match text.ok().and_then(|t| field(t, b"FDSize:")) {
        Some(size) if size <= WALKED => {
            (1..size as i32).for_each(|fd| look_at(&mut found, &mut common, fd));
        }
        Some(_) => {
            let dir = Path::join(&[b"/proc/self/fd"]);
            let all = each_number(s, &dir, &mut |_, fd| {
                look_at(&mut found, &mut common, fd as i32);
                Ok(true)
            });
            found.unknown |= all.is_err();
        }
        None => found.unknown = true,
    }
    close_all();
    found
}

/// Closes every descriptor of this task.
pub fn close_all() {
    // SAFETY: the helper's own table.
    unsafe { sys::raw(libc::SYS_close_range, args![0, u32::MAX, 0]) };
}

/// The inode that many kinds of anonymous files have in common (eventfd, epoll, timerfd, ...):
/// programs have thousands of them, and their names are the dear part of a look.
struct Common<'a> {
    kernel: &'a Kernel<'a>,
    inode: Option<u64>,
    /// A file of /proc, once there was something to compare with it.
    of_proc: Option<File>,
    known: Option<bool>,
}

impl<'a> Common<'a> {
    fn new(kernel: &'a Kernel<'a>) -> Self {
        Common { kernel, inode: None, of_proc: None, known: None }
    }

    /// A file was looked at closely: the inode of an anonymous one without harm is remembered.
    fn learn(&mut self, file: &File, harmless: bool) {
        if harmless && file.kind == 0 {
            self.inode = Some(file.inode);
        }
    }

    /// It is one like the last.
    fn is(&mut self, file: &File) -> bool {
        file.kind == 0 && self.inode == Some(file.inode) && self.is_harmless()
    }

    /// A server may read past the page cache for it. Files of /proc have none, and pages neither.
    fn is_served(&mut self, file: &File) -> bool {
        if !file.is_served() || !file.is_of(libc::S_IFREG) {
            return file.is_served();
        }
        if self.of_proc.is_none() {
            self.of_proc = file_kind::file(self.kernel, libc::AT_FDCWD, c"/proc/self/maps");
        }
        !self.of_proc.as_ref().is_some_and(|proc| proc.is_beside(file))
    }

    /// An io_uring and a userfaultfd have inodes of their own, since Linux 5.16 and 5.12. That
    /// version is known by a call that came with it.
    fn is_harmless(&mut self) -> bool {
        *self.known.get_or_insert_with(|| {
            // SAFETY: refused for its arguments.
            let answer = unsafe { self.kernel.call(libc::SYS_futex_waitv, [0; 6]) };
            answer == Err(Errno(libc::EINVAL))
        })
    }
}

fn look_at(found: &mut Found, common: &mut Common, fd: i32) {
    // SAFETY: asks for flags.
    let flags = unsafe { sys::raw(libc::SYS_fcntl, args![fd, libc::F_GETFL]) };
    if flags < 0 {
        return;
    }
    let Some(file) = file(common.kernel, fd, c"") else {
        found.unknown = true;
        return;
    };
    found.direct |= flags as i32 & libc::O_DIRECT != 0 && !is_no_store(file.kind);
    found.served |= common.is_served(&file);
    match file.kind {
        libc::S_IFCHR if file.only_copies() => {}
        libc::S_IFSOCK => {
            found.zerocopy |= option_of(fd, libc::SO_ZEROCOPY) == Some(1);
            // Its packets lie in memory of the program.
            found.pins |= option_of(fd, libc::SO_DOMAIN) == Some(libc::AF_XDP);
        }
        _ if common.is(&file) => {}
        // Anonymous inodes have no type.
        0 | libc::S_IFCHR => {
            let path = Path::join(&[b"/proc/self/fd/", digits(fd as u64, &mut [0u8; 20])]);
            let harmless = note_name(common.kernel, found, &path);
            common.learn(&file, harmless);
        }
        _ => {}
    }
}

pub fn option_of<T: Default + Copy>(fd: i32, name: i32) -> Option<T> {
    let (mut value, mut size) = (T::default(), size_of::<T>() as u32);
    let a = args![fd, libc::SOL_SOCKET, name, &mut value, &mut size];
    // SAFETY: value and size are valid for writing.
    (unsafe { sys::raw(libc::SYS_getsockopt, a) } == 0).then_some(value)
}

/// True for one that does no harm.
fn note_name(kernel: &Kernel, found: &mut Found, path: &Path) -> bool {
    let mut name = [0u8; 64];
    match scan::read_link(kernel, path.c_str(), &mut name) {
        Ok(name) => {
            let userfaultfd = name == b"anon_inode:[userfaultfd]";
            let pins = vma::pins_memory(name);
            found.userfaultfd |= userfaultfd;
            found.pins |= pins;
            !userfaultfd && !pins
        }
        Err(_) => {
            found.unknown = true;
            false
        }
    }
}

/// Looks at the descriptors of every task of the process, while they are held. Tables that are
/// the caller's own are read once.
pub fn look_at_all(s: &mut Scratch, subject: &Subject) -> SysResult<Found> {
    let mut found = Found::default();
    for i in 0..s.work.threads.noted().len() {
        let tid = s.work.threads.noted()[i].tid;
        if tid == subject.tid || !shares_files(subject.tid, tid) {
            match look_at_table(s, subject.pid, tid, &mut found) {
                // One that has ended since it was noted has no table.
                Err(_) if threads::list_of(tid) == Err(Errno(libc::ESRCH)) => {}
                looked => looked?,
            }
        }
    }
    Ok(found)
}

/// A file that a descriptor of a thread shows, without opening it.
pub fn of_thread(pid: i32, tid: i32, fd: i32) -> Option<File> {
    let path = task::descriptor_of(pid, tid, b"/fd/", fd);
    // Not counted: asked also while threads are let go, which must not fail.
    file(&Kernel::new(&Trace::new(), Fault::None), libc::AT_FDCWD, path.c_str())
}

/// What is read there may come in part, or from a server. One that cannot be asked counts as one.
pub fn is_terminal_or_file(pid: i32, tid: i32, fd: i32) -> bool {
    of_thread(pid, tid, fd).is_none_or(|file| file.is_like_terminal() || file.is_of(libc::S_IFREG))
}

/// What is written there may be cut by a signal: pipes, sockets, terminals, the pool of randomness.
pub fn may_be_cut(pid: i32, tid: i32, fd: i32) -> bool {
    of_thread(pid, tid, fd).is_some_and(|file| {
        let is_stream = file.is_of(libc::S_IFIFO) || file.is_of(libc::S_IFSOCK);
        is_stream || file.is_like_terminal() || file.is_endless()
    })
}

pub fn is_pipe(pid: i32, tid: i32, fd: i32) -> bool {
    of_thread(pid, tid, fd).is_some_and(|file| file.is_of(libc::S_IFIFO))
}

/// Reads there give as much as they ask for.
pub fn is_endless(pid: i32, tid: i32, fd: i32) -> bool {
    of_thread(pid, tid, fd).is_some_and(|file| file.is_endless())
}

/// Calls on this descriptor answer at once. One that cannot be asked is supposed to.
pub fn never_waits(pid: i32, tid: i32, fd: i32) -> bool {
    let (path, mut text, trace) =
        (task::descriptor_of(pid, tid, b"/fdinfo/", fd), [0u8; 512], Trace::new());
    let info = scan::slurp(&Kernel::new(&trace, Fault::None), path.c_str(), &mut text);
    // Octal; the digit of 0o4000 is O_NONBLOCK.
    info.ok().and_then(|info| field(info, b"flags:")).is_none_or(|n| (n / 1000 % 10) & 4 != 0)
}

/// How much a read there waits for, of so many bytes; `None` for one that answers what there is.
pub fn awaited(process: Process, tid: i32, fd: i32, wanted: u64) -> Option<u64> {
    let known = of_thread(process.pid, tid, fd).filter(|file| file.is_of(libc::S_IFCHR))?;
    if known.is_endless() {
        return Some(wanted);
    }
    with_copy(process, &known, fd, |copy| {
        // SAFETY: plain data for the kernel to fill.
        let (answer, modes) = unsafe {
            let mut modes: libc::termios = core::mem::zeroed();
            (sys::raw(libc::SYS_ioctl, args![copy, libc::TCGETS, &mut modes]), modes)
        };
        let (least, timer) = (modes.c_cc[libc::VMIN], modes.c_cc[libc::VTIME]);
        let waits = answer == 0 && modes.c_lflag & libc::ICANON == 0 && timer == 0;
        waits.then_some(wanted.min(u64::from(least)))
    })
    .flatten()
}

impl Process {
    /// Where copying descriptors is forbidden, or deadly, that shows here.
    pub fn open(k: &Kernel, pid: i32) -> Process {
        // SAFETY: a descriptor of the helper's; none is copied of no process.
        let descriptor = unsafe {
            match k.call(libc::SYS_pidfd_getfd, args![-1isize, 0, 0]) {
                Err(Errno(libc::EBADF)) => k.call(libc::SYS_pidfd_open, args![pid, 0]).ok(),
                _ => None,
            }
        };
        Process { pid, descriptor: descriptor.map_or(-1, |fd| fd as i32) }
    }
}

/// Does something with a copy of a descriptor that shows a known file: a thread may have a table of
/// its own, which is not copied from.
pub fn with_copy<T>(
    process: Process,
    known: &File,
    fd: i32,
    work: impl FnOnce(i32) -> T,
) -> Option<T> {
    if process.descriptor < 0 {
        return None;
    }
    // SAFETY: a descriptor of the helper's.
    let copy =
        unsafe { sys::call(libc::SYS_pidfd_getfd, args![process.descriptor, fd, 0]) }.ok()?;
    let copy = copy as i32;
    let is_it = file(&Kernel::new(&Trace::new(), Fault::None), copy, c"")
        .is_some_and(|file| file.inode == known.inode && file.kind == known.kind);
    let done = is_it.then(|| work(copy));
    scan::close(copy);
    done
}

/// Where this cannot be asked, the table is read again.
fn shares_files(a: i32, b: i32) -> bool {
    const KCMP_FILES: i32 = 2;
    // SAFETY: compares two tasks.
    unsafe { sys::raw(libc::SYS_kcmp, args![a, b, KCMP_FILES, 0, 0]) == 0 }
}

fn look_at_table(s: &mut Scratch, pid: i32, tid: i32, found: &mut Found) -> SysResult<()> {
    // Not `fdinfo`: reading a folder makes the kernel remember the files in it.
    let (kernel, all) = (s.kernel, task::file_of(pid, tid as u64, b"/fd"));
    let folder = scan::open(&kernel, all.c_str())?;
    let mut common = Common::new(&kernel);
    let done = each_number(s, &all, &mut |s, fd| {
        let file = file(&kernel, folder, Path::join(&[digits(fd, &mut [0u8; 20])]).c_str());
        if file.as_ref().is_some_and(|file| is_no_store(file.kind) || common.is(file)) {
            return Ok(true);
        }
        let path = |kind| task::descriptor_of(pid, tid, kind, fd as i32);
        let mut text = [0u8; 512];
        if let Some(file) = file.filter(|file| file.kind == 0) {
            // An event queue's `fdinfo` waits for who takes events, and that one may wait for us.
            let harmless = note_name(&s.kernel, found, &path(b"/fd/"));
            common.learn(&file, harmless);
        } else if let Ok(info) = scan::slurp(&s.kernel, path(b"/fdinfo/").c_str(), &mut text) {
            note_info(found, info);
        }
        Ok(true)
    });
    scan::close(folder);
    done.map(|_| ())
}

/// Of these kinds none is read past the page cache; what else sockets do was asked at first.
fn is_no_store(kind: u32) -> bool {
    matches!(kind, libc::S_IFSOCK | libc::S_IFIFO | libc::S_IFDIR)
}

/// What the kernel says about one descriptor in `fdinfo`.
fn note_info(found: &mut Found, info: &[u8]) {
    let says = |word: &[u8]| info.windows(word.len()).any(|w| w == word);
    // Octal; the digit of 0o40000 is O_DIRECT on x86-64.
    found.direct |= field(info, b"flags:").unwrap_or(0) / 10000 % 10 >= 4;
    found.pins |= says(b"SqMask:");
    found.userfaultfd |= says(b"\npending:") && says(b"\nAPI:");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(info: &str) -> Found {
        let mut found = Found::default();
        note_info(&mut found, info.as_bytes());
        found
    }

    #[test]
    fn descriptors_tell_what_they_are() {
        let plain = "pos:\t0\nflags:\t0100002\nmnt_id:\t14\n";
        assert_eq!(found(plain), Found::default());
        assert!(found("pos:\t0\nflags:\t02140000\nmnt_id:\t14\n").direct);
        assert!(found(&format!("{plain}SqMask:\t0x3\n")).pins);
        assert!(found(&format!("{plain}pending:\t0\ntotal:\t0\nAPI:\taa:0:7f\n")).userfaultfd);
    }

    #[test]
    fn direct_files_matter_beside_threads_only() {
        let direct = Found { direct: true, ..Found::default() };
        assert_eq!(direct.forbids(1), Ok(()));
        assert_eq!(direct.forbids(2), Err(Stop::of(Reason::Pinned)));
    }
}
