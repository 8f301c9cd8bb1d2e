//! The helper task: where freezing, folding and thawing happen.
//!
//! A job runs in a task made by `clone(CLONE_VM | CLONE_VFORK)` without an exit
//! signal: it shares the program's memory and nothing else. So the program
//! never sees a descriptor of ours, closing or limiting descriptors cannot hurt
//! us, a system-call filter that kills takes the helper and not the program,
//! limits can be lifted for the helper alone, `wait()` never shows it, and the
//! caller's stack and thread-local memory lie still while they are copied.
//!
//! Rules of the code a job runs: writes go to the [`Scratch`] (a shared mapping,
//! never frozen, never guarded) and nowhere else; no heap, no libc wrapper, no
//! thread-local storage, no panic. The caller waits with all signals blocked.

use core::mem::size_of;

use crate::args;
use crate::guard::MAX_STACKS;
use crate::pagemap;
use crate::reason::{Done, Reason, Stop};
use crate::registry::{Image, MAX_IMAGES};
use crate::sys::{self, Fault, Kernel};
use crate::vma::Vma;

/// Mappings of interest a job can look at; more are left alone.
pub const MAX_VMAS: usize = 16384;
const STACK: usize = 512 << 10;

/// What a job found and did; read by the caller afterwards, also when the
/// helper was killed on the way.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Report {
    /// Anonymous bytes that may be frozen.
    pub eligible: usize,
    /// Bytes of image mappings dirtied by the process.
    pub dirty: usize,
    /// Bytes of images the process shows (clean and dirty).
    pub shown: usize,
    /// Bytes copied into new images, and time for it in ns.
    pub frozen: usize,
    pub freeze_ns: u64,
    /// Dirty bytes folded in place, bytes of mappings rebuilt, time in ns.
    pub folded: usize,
    pub rebuilt: usize,
    pub fold_ns: u64,
    pub thawed: usize,
    /// Zeros were written where the mapping could not be replaced.
    pub by_hand: u32,
    /// Thawing stopped at memory whose content the kernel will not give up.
    pub refused: u32,
    /// Huge images were to be had.
    pub huge: u32,
    /// The job looked and decided to act.
    pub acted: u32,
}

/// Memory of one job, mapped shared so that it is never frozen itself.
#[repr(C)]
pub struct Scratch {
    pub kernel: Kernel,
    pub report: Report,
    /// Images made, valid from the moment the count includes them.
    pub created: [Image; MAX_IMAGES],
    pub created_count: usize,
    /// Registry slots that no mapping shows any more.
    pub gone: [u8; MAX_IMAGES],
    /// The map of the process was read to its end (`gone` is meaningful).
    pub surveyed: u32,
    /// Images the registry still has room for.
    pub images_left: usize,
    /// 1: the address space is limited (RLIMIT_AS): what is left is the program's.
    pub space_limited: u32,
    /// 1: the machine has swap space.
    pub swap: u32,
    /// 1: threads run, so guarded pages carry markers in the page tables.
    pub marked: u32,
    pub vmas: [Vma; MAX_VMAS],
    pub vma_count: usize,
    /// Stack pointers of other threads, while a guard holds them.
    pub stacks: [usize; MAX_STACKS],
    pub stack_count: usize,
    /// Where the runtime's own mappings go next (a hint; see `sys::ZONE`).
    pub zone: usize,
    /// Mappings made only for the job, to be removed if it dies.
    pub views: [(usize, usize); 4],
    pub pagemap: pagemap::Buffers,
    pub text: [u8; 1 << 16],
    stop: Stop,
    stopped: u32,
    done: u32,
    job: Option<Job>,
}

/// A job: a plain function and its argument, which lives in the caller's frame.
pub type Job = fn(&mut Scratch, usize) -> Done<()>;

/// A finished job's scratch memory.
pub struct Finished {
    at: usize,
    status: i32,
}

impl Finished {
    /// What the job left behind.
    pub fn scratch(&self) -> &Scratch {
        // SAFETY: mapped and initialised by `run`, until drop; nobody else writes.
        unsafe { &*(self.at as *const Scratch) }
    }

