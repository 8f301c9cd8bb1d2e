//! The serving task: answers faults and events, looks at how much is in memory, ends with the
//! program.

use core::ffi::c_int;

use odfork_sys::{args, call, raw};

use super::events::Batch;
use super::filters::Filters;
use super::holder::Holder;
use super::pager::Pager;
use super::report::Tellings;
use super::Order;
use crate::clock::now;
use crate::line::Line;
use crate::{close, kernel_munmap};

/// What is looked at goes by nanoseconds of the monotonic clock.
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
/// A program makes at most so much memory its own: 4 KB in half a microsecond.
const PAGE_NS: u64 = 500;
const SHORTEST_NAP: u64 = 250 * MICROSECOND;
const SHORT_NAP: u64 = 16 * MILLISECOND;
const LONGEST_NAP: u64 = 200 * MILLISECOND;
/// While faults come that closely, the next one is polled for.
const CLOSE: u64 = 80 * MICROSECOND;
/// If a fault has waited that long behind somebody else's turn, nothing is polled for a while.
const TURN: u64 = 500 * MICROSECOND;
const CROWDED: u64 = 500 * MILLISECOND;

/// What `serve` gets.
pub struct Task {
    pub pager: Pager,
    pub order: &'static Order,
    pub batch: Batch,
    pub pidfd: c_int,
    pub holder: Holder,
    pub report: c_int,
    pub status: c_int,
}

/// When things are due.
#[derive(Default)]
struct Times {
    look: u64,
    /// Between two looks.
    nap: u64,
    message: u64,
    gap: u64,
    /// The last yield took so long; and nothing is polled until then.
    yielded: u64,
    crowded: u64,
    second: u64,
    exec: u64,
    /// Others wish for memory that this process can give.
    is_wished: bool,
    seen: (u64, u64),
    excess: Tellings,
}

/// # Safety
/// `task` is the address of a [`Task`] that nobody else uses.
pub extern "C" fn serve(task: usize) -> i32 {
    // SAFETY: the caller of clone made it for us.
    let task = unsafe { &mut *(task as *mut Task) };
    settle(task);
    let mut rank = Rank::default();
    let mut filters = Filters::of(task.pager.program);
    let start = now();
    let nap = MILLISECOND;
    let mut times = Times { look: start, nap, gap: u64::MAX, second: start, ..Times::default() };
    if super::protected::data().is_some() {
        times.excess = Tellings::from_above();
    }
    loop {
        let was_any = task.pager.turn(&mut task.batch);
        let time = now();
        if was_any {
            times.gap = time - times.message;
            times.message = time;
            if times.yielded > TURN {
                times.crowded = time + CROWDED;
            }
        }
        times.yielded = 0;
        if task.pager.state.is_unprotected {
            task.pager.state.is_unprotected = !task.pager.protect();
        }
        if time >= times.look {
            look(&mut task.pager, &mut times, time);
            times.look = time + times.nap;
        }
        look_around(task, &mut filters, &mut times, time);
        if task.pager.bring_all_back() {
            continue;
        }
        let polls = times.gap.max(time - times.message) < CLOSE && time >= times.crowded;
        rank.set(!polls);
        if polls {
            // SAFETY: no arguments.
            unsafe { raw(libc::SYS_sched_yield, [0; 6]) };
            times.yielded = now() - time;
            continue;
        }
        if wait(task, times.look.saturating_sub(time)) {
            task.pager.count_resident();
            leave(task);
            return 0;
        }
    }
}

