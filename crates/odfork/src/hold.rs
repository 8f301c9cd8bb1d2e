//! Holding other threads by ptrace, where userfaultfd is not to be had.
//!
//! Owns who is held and how far that has come. The helper task is a process of its own, so it may
//! trace the threads of its maker: no privilege, no signal, no handler. It asks all of them to
//! stop, then looks at each until it stands. What the stop interrupts is mended at once (`mend`),
//! so that a helper that dies leaves at most one call with EINTR: the kernel lets everybody go on
//! when the tracer ends. Threads in calls that nothing mends are not interrupted (`calls`): as long
//! as there is one, nobody is asked, and after a while it is "not now" (`busy`).
//!
//! ```text
//! none -> traced -> asked -> stands       gone: it has ended, and writes nothing any more
//! ```
//! A signal that is for any thread goes to another one where the first choice of the kernel stands.
//! If that first choice is traced, so does one that the program ignores: it would wake a thread
//! that sleeps, and end its call. So others are traced before the first of them stops, and are let
//! go by the end of this task, in one step of the kernel. Only the main thread, whom the kernel
//! prefers, is traced and stops last, and goes on first: it takes what came meanwhile.
//!
//! A thread that ends is not held: it is waited for until the kernel has written its last words.
//! The rules of `helper` apply. Waits are looks, 0.2 ms apart or when one has stopped, and end by
//! `progress`.

use crate::args;
use crate::begun::Begun;
use crate::calls::{self, Care};
use crate::held::{Held, Pipe, Process, Stage};
use crate::listing::each_number;
use crate::mend::{self, Stopped};
use crate::open_files;
use crate::progress::{self, Progress};
use crate::reason::{Done, Reason, Stop};
use crate::scan::{self, Subject};
use crate::scratch::{Scratch, Thread};
use crate::sockets;
use crate::step::Step;
use crate::sys::{self, Errno, SysResult};
use crate::task;
use crate::threads::{self, directory};

/// Looks at threads that stand still in calls that must not be interrupted, before anybody is
/// asked to stop; and after that, when others wait.
const STILL_BEFORE: u32 = 50;
const STILL_AMONG: u32 = 100;
/// In a slice, which is made again later (2 ms).
const STILL_IN_SLICE: u32 = 10;
const FREE_IN_SLICE_NS: u64 = 2_000_000;
/// Nobody is held yet, but the one that forks waits: not longer for a thread that is hardly ever
/// where it may be interrupted.
const FREE_NS: u64 = 100_000_000;
/// All but the last to stop stand meanwhile.
const STOP_NS: u64 = 500_000_000;
/// And so long for the end of a stop that was asked for, when nobody else stands.
const LATE_NS: u64 = 10_000_000_000;

/// The clock of this task's own processor time: nobody sleeps by that.
const OWN_TIME: i32 = -2;

/// Where a look at a thread has left it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Rests,
    Moves,
    /// It does what must not be interrupted.
    Refuses,
}

/// Holds every thread but the caller.
pub fn begin(s: &mut Scratch, subject: &Subject) -> Done<()> {
    if !mend::IS_WRITTEN {
        return Err(Stop::of(Reason::Threads));
    }
    s.work.held.clear();
    s.forget_stacks();
    s.kernel.enter(Step::Quiesce);
    if subject.delicate_sockets {
        return Err(Stop::of(Reason::Busy));
    }
    progress::hear_of_stops(&s.kernel);
    rehearse(s)?;
    s.work.held.pipe = Pipe::new(&s.kernel).map_err(refuse)?;
    s.work.held.process = Process::open(&s.kernel, subject.pid);
    let until = |ns| sys::now_ns() + ns;
    let free = match s.work.is_brief {
        true => Progress::until(until(FREE_IN_SLICE_NS), STILL_IN_SLICE),
        false => Progress::until(until(FREE_NS), STILL_BEFORE),
    };
    let free = wait_until_free(s, subject, free);
    let held =
        free.and_then(|()| hold_all(s, subject, Progress::of_stops(until(STOP_NS), STILL_AMONG)));
    if held.is_err() {
        release(s, subject);
    }
    held
}

fn refuse(e: Errno) -> Stop {
    Stop::failed(Reason::Threads, Step::Quiesce, e)
}

