//! What a stopped thread passes when it goes on with other arguments than the program's.
//!
//! Owns its registers, a frame on its stack, and the few instructions that read it. Where a call
//! is to be begun again with less time, or the rest of a transfer is to be asked for, the thread
//! passes `odfork_continued`. Behind the call it adds what was moved before, and makes a second
//! call where the rest of a vector needs two. Then it takes its own arguments back and goes where
//! it would have gone.
//!
//! ```text
//!  stack of the thread      what it does on going on
//!  own content, red zone      kernel: -ERESTARTNOHAND, so back to `syscall`, with the frame's
//!  frame: where to, stack     arguments; a handler is called: EINTR instead, not begun again
//!    pointer, moved before,   odfork_continued: adds or keeps what was moved before, perhaps once
//!    own arguments            more to `syscall`; own arguments, own stack, away
//! ```
//! A thread that is stopped again in there has a frame already, which is changed. The rules of
//! `helper` apply: the stack of a stopped thread is written through the kernel.

use core::arch::global_asm;

use crate::args;
use crate::held::Pipe;
use crate::sys;

pub use libc::user_regs_struct as Registers;

const ERESTARTNOHAND: i64 = 514;
/// Below its stack pointer a function may use so much.
const RED_ZONE: u64 = 128;
/// What a second call needs, a message header, and a buffer.
const MOST: usize = SECOND + HEADER + 2;
const SECOND: usize = 5;
const HEADER: usize = 7;

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
    "5:",
    "syscall",
    "odfork_continued:",
    "test rax, rax",
    "js 2f",
    "add [rsp + 16], rax",
    // A second call follows once the first has moved all it was to move.
    "cmp qword ptr [rsp + 72], 0",
    "je 3f",
    "cmp rax, [rsp + 72]",
    "jne 3f",
    "mov qword ptr [rsp + 72], 0",
    "mov rcx, [rsp + 96]",
    "mov [rsp + 136], rcx",
    "mov rcx, [rsp + 104]",
    "mov [rsp + 144], rcx",
    "mov rsi, [rsp + 80]",
    "mov rdx, [rsp + 88]",
    "mov rax, [rsp + 112]",
    "jmp 5b",
    "2:",
    "cmp qword ptr [rsp + 16], 0",
    "je 4f",
    "3:",
    "mov rax, [rsp + 16]",
    "4:",
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

/// What lies on the stack of a thread that passes `odfork_continued`, which reads it by its
/// offsets. No more words than needed are written: the stack may be a coroutine's, with little
/// room.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Frame {
    goes_to: u64,
    stack: u64,
    pub moved: u64,
    /// The program's own.
    pub arguments: [u64; 6],
    /// When the call has moved so much, a second one follows; 0: none does.
    first: u64,
    /// What arguments point to: a time. Or, for a vector, a [`Second`] call, a message header and
    /// the buffer that is left in part.
    more: [u64; MOST],
    /// Words of that. Not written.
    used: usize,
}

/// A call for the rest of a vector: its arguments 1 and 2, the vector, its length, its number. It
/// is the program's own vector, from the buffer on at which nothing was moved yet.
type Second = [u64; SECOND];

/// Its first words, up to what arguments point to.
const HEAD: usize = core::mem::offset_of!(Frame, more);
/// Where the header is, and the buffer.
const HEADER_AT: u64 = (HEAD + SECOND * 8) as u64;
const BUFFER_AT: u64 = HEADER_AT + HEADER as u64 * 8;

/// What is left of a vector: the rest of one buffer, and how many buffers lie behind it, where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub buffer: [u64; 2],
    pub next: [u64; 2],
}

impl Frame {
    /// The frame the thread has, or a new one; nothing is pointed to yet.
    pub fn of(pipe: Pipe, regs: &Registers) -> Option<Frame> {
        let mut frame = Frame {
            goes_to: regs.rip,
            stack: regs.rsp,
            moved: 0,
            arguments: arguments(regs),
            first: 0,
            more: [0; MOST],
            used: 0,
        };
        let known = regs.rip != continued() || {
            let head = pipe.read(regs.rsp, &mut bytes_of(&mut frame)[..HEAD]);
            let length = if frame.first == 0 { HEAD } else { HEAD + SECOND * 8 };
            head && pipe.read(regs.rsp, &mut bytes_of(&mut frame)[..length])
        };
        known.then_some(frame)
    }

    /// The thread's own stack pointer.
    pub fn stack(&self) -> u64 {
        self.stack
    }

    /// The program's own vector behind the buffer that the call under way is about.
    pub fn pending(&self) -> Option<[u64; 2]> {
        (self.first != 0).then_some([self.more[2], self.more[3]])
    }

    /// A time, for an argument to point to.
    pub fn set_time(&mut self, time: [u64; 2]) {
        self.more[..2].copy_from_slice(&time);
        self.used = 2;
    }

    /// In bytes.
    fn length(&self) -> u64 {
        (HEAD + self.used * 8) as u64
    }

