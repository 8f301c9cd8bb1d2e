//! After a stop: what an interrupted call answers, so that its thread never sees the interruption.
//!
//! Owns what is done about which answer. A call that has answered EINTR and did nothing is begun
//! again by the kernel: with `ERESTARTNOHAND` in its place, it does that itself, or answers EINTR
//! if a handler is called before. Where it is to be begun with other arguments, with less time or
//! with the rest of a transfer, the thread passes a frame (`frame`). The rules of `helper` apply.

use crate::begun::Begun;
use crate::calls::{self, Limit, Rest};
use crate::frame::{self, arguments, bytes_of, set_argument, Frame, Left, Registers};
use crate::held::{Pipe, Process};
use crate::open_files;
use crate::sockets;
use crate::sys::now_ns;

/// Threads can be held by ptrace.
pub const IS_WRITTEN: bool = true;

/// No call moves more, whatever it is asked for.
const MOST_AT_ONCE: u64 = 0x7fff_f000;
/// Buffers of a vector, at most.
const MOST_BUFFERS: u64 = 1024;

/// A stopped thread.
#[derive(Clone, Copy)]
pub struct Stopped {
    pub pipe: Pipe,
    pub process: Process,
    pub tid: i32,
    /// The thread whose memory this task works in.
    pub caller: i32,
}

/// It was stopped at the beginning of a wait that others know of, as for the other end of a named
/// pipe: the look before had not found it there. It must go on at once.
pub fn must_go_on(thread: &Stopped) -> bool {
    frame::registers(thread.tid)
        .is_some_and(|regs| calls::must_go_on(regs.orig_rax as i64, regs.rax as i64))
}

/// Mends what the stop has interrupted. Gives the stack pointer; `None` if the thread cannot be
/// asked: it is gone.
pub fn mend(thread: &Stopped) -> Option<usize> {
    let mut regs = frame::registers(thread.tid)?;
    let stack = regs.rsp as usize;
    let (call, answer) = (regs.orig_rax as i64, regs.rax as i64);
    if call < 0 || !is_behind_a_call(thread.pipe, &regs) {
        return Some(stack);
    }
    let is_cut_off = answer == -i64::from(libc::EINTR);
    let changed = if is_cut_off && calls::may_begin_again(call, &arguments(&regs)) {
        lower_limit(thread, &mut regs);
        true
    } else {
        let rest = calls::rest_of(call, &arguments(&regs)).filter(|_| answer > 0);
        rest.is_some_and(|rest| go_on(thread, &mut regs, rest))
    };
    if changed {
        frame::begin_again(thread.tid, &mut regs);
    }
    Some(regs.rsp as usize)
}

/// It stands where a call returns to, not at the first instruction of a handler.
fn is_behind_a_call(pipe: Pipe, regs: &Registers) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut code = [0u8; 2];
    pipe.read(regs.rip.wrapping_sub(2), &mut code) && code == SYSCALL
}

/// What is left of a call's time, where its beginning is known. Where it is not, it began after
/// the look that found nothing to wait for: just now.
fn lower_limit(thread: &Stopped, regs: &mut Registers) {
    let call = regs.orig_rax;
    let Some(limit) = calls::limit_of(call as i64) else { return };
    // The program's own, also where less was asked for after an earlier stop.
    let Some(mut frame) = Frame::of(thread.pipe, regs) else { return };
    if !calls::has_limit(limit, &frame.arguments) {
        return;
    }
    let Stopped { pipe, tid, caller, .. } = *thread;
    let begun = Begun::of(pipe, caller, tid);
    let since_ns = begun.and_then(|begun| begun.since(call, frame.stack()));
    let Some(since_ns) = since_ns else { return };
    let passed = now_ns().saturating_sub(since_ns) as i64;
    let (at, parts) = match limit {
        // As its thread sees it: what is left of a millisecond is waited for.
        Limit::Milliseconds(at) => {
            let left = i64::from(frame.arguments[at] as i32) - passed / 1_000_000;
            frame.finish(pipe, regs, |regs, _| set_argument(regs, at, left.max(0) as u64));
            return;
        }
        Limit::Timespec(at) => (at, 1_000_000_000),
        Limit::Timeval(at) => (at, 1_000_000),
    };
    let mut time = [0i64; 2];
    if !pipe.read(frame.arguments[at], bytes_of(&mut time)) {
        return;
    }
    let passed = passed / (1_000_000_000 / parts);
    let left = time[0].saturating_mul(parts).saturating_add(time[1]).saturating_sub(passed).max(0);
    frame.set_time([(left / parts) as u64, (left % parts) as u64]);
    frame.finish(pipe, regs, |regs, more| set_argument(regs, at, more));
}

