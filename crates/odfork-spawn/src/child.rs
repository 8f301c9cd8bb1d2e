//! The child between clone and exec, in one sitting.
//!
//! Owns everything that runs in the parent's memory but not in the parent. Rules
//! (docs/spawn.md says why each step is safe): straight-line system calls, made
//! raw, so that neither `errno` nor any cancellation point of the parent's
//! thread is touched; no heap, no locks, no thread-local storage, no panic;
//! memory is written on this stack and in the report only. All signals are
//! blocked from before the clone until the handlers are gone.

use std::convert::Infallible;

use odfork_sys::{args, call, sigaction, Action, Errno, SysResult};

use crate::child_arguments::{Attributes, ChildArguments, ChildFrame, Limit, Report};
use crate::descriptors::FdOp;
use crate::error::Step;

/// The status of a child that did not become the program; seen by nobody but the parent's own wait.
const NOT_STARTED: i32 = 127;
const SIGNALS: i32 = 64;
/// SIGKILL and SIGSTOP always have their default and cannot be set.
const FIXED: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);

/// CHILD: entry on the new stack; returns only to end the child.
pub extern "C" fn enter(frame: usize) -> i32 {
    // SAFETY: the parent laid the frame out and waits (CLONE_VFORK); nobody else knows it.
    let ChildFrame { arguments, report } = unsafe { &mut *(frame as *mut ChildFrame<'_>) };
    if let Err(Errno(errno)) = own_descriptors(arguments, report) {
        (report.errno, report.failed) = (errno, Report::SHARED);
        return NOT_STARTED;
    }
    let Err(Errno(errno)) = run_steps(arguments, report);
    (report.errno, report.failed) = (errno, Report::FAILED);
    NOT_STARTED
}

/// The steps, in this order, once the table of descriptors is the child's own. Each one's place has
/// a reason: the session precedes the terminal it acquires; descriptors precede closing and the low
/// limits that would forbid moving them; limits and cgroup precede the loss of the right to set
/// them; user and group precede the directory, which is entered with the program's rights; the
/// parent-death signal follows them because the kernel clears it when they change; the mask comes
/// last because signals may arrive from then on, when there are no handlers any more.
fn run_steps(arguments: &ChildArguments<'_>, at: &mut Report) -> Result<Infallible, Errno> {
    let wanted = &arguments.attributes;
    signals(arguments, at)?;
    cgroup(arguments, at)?;
    session(wanted, at)?;
    descriptors(arguments.fd_ops, at)?;
    terminal(wanted, at)?;
    close_others(arguments.closings, at)?;
    limits(arguments.limits, at)?;
    identity(arguments, at)?;
    directory(arguments, at)?;
    parent_death(arguments, at)?;
    mask(arguments.mask, at)?;
    exec(arguments, at)
}

impl Report {
    fn begin(&mut self, step: Step) {
        (self.step, self.detail) = (step as u32, 0);
    }
}

/// Copies the table of descriptors but for its end, where it is shared so far: thousands of
/// descriptors that would be closed again are never looked at (Linux leaves out the end of a table,
/// not a part in the middle). Until then no step may open, close or copy one.
fn own_descriptors(arguments: &ChildArguments<'_>, at: &mut Report) -> SysResult<()> {
    let Some((first, last)) = arguments.unneeded else { return Ok(()) };
    at.begin(Step::CloseOthers);
    // SAFETY: numbers only; both calls leave the parent's table alone.
    unsafe {
        match call(libc::SYS_close_range, args![first, last, libc::CLOSE_RANGE_UNSHARE]) {
            Ok(_) => Ok(()),
            // Linux before 5.9, or a filter: all of it, and closed later. Filters of containers
            // refuse this, too.
            Err(_) => call(libc::SYS_unshare, args![libc::CLONE_FILES]).map(drop),
        }
    }
}

fn signals(arguments: &ChildArguments<'_>, at: &mut Report) -> SysResult<()> {
    at.begin(Step::Signals);
    let defaults = arguments.attributes.default_signals & !FIXED;
    for signal in 1..=SIGNALS {
        let asked = defaults >> (signal - 1) & 1 == 1;
        at.detail = signal;
        if asked || arguments.reset_handlers && is_handled(signal)? {
            // SAFETY: handlers are this process's own: CLONE_SIGHAND was not asked for.
            unsafe { sigaction(signal, Some(&Action::new(libc::SIG_DFL)))? };
        }
    }
    Ok(())
}

fn is_handled(signal: i32) -> SysResult<bool> {
    // SAFETY: asks only.
    let now = unsafe { sigaction(signal, None)? };
    Ok(now.handler != libc::SIG_DFL && now.handler != libc::SIG_IGN)
}

/// "0" in cgroup.procs moves the writer.
fn cgroup(arguments: &ChildArguments<'_>, at: &mut Report) -> SysResult<()> {
    let Some(folder) = arguments.attributes.cgroup.filter(|_| arguments.join_cgroup) else {
        return Ok(());
    };
    at.begin(Step::Cgroup);
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let name = c"cgroup.procs".as_ptr();
    // SAFETY: constant strings; the descriptor opened is this process's own and closed at exec or
    // end.
    unsafe {
        let file = call(libc::SYS_openat, args![folder, name, flags, 0])?;
        call(libc::SYS_write, args![file, c"0".as_ptr(), 1])?;
        call(libc::SYS_close, args![file]).map(drop)
    }
}

fn session(wanted: &Attributes, at: &mut Report) -> SysResult<()> {
    if wanted.session {
        at.begin(Step::Session);
        // SAFETY: no arguments; concerns this process only.
        unsafe { call(libc::SYS_setsid, [0; 6])? };
    }
    if let Some(group) = wanted.group {
        at.begin(Step::ProcessGroup);
        at.detail = group;
        // SAFETY: as above.
        unsafe { call(libc::SYS_setpgid, args![0, group])? };
    }
    Ok(())
}

/// The table of descriptors is this process's own: from the clone, or since the first step.
fn descriptors(fd_ops: &[FdOp], at: &mut Report) -> SysResult<()> {
    at.begin(Step::Descriptors);
    let mut saved = 0usize;
    for &op in fd_ops {
        // SAFETY: numbers only; a wrong one is an error, not a danger.
        unsafe {
            match op {
                FdOp::Copy { from, to } => {
                    at.detail = from;
                    call(libc::SYS_dup3, args![from, to, 0])?;
                }
                FdOp::Keep(fd) => {
                    at.detail = fd;
                    call(libc::SYS_fcntl, args![fd, libc::F_SETFD, 0])?;
                }
                FdOp::Save(fd) => {
                    at.detail = fd;
                    saved = call(libc::SYS_fcntl, args![fd, libc::F_DUPFD_CLOEXEC, 3])?;
                }
                FdOp::Restore(to) => {
                    at.detail = to;
                    call(libc::SYS_dup3, args![saved, to, 0])?;
                }
            }
        }
    }
    Ok(())
}

fn terminal(wanted: &Attributes, at: &mut Report) -> SysResult<()> {
    at.begin(Step::Terminal);
    if let Some(fd) = wanted.terminal {
        at.detail = fd;
        // SAFETY: 0: only if the terminal is nobody else's.
        unsafe { call(libc::SYS_ioctl, args![fd, libc::TIOCSCTTY, 0])? };
    }
    if let Some(fd) = wanted.foreground {
        at.detail = fd;
        // SAFETY: the group is read from this stack. SIGTTOU is blocked.
        unsafe {
            let group = call(libc::SYS_getpgid, [0; 6])? as i32;
            call(libc::SYS_ioctl, args![fd, libc::TIOCSPGRP, &group])?;
        }
    }
    Ok(())
}

/// Marks them: exec closes whole words of marked descriptors faster than `close_range` closes them
/// one by one.
fn close_others(closings: &[(u32, u32)], at: &mut Report) -> SysResult<()> {
    at.begin(Step::CloseOthers);
    for &(first, last) in closings {
        // SAFETY: marks descriptors of this process's own table.
        let marked =
            unsafe { call(libc::SYS_close_range, args![first, last, libc::CLOSE_RANGE_CLOEXEC]) };
        // Linux before 5.11, before 5.9, or a filter.
        if marked.is_err() {
            close_one_by_one(first, last)?;
        }
    }
    Ok(())
}

/// What the kernel lists, again and again until a reading finds nothing left: closing changes the
/// list being read.
fn close_one_by_one(first: u32, last: u32) -> SysResult<()> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let path = c"/proc/self/fd".as_ptr();
    // SAFETY: a constant string; the buffer is on this stack and its length is told.
    unsafe {
        let list = call(libc::SYS_openat, args![libc::AT_FDCWD, path, flags, 0])?;
        let mut closed = 1;
        while closed > 0 {
            closed = 0;
            call(libc::SYS_lseek, args![list, 0, libc::SEEK_SET])?;
            let mut names = Names([0; 2048]);
            loop {
                let length = call(libc::SYS_getdents64, args![list, &mut names, 2048])?;
                if length == 0 {
                    break;
                }
                closed += names.close_numbers(length, list as u32, (first, last));
            }
        }
        call(libc::SYS_close, args![list]).map(drop)
    }
}

/// Directory entries as getdents64 writes them: u64 inode, u64 offset, u16 length, u8 type, name.
#[repr(C, align(8))]
struct Names([u8; 2048]);

impl Names {
    /// Closes what the first `length` bytes list; how many.
    fn close_numbers(&self, length: usize, list: u32, (first, last): (u32, u32)) -> usize {
        const NAME: usize = 19;
        let (mut at, mut closed) = (0, 0);
        while let Some(entry) = self.0.get(at..length).filter(|e| e.len() > NAME) {
            let (low, high) = (entry.get(16), entry.get(17));
            let size = usize::from(*low.unwrap_or(&0)) | usize::from(*high.unwrap_or(&0)) << 8;
            let number = number(entry.get(NAME..).unwrap_or(&[]));
            if number.is_some_and(|fd| fd != list && first <= fd && fd <= last) {
                // SAFETY: a descriptor of this process's own table.
                closed +=
                    unsafe { call(libc::SYS_close, args![number.unwrap_or(0)]) }.is_ok() as usize;
            }
            at += size.max(NAME);
        }
        closed
    }
}

fn number(name: &[u8]) -> Option<u32> {
    let mut value = None;
    for &byte in name.iter().take_while(|&&b| b != 0) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = Some(u32::from(digit).wrapping_add(value.unwrap_or(0u32).wrapping_mul(10)));
    }
    value
}

