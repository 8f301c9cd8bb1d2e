//! Holding other threads still while memory moves, without signals.
//!
//! Owns the step `hold`. All private memory of the process is write-protected
//! by userfaultfd: whoever writes to it, thread, kernel on a thread's behalf, or
//! another process (`process_vm_writev`), waits inside the page fault until the
//! quiescence ends. No signal is sent, so no system call is interrupted.
//!
//! A thread that sleeps in a system call could still wake and change the map.
//! It cannot get there: calling anything writes its stack, and stacks stay
//! protected to the end (they are left out of freezing, see [`excluded_range`]). So the
//! world stands still once every thread is either in a page fault or in a call
//! that does not touch the map; `/proc/PID/task/TID/syscall` tells.
//!
//! Needs a userfaultfd that also stops the kernel's own writes: root, or
//! `vm.unprivileged_userfaultfd=1`. Without it threads are stopped by ptrace (`hold`). Ending
//! it is closing the descriptor, which happens also when the helper is killed.

use crate::args;
use crate::held::Holding;
use crate::hold;
use crate::listing::each_number;
use crate::open_files;
use crate::progress::{pause, Progress};
use crate::reason::{Done, Reason, Stop};
use crate::scan::{self, Subject};
use crate::scratch::{Scratch, TEXT};
use crate::step::Step;
use crate::sys::abi::{calls as old, userfaultfd};
use crate::sys::{Errno, Kernel, SysResult, PAGE};
use crate::task::{self, Blocked};
use crate::threads;
use crate::vma::{parse_head, Vma, READ, SHARED, WRITE};

/// Looks at threads that stand still where they do not rest.
const STILL: u32 = 250;
/// A stack is protected from a little below its pointer to so far above: no
/// thread returns through that much of its stack without writing to it.
const STACK_ABOVE: usize = 256 << 10;
const STACK_BELOW: usize = 64 << 10;

const FEATURES: u64 =
    userfaultfd::FEATURE_PAGEFAULT_FLAG_WP | userfaultfd::FEATURE_WP_HUGETLBFS_SHMEM;

/// The process held still; ends when released or when the helper exits.
pub enum Quiesced {
    /// Whoever writes waits.
    Watched(i32),
    /// Other threads are stopped.
    Stopped,
}

impl Quiesced {
    /// Step `hold`. `threads` is their number, the caller included.
    /// `all`: protect every backing file, not only those a refreeze will replace.
    pub fn begin(s: &mut Scratch, subject: &Subject, threads: u64, all: bool) -> Done<Quiesced> {
        s.kernel.enter(Step::Quiesce);
        if threads > 1 {
            may_look(s, subject)?;
        }
        // Its functions stand before libc's and read the shadow, in the helper as well: a fault
        // that nobody would answer.
        if subject.sanitizer != [0; 2] {
            return Err(Stop::of(Reason::Sanitizer));
        }
        let uffd = match open_uffd(&s.kernel) {
            Ok(uffd) if threads == 1 || subject.holding != Holding::Ptrace => uffd,
            Err(e) if threads == 1 || subject.holding == Holding::Userfaultfd => {
                return Err(refuse(e));
            }
            _ => return stop_threads(s, subject),
        };
        let quiesced = Quiesced::Watched(uffd);
        s.work.marked = true;
        let held = if threads > 1 {
            hold_threads(s, subject, uffd)
        } else {
            protect(s, subject, uffd, all).map_err(refuse)
        };
        match held {
            Ok(()) => Ok(quiesced),
            Err(stop) => {
                quiesced.release(s, subject);
                Err(stop)
            }
        }
    }

    /// For a slice: other threads are stopped, which takes the same time for any memory.
    pub fn stop(s: &mut Scratch, subject: &Subject) -> Done<Quiesced> {
        s.kernel.enter(Step::Quiesce);
        s.work.is_brief = true;
        stop_threads(s, subject)
    }

    /// For a part of a process that is alone: writes of others to that range wait. `None` where
    /// that is not to be had.
    pub fn watch(s: &mut Scratch, range: &Vma) -> Option<Quiesced> {
        s.kernel.enter(Step::Quiesce);
        let uffd = open_uffd(&s.kernel).ok()?;
        match protect_vma(&s.kernel, uffd, range) {
            Ok(()) => {
                s.work.marked = true;
                Some(Quiesced::Watched(uffd))
            }
            Err(_) => {
                scan::close(uffd);
                None
            }
        }
    }

    /// Writes of others to that range wait too, where that is to be had.
    pub fn protect(&self, s: &Scratch, range: &Vma) {
        if let Quiesced::Watched(uffd) = self {
            let _ = protect_vma(&s.kernel, *uffd, range);
        }
    }

    /// Lets everybody go on.
    pub fn release(self, s: &mut Scratch, subject: &Subject) {
        match self {
            Quiesced::Watched(uffd) => {
                scan::close(uffd);
                threads::settle(s, subject);
            }
            Quiesced::Stopped => hold::release(s, subject),
        }
    }
}

