//! The runtime's door to the kernel.
//!
//! Owns every system call the runtime makes; the raw call itself, errno as a
//! value and the clone entries are the crate `odfork-sys`, shown again here. It
//! does not own any policy. Calls of the freeze path go through [`Kernel`], which
//! counts them and lets a test make the N-th one fail (`ODFORK_FAULT`).

use core::sync::atomic::{AtomicU32, AtomicU8, AtomicUsize, Ordering::Relaxed};

pub use odfork_sys::*;

use crate::step::Step;

/// The word at an address of process `pid`, which need not be mapped.
pub fn read_word(pid: i32, at: usize) -> Option<i32> {
    let mut value = 0i32;
    // SAFETY: plain old data, valid for writing.
    unsafe { read_into(pid, at, (&raw mut value).cast(), size_of::<i32>()) }.then_some(value)
}

/// The same of an address or a length.
pub fn read_long(pid: i32, at: usize) -> Option<usize> {
    let mut value = 0usize;
    // SAFETY: as above.
    unsafe { read_into(pid, at, (&raw mut value).cast(), size_of::<usize>()) }.then_some(value)
}

/// # Safety
/// So many bytes are valid for writing there.
unsafe fn read_into(pid: i32, at: usize, to: *mut libc::c_void, len: usize) -> bool {
    let ours = libc::iovec { iov_base: to, iov_len: len };
    let theirs = libc::iovec { iov_base: at as *mut _, iov_len: len };
    let a = crate::args![pid, &ours, 1, &theirs, 1, 0];
    // SAFETY: says the caller; the kernel checks the other address.
    unsafe { call(libc::SYS_process_vm_readv, a) == Ok(len) }
}

/// Where the runtime's own mappings go: far from heap, libraries and stack, so
/// that no hole the program leaves is ever filled by one of ours. Sanitizers' heaps take
/// 0x6000_0000_0000 to 0x6400_0000_0000.
pub const ZONE: usize = 0x6800_0000_0000;

/// One page of the page tables' last level, in bytes.
pub const PAGE: usize = 4096;
/// What one last-level page table maps, and the size of a huge page, in bytes.
pub const HUGE: usize = 2 << 20;

/// No function.
const BY_NAME: usize = 1;

/// The C library's clock_gettime, once it was looked for. Not zero: the library has no memory that
/// the loader must clear.
static CLOCK: AtomicUsize = AtomicUsize::new(BY_NAME);

type Clock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;

/// The time is asked by that function from now on. By its name another library's may be found
/// (libfaketime), whose memory the helper task waits for while it moves it.
pub fn use_clock(function: usize) {
    CLOCK.store(function, Relaxed);
}