/// How much a transfer was to move that an interruption has cut off, if one has.
fn wanted(thread: &Stopped, regs: &Registers, rest: Rest) -> Option<u64> {
    let (moved, all) = (regs.rax, arguments(regs));
    let Stopped { process, tid, .. } = *thread;
    let (pid, fd) = (process.pid, all[0] as i32);
    // One that does not wait has moved what it could: an error that came since is for the next.
    let waits = |fd| open_files::is_endless(pid, tid, fd) || !open_files::never_waits(pid, tid, fd);
    let waits_on = calls::waits_on(regs.orig_rax as i64, &all, rest);
    let is_cut = match rest {
        Rest::Random(..) => true,
        _ if !waits_on.is_some_and(waits) => false,
        // To a pipe it moves what there is room for; from one, what there is.
        Rest::Length(_) => !open_files::is_pipe(pid, tid, fd),
        Rest::Pipe(..) => open_files::is_pipe(pid, tid, fd),
        Rest::Whole(..) | Rest::WholeMessage(_) => sockets::is_stream(process, tid, fd),
        Rest::Read(_, length) => {
            let awaited = open_files::awaited(process, tid, fd, all[length]);
            return awaited.filter(|&awaited| awaited > moved);
        }
        Rest::ReadVector(..) => open_files::is_endless(pid, tid, fd),
        Rest::Buffer(..) | Rest::Vector(..) | Rest::Message(_) => {
            open_files::may_be_cut(pid, tid, fd)
        }
    };
    is_cut.then_some(MOST_AT_ONCE)
}

/// Asks for the rest of a transfer. False if all was moved, or the rest cannot be asked for.
fn go_on(thread: &Stopped, regs: &mut Registers, rest: Rest) -> bool {
    let (moved, all) = (regs.rax, arguments(regs));
    let pipe = thread.pipe;
    let Some(wanted) = wanted(thread, regs, rest) else { return false };
    let Some(mut frame) = Frame::of(pipe, regs) else { return false };
    frame.moved += moved;
    let left_of = |length: u64| length.min(MOST_AT_ONCE).min(wanted).saturating_sub(moved);
    match rest {
        Rest::Buffer(at, length)
        | Rest::Random(at, length)
        | Rest::Whole(at, length)
        | Rest::Read(at, length) => {
            let left = left_of(all[length]);
            left > 0
                && frame.finish(pipe, regs, |regs, _| {
                    set_argument(regs, at, all[at].wrapping_add(moved));
                    set_argument(regs, length, left);
                })
        }
        Rest::Length(length) | Rest::Pipe(length, _) => {
            let left = left_of(all[length]);
            left > 0
                && frame.finish(pipe, regs, |regs, _| {
                    set_argument(regs, length, left);
                    if let Rest::Pipe(_, flags) = rest {
                        set_argument(regs, flags, all[flags] | u64::from(libc::SPLICE_F_NONBLOCK));
                    }
                })
        }
        Rest::Vector(at, length) | Rest::ReadVector(at, length) => {
            let left = rest_of_vector(pipe, [all[at], all[length]], moved, &frame);
            left.is_some_and(|left| frame.go_on_with_vector(pipe, regs, (at, length), &left))
        }
        Rest::Message(at) | Rest::WholeMessage(at) => {
            let receives = matches!(rest, Rest::WholeMessage(_));
            let left = rest_of_message(pipe, (all[at], receives), moved, &frame);
            left.is_some_and(|left| frame.go_on_with_message(pipe, regs, at, &left))
        }
    }
}

/// Of the header's buffers. Where more control data may come, nothing is gone on with.
fn rest_of_message(
    pipe: Pipe,
    (at, receives): (u64, bool),
    moved: u64,
    frame: &Frame,
) -> Option<Left> {
    // struct msghdr: name, its length, vector, its length, control, its length, flags.
    let mut header = [0u64; 7];
    if !pipe.read(at, bytes_of(&mut header)) || receives && header[4] != 0 {
        return None;
    }
    rest_of_vector(pipe, [header[2], header[3]], moved, frame)
}

/// What lies behind the first `moved` bytes of a vector. `None` if that is all.
fn rest_of_vector(pipe: Pipe, [at, count]: [u64; 2], moved: u64, frame: &Frame) -> Option<Left> {
    let mut skip = moved;
    for number in 0..count.min(MOST_BUFFERS) {
        let mut buffer = [0u64; 2];
        if !pipe.read(at.wrapping_add(number * 16), bytes_of(&mut buffer)) {
            return None;
        }
        let gone = skip.min(buffer[1]);
        skip -= gone;
        if buffer[1] > gone {
            let behind = [at.wrapping_add(number * 16 + 16), count - number - 1];
            return Some(Left {
                buffer: [buffer[0].wrapping_add(gone), buffer[1] - gone],
                next: frame.pending().unwrap_or(behind),
            });
        }
    }
    None
}
