//! The runtime's door to the kernel.
//!
//! Owns every system call the runtime makes; the raw call itself, errno as a
//! value and the clone entries are the crate `odfork-sys`, shown again here. It
//! does not own any policy. Calls of the freeze path go through [`Kernel`], which
//! counts them and lets a test make the N-th one fail (`ODFORK_FAULT`).

pub use odfork_sys::*;

/// Where the runtime's own mappings go: far from heap, libraries and stack, so
/// that no hole the program leaves is ever filled by one of ours.
pub const ZONE: usize = 0x6100_0000_0000;

/// One page of the page tables' last level, in bytes.
pub const PAGE: usize = 4096;
/// What one last-level page table maps, and the size of a huge page, in bytes.
pub const HUGE: usize = 2 << 20;

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