fn limits(limits: &[Limit], at: &mut Report) -> SysResult<()> {
    at.begin(Step::Limits);
    for limit in limits {
        at.detail = limit.resource as i32;
        // SAFETY: limits are this process's own; two words are read.
        unsafe { call(libc::SYS_prlimit64, args![0, limit.resource, &limit.soft_and_hard, 0])? };
    }
    Ok(())
}

/// Raw calls: libc's would change every thread of the parent.
fn identity(arguments: &ChildArguments<'_>, at: &mut Report) -> SysResult<()> {
    let wanted = &arguments.attributes;
    if let Some(groups) = arguments.groups {
        at.begin(Step::Groups);
        // SAFETY: as many words are read as are told. Credentials belong to this task alone.
        unsafe { call(libc::SYS_setgroups, args![groups.len(), groups.as_ptr()])? };
    }
    if let Some(gid) = wanted.gid {
        at.begin(Step::Gid);
        at.detail = gid as i32;
        // SAFETY: numbers only.
        unsafe { call(libc::SYS_setresgid, args![gid, gid, gid])? };
    }
    if let Some(uid) = wanted.uid {
        at.begin(Step::Uid);
        at.detail = uid as i32;
        // SAFETY: numbers only.
        unsafe { call(libc::SYS_setresuid, args![uid, uid, uid])? };
    }
    if wanted.no_new_privileges {
        at.begin(Step::NoNewPrivileges);
        // SAFETY: concerns this task only.
        unsafe { call(libc::SYS_prctl, args![libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0])? };
    }
    Ok(())
}

