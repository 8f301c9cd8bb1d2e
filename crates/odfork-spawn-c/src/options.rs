//! What a C program asks of a program it starts: the structures, and their reading into a
//! `Command`.
//!
//! Owns: the layout of `struct odf_spawn_options` and its parts, and the refusal of wishes that
//! make no sense before anything is opened. It does not start anything (`spawn`). A new wish is a
//! new member at the end:
//! `size` tells the versions apart. The comments are the text of odfspawn.h.

use core::ffi::{c_char, c_int, CStr};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use odfork_spawn::{Command, SignalSet, Stdio};

/// `file` without a slash is searched in the caller's PATH, as posix_spawnp does; without it, it is
/// a file of the working directory, as posix_spawn has it.
pub const ODF_SPAWN_SEARCH_PATH: u64 = 1 << 0;
/// Closes everything but 0, 1, 2 and what `fds` gives, marked close-on-exec or not.
pub const ODF_SPAWN_CLOSE_OTHERS: u64 = 1 << 1;
/// A session of its own, without a terminal (setsid).
pub const ODF_SPAWN_SESSION: u64 = 1 << 2;
/// `process_group` counts; 0 there: a group of its own.
pub const ODF_SPAWN_PROCESS_GROUP: u64 = 1 << 3;
/// `controlling_terminal` counts; goes with ODF_SPAWN_SESSION.
pub const ODF_SPAWN_CONTROLLING_TERMINAL: u64 = 1 << 4;
/// `foreground` counts.
pub const ODF_SPAWN_FOREGROUND: u64 = 1 << 5;
/// `umask` counts.
pub const ODF_SPAWN_UMASK: u64 = 1 << 6;
/// `uid` counts (real, effective and saved). Root that names a user and no groups gives up all
/// supplementary groups.
pub const ODF_SPAWN_UID: u64 = 1 << 7;
/// `gid` counts (real, effective and saved).
pub const ODF_SPAWN_GID: u64 = 1 << 8;
/// `groups` and `group_count` count; 0 groups: none.
pub const ODF_SPAWN_GROUPS: u64 = 1 << 9;
/// No program executed from now on gains rights by its file (setuid, capabilities).
pub const ODF_SPAWN_NO_NEW_PRIVILEGES: u64 = 1 << 10;
/// Fill `pidfd` of struct odf_process: a close-on-exec descriptor, readable once the program has
/// ended.
pub const ODF_SPAWN_PIDFD: u64 = 1 << 11;

const ALL_FLAGS: u64 = (1 << 12) - 1;

/// Kinds of struct odf_stdio. The parent's own.
pub const ODF_STDIO_INHERIT: c_int = 0;
/// /dev/null.
pub const ODF_STDIO_NULL: c_int = 1;
/// A pipe; the parent's end is in struct odf_process.
pub const ODF_STDIO_PIPE: c_int = 2;
/// The parent's descriptor `fd`; it stays open in the parent.
pub const ODF_STDIO_FD: c_int = 3;

/// Most entries of `fds`, of `groups` (the kernel's own limit) and of `limits`.
pub const ODF_SPAWN_MAX_FDS: usize = 1024;
pub const ODF_SPAWN_MAX_GROUPS: usize = 65536;
pub const ODF_SPAWN_MAX_LIMITS: usize = 64;

/// Where a standard descriptor of the program comes from. All zero: inherited.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_stdio {
    /// ODF_STDIO_INHERIT, ODF_STDIO_NULL, ODF_STDIO_PIPE or ODF_STDIO_FD.
    pub kind: c_int,
    /// With ODF_STDIO_FD only, otherwise 0.
    pub fd: c_int,
}

/// The parent's descriptor `from` is the program's descriptor `to`. Any numbers may be exchanged.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_fd {
    pub from: c_int,
    pub to: c_int,
}

/// A resource limit (RLIMIT_CORE and others of <sys/resource.h>, in their units; UINT64_MAX: none).
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_limit {
    pub resource: c_int,
    pub soft: u64,
    pub hard: u64,
}