/// A filter that refuses what is needed later, or kills for it, shows here. Threads that are held
/// make this call on going on, which else few programs make.
fn rehearse(s: &Scratch) -> Done<()> {
    // A task inherits what its maker was interrupted in before, a poll that has ended long ago: to
    // begin that again would be to wait, and to write to memory. Any sleep makes it forgotten, also
    // one that is refused. A sleep of no time would give the processor away: for milliseconds where
    // others wait for it.
    let (none, stops) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, progress::STOPS);
    let calls = [
        (libc::SYS_clock_nanosleep, args![OWN_TIME, 0, &none, 0], libc::EINVAL),
        (libc::SYS_rt_sigtimedwait, args![&stops, 0, &none, size_of_val(&stops)], libc::EAGAIN),
        (libc::SYS_ptrace, args![libc::PTRACE_SEIZE, 0, 0, 0], libc::ESRCH),
        (libc::SYS_restart_syscall, [0; 6], libc::EINTR),
    ];
    for (call, a, answer) in calls {
        // SAFETY: traces nobody; begins nothing again in a task that was not interrupted.
        match unsafe { s.kernel.call(call, a) } {
            Err(Errno(e)) if e == answer => {}
            other => return Err(refuse(other.err().unwrap_or(Errno(libc::EPERM)))),
        }
    }
    Ok(())
}

/// Nobody is asked to stop as long as one of them must not be.
fn wait_until_free(s: &mut Scratch, subject: &Subject, mut progress: Progress) -> Done<()> {
    loop {
        s.kernel.enter(Step::Quiesce);
        let free = each_number(s, &directory(subject.pid), &mut |s, tid| {
            let me = tid == subject.tid as u64;
            Ok(me || look(s, subject, tid, &mut progress)? != Look::Refuses)
        });
        if free.map_err(refuse)? {
            return Ok(());
        }
        if !progress.goes_on() {
            return Err(Stop::of(Reason::Busy));
        }
    }
}

/// Asks all threads to stop, and waits until they do.
fn hold_all(s: &mut Scratch, subject: &Subject, mut progress: Progress) -> Done<()> {
    trace_others(s, subject).map_err(refuse)?;
    let mut stood = false;
    loop {
        s.kernel.enter(Step::Quiesce);
        let (mut all, before) = (true, s.work.held.len());
        each_number(s, &directory(subject.pid), &mut |s, tid| {
            if is_other(subject, tid) {
                all &= advance(s, subject, tid, &mut progress)? == Look::Rests;
            }
            Ok(true)
        })
        .map_err(refuse)?;
        if all && subject.tid != subject.pid {
            let main = advance(s, subject, subject.pid as u64, &mut progress).map_err(refuse)?;
            all = main == Look::Rests;
        }
        // Twice, with nobody new: a listing beside ends of threads may leave some out.
        all &= s.work.held.len() == before;
        if all && stood {
            note_all(s, subject);
            return Ok(());
        }
        if !all && !progress.goes_on() {
            return Err(Stop::of(Reason::Busy));
        }
        stood = all;
    }
}

/// It is neither the caller nor the main thread.
fn is_other(subject: &Subject, tid: u64) -> bool {
    tid != subject.tid as u64 && tid != subject.pid as u64
}

/// For whoever asks what threads there are.
fn note_all(s: &mut Scratch, subject: &Subject) {
    s.work.threads.clear();
    let thread = |tid| Thread { tid, list: threads::list_of(tid).unwrap_or(0) };
    s.work.threads.keep(thread(subject.tid));
    for at in 0..s.work.held.len() {
        let Held { tid, stage, .. } = s.work.held.all[at];
        // One that has ended has no files, and none to ask.
        if stage == Stage::Stands {
            s.work.threads.keep(thread(tid));
        }
    }
}

/// Becomes the tracer of every thread but the main one. That stops none.
fn trace_others(s: &mut Scratch, subject: &Subject) -> SysResult<()> {
    each_number(s, &directory(subject.pid), &mut |s, tid| {
        if is_other(subject, tid) {
            let at = s.work.held.place(tid as i32).ok_or(Errno(libc::E2BIG))?;
            s.work.held.all[at].stage = trace(s, subject, tid as i32)?;
        }
        Ok(true)
    })
    .map(|_| ())
}

/// One step with one thread.
fn advance(
    s: &mut Scratch,
    subject: &Subject,
    tid: u64,
    progress: &mut Progress,
) -> SysResult<Look> {
    let at = s.work.held.place(tid as i32).ok_or(Errno(libc::E2BIG))?;
    match s.work.held.all[at].stage {
        Stage::None => s.work.held.all[at].stage = trace(s, subject, tid as i32)?,
        // One that is not asked yet stops for a signal.
        Stage::Traced | Stage::Asked => wait(s, subject, at, true)?,
        Stage::Stands | Stage::Gone => {}
    }
    match s.work.held.all[at].stage {
        Stage::Stands | Stage::Gone => return Ok(Look::Rests),
        Stage::Asked => progress.note(s, subject.pid, tid, b""),
        Stage::None => {}
        Stage::Traced => {
            if look(s, subject, tid, progress)? != Look::Refuses {
                s.work.held.all[at].stage = ask(s, tid as i32)?;
            }
        }
    }
    Ok(Look::Moves)
}

