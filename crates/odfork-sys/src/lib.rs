//! The one seam to the kernel: raw system calls, errno as a value.
//!
//! Owns the instruction that enters the kernel, the two ways to start a task
//! with a stack of its own, the calling thread's signal mask, and which directories
//! are fit for backing files. Rules of this crate: no libc wrapper (they touch the
//! program's `errno` and may be interposed, by ourselves too), no heap, no
//! thread-local storage, so that all of it may be used between clone and exec.
#![no_std]

pub mod abi;
#[cfg_attr(target_arch = "x86_64", path = "arch/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "arch/aarch64.rs")]
mod arch;
pub mod directory;
mod lock;
pub mod userfaultfd;

pub use lock::{pause, ProcessLock};

use abi::clone::CloneArgs;

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!(
    "odfork runs on Linux, on x86-64 and aarch64: the system-call seam and the clone() \
     entries are written for these"
);

/// An error number as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// Result of a raw system call.
pub type SysResult<T> = Result<T, Errno>;

/// Makes one raw system call.
///
/// # Safety
/// The arguments must satisfy the contract of system call `nr`; the call may
/// change mappings, memory or descriptors of the whole process.
// Not inlined: in a statically linked program the search for raw madvise calls
// (`interpose::program`) must not find our own.
#[inline(never)]
pub unsafe fn raw(nr: i64, a: [usize; 6]) -> isize {
    // SAFETY: passed on to the caller.
    unsafe { arch::enter(nr, a) }
}

/// Turns a raw return value into a result.
#[inline]
pub fn check(ret: isize) -> SysResult<usize> {
    if (-4095..0).contains(&ret) {
        Err(Errno(-ret as i32))
    } else {
        Ok(ret as usize)
    }
}

/// Makes a raw system call and splits value from error.
///
/// # Safety
/// As for [`raw`].
#[inline]
pub unsafe fn call(nr: i64, a: [usize; 6]) -> SysResult<usize> {
    // SAFETY: passed on to the caller.
    check(unsafe { raw(nr, a) })
}

/// What can be an argument of a system call: one register wide.
pub trait Arg {
    /// The register's value.
    fn word(self) -> usize;
}

macro_rules! integer_args {
    ($($t:ty),*) => { $( impl Arg for $t { fn word(self) -> usize { self as usize } } )* };
}
integer_args!(i32, u32, i64, u64, isize, usize);

