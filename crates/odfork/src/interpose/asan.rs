//! AddressSanitizer: when the memory of a program built with it may be frozen.
//!
//! Owns the question, asked once, in the constructor. Only clang's runtime is known, linked into
//! the program. Its heap is anonymous memory like any other; its shadow is left alone. It calls the
//! kernel past the C library: what it maps and unmaps so is seen at each pass. What it gives back
//! by `madvise` would not be, and old bytes would then show where it expects none. So the user must
//! have switched that off.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

use super::symbols::{self, Which};
use crate::engine;

/// Makes freed memory stay, with the value -1.
const RELEASE: &[u8] = b"allocator_release_to_os_interval_ms=";
/// Options that give memory back all the same, change the shadow, or are read from elsewhere.
const UNFIT: [&[u8]; 4] = [b"soft_rss_limit_mb", b"use_madv_dontdump", b"include", b"max_free_"];
/// Functions of the runtime; between them lie those that make its system calls.
const BEFORE: &CStr = c"__sanitizer_get_report_path";
const BEHIND: &CStr = c"__sanitizer_set_death_callback";
/// No longer than that is the code between them.
const LONGEST: usize = 1 << 20;

/// Remembers where the code is whose system calls are known, if the user's options allow it.
pub fn look() {
    // SAFETY: in the constructor nobody changes the environment.
    let options = unsafe { libc::getenv(c"ASAN_OPTIONS".as_ptr()) };
    if options.is_null() {
        return;
    }
    // SAFETY: a string of the environment.
    if !keeps_memory(unsafe { CStr::from_ptr(options) }.to_bytes()) {
        return;
    }
    symbols::visit(Which::Before, &mut |object| {
        let place = |name| object.function(name).unwrap_or(0);
        let (start, end) = (place(BEFORE), place(BEHIND));
        if start != 0 && end > start && end - start < LONGEST {
            let [from, to] = &engine::state().sanitizer;
            from.store(start, Relaxed);
            to.store(end, Relaxed);
        }
    });
}

/// `look` found everything as it must be.
pub fn is_fit() -> bool {
    engine::state().sanitizer[1].load(Relaxed) != 0
}

/// Freed memory stays with the process. The last of equal options counts.
fn keeps_memory(options: &[u8]) -> bool {
    let is_between = |byte: &u8| matches!(byte, b' ' | b',' | b':' | b'\n' | b'\t' | b'\r');
    let mut keeps = false;
    for option in options.split(is_between) {
        if UNFIT.iter().any(|unfit| option.starts_with(unfit)) {
            return false;
        }
        if let Some(value) = option.strip_prefix(RELEASE) {
            keeps = value == b"-1";
        }
    }
    keeps && !options.iter().any(|byte| matches!(byte, b'\'' | b'"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_keep_all_memory_will_do() {
        for fit in [
            "allocator_release_to_os_interval_ms=-1",
            "symbolize=0:allocator_release_to_os_interval_ms=-1:detect_leaks=0",
            "allocator_release_to_os_interval_ms=5,allocator_release_to_os_interval_ms=-1",
        ] {
            assert!(keeps_memory(fit.as_bytes()), "{fit}");
        }
        for unfit in [
            "",
            "detect_leaks=0",
            "allocator_release_to_os_interval_ms=5000",
            "allocator_release_to_os_interval_ms=-10",
            "allocator_release_to_os_interval_ms=-1:allocator_release_to_os_interval_ms=1",
            "allocator_release_to_os_interval_ms=-1:soft_rss_limit_mb=9",
            "include=file:allocator_release_to_os_interval_ms=-1",
            "log_path='a:allocator_release_to_os_interval_ms=-1'",
            "x_allocator_release_to_os_interval_ms=-1",
        ] {
            assert!(!keeps_memory(unfit.as_bytes()), "{unfit}");
        }
    }
}