/// Umask and working directory are this process's own: CLONE_FS was not asked for.
fn directory(arguments: &ChildArguments<'_>, at: &mut Report) -> SysResult<()> {
    at.begin(Step::Directory);
    // SAFETY: a number, and a string that ends with a zero byte.
    unsafe {
        if let Some(mask) = arguments.attributes.umask {
            call(libc::SYS_umask, args![mask])?;
        }
        if !arguments.directory.is_null() {
            call(libc::SYS_chdir, args![arguments.directory])?;
        }
    }
    Ok(())
}

/// A parent that died before the signal was asked for sends none: then this process sends it to
/// itself.
fn parent_death(arguments: &ChildArguments<'_>, at: &mut Report) -> SysResult<()> {
    let Some(signal) = arguments.attributes.parent_death else { return Ok(()) };
    at.begin(Step::ParentDeath);
    // SAFETY: concerns this process only.
    unsafe {
        call(libc::SYS_prctl, args![libc::PR_SET_PDEATHSIG, signal, 0, 0, 0])?;
        if call(libc::SYS_getppid, [0; 6])? != arguments.parent as usize {
            call(libc::SYS_kill, args![odfork_sys::getpid(), signal])?;
        }
    }
    Ok(())
}

fn mask(mask: u64, at: &mut Report) -> SysResult<()> {
    at.begin(Step::SignalMask);
    // SAFETY: 8 bytes are read, the kernel's size of a set. No handler is left that could run in
    // this memory.
    unsafe { call(libc::SYS_rt_sigprocmask, args![libc::SIG_SETMASK, &mask, 0, 8]) }.map(drop)
}

/// The first path that can be executed. As `execvp`: paths that lead nowhere are passed over, and a
/// file without permission is reported only when nothing better comes.
fn exec(arguments: &ChildArguments<'_>, at: &mut Report) -> Result<Infallible, Errno> {
    at.begin(Step::Exec);
    let mut failure = Errno(libc::ENOENT);
    for (index, &program) in arguments.programs.iter().enumerate() {
        let a = args![program, arguments.argv, arguments.envp];
        // SAFETY: strings and arrays the parent laid out and does not touch before this succeeds or
        // ends.
        let Err(e) = (unsafe { call(libc::SYS_execve, a) }) else { continue };
        if failure != Errno(libc::EACCES) {
            (at.detail, failure) = (index as i32, e);
        }
        if !leads_nowhere(e) {
            (at.detail, failure) = (index as i32, e);
            break;
        }
    }
    Err(failure)
}

fn leads_nowhere(Errno(e): Errno) -> bool {
    matches!(
        e,
        libc::ENOENT
            | libc::EACCES
            | libc::ENOTDIR
            | libc::ENAMETOOLONG
            | libc::ESTALE
            | libc::ENODEV
            | libc::ETIMEDOUT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors_are_numbers() {
        assert_eq!(number(b"0\0junk"), Some(0));
        assert_eq!(number(b"1048575\0"), Some(1_048_575));
        assert_eq!(number(b".\0"), None);
        assert_eq!(number(b"\0"), None);
    }
}