/// What a thread does is told to whom may trace it. Where Yama's scope 1 is in the way, the program
/// can name the next helper; unless a filter kills for that, which shows here.
fn may_look(s: &Scratch, subject: &Subject) -> Done<()> {
    let mut text = [0u8; 256];
    match task::call_of(&s.kernel, subject.pid, subject.tid as u64, &mut text) {
        Err(Errno(libc::EPERM)) => {}
        other => return other.map(|_| ()).map_err(refuse),
    }
    let scope = scan::slurp(&s.kernel, c"/proc/sys/kernel/yama/ptrace_scope", &mut text);
    if !subject.named && scope.is_ok_and(|scope| scope.starts_with(b"1")) {
        // SAFETY: names nobody as the tracer of this task.
        let asked =
            unsafe { s.kernel.call(libc::SYS_prctl, args![libc::PR_SET_PTRACER, 0, 0, 0, 0]) };
        s.results.report.untraceable.set(usize::from(asked.is_ok()));
    }
    Err(refuse(Errno(libc::EPERM)))
}

/// By ptrace. Then nobody waits in a page fault, and every stack may be moved.
fn stop_threads(s: &mut Scratch, subject: &Subject) -> Done<Quiesced> {
    hold::begin(s, subject)?;
    let found = open_files::look_at_all(s, subject).map_err(refuse);
    match found.and_then(|found| found.forbids(2)) {
        Ok(()) => Ok(Quiesced::Stopped),
        Err(stop) => {
            hold::release(s, subject);
            Err(stop)
        }
    }
}

fn refuse(e: Errno) -> Stop {
    Stop::failed(Reason::Threads, Step::Quiesce, e)
}

fn hold_threads(s: &mut Scratch, subject: &Subject, uffd: i32) -> Done<()> {
    threads::note_all(s, subject)?;
    protect(s, subject, uffd, true).map_err(refuse)?;
    rest(s, subject)?;
    // Others may have opened more since the helper was born.
    open_files::look_at_all(s, subject).map_err(refuse)?.forbids(2)
}

fn open_uffd(k: &Kernel) -> SysResult<i32> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let mut api =
        userfaultfd::Api { api: userfaultfd::VERSION, features: FEATURES, ..Default::default() };
    // SAFETY: a descriptor of the helper's; the argument is what the request takes.
    unsafe {
        let fd = k
            .call(libc::SYS_userfaultfd, args![flags])
            .or_else(|e| uffd_of_device(k, flags).map_err(|_| e))?;
        k.call(libc::SYS_ioctl, args![fd, userfaultfd::API, &mut api])?;
        Ok(fd as i32)
    }
}

/// Who may open the device (Linux 6.1) needs neither the call nor a privilege: a container has it
/// passed in, a rule of udev gives it to a group.
fn uffd_of_device(k: &Kernel, flags: i32) -> SysResult<usize> {
    let device = scan::open(k, c"/dev/userfaultfd")?;
    // SAFETY: a descriptor of the helper's; the request takes flags.
    let made = unsafe { k.call(libc::SYS_ioctl, args![device, userfaultfd::NEW, flags]) };
    scan::close(device);
    made
}

/// Protects every private mapping that content may be moved from, and every stack.
/// Without threads, of the backing files only those that are dirty: protecting a file
/// mapping leaves a marker in every page-table entry, until it is replaced.
fn protect(s: &mut Scratch, subject: &Subject, uffd: i32, all: bool) -> SysResult<()> {
    let fd = scan::open(&s.kernel, c"/proc/self/maps")?;
    let kernel = s.kernel;
    let (vmas, text) = s.vmas_and_text();
    let dirty = |v: &Vma| vmas.iter().any(|d| d.start == v.start && d.anon > 0);
    let mut result = Ok(());
    let read = each_map_line(&kernel, fd, text, &mut |k, v| {
        let wanted = is_protectable(&v, subject) && (all || v.inode == 0 || dirty(&v));
        if wanted && result.is_ok() {
            result = protect_vma(k, uffd, &v);
        }
    });
    scan::close(fd);
    read.and(result)
}

/// A private mapping that content may be moved from.
pub fn is_protectable(v: &Vma, subject: &Subject) -> bool {
    let private = v.perms & SHARED == 0 && v.perms & READ != 0;
    let anonymous = v.inode == 0 && v.dev == 0 && v.perms & WRITE != 0;
    private && (anonymous || subject.registry.find(v.dev, v.inode).is_some())
}