/// A session, a folder and descriptors of its own: no signal for the program's group comes here,
/// and nobody waits for a file that only we hold.
fn settle(task: &mut Task) {
    let pager = &mut task.pager;
    let [store, behind] = pager.store.fds();
    let mut ours = [
        pager.uffd.0,
        store,
        behind,
        pager.maps,
        pager.pagemap,
        pager.smaps,
        pager.protected.tasks,
        task.pidfd,
        task.report,
        task.status,
    ];
    ours.sort_unstable();
    let mut from = 0u32;
    // SAFETY: our own table of descriptors; constant strings.
    unsafe {
        for fd in ours.into_iter().filter(|&fd| fd >= 0).map(|fd| fd as u32) {
            if fd > from {
                raw(libc::SYS_close_range, args![from, fd - 1, 0]);
            }
            from = fd + 1;
        }
        raw(libc::SYS_close_range, args![from, u32::MAX, 0]);
        raw(libc::SYS_setsid, [0; 6]);
        raw(libc::SYS_chdir, args![c"/".as_ptr()]);
        raw(libc::SYS_prctl, args![libc::PR_SET_NAME, c"odfork-page".as_ptr()]);
    }
    no_limits();
    // Of this task: the program's first thread may end before the others.
    pager.statm = crate::descriptors::open_high(c"/proc/self/statm");
    pager.join_group();
    let serves = task.holder.start().is_ok();
    task.order.ready(serves);
    if !serves {
        sleep_on(task);
    }
}

/// The program's limits are not meant for this task. What is not allowed is done without.
fn no_limits() {
    const NONE: [u64; 2] = [libc::RLIM_INFINITY; 2];
    // SAFETY: structures of the sizes said.
    unsafe {
        raw(libc::SYS_prctl, args![libc::PR_SET_TIMERSLACK, 1]);
        for kind in [libc::RLIMIT_FSIZE, libc::RLIMIT_CPU] {
            raw(libc::SYS_prlimit64, args![0, kind as usize, &NONE, 0]);
        }
    }
}

/// How this task competes for a processor: it has a high rank, or not. The program waits for it, or
/// makes memory its own until it looks: when it wakes it must run at once. While it polls it must
/// not: a task of a high rank that yields keeps its processor, and whoever it has just served wakes
/// on another one, which sleeps. That takes longer than all the rest.
#[derive(Default)]
struct Rank(bool);

impl Rank {
    /// What is not allowed is done without.
    fn set(&mut self, is_high: bool) {
        #[repr(C)]
        struct Schedule {
            size: u32,
            policy: u32,
            flags: u64,
            nice: i32,
            priority: u32,
            /// Linux 6.12: a short slice comes to its turn sooner.
            slice: u64,
            rest: [u64; 2],
        }
        if self.0 == is_high {
            return;
        }
        self.0 = is_high;
        let schedule = Schedule {
            size: size_of::<Schedule>() as u32,
            policy: 0,
            flags: 0,
            nice: if is_high { -20 } else { 0 },
            priority: 0,
            slice: 100 * MICROSECOND,
            rest: [0; 2],
        };
        // SAFETY: a structure of the size said.
        unsafe { raw(libc::SYS_sched_setattr, args![0, &schedule, 0]) };
    }
}

/// Until something can be read, at most so long. True: the program has ended.
fn wait(task: &Task, nap: u64) -> bool {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut list = [entry(task.pager.uffd.0), entry(task.pidfd)];
    let time = [nap / 1_000_000_000, nap % 1_000_000_000];
    // SAFETY: a list of the length given, and a time.
    unsafe { raw(libc::SYS_ppoll, args![list.as_mut_ptr(), list.len(), &time, 0, 8]) };
    list[1].revents != 0
}

/// What does not change often. After exec the share is given up soon, if others wish for it.
fn look_around(task: &mut Task, filters: &mut Filters, times: &mut Times, time: u64) {
    let is_due = time >= times.second;
    if is_due {
        times.second = time + 1_000 * MILLISECOND;
        task.pager.count_shared_memory();
        task.pager.doubt_refused();
        filters.look();
        task.pager.publish(task.status);
    }
    if is_due || times.is_wished && time >= times.exec {
        times.exec = time + 50 * MILLISECOND;
        if has_left(&task.pager) {
            stay_behind(task);
        }
    }
}

