//! The way of one fork: decide, freeze or fold, fork, record.
//!
//! Owns the runtime's state, one of it in a process. The wrappers call
//! [`fork`]; everything that moves memory is a job for the helper task.
//!
//! ```text
//! fork()  ->  prepare: worth a look?  ->  pass (helper)  ->  absorb what it did
//!         ->  the program's fork(2)
//!         ->  parent: record time, charge rent      child: begin a state of its own
//! ```

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use odfork_model::{CostModel, Rental};

use crate::fold;
use crate::helper::{self, Bench, Finished};
use crate::lock::Lock;
use crate::mark::Mark;
use crate::options::{Freeze, Options};
use crate::pass::{self, Decide};
use crate::reason::{Done, Reason, Stop};
use crate::registry::Registry;
use crate::stats::Stats;
use crate::survey::Subject;
use crate::sys::{self, Kernel, PAGE};
use crate::thaw;

/// Mappings with less anonymous memory are not worth a mapping of their own (1 MB).
const MIN_BYTES: usize = 1 << 20;
/// Minor faults since the last look before an eager process looks again (1 MB of pages).
const EAGER_FAULTS: u64 = 256;

/// Fork time that passes before the rental account is looked at: below that,
/// not even freezing a 1 MB process could be due.
const SETTLE_NS: u64 = 1_000_000;

/// Threads whose descriptors are remembered.
const MAX_THREADS: usize = 4096;

/// How long images may go without a look when the process forks (10 s).
const STALE_NS: u64 = 10_000_000_000;

/// What the wrappers and the report remember. Not in statics of their own: the library has no
/// other page that is written when it is loaded, and each would be one more fault in every exec.
pub struct Notes {
    /// Where the next functions in line are, by the wrappers' numbers; 0: not looked up.
    pub next: [AtomicUsize; 5],
    /// 1: the next realloc is glibc's, whose chunks can be told apart; 2: it is not.
    pub realloc_kind: AtomicUsize,
    /// The statistics were written.
    pub reported: AtomicBool,
}

impl Notes {
    #[allow(clippy::declare_interior_mutable_const)]
    const fn new() -> Self {
        const NOWHERE: AtomicUsize = AtomicUsize::new(0);
        Notes { next: [NOWHERE; 5], realloc_kind: NOWHERE, reported: AtomicBool::new(false) }
    }
}

/// Everything the runtime knows, in one place so that it can be left out when
/// the memory around it is frozen.
#[repr(C, align(4096))]
pub struct State {
    // What a fork or the constructor writes comes first, in one page: after the fork or
    // exec, that page is one copy-on-write fault, and more pages would be more faults.
    pub options: Options,
    pub notes: Notes,
    pub stats: Stats,
    lock: Lock,
    pid: AtomicI32,
    /// Time of the latest pass, and whether there are images.
    last_pass_ns: AtomicU64,
    registry_in_use: AtomicU32,
    /// The process that loaded the library by exec: it alone reports.
    born: AtomicI32,
    last_fork_ns: AtomicU64,
    /// Minor faults at the last look; `u64::MAX` before the first.
    faults: AtomicU64,
    /// Time of forks not yet charged, and their number.
    unpaid_ns: AtomicU64,
    unpaid_forks: AtomicU64,
    /// A reason (its number) never to freeze in this process.
    barred: AtomicU32,
    /// Looks for reasons to leave the program alone; asked once in a process, before its
    /// first pass. Told whether this is the process that was executed.
    inspect: fn(bool) -> Reason,
    inspected: AtomicU32,
    /// Descriptor of the thread that ran the constructor.
    main_thread: usize,
    kernel: Kernel,
    mark: Mark,
    shared_vm: bool,
    registry: Registry,
    model: CostModel,
    rental: Rental,
    /// Entries the next fork copies, when a pass has just found out.
    entries: Option<u64>,
    shown: u64,
    /// Thread descriptors: the main thread's, then newest over oldest.
    descriptors: [usize; MAX_THREADS],
    next_descriptor: usize,
    pi_futexes: AtomicU32,
    /// A word shared with all descendants: image pages went into a pipe or socket.
    spliced_word: usize,
    /// 1 from the first freeze on, in this process or an ancestor.
    ever_frozen: AtomicU32,
    bench: Bench,
    /// Address hint for the runtime's next mapping.
    zone: usize,
}

