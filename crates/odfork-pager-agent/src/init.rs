//! The library's constructor.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

use odfork_sys::{getpid, Errno};

use crate::state::{mode, STATE};
use crate::{any, fork_handlers, heap, messages, next_symbol, options, pins, unlimited};

/// Bytes from which on a mapping is taken over.
const THRESHOLD: &CStr = c"ODFORK_PAGE_THRESHOLD";

extern "C" fn init() {
    fork_handlers::register_handlers();
    if any::init() {
        return;
    }
    if !options::read_socket_path() {
        return;
    }
    if let Some(bytes) = options::number(THRESHOLD) {
        STATE.threshold.store(bytes.max(64 << 10), Relaxed);
    }
    STATE.pid.store(getpid(), Relaxed);
    STATE.mode.store(mode::FRESH, Relaxed);
    heap::read_options();
    unlimited::read_options();
    pins::read_options();
    next_symbol::look_who_is_first();
    if !next_symbol::is_first() {
        // None of its calls would come here to be told.
        STATE.mode.store(mode::OFF, Relaxed);
        messages::warn_not_paged(Errno(libc::EEXIST));
    }
}

#[used]
#[link_section = ".init_array"]
static INIT: extern "C" fn() = init;
