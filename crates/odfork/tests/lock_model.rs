//! The runtime's lock, its owner and what happens once, under many orders of their steps.
//!
//! Owns the properties; the code under test is the runtime's own, included here with atomics that
//! let a scheduler choose who goes on after each access. All of them are sequentially consistent
//! in that code, as in this model. A process is a set of these values; its threads are threads.

#[path = "../src/lock.rs"]
#[allow(dead_code)]
mod lock;
#[path = "../src/once.rs"]
#[allow(dead_code)]
mod once;
#[path = "../src/owner.rs"]
mod owner;

/// Stands in for the runtime's file of the same name.
mod sync {
    pub use shuttle::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

    /// Every round but the first asks.
    pub const SPINS: u32 = 1;

    /// So long the scheduler does not forget a thread.
    pub const PATIENCE: u32 = 100;

    pub fn pause(_rounds: u32) {
        shuttle::thread::yield_now();
    }

    pub fn block_more_signals(_more: u64) -> u64 {
        0
    }

    pub fn restore_signals(_mask: u64) {}
}

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;

use lock::{Lock, OnlyTask, Waiter};
use once::{RunOnce, SetOnce};
use owner::Owner;
use shuttle::sync::atomic::{AtomicBool, AtomicU64};
use shuttle::thread::{spawn, yield_now, JoinHandle};

const PARENT: i32 = 100;
const CHILD: i32 = 101;
/// A task that borrows the parent's memory.
const BORROWER: i32 = 102;

/// After so many rounds a task overrules what its memory may be a copy of.
const LONG: u32 = 3;

/// A task as `engine/waiter.rs` knows it.
struct Task<'a> {
    process: i32,
    /// The process that was killed.
    killed: Option<&'a AtomicI32>,
    marked: bool,
}

impl Waiter for Task<'_> {
    fn process(&self) -> i32 {
        self.process
    }

    fn may_overrule(&self, holder: i32, rounds: u32) -> bool {
        self.killed.is_some_and(|killed| killed.load(SeqCst) == holder)
            || rounds >= LONG && !self.marked
    }
}

/// A task of that process in marked memory, where nobody is killed.
fn task(process: i32) -> Task<'static> {
    Task { process, killed: None, marked: true }
}

/// Under random schedules, and under those that need few preemptions at the right places.
fn check(property: impl Fn() + Copy + Send + Sync + 'static) {
    shuttle::check_random(property, 4000);
    for depth in 1..=4 {
        shuttle::check_pct(property, 1500, depth);
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// What a change under the lock goes through, seen from outside.
#[derive(Default)]
struct Memory {
    half_changed: AtomicBool,
    changes: AtomicUsize,
}

impl Memory {
    fn change(&self) {
        assert!(!self.half_changed.swap(true, SeqCst), "two changes at once");
        yield_now();
        self.half_changed.store(false, SeqCst);
        self.changes.fetch_add(1, SeqCst);
    }

    /// What fork copies must be whole at each moment of the call.
    fn fork(&self) {
        assert!(!self.half_changed.load(SeqCst), "fork copies a half-changed state");
        yield_now();
        assert!(!self.half_changed.load(SeqCst), "a change began under a fork");
    }
}

#[test]
fn no_fork_copies_a_change_half_way() {
    check(|| {
        let process = Arc::new((Lock::new(()), Memory::default()));
        let freeze = |process: Arc<(Lock<()>, Memory)>| {
            spawn(move || {
                let held = process.0.hold(&task(PARENT));
                if !held.calls_under_way() {
                    process.1.change();
                }
            })
        };
        let fork = |process: Arc<(Lock<()>, Memory)>| {
            spawn(move || {
                let _call = process.0.begin_call(&task(PARENT));
                process.1.fork();
            })
        };
        let threads = vec![
            freeze(process.clone()),
            fork(process.clone()),
            freeze(process.clone()),
            fork(process.clone()),
        ];
        join(threads);
        assert!(!process.0.hold(&task(PARENT)).calls_under_way(), "a call that ended is counted");
    });
}

#[test]
fn one_holder_at_a_time_reaches_the_state() {
    check(|| {
        let lock = Arc::new(Lock::new(0u32));
        let threads = [PARENT, BORROWER, PARENT]
            .map(|process| {
                let lock = lock.clone();
                spawn(move || {
                    let mut held = lock.hold(&task(process));
                    assert!(!held.has_overruled());
                    let before = *held;
                    yield_now();
                    *held = before + 1;
                })
            })
            .into();
        join(threads);
        assert_eq!(*lock.hold(&task(PARENT)), 3);
    });
}

/// A waiter of another process, which counts how often it was asked about the holder.
struct Patient<'a>(&'a AtomicUsize);

impl Waiter for Patient<'_> {
    fn process(&self) -> i32 {
        BORROWER
    }

    fn may_overrule(&self, _holder: i32, _rounds: u32) -> bool {
        self.0.fetch_add(1, SeqCst);
        false
    }
}