    /// How the job ended.
    pub fn outcome(&self) -> Done<()> {
        let s = self.scratch();
        match (s.done, s.stopped) {
            (1, 0) => Ok(()),
            (1, _) => Err(s.stop),
            _ if self.status & 0x7f == libc::SIGSYS => Err(Stop::of(Reason::Seccomp)),
            _ => Err(Stop { reason: Reason::Helper, step: s.kernel.step, errno: self.status }),
        }
    }
}

const fn total() -> usize {
    (size_of::<Scratch>() + STACK).next_multiple_of(sys::PAGE)
}

extern "C" fn entry(at: usize) -> i32 {
    // SAFETY: `run` initialised the scratch and waits until this task is gone.
    let s = unsafe { &mut *(at as *mut Scratch) };
    // No core file of a helper: 1 byte also stops a core pipe.
    let core = [1u64, 1u64];
    // SAFETY: limits and descriptors of this task alone (it is a process of its own).
    unsafe {
        sys::raw(libc::SYS_prlimit64, args![0, libc::RLIMIT_CORE, &core, 0]);
        sys::raw(libc::SYS_close_range, args![0, u32::MAX, 0]);
        for which in [libc::RLIMIT_FSIZE, libc::RLIMIT_NOFILE] {
            let mut limit = [0u64; 2];
            sys::raw(libc::SYS_prlimit64, args![0, which, 0, &mut limit]);
            limit[0] = limit[1];
            sys::raw(libc::SYS_prlimit64, args![0, which, &limit, 0]);
        }
    }
    let mut space = [0u64; 2];
    // SAFETY: reads a limit, which the helper inherited.
    unsafe { sys::raw(libc::SYS_prlimit64, args![0, libc::RLIMIT_AS, 0, &mut space]) };
    s.space_limited = u32::from(space[0] != u64::MAX);
    let arg = s.views[3].0;
    s.views[3] = (0, 0);
    if let Some(job) = s.job {
        if let Err(stop) = job(s, arg) {
            s.stop = stop;
            s.stopped = 1;
        }
        s.done = 1;
    }
    0
}

/// The scratch memory of a process. Kept once mapped, so that thawing needs no
/// new mapping when limits are reached; not inherited by children.
pub struct Bench {
    at: usize,
}

impl Bench {
    /// Not mapped yet.
    pub const fn new() -> Self {
        Bench { at: 0 }
    }

    /// After a job whose results were read: gives the memory back where it is scarce.
    pub fn clear(&mut self) {
        // Told by the helper: asking is a system call that a filter may forbid.
        // SAFETY: our own mapping, no helper runs.
        if self.at != 0 && unsafe { (*(self.at as *const Scratch)).space_limited } == 1 {
            // SAFETY: our own mapping.
            unsafe { sys::munmap(self.at, total()) };
            self.at = 0;
        }
    }

    /// In a child: the parent's was not inherited.
    pub fn forget(&mut self) {
        self.at = 0;
    }

