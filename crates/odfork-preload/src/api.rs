//! The C API. The header `include/odfork.h` is generated from this file.

use core::ffi::{c_char, c_int};

use odfork_runtime::reason::{Done, Stop};
use odfork_runtime::Text;

/// Statistics of the calling process. Times in nanoseconds, sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(non_camel_case_types)]
pub struct odfork_stats {
    /// Engine in use: 0 plain, 1 backing file of 4 KB pages, 2 backing file of huge pages.
    pub engine: u32,
    /// Why the latest pass was not made (index into the words of `odfork_reason`), 0 for none.
    pub reason: u32,
    /// Freezes: how often, time, bytes.
    pub freezes: u64,
    pub freeze_ns: u64,
    pub freeze_bytes: u64,
    /// Refreezes: written back in place, rebuilt in a new backing file, time, bytes.
    pub folds_in_place: u64,
    pub folds_rebuilt: u64,
    pub fold_ns: u64,
    pub fold_bytes: u64,
    /// Thaws: how often, bytes.
    pub thaws: u64,
    pub thaw_bytes: u64,
    /// Forks: successful, failed, latency (median and 99th percentile are upper ends of
    /// histogram buckets).
    pub forks: u64,
    pub forks_failed: u64,
    pub fork_min_ns: u64,
    pub fork_p50_ns: u64,
    pub fork_p99_ns: u64,
    pub fork_max_ns: u64,
    /// Dirty pages (4 KB) at the latest scan.
    pub dirty_pages: u64,
    /// Bytes written into backing files that are in use.
    pub image_bytes: u64,
    /// Bytes of address space that show backing files.
    pub frozen_bytes: u64,
}

fn answer(done: Done<()>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(Stop { errno, .. }) => {
            // SAFETY: libc's thread-local errno always exists.
            unsafe { *libc::__errno_location() = if errno > 0 { errno } else { libc::EAGAIN } };
            -1
        }
    }
}

/// fork(2) with the engine: the same returns, the same errno.
///
/// # Safety
/// As for fork(2): in the child of a multi-threaded process only async-signal-safe
/// functions may be called.
#[no_mangle]
pub unsafe extern "C" fn odfork_fork() -> c_int {
    // SAFETY: the caller's own fork, through the wrapper.
    unsafe { odfork_runtime::interpose::fork() }
}

/// Freezes the process's anonymous memory now, and refreezes what is dirty, whatever
/// the rental rule says. 0, or -1 with errno (EAGAIN when the reason is no system
/// call's; see odfork_reason()). After a failure memory is as it was or partly
/// frozen; its content never changes.
#[no_mangle]
pub extern "C" fn odfork_freeze() -> c_int {
    answer(odfork_runtime::freeze())
}

/// Writes dirty pages back now, and freezes what is new. As odfork_freeze().
#[no_mangle]
pub extern "C" fn odfork_refreeze() -> c_int {
    answer(odfork_runtime::freeze())
}

/// Turns all frozen memory back into anonymous memory with the same content.
/// 0, or -1 with errno.
#[no_mangle]
pub extern "C" fn odfork_thaw() -> c_int {
    answer(odfork_runtime::thaw())
}

/// Fills `out` with the first `size` bytes of the statistics (pass
/// sizeof(struct odfork_stats)). Returns the size this library knows, so that a
/// newer caller can tell which fields were filled.
///
/// # Safety
/// `out` is NULL or points to `size` writable bytes.
#[no_mangle]
pub unsafe extern "C" fn odfork_stats(out: *mut odfork_stats, size: usize) -> usize {
    let s = odfork_runtime::stats();
    let all = odfork_stats {
        engine: match s.engine {
            "huge" => 2,
            "small" => 1,
            _ => 0,
        },
        reason: s.reason as u32,
        freezes: s.freezes,
        freeze_ns: s.freeze_ns,
        freeze_bytes: s.freeze_bytes,
        folds_in_place: s.folds_in_place,
        folds_rebuilt: s.folds_rebuilt,
        fold_ns: s.fold_ns,
        fold_bytes: s.fold_bytes,
        thaws: s.thaws,
        thaw_bytes: s.thaw_bytes,
        forks: s.forks,
        forks_failed: s.forks_failed,
        fork_min_ns: s.fork_min_ns,
        fork_p50_ns: s.fork_p50_ns,
        fork_p99_ns: s.fork_p99_ns,
        fork_max_ns: s.fork_max_ns,
        dirty_pages: s.dirty_pages,
        image_bytes: s.image_bytes,
        frozen_bytes: s.frozen_bytes,
    };
    let whole = core::mem::size_of::<odfork_stats>();
    if !out.is_null() {
        // SAFETY: the caller vouches for `size` writable bytes at `out`.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (&raw const all).cast::<u8>(),
                out.cast(),
                size.min(whole),
            );
        }
    }
    whole
}

/// Writes the statistics as one JSON object (schema 1) with a closing zero byte
/// into `buf` of `len` bytes, cut if they do not fit. Returns the length needed
/// without the zero byte.
///
/// # Safety
/// `buf` is NULL or points to `len` writable bytes.
#[no_mangle]
pub unsafe extern "C" fn odfork_stats_json(buf: *mut c_char, len: usize) -> usize {
    let mut text = Text::<16384>::new();
    let _ = odfork_runtime::stats_json(&mut text);
    let bytes = text.bytes();
    if !buf.is_null() && len > 0 {
        let n = bytes.len().min(len - 1);
        // SAFETY: the caller vouches for `len` writable bytes at `buf`.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), n);
            *buf.add(n) = 0;
        }
    }
    bytes.len()
}

/// One sentence: why memory is not frozen, and what to do; empty when nothing
/// stood in the way. A constant string, never freed.
#[no_mangle]
pub extern "C" fn odfork_reason() -> *const c_char {
    REASONS[odfork_runtime::stats().reason as usize % REASONS.len()].as_ptr().cast()
}

const fn with_zero(text: &str) -> [u8; 160] {
    let (mut out, bytes, mut i) = ([0u8; 160], text.as_bytes(), 0);
    while i < bytes.len() && i < 159 {
        out[i] = bytes[i];
        i += 1;
    }
    out
}

static REASONS: [[u8; 160]; odfork_runtime::reason::REASONS] = {
    let mut all = [[0u8; 160]; odfork_runtime::reason::REASONS];
    let mut i = 0;
    while i < all.len() {
        all[i] = with_zero(odfork_runtime::reason::Reason::ALL[i].explain());
        i += 1;
    }
    all
};
