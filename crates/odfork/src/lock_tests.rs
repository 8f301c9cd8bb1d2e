//! The lock with real threads. Its order of steps is tested in `tests/lock_model.rs`, which
//! includes `lock.rs` itself: that is why these tests are not in it.

use crate::lock::{Lock, OnlyTask, Waiter};

/// A thread of process 1, whose lock nobody else takes.
struct Thread;

impl Waiter for Thread {
    fn process(&self) -> i32 {
        1
    }

    fn may_overrule(&self, _holder: i32, _rounds: u32) -> bool {
        false
    }
}

/// A task of process 2, which believes every holder to be gone.
struct Heir;

impl Waiter for Heir {
    fn process(&self) -> i32 {
        2
    }

    fn may_overrule(&self, holder: i32, _rounds: u32) -> bool {
        holder == 1
    }
}

const ROUNDS: u64 = if cfg!(miri) { 20 } else { 500 };

#[test]
fn counts_are_exact_under_contention() {
    static LOCK: Lock<u64> = Lock::new(0);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..ROUNDS {
                    *LOCK.hold(&Thread) += 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*LOCK.hold(&Thread), 4 * ROUNDS);
}

#[test]
fn an_inherited_lock_is_overruled() {
    let lock = Lock::new(7);
    core::mem::forget(lock.begin_call(&Thread));
    core::mem::forget(lock.hold(&Thread));
    assert!(lock.is_held());
    // SAFETY: no other thread knows this lock, and the guards are forgotten.
    let held = lock.take_over(2, unsafe { OnlyTask::chosen_in_a_child() });
    assert_eq!((*held, held.calls_under_way()), (7, false));
    drop(held);
    assert!(!lock.is_held());
}

#[test]
fn a_call_is_seen_until_it_ends() {
    let lock = Lock::new(());
    let call = lock.begin_call(&Thread);
    assert!(lock.hold(&Thread).calls_under_way());
    drop(call);
    assert!(!lock.hold(&Thread).calls_under_way());
}

#[test]
fn a_holder_that_is_gone_is_overruled_and_a_late_one_frees_nothing() {
    let lock = Lock::new(());
    let gone = lock.hold(&Thread);
    drop(lock.begin_call(&Heir));
    let held = lock.hold(&Heir);
    assert!(held.has_overruled() && !gone.has_overruled());
    drop(gone);
    assert!(lock.is_held());
    drop(held);
    assert!(!lock.hold(&Heir).has_overruled());
}