/// What it does, and whether that may be interrupted.
fn look(s: &mut Scratch, subject: &Subject, tid: u64, progress: &mut Progress) -> SysResult<Look> {
    let mut text = [0u8; 256];
    let line = match task::call_of(&s.kernel, subject.pid, tid, &mut text) {
        // One that ends has no memory any more, and its files are root's.
        Err(Errno(libc::EACCES | libc::EPERM)) => None,
        other => other?,
    };
    let line = line.unwrap_or_default();
    let blocked = task::parse_call(line);
    let begun = Begun::of(s.work.held.pipe, subject.tid, tid as i32).unwrap_or_default();
    // None begins such a call while the lock is held.
    let may = !begun.is_unmended(blocked.map(|blocked| blocked.stack as u64))
        && blocked.is_none_or(|blocked| match calls::care(&blocked) {
            Care::None => true,
            Care::Timed => {
                begun.since(blocked.call.unwrap_or_default(), blocked.stack as u64).is_some()
            }
            Care::Deaf => is_deaf(s, subject, tid),
            Care::Descriptor(fd) => {
                let process = s.work.held.process;
                may_be_cut(s, subject, tid as i32, fd)
                    && !(calls::sends(&blocked) && sockets::is_stream(process, tid as i32, fd))
            }
            Care::Leave => false,
        });
    if may {
        return Ok(Look::Moves);
    }
    progress.note(s, subject.pid, tid, line);
    Ok(Look::Refuses)
}

/// No signal wakes it: it stops once it has what it waits for, a disk perhaps, which may take
/// longer than a slice.
fn is_deaf(s: &Scratch, subject: &Subject, tid: u64) -> bool {
    !s.work.is_brief && task::state(&s.kernel, subject.pid, tid).letter == b'D'
}

/// A call on this descriptor may be begun again: it is no terminal, which may answer with a part of
/// what was typed, and no socket with limits that would begin anew. A file is read and written
/// deaf, or a server hears of the interruption.
fn may_be_cut(s: &Scratch, subject: &Subject, tid: i32, fd: i32) -> bool {
    // The state is asked for last: that reads a file, and most threads wait for sockets and pipes.
    !open_files::is_terminal_or_file(subject.pid, tid, fd)
        && sockets::has_no_limits(s.work.held.process, subject, tid, fd)
        || is_deaf(s, subject, tid as u64)
}

/// Becomes the tracer of a thread.
fn trace(s: &Scratch, subject: &Subject, tid: i32) -> SysResult<Stage> {
    // SAFETY: tracing changes nothing by itself.
    match unsafe { s.kernel.call(libc::SYS_ptrace, args![libc::PTRACE_SEIZE, tid, 0, 0]) } {
        Ok(_) => Ok(Stage::Traced),
        Err(Errno(libc::ESRCH)) => Ok(Stage::None),
        // A main thread that has ended and is still listed.
        Err(Errno(libc::EPERM)) if task::has_ended(&s.kernel, subject.pid, tid as u64)? => {
            Ok(Stage::Gone)
        }
        // One that is about to.
        Err(Errno(libc::EPERM)) if task::state(&s.kernel, subject.pid, tid as u64).ends => {
            Ok(Stage::None)
        }
        Err(e) => Err(e),
    }
}

/// Asks a thread to stop.
fn ask(s: &Scratch, tid: i32) -> SysResult<Stage> {
    // SAFETY: stops a thread that this task traces.
    match unsafe { s.kernel.call(libc::SYS_ptrace, args![libc::PTRACE_INTERRUPT, tid, 0, 0]) } {
        Ok(_) | Err(Errno(libc::ESRCH)) => Ok(Stage::Asked),
        Err(e) => Err(e),
    }
}

