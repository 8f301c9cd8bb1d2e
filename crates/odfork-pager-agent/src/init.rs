//! Birth and end: the options, and the last word of a process that must not go on.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

use odfork_sys::{args, getpid, raw, Errno};

use crate::fork_handlers;
use crate::state::{mode, STATE};

/// Path of the supervisor's socket; without it the library does nothing.
const SOCKET: &CStr = c"ODFORK_PAGE_SOCKET";
/// Bytes from which on a mapping is taken over.
const THRESHOLD: &CStr = c"ODFORK_PAGE_THRESHOLD";

/// Our own copy: programs write titles over the strings of their environment.
struct Path(UnsafeCell<[u8; LONGEST]>);

// SAFETY: written while constructors run, only read afterwards.
unsafe impl Sync for Path {}

/// As long as an address can be.
const LONGEST: usize = 108;
static PATH: Path = Path(UnsafeCell::new([0; LONGEST]));

extern "C" fn init() {
    fork_handlers::register_handlers();
    // SAFETY: the environment is not changed by anybody while constructors run.
    let path = unsafe { libc::getenv(SOCKET.as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: a string of the environment; nobody else is here.
    unsafe {
        let path = CStr::from_ptr(path).to_bytes();
        if path.len() < LONGEST {
            (&mut *PATH.0.get())[..path.len()].copy_from_slice(path);
        }
    }
    if let Some(bytes) = number(THRESHOLD) {
        STATE.threshold.store(bytes.max(64 << 10), Relaxed);
    }
    STATE.pid.store(getpid(), Relaxed);
    STATE.mode.store(mode::FRESH, Relaxed);
    crate::heap::read_options();
    crate::pins::read_options();
}

#[used]
#[link_section = ".init_array"]
static INIT: extern "C" fn() = init;

/// A variable's value, when it is a number.
pub fn number(name: &CStr) -> Option<usize> {
    // SAFETY: as above.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string of the environment.
    unsafe { CStr::from_ptr(value) }.to_str().ok()?.parse().ok()
}

/// Empty: none was named, or one that is no address.
pub fn socket_path() -> &'static CStr {
    // SAFETY: nobody writes it any more.
    CStr::from_bytes_until_nul(unsafe { &*PATH.0.get() }).unwrap_or_default()
}

/// One line on standard error: the program runs, but without the limit it was started with.
pub fn warn_not_paged(why: Errno) {
    let reason: &[u8] = match why.0 {
        libc::EMFILE | libc::ENFILE => b"no descriptors are left for one more program, here or in the daemon: raise the limit of open files (ulimit -Hn where the daemon starts)",
        libc::ENOENT | libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE | libc::EPROTO => b"no daemon answers at ODFORK_PAGE_SOCKET: it was ended, or is of another version",
        libc::EACCES => b"the daemon does not serve this user: 'odfork page daemon --allow-uid'",
        libc::EPERM => b"userfaultfd is not allowed here, or somebody else listens at ODFORK_PAGE_SOCKET",
        _ => b"the daemon refused it; its log, beside its socket, may say why",
    };
    let parts: [&[u8]; 3] =
        [b"odfork page: this program is NOT paged and has no limit: ", reason, b"\n"];
    let line = parts
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: valid bytes; one call, so that lines of several programs do not mix.
    unsafe { raw(libc::SYS_writev, args![2, line.as_ptr(), line.len()]) };
}

/// Ends the process at once, with one line on standard error.
pub fn die(why: &[u8]) -> ! {
    loop {
        // SAFETY: writes valid bytes; then this process ends.
        unsafe {
            raw(libc::SYS_write, args![2, why.as_ptr(), why.len()]);
            raw(libc::SYS_kill, args![getpid(), libc::SIGKILL]);
        }
    }
}