impl State {
    fn spliced(&self) -> bool {
        // SAFETY: 0, or a page mapped for the life of the process.
        self.spliced_word != 0
            && unsafe { (*(self.spliced_word as *const AtomicU32)).load(Relaxed) != 0 }
    }

    fn barred(&self) -> Reason {
        let i = self.barred.load(Relaxed) as usize;
        Reason::ALL.get(i).copied().unwrap_or_default()
    }
}

struct Global(UnsafeCell<State>);

// SAFETY: counters are atomic; everything else is touched under `lock`, or in a
// child before it has a second thread.
unsafe impl Sync for Global {}

static STATE: Global = Global(UnsafeCell::new(State {
    options: Options::new(),
    notes: Notes::new(),
    stats: Stats::new(),
    lock: Lock::new(),
    pid: AtomicI32::new(0),
    last_pass_ns: AtomicU64::new(0),
    registry_in_use: AtomicU32::new(0),
    born: AtomicI32::new(0),
    last_fork_ns: AtomicU64::new(0),
    barred: AtomicU32::new(0),
    shared_vm: false,
    registry: Registry::new(),
    model: CostModel::new(),
    rental: Rental::new(),
    kernel: Kernel::new(),
    faults: AtomicU64::new(u64::MAX),
    unpaid_ns: AtomicU64::new(0),
    unpaid_forks: AtomicU64::new(0),
    entries: None,
    shown: 0,
    descriptors: [0; MAX_THREADS],
    next_descriptor: 0,
    pi_futexes: AtomicU32::new(0),
    spliced_word: 0,
    mark: Mark::new(),
    main_thread: 0,
    inspect: |_| Reason::None,
    inspected: AtomicU32::new(0),
    ever_frozen: AtomicU32::new(0),
    bench: Bench::new(),
    zone: sys::ZONE,
}));

/// The parts that may be read at any time.
pub fn state() -> &'static State {
    // SAFETY: callers of this shared view use atomics and `options`, which
    // changes only in `start`.
    unsafe { &*STATE.0.get() }
}

/// The whole state, for the holder of the lock.
///
/// # Safety
/// The caller holds the lock or is the only thread of a new child.
#[allow(clippy::mut_from_ref)]
unsafe fn state_mut() -> &'static mut State {
    // SAFETY: passed on to the caller.
    unsafe { &mut *STATE.0.get() }
}

/// Begins: reads the options. Called once, from the library's constructor, in the thread
/// with that descriptor. Everything in the program's tree that is executed comes through
/// here, most of it to end soon without a fork: what can wait, waits.
pub fn start(main_thread: usize, inspect: fn(bool) -> Reason) {
    // SAFETY: the constructor runs before the program's threads.
    let st = unsafe { state_mut() };
    st.options = Options::from_env();
    st.inspect = inspect;
    st.kernel.fault = st.options.fault;
    st.main_thread = main_thread;
    if st.options.freeze == Freeze::Never {
        st.stats.last_reason.store(Reason::Never as u32, Relaxed);
    }
    let me = sys::getpid();
    st.pid.store(me, Relaxed);
    st.born.store(me, Relaxed);
}

