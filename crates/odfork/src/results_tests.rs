//! Tests of `results.rs`.

use super::*;

fn results() -> Box<Results> {
    // SAFETY: all zeros is valid (atomics only), as in the mapping.
    unsafe { Box::<Results>::new_zeroed().assume_init() }
}

#[test]
fn an_image_counts_once_it_is_whole() {
    let r = results();
    let file =
        BackingFile { dev: 1, inode: 2, start: 3, end: 3, huge: 1, ..BackingFile::default() };
    r.extend_latest(9, 9);
    assert_eq!(r.created().count(), 0);
    r.create(&file);
    r.extend_latest(8, 5);
    let want = BackingFile { end: 8, bytes: 5, live: 1, ..file };
    assert_eq!(r.created().collect::<Vec<_>>(), [want]);
    r.begin(&Trace::new(), 0x1000, false);
    assert_eq!((r.created_count(), r.zone()), (0, 0x1000));
}

#[test]
fn the_last_word_is_read_as_it_was_said() {
    let r = results();
    assert_eq!(r.ending(), None);
    let stop = Stop { reason: Reason::Memory, step: Step::Copy.name(), errno: 12 };
    r.end(Err(stop));
    assert_eq!(r.ending(), Some(Err(stop)));
    r.begin(&Trace::new(), 0, false);
    r.end(Ok(()));
    assert_eq!(r.ending(), Some(Ok(())));
}