    fn map(&mut self, kernel: &mut Kernel, zone: &mut usize) -> Done<usize> {
        if self.at != 0 {
            return Ok(self.at);
        }
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let fail = |e| Stop::failed(Reason::Limit, "helper", e);
        // SAFETY: a new mapping.
        unsafe {
            let a = args![*zone, total(), prot, flags, -1isize, 0];
            let at = kernel.call(libc::SYS_mmap, a).map_err(fail)?;
            let a = args![at, total(), libc::MADV_DONTFORK];
            if let Err(e) = kernel.call(libc::SYS_madvise, a) {
                sys::munmap(at, total());
                return Err(fail(e));
            }
            *zone += total().next_multiple_of(sys::HUGE);
            self.at = at;
            Ok(at)
        }
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs `job(arg)` in a helper task and waits for it.
///
/// The kernel counters of `kernel` go on in the job and come back; `zone` is the
/// address hint for the runtime's mappings.
pub fn run(
    kernel: &mut Kernel,
    bench: &mut Bench,
    zone: &mut usize,
    job: Job,
    arg: usize,
) -> Done<Finished> {
    kernel.step = "helper";
    let at = bench.map(kernel, zone)?;
    let mut finished = Finished { at, status: 0 };
    let s = at as *mut Scratch;
    // SAFETY: our mapping, of the right size, zeroed when new; the fields whose
    // zero is no valid value are written before a reference to the whole is made.
    unsafe {
        (&raw mut (*s).kernel).write(*kernel);
        (&raw mut (*s).stop).write(Stop::of(Reason::None));
        (&raw mut (*s).job).write(Some(job));
        (*s).begin(*zone, arg);
    }
    let mask = sys::block_signals();
    let pid = start(kernel, at + total());
    if let Ok(pid) = pid {
        finished.status = reap(pid);
    }
    sys::restore_signals(mask);
    pid?;
    kernel.calls = finished.scratch().kernel.calls.max(kernel.calls);
    kernel.injected = finished.scratch().kernel.injected.max(kernel.injected);
    *zone = finished.scratch().zone;
    drop_views(&finished);
    Ok(finished)
}

fn start(kernel: &mut Kernel, stack_top: usize) -> Done<i32> {
    kernel.calls += 1;
    if let Fault::Nth { nth, onward, errno } = kernel.fault {
        if kernel.calls == nth || (onward && kernel.calls > nth) {
            kernel.injected += 1;
            return Err(Stop { reason: Reason::Helper, step: "clone", errno });
        }
    }
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK) as usize;
    // SAFETY: the stack is the unused end of the scratch mapping, page aligned;
    // `entry` obeys the rules at the top of this file.
    unsafe { sys::clone_vfork(flags, stack_top & !63, entry, stack_top - total()) }
        .map_err(|e| Stop::failed(Reason::Helper, "clone", e))
}

fn reap(pid: i32) -> i32 {
    // The helper has exited (CLONE_VFORK); __WALL because it has no exit signal.
    // Another thread's wait for __WALL may have taken it: then there is nothing left to do.
    let mut status = 0i32;
    for _ in 0..100 {
        // SAFETY: the status is valid for writing.
        let r = unsafe { sys::raw(libc::SYS_wait4, args![pid, &mut status, libc::__WALL, 0]) };
        if r != -(libc::EINTR as isize) {
            break;
        }
    }
    status
}

/// Removes temporary mappings that a job which died could not remove.
fn drop_views(f: &Finished) {
    for &(start, len) in &f.scratch().views {
        if len != 0 {
            // SAFETY: noted by the job as its own.
            unsafe { sys::munmap(start, len) };
        }
    }
}

impl Scratch {
    /// As new, for the next job.
    fn begin(&mut self, zone: usize, arg: usize) {
        self.report = Report::default();
        self.gone = [0; MAX_IMAGES];
        self.views = [(0, 0); 4];
        self.views[3] = (arg, 0);
        (self.created_count, self.vma_count, self.stack_count) = (0, 0, 0);
        (self.surveyed, self.marked, self.swap) = (0, 0, 0);
        (self.stopped, self.done, self.images_left) = (0, 0, 0);
        self.zone = zone;
    }

    /// An address hint for `len` bytes of the runtime's own.
    pub fn place(&mut self, len: usize) -> usize {
        let at = self.zone;
        self.zone += len.next_multiple_of(sys::PAGE);
        at
    }

    /// Notes a temporary mapping.
    pub fn note_view(&mut self, slot: usize, start: usize, len: usize) {
        if let Some(v) = self.views.get_mut(slot) {
            *v = (start, len);
        }
    }

    /// Forgets a temporary mapping without unmapping it.
    pub fn forget_view(&mut self, slot: usize) {
        self.note_view(slot, 0, 0);
    }

    /// Removes a temporary mapping.
    pub fn drop_view(&mut self, slot: usize) {
        if let Some(v) = self.views.get_mut(slot) {
            if v.1 != 0 {
                // SAFETY: noted by the job as its own.
                unsafe { sys::munmap(v.0, v.1) };
            }
            *v = (0, 0);
        }
    }

    /// The mappings the survey kept.
    pub fn vma(&self, i: usize) -> Vma {
        self.vmas.get(i).copied().unwrap_or_default()
    }
}