/// Calls the program's fork, made cheap where that pays.
///
/// # Safety
/// `real` must be fork(2) or behave like it: return twice.
pub unsafe fn fork(real: impl Fn() -> i32) -> i32 {
    if state().barred() == Reason::Seccomp {
        return real();
    }
    if !adopt() {
        return real();
    }
    prepare();
    let st = state();
    st.lock.begin_call();
    let begin = sys::now_ns();
    let pid = real();
    if pid == 0 {
        // CHILD: nothing is written here, each page of ours would be a fault. The
        // child finds out that it is one (`adopt`) when it next needs the runtime.
        return 0;
    }
    let ns = sys::now_ns() - begin;
    st.lock.end_call();
    if pid > 0 {
        st.stats.count_fork(ns);
        charge(ns);
    } else {
        st.stats.forks_failed.fetch_add(1, Relaxed);
    }
    pid
}

/// A process made by a fork that went past the wrappers finds out here. False
/// for a task that borrows another process's memory (a vfork child): the state
/// is not its own.
fn adopt() -> bool {
    let st = state();
    let me = sys::getpid();
    if is_ours(st, me) {
        return true;
    }
    if st.mark.is_borrowed(me) {
        return false;
    }
    // A handler that interrupted this and forks would wait below for what it interrupted.
    let mask = sys::block_signals();
    // Several threads of a new process may find out at once: one begins its state.
    let parent = st.pid.load(SeqCst);
    if parent != -me
        && !is_ours(st, me)
        && st.pid.compare_exchange(parent, -me, SeqCst, SeqCst).is_ok()
    {
        child_begins();
        st.pid.store(me, SeqCst);
    }
    while st.pid.load(SeqCst) != me {
        core::hint::spin_loop();
    }
    sys::restore_signals(mask);
    true
}

/// The state was begun by process `me`. A child in another pid namespace may have its parent's
/// number: its mark is not set.
fn is_ours(st: &State, me: i32) -> bool {
    st.pid.load(SeqCst) == me && st.mark.is_set() != Some(false)
}

/// A state of its own for a new process. Every entrance to the runtime comes
/// through `adopt` first, so nobody holds the lock yet.
fn child_begins() {
    // SAFETY: the one thread that `adopt` chose; the others wait there.
    let st = unsafe { state_mut() };
    st.lock.reset();
    st.registry.inherit();
    st.bench.forget();
    st.stats.reset();
    st.rental = Rental::new();
    st.faults.store(u64::MAX, Relaxed);
    st.unpaid_ns.store(0, Relaxed);
    st.unpaid_forks.store(0, Relaxed);
    st.entries = None;
    if st.barred() == Reason::Helper {
        // Its tasks are born where it was born itself (`with_new_namespace`).
        st.barred.store(Reason::None as u32, Relaxed);
    }
    // From now on this memory is its own, whatever borrows it or is copied from it.
    if st.mark.is_set() == Some(false) {
        st.mark.set();
    }
}

/// Before a fork: looks whether freezing or folding is due, and does it.
fn prepare() {
    let st = state();
    // Another library's constructor that forks before ours: the options are not read yet.
    if born() == 0 {
        return;
    }
    if st.options.freeze == Freeze::Never || st.barred() != Reason::None || !may_be_due(st) {
        return;
    }
    if !passes_inspection(st) {
        return;
    }
    let held = st.lock.hold();
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    let decide = match st.options.freeze {
        Freeze::Eager => Some(Decide::Always),
        _ => {
            settle(st);
            let floor = st.model.look_floor_ns(st.last_fork_ns.load(Relaxed), st.shown);
            (st.rental.worth_looking(floor) || is_stale(st))
                .then_some(Decide::Rental(st.model, st.rental))
        }
    };
    if let Some(decide) = decide.filter(|_| !held.calls_under_way()) {
        let _ = one_pass(st, decide);
        if st.options.freeze == Freeze::Eager && st.barred() == Reason::None {
            st.faults.store(sys::minor_faults(), Relaxed);
        }
        st.last_pass_ns.store(sys::now_ns(), Relaxed);
    }
}