/// Looks at what is in memory, and when to look again: before the program can have made so much
/// memory its own that the limit is exceeded by far. While nothing happens, later and later.
fn look(pager: &mut Pager, times: &mut Times, time: u64) {
    pager.share_with_untold();
    pager.count_resident();
    times.is_wished = pager.settle_share(time);
    pager.take_turns(time);
    let seen = (pager.state.resident, pager.counts.faults);
    let nap = if pager.is_tight() {
        (pager.group.limit() / 16).saturating_mul(PAGE_NS).clamp(SHORTEST_NAP, SHORT_NAP)
    } else {
        pager.enlarge_for_mapped();
        let mapped = pager.state.mapped + pager.state.shared_memory;
        let room = pager.mark() - pager.state.resident.max(mapped);
        let room = room.saturating_add(pager.group.unclaimed());
        room.saturating_mul(PAGE_NS).clamp(SHORTEST_NAP, LONGEST_NAP)
    };
    times.nap = match seen == times.seen {
        true => (times.nap * 2).clamp(nap, nap.max(4 * SHORT_NAP)),
        false => nap,
    };
    if times.is_wished || pager.state.is_out {
        times.nap = times.nap.min(SHORT_NAP);
    }
    times.nap = times.nap.min(pager.parts.due().saturating_sub(time).max(SHORTEST_NAP));
    times.seen = seen;
    if pager.is_tight() {
        pager.make_room(0);
        pager.reduce(0);
    }
    let excess = pager.above_limit();
    if times.excess.is_due(time, excess, || pager.group.may_tell(time)) {
        pager.tell_excess(excess);
    }
}

/// The program has another memory now (exec): its first thread lives, and not in ours.
fn has_left(pager: &Pager) -> bool {
    const KCMP_VM: i32 = 1;
    let compare = args![pager.program, odfork_sys::getpid(), KCMP_VM, 0, 0];
    // SAFETY: plain numbers.
    if !matches!(unsafe { call(libc::SYS_kcmp, compare) }, Ok(1..=3)) {
        return false;
    }
    // A thread that has ended has none, either.
    let mut path = Line::new();
    path.text(b"/proc/").number(pager.program as u64).text(b"/statm\0");
    let open = args![libc::AT_FDCWD, path.bytes().as_ptr(), libc::O_RDONLY, 0];
    let mut first = [b'0'; 2];
    // SAFETY: a path that ends with zero, room for what is read, a descriptor of ours.
    unsafe {
        let Ok(fd) = call(libc::SYS_openat, open) else { return false };
        let _ = call(libc::SYS_read, args![fd, first.as_mut_ptr(), first.len()]);
        close(fd as c_int);
    }
    first[0] != b'0'
}

/// After exec: gives the old memory back and sleeps until the program ends. Ending now would be a
/// signal to the new program.
fn stay_behind(task: &mut Task) -> ! {
    // Before the rest: some of our own variables lie in what is given back.
    leave(task);
    let pager = &mut task.pager;
    let own = (pager.room.start as u64, (pager.room.start + pager.room.len) as u64);
    pager.state.hand = 0;
    while let Some((start, end, fits)) = pager.mapping(pager.state.hand) {
        pager.state.hand = end;
        let is_own = start < own.1 && own.0 < end;
        if !is_own && (fits || pager.pool.range().0 == start) {
            let _ = pager.uffd.unregister(start, end - start);
            kernel_munmap(start as usize, (end - start) as usize);
        }
    }
    let all = [pager.uffd.0, pager.maps, pager.pagemap, pager.smaps];
    all.into_iter().chain(pager.store.fds()).chain([task.report, task.status]).for_each(close);
    pager.uffd.0 = -1;
    sleep_on(task)
}

/// The report, and the share to others.
fn leave(task: &mut Task) {
    task.pager.write_counts(task.report);
    task.pager.group.leave();
}

/// Until the program ends.
fn sleep_on(task: &Task) -> ! {
    while !wait(task, 1_000_000 * MILLISECOND) {}
    loop {
        // SAFETY: ends this task.
        unsafe { raw(libc::SYS_exit_group, args![0]) };
    }
}
