//! A test that compares the parent's memory before and after a spawn, byte by byte.
//!
//! It proves that a child writes nothing but its own stack. Every private writable mapping is
//! summed page by page right before and right after `launch`, in a process with one thread and
//! without allocation in between. Excluded are this thread's stack below the checking frame, and
//! the stacks of children. The sums lie in shared memory, which is not compared.

use std::ffi::c_char;

use odfork_sys::{args, call};

use crate::child_arguments::{Attributes, ChildArguments, Limit};
use crate::descriptors::FdOp;
use crate::error::Step;
use crate::launch::{self, CloneMethod};

const PAGE: usize = 4096;
const PAGES: usize = 1 << 16;

/// Address and sum of each page.
struct Sums {
    used: usize,
    pages: [[u64; 2]; PAGES],
}

/// Shared memory for two lots of sums, and the list of mappings.
struct Snapshot {
    before: Sums,
    after: Sums,
    list: [u8; 1 << 18],
    /// The child's stack: lowest address and size.
    stack: (usize, usize),
}

fn snapshot() -> &'static mut Snapshot {
    let (size, sharing) = (size_of::<Snapshot>(), libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of the snapshot's size, all zero, which is valid for it; nobody else
    // has it.
    unsafe {
        let at = call(libc::SYS_mmap, args![0, size, prot, sharing, -1isize, 0]).unwrap();
        &mut *(at as *mut Snapshot)
    }
}

/// Sums all private writable memory but what is left out; `above`: where this thread's stack is
/// looked at again.
#[inline(never)]
fn sum(list: &mut [u8], into: &mut Sums, above: usize, own: (usize, usize)) {
    let length = read_list(list);
    into.used = 0;
    for line in list[..length].split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        let (start, end, private) = parse(line);
        // Reserved for the kernel: reading it needs no permission of ours, and faults.
        if !private || line.ends_with(b"[vsyscall]") {
            continue;
        }
        let start =
            if start <= above && above < end { above.next_multiple_of(PAGE) } else { start };
        let childs = own.0..own.0 + own.1 + crate::stack::FRAME_BYTES;
        for page in (start..end).step_by(PAGE).filter(|page| !childs.contains(page)) {
            into.pages[into.used] = [page as u64, sum_of(page)];
            into.used += 1;
        }
    }
}

fn read_list(list: &mut [u8]) -> usize {
    let mut length = 0;
    // SAFETY: a constant path; the buffer's rest and its length.
    unsafe {
        let path = c"/proc/self/maps".as_ptr();
        let file = call(libc::SYS_openat, args![libc::AT_FDCWD, path, libc::O_RDONLY, 0]).unwrap();
        loop {
            let rest = &mut list[length..];
            match call(libc::SYS_read, args![file, rest.as_mut_ptr(), rest.len()]).unwrap() {
                0 => break,
                n => length += n,
            }
        }
        call(libc::SYS_close, args![file]).unwrap();
    }
    assert!(length < list.len(), "more mappings than expected");
    length
}

/// `start-end rw-p ...`
fn parse(line: &[u8]) -> (usize, usize, bool) {
    let (mut numbers, mut at) = ([0; 2], 0);
    for number in &mut numbers {
        while let Some(digit) = line.get(at).and_then(|&b| (b as char).to_digit(16)) {
            *number = *number << 4 | digit as usize;
            at += 1;
        }
        at += 1;
    }
    (numbers[0], numbers[1], line.get(at..at + 4) == Some(b"rw-p"))
}