/// Looks whether a thread that was asked stands, and mends what it was interrupted in.
///
/// The state is not taken (`WNOWAIT`): should this task die, the kernel delivers the signal that
/// the thread stopped for.
fn wait(s: &mut Scratch, subject: &Subject, at: usize, counted: bool) -> SysResult<()> {
    let (Held { tid, .. }, table) = (s.work.held.all[at], &s.work.held);
    let Subject { tid: caller, .. } = *subject;
    let thread = Stopped { pipe: table.pipe, process: table.process, tid, caller };
    let how = libc::WNOHANG | libc::WNOWAIT | libc::WEXITED | libc::WSTOPPED | libc::__WALL;
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    let (answer, info) = unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let a = args![libc::P_PID, tid, &mut info, how, 0];
        let call = libc::SYS_waitid;
        (if counted { s.kernel.call(call, a) } else { sys::call(call, a) }, info)
    };
    // SAFETY: what a wait fills in.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    // A main thread's end is not told before that of the others.
    let is_untold = answer.is_ok() && pid == 0 && tid == subject.pid;
    let has_ended = is_untold && task::has_ended(&s.kernel, subject.pid, tid as u64)?;
    let held = &mut s.work.held.all[at];
    match answer {
        Ok(_) if has_ended => held.stage = Stage::Gone,
        Ok(_) if pid == 0 => {}
        Ok(_) if !matches!(info.si_code, libc::CLD_STOPPED | libc::CLD_TRAPPED) => {
            held.stage = Stage::Gone;
        }
        Ok(_) => {
            // An event is in the second byte; without one it is a signal's delivery.
            held.signal = if status >> 8 == 0 { status } else { 0 };
            if mend::must_go_on(&thread) {
                held.stage = go_on(tid, held.signal);
            } else if let Some(stack) = mend::mend(&thread) {
                held.stage = Stage::Stands;
                // There is room for as many as are held.
                s.note_stack(stack);
            }
        }
        Err(Errno(libc::ECHILD)) => held.stage = Stage::Gone,
        Err(e) => return Err(e),
    }
    Ok(())
}

/// A thread that must not stand here does not: it is looked at again.
fn go_on(tid: i32, signal: i32) -> Stage {
    // SAFETY: lets a thread go on that this task has stopped; the signal is its own.
    unsafe { sys::raw(libc::SYS_ptrace, args![libc::PTRACE_CONT, tid, 0, signal]) };
    Stage::Traced
}

/// Makes ready for the end of this task, by which everybody goes on. Those that were asked and do
/// not stand yet are waited for, so that what stopped them is mended. The others do not stand for
/// one that gets no processor.
pub fn release(s: &mut Scratch, subject: &Subject) {
    let until = |ns| Progress::until(sys::now_ns() + ns, STILL_AMONG);
    let (mut progress, mut is_late) = (until(STOP_NS), false);
    while stands_to_come(s, subject, &mut progress) {
        if !progress.goes_on() {
            // One may be in a sleep that no signal ends.
            if is_late {
                break;
            }
            (progress, is_late) = (until(LATE_NS), true);
        }
        if is_late {
            let_main_go(s, subject);
            (0..s.work.held.len()).for_each(|at| let_go(s, at));
        }
    }
    let_main_go(s, subject);
    s.work.held.pipe.close();
    scan::close(s.work.held.process.descriptor);
}

/// Some that were asked do not stand yet.
fn stands_to_come(s: &mut Scratch, subject: &Subject, progress: &mut Progress) -> bool {
    let mut some = false;
    for at in 0..s.work.held.len() {
        if matches!(s.work.held.all[at].stage, Stage::Traced | Stage::Asked) {
            let _ = wait(s, subject, at, false);
        }
        if s.work.held.all[at].stage == Stage::Asked {
            some = true;
            progress.note(s, subject.pid, s.work.held.all[at].tid as u64, b"");
        }
    }
    some
}

/// Lets the main thread go, and waits until it has taken the signals that came for the process.
fn let_main_go(s: &mut Scratch, subject: &Subject) {
    let is_main = |held: &Held| held.tid == subject.pid && held.stage == Stage::Stands;
    let Some(at) = (0..s.work.held.len()).find(|&at| is_main(&s.work.held.all[at])) else { return };
    let_go(s, at);
    let mut progress = Progress::until(sys::now_ns() + FREE_NS, STILL_BEFORE);
    while task::is_called(&s.kernel, subject.pid, subject.pid as u64, &mut s.work.text) {
        progress.note(s, subject.pid, subject.pid as u64, b"");
        if !progress.goes_on() {
            return;
        }
    }
}

fn let_go(s: &mut Scratch, at: usize) {
    let Held { tid, stage, signal } = s.work.held.all[at];
    if stage == Stage::Stands {
        // SAFETY: ends the tracing of a thread; the signal is its own.
        unsafe { sys::raw(libc::SYS_ptrace, args![libc::PTRACE_DETACH, tid, 0, signal]) };
        s.work.held.all[at].stage = Stage::None;
    }
}