impl<T> Arg for *const T {
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Arg for *mut T {
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Arg for &T {
    fn word(self) -> usize {
        self as *const T as usize
    }
}

impl<T> Arg for &mut T {
    fn word(self) -> usize {
        self as *mut T as usize
    }
}

/// Pads an argument list to the six of a system call.
#[macro_export]
#[doc(hidden)]
macro_rules! args {
    ($($x:expr),* $(,)?) => {{
        let mut a = [0usize; 6];
        let mut _i = 0;
        $( a[_i] = $crate::Arg::word($x); _i += 1; )*
        a
    }};
}

/// Copies bytes. Not by memcpy, of which a sanitizer's stands before libc's and looks whether the
/// program may read there.
///
/// # Safety
/// As for `copy_nonoverlapping`.
pub unsafe fn copy(from: usize, to: usize, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { arch::copy(from, to, len) }
}

/// Writes zeros, as [`copy`] copies.
///
/// # Safety
/// As for `write_bytes`.
pub unsafe fn zero(at: usize, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { arch::zero(at, len) }
}

/// Thread id of the caller.
pub fn gettid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { raw(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Process id of the caller (never cached: correct right after any fork).
pub fn getpid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { raw(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Blocks every signal of the calling thread, including those reserved by the
/// C library, and returns the previous mask.
pub fn block_signals() -> u64 {
    block_more_signals(u64::MAX)
}

/// Blocks these signals too, and returns the previous mask.
pub fn block_more_signals(more: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both masks are 8 bytes, the kernel's sigset size.
    unsafe { raw(libc::SYS_rt_sigprocmask, args![libc::SIG_BLOCK, &more, &mut old, 8]) };
    old
}

/// Restores a mask taken by [`block_signals`].
pub fn restore_signals(mask: u64) {
    // SAFETY: as above.
    unsafe { raw(libc::SYS_rt_sigprocmask, args![libc::SIG_SETMASK, &mask, 0, 8]) };
}

/// Starts a task that shares this address space, runs `entry(arg)` on its own
/// stack and exits with the result; returns its pid once it has exited or
/// called exec (`CLONE_VFORK`).
///
/// # Safety
/// `stack_top` must be the 16-byte aligned end of unused writable memory;
/// `entry` must not unwind, not return to Rust frames of the caller and not
/// rely on thread-local state of its own.
pub unsafe fn clone_vfork(
    flags: usize,
    stack_top: usize,
    entry: extern "C" fn(usize) -> i32,
    arg: usize,
) -> SysResult<i32> {
    // SAFETY: passed on to the caller; the other arguments of `clone` are none.
    unsafe { clone_into([libc::SYS_clone as usize, flags, stack_top], entry, arg) }
}

/// As [`clone_vfork`], through `clone3` (Linux 5.3).
///
/// # Safety
/// As for [`clone_vfork`]; the stack is `order.stack..order.stack + order.stack_size`.
pub unsafe fn clone3(
    order: &CloneArgs,
    entry: extern "C" fn(usize) -> i32,
    arg: usize,
) -> SysResult<i32> {
    let call = [libc::SYS_clone3 as usize, order.word(), size_of::<CloneArgs>()];
    // SAFETY: passed on to the caller; the kernel gives the task the end of its stack.
    unsafe { clone_into(call, entry, arg) }
}

/// The system call with its number and two arguments (the others are 0), and what the new task
/// does.
///
/// # Safety
/// As for [`clone_vfork`]; the call gives the task a stack.
unsafe fn clone_into(
    [number, first, second]: [usize; 3],
    entry: extern "C" fn(usize) -> i32,
    arg: usize,
) -> SysResult<i32> {
    // SAFETY: passed on to the caller.
    let ret = unsafe { arch::clone_into([number, first, second], entry, arg) };
    check(ret).map(|pid| pid as i32)
}

/// An address of the caller's frame or of one below.
#[inline(always)]
pub fn stack_pointer() -> usize {
    arch::stack_pointer()
}

/// Calls `f(arg)` on another stack: the caller's may be a signal handler's, with no room to spare.
///
/// # Safety
/// `stack_top` must be the 16-byte aligned end of unused writable memory, large enough for `f`,
/// which must not unwind.
pub unsafe fn call_on_stack(stack_top: usize, f: extern "C" fn(usize), arg: usize) {
    // SAFETY: passed on to the caller.
    unsafe { arch::call_on_stack(stack_top, f, arg) }
}

/// Waits for child `pid`; interrupted waits go on. `None` with `WNOHANG` while it runs.
pub fn wait4(pid: i32, options: i32) -> SysResult<Option<i32>> {
    let mut status = 0i32;
    loop {
        // SAFETY: the status is valid for writing.
        match unsafe { call(libc::SYS_wait4, args![pid, &mut status, options, 0]) } {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(status)),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The kernel's own form of a handler.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN`, or the address of a function.
    pub handler: usize,
    /// `SA_` flags; a handler of x86-64 needs `SA_RESTORER`.
    pub flags: u64,
    /// Where a handler returns to (`SA_RESTORER`).
    pub restorer: usize,
    /// Signals blocked while the handler runs, bit 0 for signal 1.
    pub mask: u64,
}

impl Action {
    /// The default, ignored, or another handler without flags.
    pub const fn new(handler: usize) -> Action {
        Action { handler, flags: 0, restorer: 0, mask: 0 }
    }
}

/// The action of a signal as it was, changed to `new` if there is one.
///
/// # Safety
/// A handler in `new` is one that may run in this process.
pub unsafe fn sigaction(signal: i32, new: Option<&Action>) -> SysResult<Action> {
    let mut old = Action::default();
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both are as large as the kernel's, or null.
    unsafe { call(libc::SYS_rt_sigaction, args![signal, new, &mut old, 8])? };
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_values_are_told_apart() {
        assert_eq!(check(-12), Err(Errno(12)));
        assert_eq!(check(0), Ok(0));
        assert_eq!(check(-4096), Ok(-4096isize as usize));
    }

    #[test]
    fn bytes_are_copied_and_cleared_at_every_length() {
        let from: [u8; 70] = core::array::from_fn(|i| i as u8 + 1);
        for len in 0..=64 {
            let mut to = [0xeeu8; 72];
            // SAFETY: both are longer.
            unsafe { copy(from.as_ptr() as usize + 3, to.as_mut_ptr() as usize + 2, len) };
            assert_eq!((&to[2..2 + len], to[2 + len]), (&from[3..3 + len], 0xee));
            // SAFETY: as long as that.
            unsafe { zero(to.as_mut_ptr() as usize + 1, len) };
            assert!(to[0] == 0xee && to[1..1 + len].iter().all(|&b| b == 0));
            assert!(len == 0 || to[1 + len] == from[2 + len]);
        }
    }

    extern "C" fn answer(arg: usize) -> i32 {
        // SAFETY: the test's own cell, which outlives the task.
        unsafe { *(arg as *mut u64) = 4711 };
        42
    }

    extern "C" fn note_stack(arg: usize) {
        let here = 0u8;
        // SAFETY: the test's own cell.
        unsafe { *(arg as *mut usize) = &raw const here as usize };
    }

    #[test]
    fn a_call_on_another_stack_comes_back() {
        #[repr(align(64))]
        struct Stack([u8; 16384]);
        let (mut stack, mut cell) = (Stack([0; 16384]), 0usize);
        let base = stack.0.as_mut_ptr() as usize;
        // SAFETY: the stack and the cell live on; `note_stack` only stores.
        unsafe { call_on_stack(base + 16384, note_stack, &raw mut cell as usize) };
        // SAFETY: the test's own cell.
        let cell = unsafe { (&raw const cell).read_volatile() };
        assert!((base..base + 16384).contains(&cell));
    }

    /// Both ways share the memory, run on the stack given, and end with the result.
    #[test]
    fn a_task_runs_on_its_own_stack_in_this_memory() {
        #[repr(align(64))]
        struct Stack([u8; 16384]);
        for through_clone3 in [false, true] {
            let (mut stack, mut cell, mut status) = (Stack([0; 16384]), 0u64, 0i32);
            let (base, arg) = (stack.0.as_mut_ptr() as usize, &raw mut cell as usize);
            let flags = (libc::CLONE_VM | libc::CLONE_VFORK) as usize;
            // SAFETY: the stack and the cell outlive the task (CLONE_VFORK); `answer` only stores.
            let pid = unsafe {
                if through_clone3 {
                    let order = CloneArgs {
                        flags: flags as u64,
                        stack: base as u64,
                        stack_size: 16384,
                        ..CloneArgs::default()
                    };
                    clone3(&order, answer, arg)
                } else {
                    clone_vfork(flags, base + 16384, answer, arg)
                }
            };
            let pid = pid.unwrap();
            // SAFETY: `status` is valid for writing.
            let reaped = unsafe { call(libc::SYS_wait4, args![pid, &mut status, libc::__WALL, 0]) };
            assert_eq!(reaped, Ok(pid as usize));
            // SAFETY: the test's own cell.
            let cell = unsafe { (&raw const cell).read_volatile() };
            assert_eq!((status, cell), (42 << 8, 4711));
        }
    }
}
