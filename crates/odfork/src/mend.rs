//! After a stop: what an interrupted call answers, so that its thread never sees the interruption.
//!
//! Owns the registers of stopped threads and the few instructions that such a thread may pass when
//! it goes on. A call that has answered EINTR and did nothing is begun again by the kernel: with
//! `ERESTARTNOHAND` in its place, it does that itself, or answers EINTR if a handler is called
//! before. Where it is to be begun with other arguments, with less time or with the rest of a
//! transfer, the thread passes `odfork_continued`: behind the call it adds what was moved before,
//! takes its own arguments back and goes where it would have gone.
//!
//! ```text
//!  stack of the thread      what it does on going on
//!  own content, red zone      kernel: -ERESTARTNOHAND, so back to `syscall`, with the frame's
//!  frame: where to, stack     arguments; a handler is called: EINTR instead, not begun again
//!    pointer, moved before,   odfork_continued: adds or keeps what was moved before,
//!    own arguments            own arguments, own stack, away
//! ```
//! A thread that is stopped again in there has a frame already, which is changed. The rules of
//! `helper` apply: the stack of a stopped thread is written through the kernel.

use core::arch::global_asm;

use libc::user_regs_struct as Registers;

use crate::args;
use crate::calls::{self, Limit, Rest};
use crate::held::{Pipe, Process, Slept};
use crate::open_files;
use crate::scan;
use crate::sockets;
use crate::sys::{self, now_ns, Kernel, SysResult};
use crate::task;

const ERESTARTNOHAND: i64 = 514;
/// Below its stack pointer a function may use so much.
const RED_ZONE: u64 = 128;
/// Words that describe buffers of a vector; of more buffers, the answer is what these come to.
const MOST_PARTS: usize = 64;
/// A message header, and such buffers.
const MOST: usize = 7 + MOST_PARTS;

// `signal_frame`: whoever unwinds, as cancelling a thread does, finds the caller at [rsp] and its
// stack pointer at [rsp + 8]. rcx is the kernel's to change in any call.
global_asm!(
    ".pushsection .text.odfork_continued, \"ax\", @progbits",
    ".hidden odfork_continued",
    ".globl odfork_continued",
    ".type odfork_continued, @function",
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x06",
    ".cfi_escape 0x10, 0x10, 0x02, 0x77, 0x00",
    "syscall",
    "odfork_continued:",
    "test rax, rax",
    "js 2f",
    "add rax, [rsp + 16]",
    "jmp 3f",
    "2:",
    "cmp qword ptr [rsp + 16], 0",
    "cmovne rax, [rsp + 16]",
    "3:",
    "mov rdi, [rsp + 24]",
    "mov rsi, [rsp + 32]",
    "mov rdx, [rsp + 40]",
    "mov r10, [rsp + 48]",
    "mov r8, [rsp + 56]",
    "mov r9, [rsp + 64]",
    "mov rcx, [rsp]",
    "mov rsp, [rsp + 8]",
    "jmp rcx",
    ".cfi_endproc",
    ".size odfork_continued, . - odfork_continued",
    ".popsection",
);

extern "C" {
    static odfork_continued: u8;
}

fn continued() -> u64 {
    (&raw const odfork_continued) as u64
}

/// What lies on the stack of a thread that passes `odfork_continued`. Its first nine words are read
/// there. No more words than needed are written: the stack may be a coroutine's, with little room.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    goes_to: u64,
    stack: u64,
    moved: u64,
    arguments: [u64; 6],
    /// What arguments of the call to come point to: a time, a message header, buffers.
    more: [u64; MOST],
    /// Words of that. Not written.
    used: usize,
}

/// A stopped thread.
#[derive(Clone, Copy)]
pub struct Stopped {
    pub pipe: Pipe,
    pub process: Process,
    pub tid: i32,
    pub slept: Slept,
}