/// Every bit of every word counts, and its place.
fn sum_of(page: usize) -> u64 {
    (0..PAGE / 8).fold(0u64, |sum, i| {
        // SAFETY: mapped, readable, and written by nobody else now.
        let word = unsafe { ((page + i * 8) as *const u64).read_volatile() };
        (sum.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Sums, launches, sums; the pages that differ, and what came of it (the step, `None` for a
/// program).
#[inline(never)]
fn differing(
    snapshot: &mut Snapshot,
    arguments: &ChildArguments<'_>,
    above: usize,
) -> (usize, u64, Option<Step>) {
    sum(&mut snapshot.list, &mut snapshot.before, above, snapshot.stack);
    // SAFETY: the caller keeps all that the arguments point to.
    let result = unsafe { launch::launch(arguments, true) };
    sum(&mut snapshot.list, &mut snapshot.after, above, snapshot.stack);
    let (before, after) = (&snapshot.before, &snapshot.after);
    let pairs = || before.pages[..before.used].iter().zip(&after.pages[..after.used]);
    let different = pairs().filter(|(b, a)| b != a).count() + before.used.abs_diff(after.used);
    let first = pairs().find(|(b, a)| b != a).map_or(0, |(b, _)| b[0]);
    let step = match result {
        Ok(launched) => {
            assert_eq!(launched.method, CloneMethod::Clone3);
            let mut status = 0i32;
            // SAFETY: the status is valid; the descriptor is ours.
            unsafe {
                call(libc::SYS_wait4, args![launched.pid, &mut status, 0, 0]).unwrap();
                call(libc::SYS_close, args![launched.pidfd.unwrap()]).unwrap();
            }
            None
        }
        Err(failure) => Some(failure.step),
    };
    (different, first, step)
}

const fn nothing<'a>() -> ChildArguments<'a> {
    ChildArguments {
        programs: &[],
        argv: std::ptr::null(),
        envp: std::ptr::null(),
        fd_ops: &[],
        closings: &[],
        unneeded: None,
        limits: &[],
        groups: None,
        directory: std::ptr::null(),
        attributes: NO_CHANGE,
        reset_handlers: false,
        join_cgroup: false,
        mask: 0,
        parent: 0,
    }
}

const NO_CHANGE: Attributes = Attributes {
    default_signals: 1 << (libc::SIGPIPE - 1),
    mask: Some(0),
    session: false,
    group: None,
    terminal: None,
    foreground: None,
    umask: None,
    gid: None,
    uid: None,
    no_new_privileges: false,
    parent_death: None,
    cgroup: None,
};

/// In a forked process: it has one thread.
#[test]
fn the_child_writes_nothing_but_its_stack() {
    let _alone = crate::tests::one_at_a_time();
    // SAFETY: the child ends below; glibc's fork makes its heap usable.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // The test's own way to show a panic would write into memory nobody reads.
        std::panic::set_hook(Box::new(|panic| {
            let text = format!("{panic}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }));
        let done = std::panic::catch_unwind(every_kind_of_window);
        // SAFETY: ends this process.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "see above");
}

extern "C" fn quiet(_: i32) {}

/// The kernel writes the processor's number into a thread's restartable-sequences area whenever it
/// moves: no more.
fn without_rseq() {
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    // SAFETY: glibc's own words (since 2.35; before it registers nothing); the area is this
    // thread's.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if !offset.is_null() {
            let thread: usize;
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!("mov {}, fs:0", out(reg) thread);
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) thread);
            let area = thread.wrapping_add_signed(*offset);
            let _ = call(libc::SYS_rseq, args![area, 32, UNREGISTER, SIGNATURE]);
        }
    }
}

/// A timer's, all the time.
fn send_signals() {
    let every = libc::timeval { tv_sec: 0, tv_usec: 700 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the handler does nothing.
    unsafe {
        libc::signal(libc::SIGALRM, quiet as *const () as usize);
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

/// Signals come meanwhile: their frames lie below this one.
fn every_kind_of_window() {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert_eq!(tasks, 1, "other threads may write");
    without_rseq();
    send_signals();
    let (program, absent) = ([c"/bin/true".as_ptr()], [c"/no/such".as_ptr(); 9]);
    let argv: [*const c_char; 2] = [c"true".as_ptr(), std::ptr::null()];
    let good =
        ChildArguments { programs: &program, argv: argv.as_ptr(), envp: &argv[1], ..nothing() };
    let changed = |attributes| ChildArguments { attributes, ..good };
    let limit = |resource| Limit { resource, soft_and_hard: [0, 0] };
    let (low, wrong) = ([limit(libc::RLIMIT_CORE)], [limit(99)]);
    let fd_ops = [FdOp::Copy { from: 2, to: 9 }, FdOp::Save(9), FdOp::Restore(7), FdOp::Keep(9)];
    let all = Attributes {
        session: true,
        umask: Some(0o77),
        parent_death: Some(9),
        no_new_privileges: true,
        ..NO_CHANGE
    };
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() == 0 };
    let groups = root.then_some(&[5u32, 7][..]);
    let uid = Attributes { uid: Some(u32::from(root) * 65534), ..NO_CHANGE };
    let cases = [
        (good, None),
        (
            ChildArguments {
                fd_ops: &fd_ops,
                closings: &[(3, 6), (8, u32::MAX)],
                limits: &low,
                directory: c"/".as_ptr(),
                groups,
                ..changed(all)
            },
            None,
        ),
        (if root { changed(uid) } else { good }, None),
        (ChildArguments { programs: &absent, ..good }, Some(Step::Exec)),
        (changed(Attributes { group: Some(-4), ..NO_CHANGE }), Some(Step::ProcessGroup)),
        (ChildArguments { fd_ops: &[FdOp::Keep(900)], ..good }, Some(Step::Descriptors)),
        (changed(Attributes { terminal: Some(900), ..NO_CHANGE }), Some(Step::Terminal)),
        (changed(Attributes { foreground: Some(900), ..NO_CHANGE }), Some(Step::Terminal)),
        (
            ChildArguments { unneeded: Some((3, u32::MAX)), closings: &[(3, u32::MAX)], ..good },
            None,
        ),
        (
            ChildArguments { unneeded: Some((3, u32::MAX)), programs: &absent, ..good },
            Some(Step::Exec),
        ),
        (ChildArguments { limits: &wrong, ..good }, Some(Step::Limits)),
        (ChildArguments { directory: c"/no/such".as_ptr(), ..good }, Some(Step::Directory)),
        (changed(Attributes { parent_death: Some(99), ..NO_CHANGE }), Some(Step::ParentDeath)),
    ];
    check(&cases);
}

fn check(cases: &[(ChildArguments<'_>, Option<Step>)]) {
    let snapshot = snapshot();
    let stack = crate::stack::Stack::take().unwrap();
    snapshot.stack = stack.room();
    drop(stack);
    let above = (&raw const snapshot) as usize;
    for round in 0..4 {
        for (number, (arguments, due)) in cases.iter().enumerate() {
            let mut arguments = *arguments;
            arguments.parent = odfork_sys::getpid();
            let (different, first, step) = differing(snapshot, &arguments, above);
            assert_eq!(step, *due, "case {number}");
            assert_eq!(different, 0, "round {round}, case {number}: pages differ, from {first:#x}");
        }
    }
    assert!(snapshot.before.used > 20, "only {} pages were looked at", snapshot.before.used);
}
