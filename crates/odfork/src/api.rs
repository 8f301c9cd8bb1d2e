//! The Rust API.
//!
//! The runtime needs its wrappers in the process: under `odfork run`, or with
//! this crate's feature `interpose`, which links them into the program. Without
//! them [`fork`] is fork(2) and [`freeze`] refuses, because an allocator's
//! `madvise` would meet frozen memory unseen.

use core::sync::atomic::Ordering::Relaxed;

use crate::reason::{Done, Reason};
use crate::stats::{write_json, Context};
use crate::{engine, sys};

/// Which side of a fork one is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fork {
    /// The parent.
    Parent {
        /// The pid to wait for.
        child: i32,
    },
    /// The child.
    Child,
}

/// fork(2) through the engine.
///
/// # Errors
/// The error number of fork(2): `EAGAIN` (limits), `ENOMEM`.
///
/// # Safety
/// As for fork(2): in the child of a multi-threaded process only
/// async-signal-safe functions may be called until exec or `_exit`.
pub unsafe fn fork() -> Result<Fork, i32> {
    // SAFETY: passed on to the caller; `libc::fork` is the wrapper where it is
    // linked or preloaded, else fork(2).
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid if pid > 0 => Ok(Fork::Parent { child: pid }),
        // SAFETY: libc's thread-local errno always exists.
        _ => Err(unsafe { *libc::__errno_location() }),
    }
}

/// Freezes the anonymous memory of this process now, and refreezes what is dirty,
/// whatever the rental rule says. Content never changes.
///
/// # Errors
/// Why not, or why not all of it: the reason, the step, the error number.
pub fn freeze() -> Done<()> {
    engine::freeze_now()
}

/// Refreezes dirty pages now and freezes what is new: the same as [`freeze`].
///
/// # Errors
/// As for [`freeze`].
pub fn refreeze() -> Done<()> {
    engine::freeze_now()
}

/// Turns all frozen memory back into anonymous memory with the same content.
///
/// # Errors
/// As for [`freeze`].
pub fn thaw() -> Done<()> {
    engine::thaw_all()
}

/// Figures of this process. Times in nanoseconds, sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// `plain`, `small` or `huge`.
    pub engine: &'static str,
    /// Why the latest pass did not happen.
    pub reason: Reason,
    /// Passes that froze new memory.
    pub freezes: u64,
    /// Their time.
    pub freeze_ns: u64,
    /// Bytes they froze.
    pub freeze_bytes: u64,
    /// Passes that wrote dirty pages back into files in use.
    pub folds_in_place: u64,
    /// Passes that put memory into new files, because children show the old ones.
    pub folds_rebuilt: u64,
    /// Time of both.
    pub fold_ns: u64,
    /// Bytes of both.
    pub fold_bytes: u64,
    /// Times that frozen memory was made anonymous again.
    pub thaws: u64,
    /// Bytes of these.
    pub thaw_bytes: u64,
    /// Forks that succeeded.
    pub forks: u64,
    /// Forks that the kernel refused.
    pub forks_failed: u64,
    /// The fastest fork(2) in the parent; 0 before the first.
    pub fork_min_ns: u64,
    /// Half of the forks were no slower. The end of a bucket, of which eight are a doubling.
    pub fork_p50_ns: u64,
    /// The same of 99 in 100.
    pub fork_p99_ns: u64,
    /// The slowest.
    pub fork_max_ns: u64,
    /// 4 KB pages found dirty at the latest scan.
    pub dirty_pages: u64,
    /// Bytes written into backing files in use.
    pub image_bytes: u64,
    /// Bytes of address space that show backing files.
    pub frozen_bytes: u64,
}

/// The statistics of this process so far.
pub fn stats() -> Statistics {
    let s = &engine::state().stats;
    let forks = s.forks.load(Relaxed);
    Statistics {
        engine: s.engine_word(),
        reason: s.reason(),
        freezes: s.freezes.load(Relaxed),
        freeze_ns: s.freeze_ns.load(Relaxed),
        freeze_bytes: s.freeze_bytes.load(Relaxed),
        folds_in_place: s.folds_in_place.load(Relaxed),
        folds_rebuilt: s.folds_rebuilt.load(Relaxed),
        fold_ns: s.fold_ns.load(Relaxed),
        fold_bytes: s.fold_bytes.load(Relaxed),
        thaws: s.thaws.load(Relaxed),
        thaw_bytes: s.thaw_bytes.load(Relaxed),
        forks,
        forks_failed: s.forks_failed.load(Relaxed),
        fork_min_ns: if forks == 0 { 0 } else { s.fork_min_ns.load(Relaxed) },
        fork_p50_ns: s.percentile(500),
        fork_p99_ns: s.percentile(990),
        fork_max_ns: s.fork_max_ns.load(Relaxed),
        dirty_pages: s.dirty_pages.load(Relaxed),
        image_bytes: s.image_bytes.load(Relaxed),
        frozen_bytes: s.frozen_bytes.load(Relaxed),
    }
}

/// The same as one JSON object with a line's end (schema 1, docs/statistics.md).
///
/// # Errors
/// Those of `out`.
pub fn stats_json(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    let (calls, injected) = engine::calls();
    let context = Context { pid: sys::getpid(), program: "", calls, injected };
    write_json(out, &engine::state().stats, &context)
}