/// How the program shall differ from its parent. All zero but `size`: in nothing, as with
/// posix_spawn without attributes (signal mask and ignored signals are inherited too; handlers
/// become defaults).
///
///     struct odf_spawn_options options = { sizeof options };   // the rest is zero
///
/// A member that needs a flag and is not zero without it is refused with EINVAL.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct odf_spawn_options {
    /// sizeof(struct odf_spawn_options). A library older than the program accepts a larger
    /// structure if what it does not know is zero.
    pub size: usize,
    /// ODF_SPAWN_ flags.
    pub flags: u64,
    /// Working directory, entered with the program's user and group; NULL: the parent's. A relative
    /// `file` counts from there.
    pub directory: *const c_char,
    /// Standard input, output and error.
    pub r#in: odf_stdio,
    pub out: odf_stdio,
    pub err: odf_stdio,
    /// More descriptors for the program, each number named once, 0 to 2 in place of the members
    /// above.
    pub fds: *const odf_fd,
    pub fd_count: usize,
    /// Signals blocked in the program; NULL: those of the calling thread.
    pub signal_mask: *const libc::sigset_t,
    /// Signals that have their default in the program although they are ignored here; NULL: none.
    pub default_signals: *const libc::sigset_t,
    /// With ODF_SPAWN_PROCESS_GROUP.
    pub process_group: libc::pid_t,
    /// The program's descriptor, with ODF_SPAWN_CONTROLLING_TERMINAL.
    pub controlling_terminal: c_int,
    /// The program's descriptor of the terminal whose foreground group its group becomes, with
    /// ODF_SPAWN_FOREGROUND.
    pub foreground: c_int,
    /// File mode creation mask, with ODF_SPAWN_UMASK.
    pub umask: libc::mode_t,
    /// With ODF_SPAWN_UID.
    pub uid: libc::uid_t,
    /// With ODF_SPAWN_GID.
    pub gid: libc::gid_t,
    /// With ODF_SPAWN_GROUPS.
    pub groups: *const libc::gid_t,
    pub group_count: usize,
    /// Resource limits, set before user and group change.
    pub limits: *const odf_limit,
    pub limit_count: usize,
    /// Directory of the cgroup to be born in; NULL: the parent's.
    pub cgroup: *const c_char,
    /// A signal the program gets when the thread that started it ends; 0: none.
    pub parent_death_signal: c_int,
    /// Zero.
    pub reserved: c_int,
}

/// Why a wish makes no sense, what is needed instead.
pub type Reason = &'static str;

const OWN: usize = size_of::<odf_spawn_options>();
/// What no version will be larger than: a `size` beyond it was never set.
const LARGEST: usize = 4096;

/// Puts the wishes into `command`.
///
/// # Safety
/// `options` is null or points to `size` readable bytes, whose pointers are null or point to what
/// their comments say.
pub unsafe fn read(options: *const odf_spawn_options, command: &mut Command) -> Result<(), Reason> {
    if options.is_null() {
        return Ok(());
    }
    // SAFETY: passed on from the caller.
    unsafe {
        require_size(options)?;
        let o = options.read();
        check_flags(&o)?;
        flags_and_numbers(&o, command);
        standard(&o, command)?;
        lists(&o, command)?;
        texts_and_sets(&o, command);
    }
    Ok(())
}

/// # Safety
/// As for [`read`].
unsafe fn require_size(options: *const odf_spawn_options) -> Result<(), Reason> {
    // SAFETY: every version begins with the size.
    let size = unsafe { options.cast::<usize>().read() };
    if size < OWN {
        return Err("options.size is too small; set it to sizeof(struct odf_spawn_options)");
    }
    if size > LARGEST {
        return Err("options.size is no size; set it to sizeof(struct odf_spawn_options)");
    }
    // SAFETY: the caller vouches for `size` bytes.
    let unknown = unsafe { core::slice::from_raw_parts(options.cast::<u8>().add(OWN), size - OWN) };
    match unknown.iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => Err("options has wishes of a newer version; install a newer libodfspawn"),
    }
}

fn check_flags(o: &odf_spawn_options) -> Result<(), Reason> {
    if o.flags & !ALL_FLAGS != 0 || o.reserved != 0 {
        return Err(
            "options.flags has unknown bits; begin with all zero, or install a newer libodfspawn",
        );
    }
    let unflagged = [
        (
            ODF_SPAWN_PROCESS_GROUP,
            o.process_group != 0,
            "process_group needs ODF_SPAWN_PROCESS_GROUP",
        ),
        (
            ODF_SPAWN_CONTROLLING_TERMINAL,
            o.controlling_terminal != 0,
            "controlling_terminal needs ODF_SPAWN_CONTROLLING_TERMINAL",
        ),
        (ODF_SPAWN_FOREGROUND, o.foreground != 0, "foreground needs ODF_SPAWN_FOREGROUND"),
        (ODF_SPAWN_UMASK, o.umask != 0, "umask needs ODF_SPAWN_UMASK"),
        (ODF_SPAWN_UID, o.uid != 0, "uid needs ODF_SPAWN_UID"),
        (ODF_SPAWN_GID, o.gid != 0, "gid needs ODF_SPAWN_GID"),
        (
            ODF_SPAWN_GROUPS,
            o.group_count != 0 || !o.groups.is_null(),
            "groups needs ODF_SPAWN_GROUPS",
        ),
    ];
    match unflagged.into_iter().find(|&(flag, set, _)| set && o.flags & flag == 0) {
        Some((_, _, words)) => Err(words),
        None => Ok(()),
    }
}