/// Asked without the lock: the inspection of the code takes the loader's. Who comes while another
/// thread inspects does not wait for it, nor does the child of a fork made meanwhile.
fn passes_inspection(st: &State) -> bool {
    const UNDER_WAY: u32 = 1;
    const DONE: u32 = 2;
    if st.inspected.compare_exchange(0, UNDER_WAY, SeqCst, SeqCst).is_ok() {
        let found = (st.inspect)(sys::getpid() == st.born.load(Relaxed));
        if found != Reason::None {
            bar(found);
        }
        st.inspected.store(DONE, SeqCst);
    }
    st.inspected.load(SeqCst) == DONE && st.barred() == Reason::None
}

/// The cheap question before every fork: a fork of a small process asks only this.
fn may_be_due(st: &State) -> bool {
    if is_stale(st) {
        return true;
    }
    match st.options.freeze {
        Freeze::Eager => {
            let last = st.faults.load(Relaxed);
            last == u64::MAX || sys::minor_faults() >= last + EAGER_FAULTS
        }
        _ => st.unpaid_ns.load(Relaxed) >= SETTLE_NS,
    }
}

/// Images were not looked at for a while: memory that the program has unmapped
/// since is still held by their seeds.
fn is_stale(st: &State) -> bool {
    st.registry_in_use.load(Relaxed) != 0
        && sys::now_ns() - st.last_pass_ns.load(Relaxed) > STALE_NS
}

/// After a fork in the parent: what was paid, for the rental rule. No lock and
/// no system call: the amounts wait in counters until somebody looks.
fn charge(ns: u64) {
    let st = state();
    if st.options.freeze == Freeze::Auto {
        st.last_fork_ns.store(ns, Relaxed);
        st.unpaid_ns.fetch_add(ns, Relaxed);
        st.unpaid_forks.fetch_add(1, Relaxed);
    }
}

/// Takes the forks since the last look into the rental account. Lock held.
fn settle(st: &mut State) {
    let (ns, forks) = (st.unpaid_ns.swap(0, Relaxed), st.unpaid_forks.swap(0, Relaxed));
    if forks == 0 {
        return;
    }
    if let Some(entries) = st.entries.take() {
        st.model.observe_fork(entries, st.last_fork_ns.load(Relaxed));
    }
    for _ in 0..forks.min(1000) {
        st.rental.charge(st.model.rent_ns(ns / forks));
    }
}

/// Runs a pass in the helper and takes over what it did. Lock held.
fn one_pass(st: &mut State, decide: Decide) -> Done<()> {
    st.mark.set();
    st.descriptors[0] = st.main_thread;
    if st.spliced_word == 0 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        match unsafe { sys::mmap(st.zone, PAGE, prot, flags) } {
            Ok(at) => st.spliced_word = at,
            Err(e) => return Err(Stop::failed(Reason::Limit, "helper", e)),
        }
        st.zone += PAGE;
    }
    let order = pass::Order {
        subject: subject(st),
        allowed: st.options.image,
        shared_vm: st.shared_vm,
        decide,
    };
    let finished = run_helper(pass::job, &order as *const _ as usize);
    let outcome = match finished {
        Ok(f) => {
            let outcome = f.outcome();
            absorb(st, &f, &outcome);
            outcome
        }
        Err(stop) => Err(stop),
    };
    st.bench.clear();
    if let Err(stop) = &outcome {
        st.stats.count_stop(stop);
        if stop.reason == Reason::Seccomp {
            // A filter kills for what the helper does: make no more calls of our own.
            st.barred.store(stop.reason as u32, Relaxed);
        }
        st.rental.refused();
    }
    outcome
}