/// Mends what the stop has interrupted. Gives the stack pointer; `None` if the thread cannot be
/// asked: it is gone.
pub fn mend(thread: &Stopped) -> Option<usize> {
    let mut regs = registers(thread.tid)?;
    let (call, answer) = (regs.orig_rax as i64, regs.rax as i64);
    if call < 0 || !is_behind_a_call(thread.pipe, &regs) {
        return Some(regs.rsp as usize);
    }
    let changed = if answer == -i64::from(libc::EINTR) && calls::may_begin_again(call) {
        lower_limit(thread, &mut regs);
        true
    } else {
        let rest = calls::rest_of(call, &arguments(&regs)).filter(|_| answer > 0);
        rest.is_some_and(|rest| go_on(thread, &mut regs, rest))
    };
    if changed {
        regs.rax = (-ERESTARTNOHAND) as u64;
        set_registers(thread.tid, &regs);
    }
    Some(regs.rsp as usize)
}

/// It stands where a call returns to, not at the first instruction of a handler.
fn is_behind_a_call(pipe: Pipe, regs: &Registers) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut code = [0u8; 2];
    read_memory(pipe, regs.rip.wrapping_sub(2), &mut code) && code == SYSCALL
}

fn arguments(regs: &Registers) -> [u64; 6] {
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9]
}

fn set_argument(regs: &mut Registers, number: usize, value: u64) {
    let all = [&mut regs.rdi, &mut regs.rsi, &mut regs.rdx, &mut regs.r10, &mut regs.r8];
    if let Some(one) = all.into_iter().nth(number) {
        *one = value;
    }
}

/// What is left of a call's time, where its beginning is known.
fn lower_limit(thread: &Stopped, regs: &mut Registers) {
    let call = regs.orig_rax;
    let limit = calls::limit_of(call as i64).filter(|&l| calls::has_limit(l, &arguments(regs)));
    let Some(limit) = limit.filter(|_| thread.slept.call == call) else { return };
    if !task::has_only_stopped(thread.process.pid, thread.tid, &thread.slept) {
        // It has come back and waits anew, since a moment that is not known but just now.
        return;
    }
    let passed = now_ns().saturating_sub(thread.slept.since_ns) as i64;
    let (at, parts) = match limit {
        // As its thread sees it: what is left of a millisecond is waited for.
        Limit::Milliseconds(at) => {
            let left = i64::from(arguments(regs)[at] as i32) - passed / 1_000_000;
            let Some(frame) = frame_of(thread, regs) else { return };
            let left = left.max(0) as u64;
            finish(thread, regs, &frame, |regs, _| set_argument(regs, at, left));
            return;
        }
        Limit::Timespec(at) => (at, 1_000_000_000),
        Limit::Timeval(at) => (at, 1_000_000),
    };
    let mut time = [0i64; 2];
    if !read_memory(thread.pipe, arguments(regs)[at], bytes_of(&mut time)) {
        return;
    }
    let passed = passed / (1_000_000_000 / parts);
    let left = time[0].saturating_mul(parts).saturating_add(time[1]).saturating_sub(passed).max(0);
    let Some(mut frame) = frame_of(thread, regs) else { return };
    frame.push(&[(left / parts) as u64, (left % parts) as u64]);
    finish(thread, regs, &frame, |regs, more| set_argument(regs, at, more));
}

