//! The helper task: where freezing, refreezing and thawing happen.
//!
//! A job runs in a task made by `clone(CLONE_VM | CLONE_VFORK)` without an exit
//! signal: it shares the program's memory and nothing else. So the program
//! never sees a descriptor of ours, closing or limiting descriptors cannot hurt
//! us, a system-call filter that kills takes the helper and not the program,
//! limits can be lifted for the helper alone, `wait()` and tracers never show it, and the
//! caller's stack and thread-local memory lie still while they are copied.
//!
//! Rules of the code a job runs: writes go to the scratch memory (a shared mapping,
//! never frozen, never quiesced) and nowhere else; no heap, no libc wrapper, no
//! thread-local storage, no panic. The caller waits and runs no handler: to it, the task is
//! a call that borrows what the job refers to. What each of the two may touch is in `scratch.rs`.

use core::ptr::NonNull;

use crate::args;
use crate::budget;
use crate::open_files::{self, Found};
use crate::pass;
use crate::reason::{Done, Reason, Stop};
use crate::results::Results;
use crate::scan::Subject;
use crate::scratch::{Memory, Scratch, ScratchMapping};
use crate::share;
use crate::step::Step;
use crate::sys::{self, Fault, Kernel, Trace};
use crate::thaw;

/// What the task is to do; what it refers to lies still in the caller's frames and in its state.
#[derive(Clone, Copy)]
pub enum Job<'a> {
    Pass(&'a pass::Order<'a>),
    Thaw(&'a thaw::Order<'a>),
    Measure(&'a Subject<'a>),
    /// Live memory becomes private.
    Unshare(&'a Subject<'a>),
}

impl Job<'_> {
    /// It needs what an earlier job has left in the scratch memory.
    fn goes_on(&self) -> bool {
        matches!(self, Job::Pass(order) if order.slice.is_some_and(|slice| slice.goes_on))
    }

    fn thaws(&self) -> bool {
        match self {
            Job::Thaw(_) | Job::Unshare(_) => true,
            Job::Pass(order) => matches!(order.decide, pass::Decide::Thaw(_)),
            Job::Measure(_) => false,
        }
    }

    fn subject(&self) -> &Subject<'_> {
        match self {
            Job::Pass(order) => &order.subject,
            Job::Thaw(order) => &order.subject,
            Job::Measure(subject) | Job::Unshare(subject) => subject,
        }
    }
}

/// A finished job and what it left behind.
pub struct Finished<'a> {
    pub results: &'a Results,
    status: i32,
}

impl Finished<'_> {
    /// How the job ended.
    pub fn outcome(&self) -> Done<()> {
        match self.results.ending() {
            Some(done) => done,
            None if self.status & 0x7f == libc::SIGSYS => Err(Stop::of(Reason::Seccomp)),
            None => {
                let step = self.results.trace.step().name();
                Err(Stop { reason: Reason::Helper, step, errno: self.status })
            }
        }
    }
}

/// What the new task is told, in the caller's frame.
struct Start<'a> {
    memory: &'a Memory,
    fault: Fault,
    job: Job<'a>,
}

extern "C" fn entry(at: usize) -> i32 {
    // SAFETY: `run` passes the address of a `Start` in its frame, shares it, and waits until this
    // task is gone.
    let start = unsafe { &*(at as *const Start) };
    // The starter leaves some open. Threads held by ptrace tell this task by SIGCHLD, and it has
    // the program's handlers.
    sys::block_signals();
    let subject = start.job.subject();
    let results = &start.memory.results;
    let kernel = Kernel::new(&results.trace, start.fault);
    if !ends_with(&kernel, subject) {
        return 0;
    }
    leave_group(&kernel);
    let mut scratch = Scratch {
        kernel,
        results,
        // SAFETY: the caller sleeps, it never makes a reference of it, and it starts one task at a
        // time, because the mapping is borrowed mutably: this is the only one.
        work: unsafe { &mut *start.memory.work() },
    };
    if start.job.goes_on() {
        scratch.work.go_on();
    } else {
        scratch.work.begin();
    }
    results.report.space_limited.set(usize::from(is_space_limited()));
    lift_limits(start.job.thaws());
    let found = match start.job {
        Job::Pass(_) => open_files::look_and_close(&mut scratch),
        Job::Thaw(order) if order.keeps() => open_files::look_and_close(&mut scratch),
        _ => {
            open_files::close_all();
            Found::default()
        }
    };
    results.end(match start.job {
        Job::Pass(order) => pass::job(&mut scratch, order, found),
        Job::Thaw(order) => thaw::job(&mut scratch, order, found),
        Job::Measure(subject) => budget::measure(&mut scratch, subject),
        Job::Unshare(subject) => share::unshare_all(&mut scratch, subject),
    });
    0
}