/// Takes over what a pass left in its scratch memory.
fn absorb(st: &mut State, f: &Finished, outcome: &Done<()>) {
    let (s, r) = (f.scratch(), &f.scratch().report);
    let died = matches!(outcome, Err(Stop { reason: Reason::Helper | Reason::Seccomp, .. }));
    if s.surveyed == 1 {
        fold::drop_unseen(&mut st.registry, &s.gone);
    }
    for image in &s.created[..s.created_count] {
        let mut image = *image;
        if died {
            image.beacon = 0;
        }
        if image.end > image.start {
            st.ever_frozen.store(1, Relaxed);
            // Room was checked by the pass: it makes no more images than fit.
            st.registry.add(image);
        } else {
            crate::image::uproot(&image);
        }
    }
    if s.surveyed == 1 {
        st.shown = (r.shown + r.frozen) as u64;
        st.stats.dirty_pages.store((r.dirty / PAGE) as u64, Relaxed);
    }
    count(st, f);
    let entries = ((r.eligible + r.dirty) / PAGE) as u64;
    if r.acted == 1 && outcome.is_ok() {
        st.rental.bought();
        st.entries = None;
        st.model.observe_freeze(r.frozen as u64, r.freeze_ns);
        st.model.observe_fold((r.folded / PAGE) as u64, r.shown as u64, r.fold_ns);
    } else if outcome.is_ok() {
        let (new, dirty) = (r.eligible as u64, (r.dirty / PAGE) as u64);
        let price = st.model.clean_ns(new, dirty, r.shown as u64);
        st.rental.limit(st.model.avoidable_ns(entries));
        st.rental.looked(price, st.model.look_ns(entries, r.shown as u64));
        st.entries = Some(entries);
    }
}

fn count(st: &State, f: &Finished) {
    let (r, stats) = (&f.scratch().report, &st.stats);
    let (frozen, rebuilt, folded) = (r.frozen as u64, r.rebuilt as u64, r.folded as u64);
    if frozen > rebuilt {
        stats.freezes.fetch_add(1, Relaxed);
        stats.freeze_bytes.fetch_add(frozen - rebuilt, Relaxed);
        stats.freeze_ns.fetch_add(r.freeze_ns, Relaxed);
    }
    if folded > 0 {
        stats.folds_in_place.fetch_add(1, Relaxed);
    }
    if rebuilt > 0 {
        stats.folds_rebuilt.fetch_add(1, Relaxed);
    }
    if folded + rebuilt > 0 {
        stats.fold_bytes.fetch_add(folded + rebuilt, Relaxed);
        stats.fold_ns.fetch_add(r.fold_ns, Relaxed);
    }
    let images: usize = st.registry.live().map(|(_, i)| i.bytes).sum();
    stats.image_bytes.store(images as u64, Relaxed);
    st.registry_in_use.store(u32::from(images > 0), Relaxed);
    stats.frozen_bytes.store(st.shown, Relaxed);
    let huge = st.registry.live().any(|(_, i)| i.huge == 1);
    let engine = if images == 0 { 0 } else { 1 + u32::from(huge) };
    stats.engine.store(engine, Relaxed);
}

/// Runs a job in the helper. Lock held.
fn run_helper(job: helper::Job, arg: usize) -> Done<Finished> {
    // SAFETY: the lock is held; the order in `arg` refers to other fields only.
    let st = unsafe { state_mut() };
    helper::run(&mut st.kernel, &mut st.bench, &mut st.zone, job, arg)
}

fn subject(st: &State) -> Subject<'_> {
    Subject {
        // Not the stored pid: after a fork past the wrappers that is the parent's.
        pid: sys::getpid(),
        tid: sys::gettid(),
        registry: &st.registry,
        own: own_range(st),
        min_bytes: MIN_BYTES,
        descriptors: &st.descriptors,
        pi_futexes: st.pi_futexes.load(Relaxed) != 0 || st.next_descriptor >= MAX_THREADS,
        spliced: st.spliced(),
    }
}

fn own_range(st: &State) -> (usize, usize) {
    let start = st as *const State as usize;
    (start, (start + core::mem::size_of::<State>()).next_multiple_of(PAGE))
}