/// Monotonic time in nanoseconds.
pub fn now_ns() -> u64 {
    let clock: Clock = match CLOCK.load(Relaxed) {
        BY_NAME => libc::clock_gettime,
        // SAFETY: the C library's function of this type.
        function => unsafe { core::mem::transmute::<usize, Clock>(function) },
    };
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writing; libc's version uses the vDSO, sets no
    // errno on success and is async-signal-safe.
    unsafe { clock(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Sleeps, undisturbed by signals that are blocked.
pub fn sleep_ms(ms: u32) {
    let pause =
        libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
    // SAFETY: sleeps; the time is valid for reading.
    unsafe { raw(libc::SYS_nanosleep, args![&pause, 0]) };
}

/// This process may not have as much address space or data as there is.
pub fn is_space_limited() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().any(|which| {
        let mut limit = [0u64; 2];
        // SAFETY: reads a limit.
        let asked = unsafe { raw(libc::SYS_prlimit64, args![0, which, 0, &mut limit]) };
        asked != 0 || limit[0] != u64::MAX
    })
}

/// Minor faults of this process so far, and the most pages that it had mapped at once: a fault that
/// maps a huge page is one of the first and 512 of the second. Costs no descriptor.
pub fn used() -> (u64, u64) {
    // SAFETY: rusage is plain old data; the kernel fills it.
    unsafe {
        let mut ru: libc::rusage = core::mem::zeroed();
        raw(libc::SYS_getrusage, args![libc::RUSAGE_SELF, &mut ru]);
        (ru.ru_minflt as u64, ru.ru_maxrss as u64 * 1024 / PAGE as u64)
    }
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
    /// Every call made in that step.
    Step {
        step: Step,
        errno: i32,
    },
    /// Every call made in step `copy` takes so many milliseconds more: dear memory.
    Slow {
        ms: u32,
    },
}

/// What was called so far. Atomic: a task that is killed leaves it behind for another to read.
#[derive(Debug)]
pub struct Trace {
    calls: AtomicU32,
    injected: AtomicU32,
    step: AtomicU8,
    /// Number of the call under way and 1; 0: none of those counted.
    under_way: AtomicU32,
    /// Which of [`SPARED`] a filter answers with death.
    deadly: AtomicU32,
}

/// Calls that the freeze path goes on without. A filter may kill whoever makes one: the helper
/// dies of it once, and then none is made any more.
const SPARED: [i64; 21] = [
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_unshare,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_userfaultfd,
    libc::SYS_prctl,
    libc::SYS_getppid,
    libc::SYS_get_mempolicy,
    libc::SYS_statx,
    libc::SYS_futex_waitv,
    libc::SYS_ptrace,
    libc::SYS_restart_syscall,
    libc::SYS_waitid,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_setpgid,
];

impl Trace {
    /// Nothing yet.
    pub const fn new() -> Self {
        Trace {
            calls: AtomicU32::new(0),
            injected: AtomicU32::new(0),
            step: AtomicU8::new(0),
            under_way: AtomicU32::new(0),
            deadly: AtomicU32::new(0),
        }
    }

    /// Calls so far, and failures injected.
    pub fn counts(&self) -> (u32, u32) {
        (self.calls.load(Relaxed), self.injected.load(Relaxed))
    }

    /// Where it is.
    pub fn step(&self) -> Step {
        Step::numbered(self.step.load(Relaxed))
    }

    /// Goes on where another trace is.
    pub fn follow(&self, other: &Trace) {
        let (calls, injected) = other.counts();
        self.calls.store(calls, Relaxed);
        self.injected.store(injected, Relaxed);
        self.under_way.store(other.under_way.load(Relaxed), Relaxed);
        self.deadly.store(other.deadly.load(Relaxed), Relaxed);
    }

    /// A task was killed for the call under way. True if that call is spared from now on, and was
    /// not before: then it is worth trying again.
    pub fn learn(&self) -> bool {
        let call = i64::from(self.under_way.swap(0, Relaxed)) - 1;
        let bit = spared_bit(call);
        bit & !self.deadly.fetch_or(bit, Relaxed) != 0
    }

    fn is_deadly(&self, call: i64) -> bool {
        let deadly = self.deadly.load(Relaxed);
        deadly != 0 && deadly & spared_bit(call) != 0
    }
}

/// The bit of a call that is spared, or none.
fn spared_bit(call: i64) -> u32 {
    SPARED.iter().position(|&spared| spared == call).map_or(0, |at| 1 << at)
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

/// The freeze path's door to the kernel: counts calls, injects faults. One task uses it at a time.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    trace: &'a Trace,
    fault: Fault,
}

impl<'a> Kernel<'a> {
    /// A door that counts in `trace`.
    pub const fn new(trace: &'a Trace, fault: Fault) -> Self {
        Kernel { trace, fault }
    }

    /// The calls that follow belong to this step.
    pub fn enter(&self, step: Step) {
        self.trace.step.store(step as u8, Relaxed);
    }

    /// Counts a call; the failure a test asked for in its place.
    pub fn count(&self) -> SysResult<()> {
        let calls = self.trace.calls.load(Relaxed).saturating_add(1);
        self.trace.calls.store(calls, Relaxed);
        if let Fault::Slow { ms } = self.fault {
            if self.trace.step() == Step::Copy {
                sleep_ms(ms);
            }
        }
        let Some(e) = self.fault_now(calls) else { return Ok(()) };
        let injected = self.trace.injected.load(Relaxed).saturating_add(1);
        self.trace.injected.store(injected, Relaxed);
        Err(Errno(e))
    }

    /// Makes a counted call, or the failure a test asked for in its place.
    ///
    /// # Safety
    /// As for [`raw`].
    pub unsafe fn call(&self, nr: i64, a: [usize; 6]) -> SysResult<usize> {
        self.count()?;
        if self.trace.is_deadly(nr) {
            return Err(Errno(libc::ENOSYS));
        }
        self.trace.under_way.store(nr as u32 + 1, Relaxed);
        // SAFETY: passed on to the caller.
        let result = unsafe { call(nr, a) };
        self.trace.under_way.store(0, Relaxed);
        result
    }

    fn fault_now(&self, calls: u32) -> Option<i32> {
        match self.fault {
            Fault::None | Fault::Slow { .. } => None,
            Fault::Nth { nth, onward, errno } => {
                (calls == nth || (onward && calls > nth)).then_some(errno)
            }
            Fault::Step { step, errno } => (self.trace.step() == step).then_some(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_and_only_it() {
        let trace = Trace::new();
        let k = Kernel::new(&trace, Fault::Nth { nth: 2, onward: false, errno: 12 });
        let got: [SysResult<()>; 3] = core::array::from_fn(|_| k.count());
        assert!(got[0].is_ok() && got[2].is_ok());
        assert_eq!(got[1], Err(Errno(12)));
        assert_eq!(trace.counts(), (3, 1));
    }

    #[test]
    fn a_deadly_call_is_made_once() {
        let trace = Trace::new();
        assert!(!trace.learn(), "killed between two calls");
        for (call, is_spared) in [(libc::SYS_fsopen, true), (libc::SYS_read, false)] {
            let helper = Trace::new();
            helper.follow(&trace);
            helper.under_way.store(call as u32 + 1, Relaxed);
            trace.follow(&helper);
            assert_eq!(trace.learn(), is_spared);
            assert_eq!(trace.is_deadly(call), is_spared);
        }
        trace.under_way.store(libc::SYS_fsopen as u32 + 1, Relaxed);
        assert!(!trace.learn(), "it was known");
    }

    #[test]
    fn a_step_fails_while_it_lasts() {
        let trace = Trace::new();
        let k = Kernel::new(&trace, Fault::Step { step: Step::Copy, errno: 5 });
        assert_eq!(k.count(), Ok(()));
        k.enter(Step::Copy);
        assert_eq!(k.count(), Err(Errno(5)));
        k.enter(Step::Map);
        assert_eq!(k.count(), Ok(()));
    }
}
