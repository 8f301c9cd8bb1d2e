//! The lock with real threads. Its order of steps is tested in `tests/lock_model.rs`, which
//! includes `lock.rs` itself: that is why these tests are not in it.

use crate::lock::{Lock, OnlyTask};

const ROUNDS: u64 = if cfg!(miri) { 20 } else { 500 };

#[test]
fn counts_are_exact_under_contention() {
    static LOCK: Lock<u64> = Lock::new(0);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..ROUNDS {
                    *LOCK.hold() += 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*LOCK.hold(), 4 * ROUNDS);
}

#[test]
fn an_inherited_lock_is_overruled() {
    let lock = Lock::new(7);
    core::mem::forget(lock.begin_call());
    core::mem::forget(lock.hold());
    assert!(lock.is_held());
    // SAFETY: no other thread knows this lock, and the guards are forgotten.
    let held = lock.take_over(unsafe { OnlyTask::chosen_in_a_child() });
    assert_eq!((*held, held.calls_under_way()), (7, false));
    drop(held);
    assert!(!lock.is_held());
}

#[test]
fn a_call_is_seen_until_it_ends() {
    let lock = Lock::new(());
    let call = lock.begin_call();
    assert!(lock.hold().calls_under_way());
    drop(call);
    assert!(!lock.hold().calls_under_way());
}
