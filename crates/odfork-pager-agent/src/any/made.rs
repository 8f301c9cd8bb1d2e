//! What was made for the pager of a program that is adopted, until a task depends on it: if that
//! fails, all of it goes again.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::{descriptors, kernel_munmap};

const MOST: usize = 16;

struct Made {
    is_noted: AtomicBool,
    /// Start and length.
    ranges: [[AtomicUsize; 2]; MOST],
    count: AtomicUsize,
}

static MADE: Made = Made {
    is_noted: AtomicBool::new(false),
    ranges: [const { [const { AtomicUsize::new(0) }; 2] }; MOST],
    count: AtomicUsize::new(0),
};

pub fn begin() {
    MADE.is_noted.store(true, Relaxed);
    descriptors::note(true);
}

pub fn is_noted() -> bool {
    MADE.is_noted.load(Relaxed)
}

/// From now on it is used.
pub fn end() {
    MADE.is_noted.store(false, Relaxed);
    descriptors::note(false);
}

/// A mapping; without room for the note it stays.
pub fn range(start: usize, len: usize) {
    if MADE.is_noted.load(Relaxed) {
        if let Some(place) = MADE.ranges.get(MADE.count.fetch_add(1, Relaxed)) {
            place[0].store(start, Relaxed);
            place[1].store(len, Relaxed);
        }
    }
}

/// True: nothing of it is left.
pub fn undo() -> bool {
    if !MADE.is_noted.swap(false, Relaxed) {
        return false;
    }
    descriptors::note(false);
    descriptors::close_noted();
    for [start, len] in &MADE.ranges {
        if start.load(Relaxed) != 0 {
            kernel_munmap(start.load(Relaxed), len.load(Relaxed));
        }
    }
    true
}