/// Freezes and folds now, whatever the rental rule says.
pub fn freeze_now() -> Done<()> {
    if born() == 0 {
        return Err(Stop::of(Reason::NotLoaded));
    }
    if !adopt() {
        return Err(Stop::of(Reason::SharedVm));
    }
    let st = state();
    if st.barred() != Reason::None || !passes_inspection(st) {
        let under_way = st.barred() == Reason::None;
        return Err(Stop::of(if under_way { Reason::Threads } else { st.barred() }));
    }
    let held = st.lock.hold();
    if held.calls_under_way() {
        return Err(Stop::of(Reason::Threads));
    }
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    let done = match one_pass(st, Decide::Always) {
        Err(Stop { reason: Reason::NotWorth, .. }) if st.registry.any() => Ok(()),
        other => other,
    };
    if done.is_ok() {
        // The next fork need not look again at what was cleaned just now.
        st.faults.store(sys::minor_faults(), Relaxed);
        st.last_pass_ns.store(sys::now_ns(), Relaxed);
    }
    done
}

/// True once any memory of this process was frozen: a cheap first question for
/// the wrappers.
pub fn anything_frozen() -> bool {
    state().ever_frozen.load(Relaxed) != 0
}

/// True if a range may be frozen.
pub fn may_be_frozen(start: usize, len: usize) -> bool {
    call_if_plain(start, len, false, || ()).is_none()
}

/// Makes a call of the program's on a range that is not frozen, with no freeze
/// in between; `None` if some of the range may be frozen or, where it matters that
/// the range is `whole`, may be split.
pub fn call_if_plain<T>(
    start: usize,
    len: usize,
    whole: bool,
    call: impl FnOnce() -> T,
) -> Option<T> {
    let st = state();
    if st.ever_frozen.load(Relaxed) != 0 {
        adopt();
    }
    st.lock.begin_call();
    let end = start.saturating_add(len);
    let frozen = st.ever_frozen.load(Relaxed) != 0
        && (st.registry.may_be_frozen(start, end) || whole && st.registry.may_be_split(start, end));
    let result = (!frozen).then(call);
    st.lock.end_call();
    result
}

/// Thaws a range and then makes the program's own call, with no freeze in
/// between. `call` hears whether the thaw succeeded, and whether it did all
/// there was to do (zeros by hand).
pub fn with_thawed<T>(
    start: usize,
    len: usize,
    content: thaw::Content,
    moves: bool,
    call: impl FnOnce(Done<bool>) -> T,
) -> T {
    adopt();
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    call(thaw_locked(unsafe { state_mut() }, start, len, content, moves))
}

/// Makes a call that gives a range a property (not to be inherited, locked, ...):
/// the range is thawed, and neither frozen again while it has the property (the
/// survey sees to that) nor joined with its neighbours.
pub fn with_property<T>(start: usize, len: usize, call: impl FnOnce() -> T) -> T {
    adopt();
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    // Where no thaw is to be had the property goes to the image's mapping, as far as it can.
    let _ = thaw_locked(st, start, len, thaw::Content::Join, false);
    st.registry.note_special(start, start.saturating_add(len));
    call()
}

fn thaw_locked(
    st: &mut State,
    start: usize,
    len: usize,
    content: thaw::Content,
    moves: bool,
) -> Done<bool> {
    let end = start.saturating_add(len);
    let join = content == thaw::Content::Join;
    if !(st.registry.may_be_frozen(start, end) || join && st.registry.may_be_split(start, end)) {
        return Ok(false);
    }
    st.descriptors[0] = st.main_thread;
    let order = thaw::Order { start, end, content, moves, subject: subject(st) };
    let arg = &order as *const _ as usize;
    let finished = run_helper(thaw::job, arg)?;
    if let Err(stop) = finished.outcome() {
        st.bench.clear();
        return Err(stop);
    }
    let report = &finished.scratch().report;
    let by_hand = report.by_hand == 1;
    // What was not replaced still shows an image.
    if !by_hand && !join && report.refused == 0 {
        st.registry.uncover(start, end);
    }
    let bytes = finished.scratch().report.thawed as u64;
    st.bench.clear();
    if bytes > 0 {
        st.stats.thaws.fetch_add(1, Relaxed);
        st.stats.thaw_bytes.fetch_add(bytes, Relaxed);
    }
    Ok(by_hand)
}