/// Once it has said that it waits, which it has when it is asked a second time.
#[test]
fn who_waits_has_its_turn_before_the_holder_has_another() {
    check(|| {
        let shared = Arc::new((Lock::new(0u32), AtomicUsize::new(0)));
        let waiter = shared.clone();
        let held = shared.0.hold(&task(PARENT));
        let waits = spawn(move || *waiter.0.hold(&Patient(&waiter.1)) += 1);
        while shared.1.load(SeqCst) < 2 {
            yield_now();
        }
        drop(held);
        assert_eq!(*shared.0.hold(&task(PARENT)), 1, "the holder came first again");
        join(vec![waits]);
        assert_eq!(*shared.0.hold(&task(PARENT)), 1);
    });
}

/// A signal that gets a handler, and whether that is under way.
#[derive(Default)]
struct Signal {
    under_way: AtomicBool,
    has_handler: AtomicBool,
}

struct Opener<'a>(&'a Signal, AtomicU64);

impl Waiter for Opener<'_> {
    fn process(&self) -> i32 {
        PARENT
    }

    fn ignored(&self) -> u64 {
        let is_open = !self.0.under_way.load(SeqCst) && !self.0.has_handler.load(SeqCst);
        self.1.store(u64::from(is_open), SeqCst);
        u64::from(is_open)
    }

    fn may_overrule(&self, _holder: i32, _rounds: u32) -> bool {
        false
    }
}

#[test]
fn no_signal_with_a_handler_is_open_under_the_lock() {
    check(|| {
        let shared = Arc::new((Lock::new(()), Signal::default()));
        let hold = |shared: Arc<(Lock<()>, Signal)>| {
            spawn(move || {
                let waiter = Opener(&shared.1, AtomicU64::new(0));
                let _held = shared.0.hold(&waiter);
                for _ in 0..2 {
                    let open = waiter.1.load(SeqCst) != 0;
                    assert!(!open || !shared.1.has_handler.load(SeqCst), "a handler runs");
                    yield_now();
                }
            })
        };
        let set = |shared: Arc<(Lock<()>, Signal)>| {
            spawn(move || {
                shared.1.under_way.store(true, SeqCst);
                shared.0.note_handler();
                if shared.0.is_held() {
                    shared.0.wait_until_free(&task(PARENT));
                }
                shared.1.has_handler.store(true, SeqCst);
                shared.1.under_way.store(false, SeqCst);
            })
        };
        join(vec![hold(shared.clone()), set(shared.clone()), hold(shared.clone())]);
    });
}

/// Two threads change the state as `process`, and one forks: what the properties below share.
/// Gives back how many of them overruled a holder.
fn change_and_fork(
    process: &Arc<(Lock<()>, Memory, AtomicI32)>,
    pid: i32,
    marked: bool,
) -> (Vec<JoinHandle<()>>, Arc<AtomicUsize>) {
    let overruled = Arc::new(AtomicUsize::new(0));
    let mut threads: Vec<_> = (0..2)
        .map(|_| {
            let (process, overruled) = (process.clone(), overruled.clone());
            spawn(move || {
                let waiter = Task { process: pid, killed: Some(&process.2), marked };
                let held = process.0.hold(&waiter);
                overruled.fetch_add(usize::from(held.has_overruled()), SeqCst);
                if !held.calls_under_way() {
                    process.1.change();
                }
            })
        })
        .collect();
    let process = process.clone();
    threads.push(spawn(move || {
        let waiter = Task { process: pid, killed: Some(&process.2), marked };
        let _call = process.0.begin_call(&waiter);
        process.1.fork();
    }));
    (threads, overruled)
}

