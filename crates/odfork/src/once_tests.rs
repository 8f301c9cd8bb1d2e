//! The cell with real threads; `tests/lock_model.rs` includes `once.rs`, so they are not in it.

use crate::once::SetOnce;

#[test]
fn one_of_many_threads_sets_it() {
    static CELL: SetOnce<[usize; 4]> = SetOnce::new();
    assert_eq!(CELL.get(), None);
    let threads: Vec<_> = (0..4)
        .map(|i| {
            std::thread::spawn(move || {
                let won = CELL.set([i; 4]);
                (won, CELL.get().copied())
            })
        })
        .collect();
    let ends: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(ends.iter().filter(|(won, _)| *won).count(), 1);
    let value = CELL.get().copied().unwrap();
    assert!(ends.iter().all(|(_, seen)| seen.is_none_or(|v| v == value)));
    assert!(!CELL.set([9; 4]));
}