/// Makes all memory anonymous again, and lets go of the images.
pub fn thaw_all() -> Done<()> {
    adopt();
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    thaw_locked(st, 0, usize::MAX & !(PAGE - 1), thaw::Content::Keep, false)?;
    for slot in 0..crate::registry::MAX_IMAGES {
        if let Some(image) = st.registry.remove(slot) {
            crate::image::uproot(&image);
            fold::drop_beacon(&st.registry, image.beacon);
        }
    }
    st.shown = 0;
    st.stats.frozen_bytes.store(0, Relaxed);
    st.stats.image_bytes.store(0, Relaxed);
    st.stats.engine.store(0, Relaxed);
    Ok(())
}

/// Never freeze again in this process.
pub fn bar(reason: Reason) {
    adopt();
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    st.barred.store(reason as u32, Relaxed);
    st.stats.count_stop(&Stop::of(reason));
}

/// A system-call filter was noticed.
pub fn is_fenced() -> bool {
    state().barred() == Reason::Seccomp
}

/// The program is about to install a system-call filter: give back what later
/// needs system calls of ours, and make none from now on.
pub fn before_filter() {
    if state().barred() != Reason::Seccomp {
        let _ = thaw_all();
        bar(Reason::Seccomp);
    }
}

/// Makes a call after which the next child is the first of a new pid namespace, or in a time
/// namespace where nobody may share this memory. A helper of ours must not be that child: the
/// namespace would end with it, and every fork after it fail. So memory that may need one is
/// given back before, and none is made until the call was refused, or in this process's children.
pub fn with_new_namespace(call: impl FnOnce() -> isize) -> isize {
    if !adopt() || state().barred() != Reason::None {
        return call();
    }
    let _ = thaw_all();
    bar(Reason::Helper);
    let ret = call();
    if ret < 0 {
        state().barred.store(Reason::None as u32, Relaxed);
    }
    ret
}

/// A thread is about to be made: the last moment at which a new process is
/// certainly alone in finding out that it is one.
pub fn before_thread() {
    adopt();
}

/// A thread was made; `descriptor` is its `pthread_t`. A process with more
/// threads than can be remembered is left plain while it has any.
pub fn note_thread(descriptor: usize) {
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    if !st.descriptors.contains(&descriptor) {
        let at = 1 + st.next_descriptor % (MAX_THREADS - 1);
        st.descriptors[at] = descriptor;
        st.next_descriptor += 1;
    }
}

/// The program uses futex operations that fail on protected pages.
pub fn note_pi_futex() {
    state().pi_futexes.store(1, Relaxed);
}

/// Pages of this process go into a pipe or a socket: no image they may belong to
/// is overwritten any more, in this process or any other that shares it.
pub fn note_splice() {
    let st = state();
    if st.spliced_word != 0 {
        // SAFETY: a shared page mapped for the life of the process.
        unsafe { (*(st.spliced_word as *const AtomicU32)).store(1, Relaxed) };
    }
}

/// A task is about to be made past the C library's fork: what it does to the memory is not
/// known, and it must find out whether the memory is its own.
pub fn before_raw_fork() {
    let mark = &state().mark;
    if mark.is_set() != Some(true) && !is_fenced() && adopt() {
        mark.set();
    }
}

/// A task that shares this address space and is no thread was started.
pub fn note_shared_vm() {
    before_raw_fork();
    adopt();
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    unsafe { state_mut() }.shared_vm = true;
}

/// Calls of the freeze path so far, and failures injected by a test.
pub fn calls() -> (u32, u32) {
    adopt();
    let _held = state().lock.hold();
    // SAFETY: the lock is held.
    let st = unsafe { state_mut() };
    (st.kernel.calls, st.kernel.injected)
}

/// The process that loaded the library by exec; its forked children do not report.
pub fn born() -> i32 {
    state().born.load(Relaxed)
}