#[test]
fn a_holder_that_vanishes_is_overruled_once() {
    check(|| {
        let process = Arc::new((Lock::new(()), Memory::default(), AtomicI32::new(0)));
        let borrower = process.clone();
        let killed = spawn(move || {
            let held = borrower.0.hold(&task(BORROWER));
            if !held.calls_under_way() {
                borrower.1.change();
            }
            core::mem::forget(held);
            yield_now();
            borrower.2.store(BORROWER, SeqCst);
        });
        let (mut threads, overruled) = change_and_fork(&process, PARENT, true);
        threads.push(killed);
        join(threads);
        let waiter = Task { process: PARENT, killed: Some(&process.2), marked: true };
        let last = usize::from(process.0.hold(&waiter).has_overruled());
        assert_eq!(overruled.load(SeqCst) + last, 1);
    });
}

/// A raw fork has copied the lock while it was held, there was no mark, and `detect_child` says
/// that the memory is borrowed.
#[test]
fn a_copied_lock_that_no_mark_tells_of_is_overruled_once() {
    check(|| {
        let process = Arc::new((Lock::new(()), Memory::default(), AtomicI32::new(0)));
        core::mem::forget(process.0.hold(&task(PARENT)));
        let (threads, overruled) = change_and_fork(&process, CHILD, false);
        join(threads);
        assert_eq!(overruled.load(SeqCst), 1);
        assert!(!process.0.is_held());
    });
}

/// A process as fork may leave it: the lock held and calls under way, by threads that are not
/// there.
struct Forked {
    lock: Lock<u32>,
    owner: Owner,
    begun: AtomicUsize,
    memory: Memory,
}

impl Forked {
    fn new() -> Self {
        let forked = Forked {
            lock: Lock::new(7),
            owner: Owner::new(),
            begun: AtomicUsize::new(0),
            memory: Memory::default(),
        };
        forked.owner.set(PARENT);
        core::mem::forget(forked.lock.begin_call(&task(PARENT)));
        core::mem::forget(forked.lock.hold(&task(PARENT)));
        forked
    }

    /// As `detect_child`.
    fn detect_child(&self) {
        let is_mine = || self.owner.is(CHILD);
        if is_mine() {
            return;
        }
        self.owner.pass_to(CHILD, is_mine, || {
            // SAFETY: the other threads of the model wait in `pass_to`.
            let mut held = self.lock.take_over(CHILD, unsafe { OnlyTask::chosen_in_a_child() });
            self.memory.change();
            *held = 0;
            self.begun.fetch_add(1, SeqCst);
        });
    }
}

#[test]
fn a_child_begins_its_state_once_before_any_of_its_threads_goes_on() {
    check(|| {
        let process = Arc::new(Forked::new());
        let freeze = |process: Arc<Forked>| {
            spawn(move || {
                process.detect_child();
                let mut held = process.lock.hold(&task(CHILD));
                assert_eq!(process.begun.load(SeqCst), 1);
                if !held.calls_under_way() {
                    process.memory.change();
                }
                *held += 1;
            })
        };
        let fork = |process: Arc<Forked>| {
            spawn(move || {
                process.detect_child();
                let _call = process.lock.begin_call(&task(CHILD));
                assert_eq!(process.begun.load(SeqCst), 1);
                process.memory.fork();
            })
        };
        let threads = vec![freeze(process.clone()), fork(process.clone()), freeze(process.clone())];
        join(threads);
        let held = process.lock.hold(&task(CHILD));
        assert!(!held.calls_under_way(), "calls of threads that are not here are counted");
        assert_eq!(*held, 2);
    });
}

#[test]
fn an_inspection_happens_once_and_nobody_passes_before_it_is_done() {
    check(|| {
        let gate = Arc::new((RunOnce::new(), AtomicUsize::new(0)));
        let threads = (0..3)
            .map(|_| {
                let gate = gate.clone();
                spawn(move || {
                    let done = gate.0.run(|| {
                        yield_now();
                        gate.1.fetch_add(1, SeqCst);
                    });
                    assert!(!done || gate.1.load(SeqCst) == 1);
                })
            })
            .collect();
        join(threads);
        assert!(gate.0.run(|| unreachable!()));
        assert_eq!(gate.1.load(SeqCst), 1);
    });
}

#[test]
fn what_is_set_once_is_never_seen_half() {
    check(|| {
        let cell = Arc::new(SetOnce::new());
        let threads = (1..3u64)
            .map(|n| {
                let cell = cell.clone();
                spawn(move || {
                    cell.set([n; 2]);
                    if let Some([a, b]) = cell.get() {
                        assert!(a == b && (1..3).contains(a));
                    }
                })
            })
            .collect();
        join(threads);
        assert!(cell.get().is_some());
    });
}
