//! The runtime's lock, its owner and what happens once, under many orders of their steps.
//!
//! Owns the properties; the code under test is the runtime's own, included here with atomics that
//! let a scheduler choose who goes on after each access. All of them are sequentially consistent
//! in that code, as in this model. A process is a set of these values; its threads are threads.

#[path = "../src/lock.rs"]
mod lock;
#[path = "../src/once.rs"]
#[allow(dead_code)]
mod once;
#[path = "../src/owner.rs"]
mod owner;

/// Stands in for the runtime's file of the same name.
mod sync {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

    pub fn pause(_rounds: u32) {
        shuttle::thread::yield_now();
    }

    pub fn block_signals() -> u64 {
        0
    }

    pub fn restore_signals(_mask: u64) {}
}

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;

use lock::{Lock, OnlyTask};
use once::{RunOnce, SetOnce};
use owner::Owner;
use shuttle::thread::{spawn, yield_now, JoinHandle};

const PARENT: i32 = 100;
const CHILD: i32 = 101;

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
                let held = process.0.hold();
                if !held.calls_under_way() {
                    process.1.change();
                }
            })
        };
        let fork = |process: Arc<(Lock<()>, Memory)>| {
            spawn(move || {
                let _call = process.0.begin_call();
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
        assert!(!process.0.hold().calls_under_way(), "a call that ended is counted");
    });
}

#[test]
fn one_holder_at_a_time_reaches_the_state() {
    check(|| {
        let lock = Arc::new(Lock::new(0u32));
        let threads = (0..3)
            .map(|_| {
                let lock = lock.clone();
                spawn(move || {
                    let mut held = lock.hold();
                    let before = *held;
                    yield_now();
                    *held = before + 1;
                })
            })
            .collect();
        join(threads);
        assert_eq!(*lock.hold(), 3);
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
        core::mem::forget(forked.lock.begin_call());
        core::mem::forget(forked.lock.hold());
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
            let mut held = self.lock.take_over(unsafe { OnlyTask::chosen_in_a_child() });
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
                let mut held = process.lock.hold();
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
                let _call = process.lock.begin_call();
                assert_eq!(process.begun.load(SeqCst), 1);
                process.memory.fork();
            })
        };
        let threads = vec![freeze(process.clone()), fork(process.clone()), freeze(process.clone())];
        join(threads);
        let held = process.lock.hold();
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
