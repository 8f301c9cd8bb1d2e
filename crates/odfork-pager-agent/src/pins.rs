//! No page of a paged program may be pinned by the kernel to be written later.
//!
//! A pin (a registered buffer of io_uring, a direct read under way) holds a page by its frame, not
//! by its address. The daemon may unmap that page, save it and take it out of the backing; what
//! comes in by the pin then goes into a frame that nobody sees any more. Linux (6.18) tells user
//! space nowhere whether a page of a memory file is pinned, and punches it all the same. So the
//! calls that pin for writing are taken from the program before its first page is paged, by a
//! seccomp filter on all its threads:
//!
//! ```text
//!   io_uring_setup, _enter, _register; io_setup   ENOSYS, as on kernels without
//!   openat2                                       ENOSYS: its flags cannot be seen
//!   process_vm_writev                             ENOSYS: it may write into the program itself
//!   open, openat, open_by_handle_at, F_SETFL      EINVAL when they ask for O_DIRECT and may read,
//!                                                 as on file systems without; the C library's
//!                                                 functions drop the flag instead
//!   socket(AF_XDP)                                EAFNOSUPPORT
//! ```
//!
//! A program that has a ring, a context or a file for direct reads already is left to the kernel.
//! So is one that sees a file system which may read into user memory without O_DIRECT: who serves a
//! FUSE file decides that when it is opened, and nothing tells.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use odfork_sys::abi::calls as old;
use odfork_sys::abi::seccomp::{AUDIT_ARCH, X32_SYSCALL_BIT};
use odfork_sys::{args, call, raw, Errno, SysResult};

use crate::line::Line;
use crate::proc_lines::Lines;
use crate::{close, numbered};

/// "allow": the program takes the risk.
const VARIABLE: &CStr = c"ODFORK_PAGE_PINS";

static ALLOWED: AtomicBool = AtomicBool::new(false);
/// The filter is there.
static REFUSED: AtomicBool = AtomicBool::new(false);

const DIRECT: u32 = libc::O_DIRECT as u32;

pub fn read_options() {
    // SAFETY: constructors run; nobody changes the environment.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    // SAFETY: a string of the environment.
    let is_allow = !value.is_null() && unsafe { CStr::from_ptr(value) } == c"allow";
    ALLOWED.store(is_allow, Relaxed);
}

/// Before anything is paged. An error: nothing must be.
pub fn refuse() -> SysResult<()> {
    if ALLOWED.load(Relaxed) {
        return Ok(());
    }
    if has_pinning()? || has_pinning_mounts()? {
        return Err(Errno(libc::EBUSY));
    }
    if !is_refused() {
        install()?;
        // Made by another thread in between.
        if has_pinning()? {
            return Err(Errno(libc::EBUSY));
        }
    }
    REFUSED.store(true, Relaxed);
    Ok(())
}

/// Flags for a file of a paged program.
pub fn without_direct(flags: c_int) -> c_int {
    let writes_only = flags & libc::O_ACCMODE == libc::O_WRONLY;
    match REFUSED.load(Relaxed) && !writes_only {
        true => flags & !libc::O_DIRECT,
        false => flags,
    }
}