    /// Where it is, or will be: below what the thread's function may use.
    fn place(&self, regs: &Registers) -> Option<u64> {
        if regs.rip == continued() {
            // One of the same call, never longer than before.
            return (regs.rsp + self.length() + RED_ZONE <= self.stack).then_some(regs.rsp);
        }
        regs.rsp.checked_sub(RED_ZONE + self.length()).map(|at| at & !15)
    }

    /// Leads the thread to the rest of a vector, which is in these arguments.
    pub fn go_on_with_vector(
        mut self,
        pipe: Pipe,
        regs: &mut Registers,
        (at, length): (usize, usize),
        left: &Left,
    ) -> bool {
        self.used = MOST;
        let Some(place) = self.place(regs) else { return false };
        let [next, count] = left.next;
        let mut own = arguments(regs);
        (own[at], own[length]) = (next, count);
        self.set_second([own[1], own[2], next, count, regs.orig_rax], left);
        self.finish(pipe, regs, |regs, _| {
            set_argument(regs, at, place + BUFFER_AT);
            set_argument(regs, length, 1);
        })
    }

    /// The same for a message, whose header is in that argument, without name and control data.
    pub fn go_on_with_message(
        mut self,
        pipe: Pipe,
        regs: &mut Registers,
        at: usize,
        left: &Left,
    ) -> bool {
        self.used = MOST;
        let Some(place) = self.place(regs) else { return false };
        let [next, count] = left.next;
        self.set_second([place + HEADER_AT, regs.rdx, next, count, regs.orig_rax], left);
        // struct msghdr: name, its length, vector, its length, control, its length, flags.
        let header = [0, 0, place + BUFFER_AT, 1, 0, 0, 0];
        self.more[SECOND..SECOND + HEADER].copy_from_slice(&header);
        self.finish(pipe, regs, |regs, _| set_argument(regs, at, place + HEADER_AT))
    }

    fn set_second(&mut self, second: Second, left: &Left) {
        self.first = if left.next[1] > 0 { left.buffer[1] } else { 0 };
        self.more[..SECOND].copy_from_slice(&second);
        self.more[SECOND + HEADER..].copy_from_slice(&left.buffer);
    }

    /// Writes the frame and leads the thread there, with arguments that `set` changes: it is told
    /// where what they point to lies. False, and nothing changed, if there is no place to write to.
    pub fn finish(
        &self,
        pipe: Pipe,
        regs: &mut Registers,
        set: impl FnOnce(&mut Registers, u64),
    ) -> bool {
        let Some(at) = self.place(regs) else { return false };
        let (from, length) = (core::ptr::from_ref(self) as usize, self.length() as usize);
        // Below the stack of a thread that is stopped, which no code uses but a handler's.
        let written = pipe.put(from, length) && pipe.take(at as usize, length);
        if written {
            set(regs, at + HEAD as u64);
            (regs.rsp, regs.rip) = (at, continued());
        }
        written
    }
}

pub fn arguments(regs: &Registers) -> [u64; 6] {
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9]
}

pub fn set_argument(regs: &mut Registers, number: usize, value: u64) {
    let all =
        [&mut regs.rdi, &mut regs.rsi, &mut regs.rdx, &mut regs.r10, &mut regs.r8, &mut regs.r9];
    if let Some(one) = all.into_iter().nth(number) {
        *one = value;
    }
}

/// The kernel begins the call again, or answers EINTR if a handler is called before.
pub fn begin_again(tid: i32, regs: &mut Registers) {
    regs.rax = (-ERESTARTNOHAND) as u64;
    let base = core::ptr::from_ref(regs).cast_mut().cast();
    let io = libc::iovec { iov_base: base, iov_len: size_of::<Registers>() };
    // SAFETY: what the thread had, but for what its call is to do next.
    unsafe {
        sys::raw(libc::SYS_ptrace, args![libc::PTRACE_SETREGSET, tid, libc::NT_PRSTATUS, &io])
    };
}

/// `NT_PRSTATUS` of a stopped thread.
pub fn registers(tid: i32) -> Option<Registers> {
    // SAFETY: all zeros is valid for plain old data; the kernel fills it.
    unsafe {
        let mut regs: Registers = core::mem::zeroed();
        let io = libc::iovec { iov_base: (&raw mut regs).cast(), iov_len: size_of::<Registers>() };
        let a = args![libc::PTRACE_GETREGSET, tid, libc::NT_PRSTATUS, &io];
        sys::call(libc::SYS_ptrace, a).is_ok().then_some(regs)
    }
}

/// A value without padding, as bytes.
pub fn bytes_of<T: Copy>(value: &mut T) -> &mut [u8] {
    // SAFETY: plain numbers, for which any bytes are valid.
    unsafe { core::slice::from_raw_parts_mut((value as *mut T).cast(), size_of::<T>()) }
}

const _: () = assert!(HEAD == 80 && HEADER_AT + 16 == 136);