fn flags_and_numbers(o: &odf_spawn_options, command: &mut Command) {
    let has = |flag| o.flags & flag != 0;
    command.search_path(has(ODF_SPAWN_SEARCH_PATH));
    command.close_other_fds(has(ODF_SPAWN_CLOSE_OTHERS));
    command.session(has(ODF_SPAWN_SESSION));
    command.no_new_privileges(has(ODF_SPAWN_NO_NEW_PRIVILEGES));
    command.pidfd(has(ODF_SPAWN_PIDFD));
    if has(ODF_SPAWN_PROCESS_GROUP) {
        command.process_group(o.process_group);
    }
    if has(ODF_SPAWN_CONTROLLING_TERMINAL) {
        command.controlling_terminal(o.controlling_terminal);
    }
    if has(ODF_SPAWN_FOREGROUND) {
        command.foreground(o.foreground);
    }
    if has(ODF_SPAWN_UMASK) {
        command.umask(o.umask);
    }
    if has(ODF_SPAWN_UID) {
        command.uid(o.uid);
    }
    if has(ODF_SPAWN_GID) {
        command.gid(o.gid);
    }
    if o.parent_death_signal != 0 {
        command.parent_death_signal(o.parent_death_signal);
    }
}

fn standard(o: &odf_spawn_options, command: &mut Command) -> Result<(), Reason> {
    if let Some(source) = source(o.r#in)? {
        command.stdin(source);
    }
    if let Some(source) = source(o.out)? {
        command.stdout(source);
    }
    if let Some(source) = source(o.err)? {
        command.stderr(source);
    }
    Ok(())
}

/// Unsaid is inherited, too, but may be given by `fds`.
fn source(wish: odf_stdio) -> Result<Option<Stdio>, Reason> {
    match wish {
        odf_stdio { kind: ODF_STDIO_FD, fd } if fd >= 0 => Ok(Some(Stdio::number(fd))),
        odf_stdio { kind: ODF_STDIO_FD, .. } => {
            Err("in, out or err is a descriptor below zero; name an open one")
        }
        odf_stdio { fd, .. } if fd != 0 => Err("in, out or err has an fd that needs ODF_STDIO_FD"),
        odf_stdio { kind: ODF_STDIO_INHERIT, .. } => Ok(None),
        odf_stdio { kind: ODF_STDIO_NULL, .. } => Ok(Some(Stdio::null())),
        odf_stdio { kind: ODF_STDIO_PIPE, .. } => Ok(Some(Stdio::piped())),
        _ => Err("in, out or err is of no kind that is known; use ODF_STDIO_INHERIT and others"),
    }
}

/// # Safety
/// As for [`read`].
unsafe fn lists(o: &odf_spawn_options, command: &mut Command) -> Result<(), Reason> {
    // SAFETY: each list is as long as its count says, says the caller.
    let (fds, groups, limits) = unsafe {
        (
            list(o.fds, o.fd_count, ODF_SPAWN_MAX_FDS)?,
            list(o.groups, o.group_count, ODF_SPAWN_MAX_GROUPS)?,
            list(o.limits, o.limit_count, ODF_SPAWN_MAX_LIMITS)?,
        )
    };
    for fd in fds {
        command.fd_number(fd.to, fd.from);
    }
    if o.flags & ODF_SPAWN_GROUPS != 0 {
        command.groups(groups);
    }
    for limit in limits {
        command.limit(limit.resource as u32, limit.soft, limit.hard);
    }
    Ok(())
}

/// # Safety
/// `first` points to `count` entries that live as long as the answer is used, or `count` is not
/// what it should be.
unsafe fn list<'a, T>(first: *const T, count: usize, most: usize) -> Result<&'a [T], Reason> {
    match count {
        0 => Ok(&[]),
        _ if count > most => Err(
            "fd_count, group_count or limit_count is too large; see ODF_SPAWN_MAX_FDS and others",
        ),
        _ if first.is_null() => Err("fds, groups or limits is NULL but its count is not 0"),
        // SAFETY: passed on to the caller.
        _ => Ok(unsafe { core::slice::from_raw_parts(first, count) }),
    }
}

/// # Safety
/// As for [`read`].
unsafe fn texts_and_sets(o: &odf_spawn_options, command: &mut Command) {
    // SAFETY: strings and sets, or null, says the caller.
    unsafe {
        if !o.directory.is_null() {
            command.current_dir(OsStr::from_bytes(CStr::from_ptr(o.directory).to_bytes()));
        }
        if !o.cgroup.is_null() {
            command.cgroup(OsStr::from_bytes(CStr::from_ptr(o.cgroup).to_bytes()));
        }
        if let Some(mask) = set(o.signal_mask) {
            command.signal_mask(mask);
        }
        if let Some(signals) = set(o.default_signals) {
            command.default_signals(signals);
        }
    }
}

/// The first 64 bits of libc's set are the kernel's.
///
/// # Safety
/// `set` is null or points to a set.
unsafe fn set(set: *const libc::sigset_t) -> Option<SignalSet> {
    // SAFETY: passed on to the caller; a set is at least 8 bytes, aligned as a long.
    (!set.is_null()).then(|| SignalSet::from_bits(unsafe { set.cast::<u64>().read() }))
}