/// The filter is there, by this process or by one it comes from: calls that fail otherwise tell.
fn is_refused() -> bool {
    // SAFETY: calls that cannot succeed.
    unsafe {
        let bad = args![-1, c"".as_ptr(), libc::O_DIRECT | libc::O_RDWR];
        raw(libc::SYS_io_uring_setup, [0; 6]) == -(libc::ENOSYS as isize)
            && raw(libc::SYS_io_setup, [0; 6]) == -(libc::ENOSYS as isize)
            && raw(libc::SYS_openat, bad) == -(libc::EINVAL as isize)
    }
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const IS: u16 = 0x15;
const HAS: u16 = 0x45;
const RETURN: u16 = 0x06;

const fn one(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Low half of an argument.
const fn argument(at: u32) -> libc::sock_filter {
    one(LOAD, 16 + 8 * at)
}

const LENGTH: usize = 31;
// Places in the program; a jump is relative to the instruction behind it.
const OPEN: u8 = 17;
const OPEN_AT: u8 = 19;
const READS: u8 = 21;
const CONTROL: u8 = 23;
const ALLOWS: u8 = 27;
const NOSYS: u8 = 28;
const INVAL: u8 = 29;
const NOSUPPORT: u8 = 30;

/// At place `at`: goes to another when it is this system call.
const fn to(at: u8, call: i64, place: u8) -> libc::sock_filter {
    jump(IS, call as u32, place - at - 1, 0)
}

static FILTER: [libc::sock_filter; LENGTH] = [
    one(LOAD, 4),
    jump(IS, AUDIT_ARCH, 0, ALLOWS - 2),
    one(LOAD, 0),
    one(AND, !X32_SYSCALL_BIT),
    to(4, libc::SYS_io_uring_setup, NOSYS),
    to(5, libc::SYS_io_uring_enter, NOSYS),
    to(6, libc::SYS_io_uring_register, NOSYS),
    to(7, libc::SYS_io_setup, NOSYS),
    to(8, libc::SYS_openat2, NOSYS),
    to(9, libc::SYS_process_vm_writev, NOSYS),
    to(10, old::SYS_open, OPEN),
    to(11, libc::SYS_openat, OPEN_AT),
    to(12, libc::SYS_open_by_handle_at, OPEN_AT),
    to(13, libc::SYS_fcntl, CONTROL),
    jump(IS, libc::SYS_socket as u32, 0, ALLOWS - 15),
    argument(0),
    jump(IS, libc::AF_XDP as u32, NOSUPPORT - 17, ALLOWS - 17),
    // OPEN
    argument(1),
    jump(HAS, DIRECT, READS - 19, ALLOWS - 19),
    // OPEN_AT
    argument(2),
    jump(HAS, DIRECT, 0, ALLOWS - 21),
    // READS
    one(AND, libc::O_ACCMODE as u32),
    jump(IS, libc::O_WRONLY as u32, ALLOWS - 23, INVAL - 23),
    // CONTROL
    argument(1),
    jump(IS, libc::F_SETFL as u32, 0, ALLOWS - 25),
    argument(2),
    jump(HAS, DIRECT, INVAL - 27, ALLOWS - 27),
    one(RETURN, libc::SECCOMP_RET_ALLOW),
    one(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    one(RETURN, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
    one(RETURN, libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
];

/// On all threads. Without CAP_SYS_ADMIN the kernel wants no_new_privs for it, which then holds for
/// the program and all it starts.
fn install() -> SysResult<()> {
    let program = libc::sock_fprog { len: LENGTH as u16, filter: FILTER.as_ptr().cast_mut() };
    let arguments = args![libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC, &program];
    // SAFETY: a valid program, which the kernel copies and checks.
    let answer = unsafe {
        match call(libc::SYS_seccomp, arguments) {
            Err(Errno(libc::EACCES)) => {
                call(libc::SYS_prctl, args![libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0])?;
                call(libc::SYS_seccomp, arguments)
            }
            other => other,
        }
    };
    match answer? {
        0 => Ok(()),
        // The number of a thread with a filter of its own.
        _ => Err(Errno(libc::EBUSY)),
    }
}

/// A ring, a context for asynchronous I/O, or a file for direct reads is there.
fn has_pinning() -> SysResult<bool> {
    let mut mappings = Lines::open(c"/proc/self/maps")?;
    while let Some(line) = mappings.next() {
        if line.ends_with(b"/[aio] (deleted)") || line.ends_with(b"anon_inode:[io_uring]") {
            return Ok(true);
        }
    }
    has_pinning_files()
}

/// A file system is mounted here whose plain reads may pin: FUSE (FOPEN_DIRECT_IO), and network
/// file systems without a cache of their own.
fn has_pinning_mounts() -> SysResult<bool> {
    let mut mounts = Lines::open(c"/proc/self/mountinfo")?;
    while let Some(line) = mounts.next() {
        if reads_directly(line) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The type stands behind the lone dash: `... shared:1 - fuse.sshfs host:/ rw`.
fn reads_directly(mount: &[u8]) -> bool {
    const TYPES: [&[u8]; 4] = [b"virtiofs ", b"9p ", b"cifs ", b"smb3 "];
    mount.windows(3).position(|three| three == b" - ").is_some_and(|at| {
        let kind = &mount[at + 3..];
        let is_fuse = kind.starts_with(b"fuse") && !kind.starts_with(b"fusectl ");
        is_fuse || TYPES.iter().any(|name| kind.starts_with(name))
    })
}

fn has_pinning_files() -> SysResult<bool> {
    let path = c"/proc/self/fd".as_ptr();
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a constant path.
    let folder = unsafe { call(libc::SYS_openat, args![libc::AT_FDCWD, path, flags, 0])? } as c_int;
    let mut found = false;
    let done = numbered::each(folder, |fd| {
        // SAFETY: that folder.
        found = unsafe { pins(folder, fd) };
        !found
    });
    close(folder);
    done.map(|()| found)
}

/// # Safety
/// `folder` is /proc/self/fd.
unsafe fn pins(folder: c_int, fd: c_int) -> bool {
    let mut name = Line::new();
    name.number(fd as u64).text(b"\0");
    let mut target = [0u8; 32];
    // SAFETY: valid buffers of the sizes given; a descriptor that is closed meanwhile is an error.
    unsafe {
        let arguments = args![folder, name.bytes().as_ptr(), target.as_mut_ptr(), target.len()];
        let len = call(libc::SYS_readlinkat, arguments).unwrap_or(0);
        if &target[..len] == b"anon_inode:[io_uring]" {
            return true;
        }
        // Pipes have another use for the flag.
        let flags = call(libc::SYS_fcntl, args![fd, libc::F_GETFL, 0]).unwrap_or(0) as c_int;
        flags & libc::O_DIRECT != 0
            && flags & libc::O_ACCMODE != libc::O_WRONLY
            && !target[..len].starts_with(b"pipe:")
    }
}
