//! The one seam to the kernel: raw system calls, errno as a value.
//!
//! Owns every system call the runtime makes. It does not own any policy.
//! Rules of this file: no libc wrapper (they touch the program's `errno` and
//! may be interposed, by ourselves too), no heap, no thread-local storage.
//! Calls of the freeze path go through [`Kernel`], which counts them and lets
//! a test make the N-th one fail (`ODFORK_FAULT`).

use core::arch::asm;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("odfork runs on Linux/x86-64 only so far: the clone() entry of the helper task and the system-call seam are written for it");

/// An error number as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// Result of a raw system call.
pub type SysResult<T> = Result<T, Errno>;

/// Where the runtime's own mappings go: far from heap, libraries and stack, so
/// that no hole the program leaves is ever filled by one of ours.
pub const ZONE: usize = 0x6100_0000_0000;

/// One page of the page tables' last level, in bytes.
pub const PAGE: usize = 4096;
/// What one last-level page table maps, and the size of a huge page, in bytes.
pub const HUGE: usize = 2 << 20;

/// Makes one raw system call.
///
/// # Safety
/// The arguments must satisfy the contract of system call `nr`; the call may
/// change mappings, memory or descriptors of the whole process.
// Not inlined: in a statically linked program the search for raw madvise calls
// (`interpose::program`) must not find our own.
#[inline(never)]
pub unsafe fn raw(nr: i64, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the x86-64 Linux calling convention: number in rax, arguments in
    // rdi rsi rdx r10 r8 r9, rcx and r11 destroyed, memory clobbered (default).
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
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
        $( a[_i] = $crate::sys::Arg::word($x); _i += 1; )*
        a
    }};
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

/// Monotonic time in nanoseconds.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writing; libc's version uses the vDSO, sets no
    // errno on success and is async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Minor faults of this process so far: an upper bound, for 4 KB pages, of the
/// page-table entries made since an earlier reading. Costs no descriptor.
pub fn minor_faults() -> u64 {
    // SAFETY: rusage is plain old data; the kernel fills it.
    unsafe {
        let mut ru: libc::rusage = core::mem::zeroed();
        raw(libc::SYS_getrusage, args![libc::RUSAGE_SELF, &mut ru]);
        ru.ru_minflt as u64
    }
}

/// Blocks every signal of the calling thread, including those reserved by the
/// C library, and returns the previous mask.
pub fn block_signals() -> u64 {
    let all = u64::MAX;
    let mut old = 0u64;
    // SAFETY: both masks are 8 bytes, the kernel's sigset size on x86-64.
    unsafe { raw(libc::SYS_rt_sigprocmask, args![libc::SIG_SETMASK, &all, &mut old, 8]) };
    old
}

/// Restores a mask taken by [`block_signals`].
pub fn restore_signals(mask: u64) {
    // SAFETY: as above.
    unsafe { raw(libc::SYS_rt_sigprocmask, args![libc::SIG_SETMASK, &mask, 0, 8]) };
}

/// Maps memory. Thin wrapper for callers outside the freeze path.
///
/// # Safety
/// With `MAP_FIXED` the caller vouches for what is replaced.
pub unsafe fn mmap(addr: usize, len: usize, prot: i32, flags: i32) -> SysResult<usize> {
    // SAFETY: passed on to the caller.
    unsafe { call(libc::SYS_mmap, args![addr, len, prot, flags, -1isize, 0]) }
}

/// Unmaps memory; errors are of no use to any caller and are dropped.
///
/// # Safety
/// The range must belong to the runtime.
pub unsafe fn munmap(addr: usize, len: usize) {
    // SAFETY: passed on to the caller.
    unsafe { raw(libc::SYS_munmap, args![addr, len]) };
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
    let ret: isize;
    // SAFETY: parent and child return from the same `syscall`; the child has
    // rax = 0 and rsp = stack_top and never leaves this block: it calls `entry`
    // and ends with exit_group. r12/r13 are copied to the child with all other
    // registers. The parent sees an ordinary system call.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "mov edi, eax",
            "mov eax, 231",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => ret,
            in("rdi") flags, in("rsi") stack_top, in("rdx") 0usize,
            in("r10") 0usize, in("r8") 0usize,
            in("r12") arg, in("r13") entry,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    check(ret).map(|pid| pid as i32)
}

/// Which call a test wants to fail; parsed from `ODFORK_FAULT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// The `nth` call of the process (from 1), and all later ones if `onward`.
    Nth {
        nth: u32,
        onward: bool,
        errno: i32,
    },
    /// Every call made in the named step.
    Step {
        name: [u8; 16],
        errno: i32,
    },
}

/// The freeze path's door to the kernel: counts calls, injects faults.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub calls: u32,
    pub injected: u32,
    pub fault: Fault,
    pub step: &'static str,
}

impl Kernel {
    /// A door that has seen nothing and injects nothing.
    pub const fn new() -> Self {
        Kernel { calls: 0, injected: 0, fault: Fault::None, step: "" }
    }

    /// Makes a counted call, or the failure a test asked for in its place.
    ///
    /// # Safety
    /// As for [`raw`].
    pub unsafe fn call(&mut self, nr: i64, a: [usize; 6]) -> SysResult<usize> {
        self.calls = self.calls.saturating_add(1);
        if let Some(e) = self.fault_now() {
            self.injected = self.injected.saturating_add(1);
            return Err(Errno(e));
        }
        // SAFETY: passed on to the caller.
        unsafe { call(nr, a) }
    }

    fn fault_now(&self) -> Option<i32> {
        match self.fault {
            Fault::None => None,
            Fault::Nth { nth, onward, errno } => {
                (self.calls == nth || (onward && self.calls > nth)).then_some(errno)
            }
            Fault::Step { name, errno } => {
                let want = name.split(|&b| b == 0).next().unwrap_or(&[]);
                (self.step.as_bytes() == want).then_some(errno)
            }
        }
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self::new()
    }
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
    fn the_nth_call_fails_and_only_it() {
        let mut k = Kernel::new();
        k.fault = Fault::Nth { nth: 2, onward: false, errno: 12 };
        // SAFETY: getpid has no arguments.
        let got: [SysResult<usize>; 3] =
            core::array::from_fn(|_| unsafe { k.call(libc::SYS_getpid, [0; 6]) });
        assert!(got[0].is_ok() && got[2].is_ok());
        assert_eq!(got[1], Err(Errno(12)));
        assert_eq!((k.calls, k.injected), (3, 1));
    }
}
