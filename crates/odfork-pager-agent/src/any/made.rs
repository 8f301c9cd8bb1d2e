//! What was made for the pager of a program that is adopted, until a task depends on it: if that
//! fails, all of it goes again.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::descriptors::KeptFd;
use crate::kernel_munmap;

const MOST: usize = 24;

struct Made {
    is_noted: AtomicBool,
    files: [KeptFd; MOST],
    file_count: AtomicUsize,
    /// Start and length.
    ranges: [[AtomicUsize; 2]; MOST],
    range_count: AtomicUsize,
}

static MADE: Made = Made {
    is_noted: AtomicBool::new(false),
    files: [const { KeptFd::none() }; MOST],
    file_count: AtomicUsize::new(0),
    ranges: [const { [const { AtomicUsize::new(0) }; 2] }; MOST],
    range_count: AtomicUsize::new(0),
};

pub fn begin() {
    MADE.is_noted.store(true, Relaxed);
}

/// From now on it is used.
pub fn end() {
    MADE.is_noted.store(false, Relaxed);
}

/// A descriptor; without room for the note it stays.
pub fn file(fd: i32) {
    if MADE.is_noted.load(Relaxed) {
        if let Some(place) = MADE.files.get(MADE.file_count.fetch_add(1, Relaxed)) {
            place.keep(fd);
        }
    }
}

/// A mapping.
pub fn range(start: usize, len: usize) {
    if MADE.is_noted.load(Relaxed) {
        if let Some(place) = MADE.ranges.get(MADE.range_count.fetch_add(1, Relaxed)) {
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
    // One that was closed, and whose number is another file's by now, is left.
    MADE.files.iter().filter(|file| file.number() >= 0).for_each(KeptFd::close);
    for [start, len] in &MADE.ranges {
        if start.load(Relaxed) != 0 {
            kernel_munmap(start.load(Relaxed), len.load(Relaxed));
        }
    }
    true
}