/// Asks for the rest of a transfer. False if all was moved, or the rest cannot be asked for.
fn go_on(thread: &Stopped, regs: &mut Registers, rest: Rest) -> bool {
    let (moved, all) = (regs.rax, arguments(regs));
    let Stopped { pipe, process, tid, .. } = *thread;
    let (pid, fd) = (process.pid, all[0] as i32);
    let mut wanted = u64::MAX;
    let cut = match rest {
        // To a pipe it moves what there is room for.
        Rest::Length(_) => open_files::is_socket(pid, tid, fd),
        Rest::Whole(..) | Rest::WholeMessage(_) => sockets::is_stream(process, tid, fd),
        Rest::Random(..) => true,
        Rest::Read(_, length) => {
            wanted = open_files::awaited(process, tid, fd, all[length]).unwrap_or(0);
            wanted > moved
        }
        _ => open_files::may_be_cut(pid, tid, fd),
    };
    if !cut {
        return false;
    }
    let Some(mut frame) = frame_of(thread, regs) else { return false };
    frame.moved += moved;
    match rest {
        Rest::Buffer(at, length)
        | Rest::Random(at, length)
        | Rest::Whole(at, length)
        | Rest::Read(at, length) => {
            let left = all[length].min(wanted).saturating_sub(moved);
            left > 0
                && finish(thread, regs, &frame, |regs, _| {
                    set_argument(regs, at, all[at].wrapping_add(moved));
                    set_argument(regs, length, left);
                })
        }
        Rest::Length(length) => {
            let left = all[length].saturating_sub(moved);
            left > 0 && finish(thread, regs, &frame, |regs, _| set_argument(regs, length, left))
        }
        Rest::Vector(at, length) => {
            let count = push_parts(pipe, (all[at], all[length]), moved, &mut frame);
            count > 0
                && finish(thread, regs, &frame, |regs, more| {
                    set_argument(regs, at, more);
                    set_argument(regs, length, count);
                })
        }
        Rest::Message(at) | Rest::WholeMessage(at) => {
            let receives = matches!(rest, Rest::WholeMessage(_));
            push_message(pipe, (all[at], receives), moved, &mut frame, regs)
                && finish(thread, regs, &frame, |regs, more| set_argument(regs, at, more))
        }
    }
}

/// The header's buffers that are left; without names and control data, which went first. Where more
/// control data may come, nothing is gone on with.
fn push_message(
    pipe: Pipe,
    (at, receives): (u64, bool),
    moved: u64,
    frame: &mut Frame,
    regs: &Registers,
) -> bool {
    // struct msghdr: name, its length, vector, its length, control, its length, flags.
    let mut header = [0u64; 7];
    let there = read_memory(pipe, at, bytes_of(&mut header));
    if !there || receives && header[4] != 0 || !frame.push(&[0; 7]) {
        return false;
    }
    let count = push_parts(pipe, (header[2], header[3]), moved, frame);
    let Some(more) = frame.more_at(regs) else { return false };
    (frame.more[2], frame.more[3]) = (more + size_of_val(&header) as u64, count);
    count > 0
}

/// The buffers of a vector behind the first `moved` bytes; how many there are.
fn push_parts(pipe: Pipe, (at, count): (u64, u64), moved: u64, frame: &mut Frame) -> u64 {
    let (mut skip, mut kept) = (moved, 0);
    for number in 0..count.min(1024) {
        let mut part = [0u64; 2];
        if !read_memory(pipe, at + number * 16, bytes_of(&mut part)) {
            break;
        }
        let gone = skip.min(part[1]);
        skip -= gone;
        if part[1] > gone {
            if !frame.push(&[part[0] + gone, part[1] - gone]) {
                break;
            }
            kept += 1;
        }
    }
    kept
}

/// Its first words, which `odfork_continued` reads.
const HEAD: u64 = core::mem::offset_of!(Frame, more) as u64;

impl Frame {
    /// False when there is no room.
    fn push(&mut self, words: &[u64]) -> bool {
        let Some(room) = self.more.get_mut(self.used..self.used + words.len()) else {
            return false;
        };
        room.copy_from_slice(words);
        self.used += words.len();
        true
    }

    /// In bytes.
    fn length(&self) -> u64 {
        HEAD + self.used as u64 * 8
    }

    /// Where it is, or will be: below what the thread's function may use.
    fn place(&self, regs: &Registers) -> Option<u64> {
        if regs.rip == continued() {
            // One of the same call, never longer than before.
            return (regs.rsp + self.length() + RED_ZONE <= self.stack).then_some(regs.rsp);
        }
        regs.rsp.checked_sub(RED_ZONE + self.length()).map(|at| at & !15)
    }

    fn more_at(&self, regs: &Registers) -> Option<u64> {
        Some(self.place(regs)? + HEAD)
    }
}