/// This task ends when its starter does: nobody would wait for it then, and it would hold the
/// memory of a process that was killed. False if there is no use in beginning: the starter has
/// ended already, or it borrows the memory, which lives on, and its end could not be asked for.
fn ends_with(kernel: &Kernel, subject: &Subject) -> bool {
    // SAFETY: asks for a signal to this task, and who its parent is.
    let (asked, parent) = unsafe {
        let a = args![libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0];
        let asked = kernel.call(libc::SYS_prctl, a);
        (asked, kernel.call(libc::SYS_getppid, [0; 6]))
    };
    match (asked, parent) {
        (Ok(_), Ok(parent)) if parent == subject.pid as usize => true,
        (Ok(_), Ok(_)) => {
            // As if the signal had been asked for in time: whoever reaps this task sees it killed.
            // SAFETY: ends this task, a process of its own.
            unsafe { sys::raw(libc::SYS_kill, args![sys::getpid(), libc::SIGKILL]) };
            false
        }
        _ => !subject.borrowed,
    }
}

/// SIGSTOP to the program's process group must not stop this task: who sends SIGCONT to the program
/// alone does not know of it, and the program would wait for ever.
fn leave_group(kernel: &Kernel) {
    // SAFETY: this task alone, which is no leader of a session.
    let _ = unsafe { kernel.call(libc::SYS_setpgid, [0; 6]) };
}

/// This task's own limits. A thaw needs room only until what it replaces is gone: that room is not
/// the program's.
fn lift_limits(thaws: bool) {
    // No core file of a helper: 1 byte also stops a core pipe.
    let core = [1u64, 1u64];
    // SAFETY: limits of this task alone (it is a process of its own).
    unsafe {
        sys::raw(libc::SYS_prlimit64, args![0, libc::RLIMIT_CORE, &core, 0]);
    }
    let room: &[_] = match thaws {
        true => &[libc::RLIMIT_AS, libc::RLIMIT_DATA, libc::RLIMIT_MEMLOCK],
        false => &[],
    };
    for &which in [libc::RLIMIT_FSIZE, libc::RLIMIT_NOFILE].iter().chain(room) {
        let mut limit = [0u64; 2];
        // SAFETY: as above.
        unsafe {
            sys::raw(libc::SYS_prlimit64, args![0, which, 0, &mut limit]);
            limit[0] = limit[1];
            sys::raw(libc::SYS_prlimit64, args![0, which, &limit, 0]);
        }
    }
}

/// The program's address space is limited (this task inherited the limit).
fn is_space_limited() -> bool {
    let mut space = [0u64; 2];
    // SAFETY: reads a limit.
    unsafe { sys::raw(libc::SYS_prlimit64, args![0, libc::RLIMIT_AS, 0, &mut space]) };
    space[0] != u64::MAX
}

/// Runs a job in a helper task and waits for it.
///
/// The calls in `trace` go on in the job and come back; `zone` is the address hint for the
/// runtime's mappings.
pub fn run<'a>(
    (trace, fault): (&Trace, Fault),
    mapping: &'a mut ScratchMapping,
    zone: &mut usize,
    job: Job,
) -> Done<Finished<'a>> {
    let kernel = Kernel::new(trace, fault);
    kernel.enter(Step::Helper);
    let at = mapping.map(&kernel, zone)?;
    // SAFETY: mapped, all zeros when new, which is valid. It stays while `mapping` is borrowed.
    let memory: &'a Memory = unsafe { at.as_ref() };
    let results = &memory.results;
    kernel.count().map_err(|e| Stop::failed(Reason::Helper, Step::Clone, e))?;
    results.begin(trace, *zone, job.goes_on());
    // Under the lock: no handler runs here.
    let status = start(at, &Start { memory, fault, job }).map(reap)?;
    trace.follow(&results.trace);
    *zone = results.zone();
    results.drop_views();
    Ok(Finished { results, status })
}

fn start(at: NonNull<Memory>, start: &Start) -> Done<i32> {
    // Untraced: a debugger that follows forks must not follow, nor hear of, this one.
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_UNTRACED) as usize;
    // SAFETY: the stack is the unused end of the scratch mapping, aligned;
    // `entry` obeys the rules at the top of this file.
    unsafe {
        let word = core::ptr::from_ref(start) as usize;
        sys::clone_vfork(flags, Memory::stack_top(at), entry, word)
    }
    .map_err(|e| Stop::failed(Reason::Helper, Step::Clone, e))
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