fn protect_vma(k: &Kernel, uffd: i32, v: &Vma) -> SysResult<()> {
    let missing = if v.inode == 0 { userfaultfd::REGISTER_MODE_MISSING } else { 0 };
    let range = userfaultfd::Range { start: v.start as u64, len: v.len() as u64 };
    let mode = userfaultfd::REGISTER_MODE_WP | missing;
    let mut register = userfaultfd::Register { range, mode, ioctls: 0 };
    let mut wp = userfaultfd::WriteProtect { range, mode: userfaultfd::WRITEPROTECT_MODE_WP };
    // SAFETY: protecting pages changes no content; the arguments are what the requests take.
    unsafe {
        match k.call(libc::SYS_ioctl, args![uffd, userfaultfd::REGISTER, &mut register]) {
            // A mapping of a kind userfaultfd does not know is never frozen; one
            // that the program watches itself (EBUSY) ends the attempt.
            Err(Errno(libc::EINVAL | libc::EPERM)) => return Ok(()),
            other => other?,
        };
        for _ in 0..1000 {
            match k.call(libc::SYS_ioctl, args![uffd, userfaultfd::WRITEPROTECT, &mut wp]) {
                Err(Errno(libc::EAGAIN)) => pause(),
                Err(Errno(libc::ENOENT)) => return Ok(()),
                other => return other.map(|_| ()),
            }
        }
    }
    Err(Errno(libc::EAGAIN))
}

/// Calls `each` for every line of the process map.
pub fn each_map_line(
    k: &Kernel,
    fd: i32,
    text: &mut [u8; TEXT],
    each: &mut dyn FnMut(&Kernel, Vma),
) -> SysResult<()> {
    let mut keep = 0;
    loop {
        let room = &mut text[keep..];
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { k.call(libc::SYS_read, args![fd, room.as_mut_ptr(), room.len()]) }?;
        if n == 0 {
            return Ok(());
        }
        let filled = keep + n;
        let last = text[..filled].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
        for v in text[..last].split(|&b| b == b'\n').filter_map(parse_head) {
            each(k, v);
        }
        text.copy_within(last..filled, 0);
        keep = filled - last;
    }
}

/// Waits until every other thread rests; notes their stacks.
fn rest(s: &mut Scratch, subject: &Subject) -> Done<()> {
    let mut progress = Progress::new(STILL);
    loop {
        s.kernel.enter(Step::Quiesce);
        s.forget_stacks();
        if all_rest(s, subject, &mut progress).map_err(refuse)? {
            return Ok(());
        }
        if !progress.goes_on() {
            return Err(Stop::of(Reason::Threads));
        }
    }
}

/// A look at all threads.
fn all_rest(s: &mut Scratch, subject: &Subject, progress: &mut Progress) -> SysResult<bool> {
    let mut all = true;
    each_number(s, &threads::directory(subject.pid), &mut |s, tid| {
        if tid != subject.tid as u64 {
            let known = threads::note(s, subject.pid, tid as i32)?;
            let mut text = [0u8; 256];
            let call = task::call_of(&s.kernel, subject.pid, tid, &mut text)?;
            if !known || !rests(s, call) {
                all = false;
                progress.note(s, subject.pid, tid, call.unwrap_or_default());
            }
        }
        Ok(true)
    })?;
    Ok(all)
}

/// True if the thread is in a page fault or in a call that leaves the map alone.
fn rests(s: &mut Scratch, line: Option<&[u8]>) -> bool {
    let Some(line) = line else { return true };
    let Some(Blocked { call, stack, .. }) = task::parse_call(line) else { return false };
    if stack == 0 {
        // It has ended and is still listed: a main thread that did not wait for the others.
        return true;
    }
    !call.is_some_and(changes_map) && s.note_stack(stack)
}

/// Calls that change the map, start a task in it, or leave it; ends of threads.
fn changes_map(call: u64) -> bool {
    const CHANGING: [i64; 26] = [
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_mlock2,
        libc::SYS_mseal,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_brk,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_shmat,
        libc::SYS_shmdt,
        libc::SYS_clone,
        libc::SYS_clone3,
        old::SYS_fork,
        old::SYS_vfork,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_remap_file_pages,
        libc::SYS_process_madvise,
        libc::SYS_pkey_mprotect,
        libc::SYS_mlock,
        libc::SYS_munlock,
        libc::SYS_mlockall,
        libc::SYS_munlockall,
        libc::SYS_io_setup,
    ];
    CHANGING.contains(&(call as i64))
}

/// The next range at or after `at` in a mapping that belongs to a resting
/// stack: it stays as it is, so that its owner stays held. Who is stopped by ptrace is held by
/// that: memory which merely lies behind its stack is no part of it.
pub fn excluded_range(s: &Scratch, v: &Vma, at: usize) -> Option<(usize, usize)> {
    let mut first: Option<(usize, usize)> = None;
    let is_near = |sp: &&usize| s.work.marked || (v.start..v.end).contains(*sp);
    for &sp in s.stacks().iter().filter(is_near) {
        let from = (sp & !(PAGE - 1)).saturating_sub(STACK_BELOW).max(at);
        let to = (sp + STACK_ABOVE).next_multiple_of(PAGE).min(v.end);
        if from < to && to > at && first.is_none_or(|w| from < w.0) {
            first = Some((from, to));
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_the_map() {
        assert!(changes_map(11) && !changes_map(202));
    }
}