/// The frame the thread has, or a new one; nothing is pointed to yet.
fn frame_of(thread: &Stopped, regs: &Registers) -> Option<Frame> {
    let mut frame = Frame {
        goes_to: regs.rip,
        stack: regs.rsp,
        moved: 0,
        arguments: arguments(regs),
        more: [0; MOST],
        used: 0,
    };
    let head = &mut bytes_of(&mut frame)[..HEAD as usize];
    let known = regs.rip != continued() || read_memory(thread.pipe, regs.rsp, head);
    known.then_some(frame)
}

/// Writes the frame and leads the thread there, with arguments that `set` changes: it is told where
/// what they point to lies. False, and nothing changed, if there is no place to write to.
fn finish(
    thread: &Stopped,
    regs: &mut Registers,
    frame: &Frame,
    set: impl FnOnce(&mut Registers, u64),
) -> bool {
    let Some(at) = frame.place(regs) else { return false };
    let (from, length) = (core::ptr::from_ref(frame) as usize, frame.length() as usize);
    // Below the stack of a thread that is stopped, which no code uses but a handler's.
    let written = thread.pipe.put(from, length) && thread.pipe.take(at as usize, length);
    if written {
        set(regs, at + HEAD);
        (regs.rsp, regs.rip) = (at, continued());
    }
    written
}

/// A value without padding, as bytes.
fn bytes_of<T: Copy>(value: &mut T) -> &mut [u8] {
    // SAFETY: plain numbers, for which any bytes are valid.
    unsafe { core::slice::from_raw_parts_mut((value as *mut T).cast(), size_of::<T>()) }
}

/// Reads memory of the program, which need not be there.
fn read_memory(pipe: Pipe, at: u64, to: &mut [u8]) -> bool {
    let there = pipe.put(at as usize, to.len());
    there && pipe.take(to.as_mut_ptr() as usize, to.len())
}

impl Pipe {
    pub fn new(k: &Kernel) -> SysResult<Pipe> {
        let (mut ends, flags) = ([0i32; 2], libc::O_CLOEXEC | libc::O_NONBLOCK);
        // SAFETY: two descriptors of the helper's.
        unsafe { k.call(libc::SYS_pipe2, args![&mut ends, flags]) }?;
        Ok(Pipe { out: ends[0], into: ends[1] })
    }

    /// The kernel checks the addresses: what cannot be read or written is an error.
    fn put(self, at: usize, length: usize) -> bool {
        // SAFETY: read by the kernel.
        let done = unsafe { sys::call(libc::SYS_write, args![self.into, at, length]) };
        done == Ok(length) || self.drain()
    }

    fn take(self, at: usize, length: usize) -> bool {
        // SAFETY: a buffer of this task's, or what `finish` says.
        let done = unsafe { sys::call(libc::SYS_read, args![self.out, at, length]) };
        done == Ok(length) || self.drain()
    }

    /// After a failure a part may be left in it. False, always.
    fn drain(self) -> bool {
        let mut rest = [0u8; size_of::<Frame>()];
        // SAFETY: the buffer is valid for its length.
        while unsafe { sys::raw(libc::SYS_read, args![self.out, &mut rest, rest.len()]) } > 0 {}
        false
    }

    pub fn close(self) {
        scan::close(self.out);
        scan::close(self.into);
    }
}

/// `NT_PRSTATUS` of a stopped thread.
fn registers(tid: i32) -> Option<Registers> {
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    unsafe {
        let mut regs: Registers = core::mem::zeroed();
        let io = libc::iovec { iov_base: (&raw mut regs).cast(), iov_len: size_of::<Registers>() };
        let a = args![libc::PTRACE_GETREGSET, tid, libc::NT_PRSTATUS, &io];
        sys::call(libc::SYS_ptrace, a).is_ok().then_some(regs)
    }
}

fn set_registers(tid: i32, regs: &Registers) {
    let base = core::ptr::from_ref(regs).cast_mut().cast();
    let io = libc::iovec { iov_base: base, iov_len: size_of::<Registers>() };
    // SAFETY: what the thread had, but for what its call is to do next.
    unsafe {
        sys::raw(libc::SYS_ptrace, args![libc::PTRACE_SETREGSET, tid, libc::NT_PRSTATUS, &io])
    };
}
